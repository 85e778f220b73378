//! The settings that decisions depend on, which may become known while the operator runs.

use std::sync::{Arc, PoisonError, RwLock};

use trainyard_core::view::{Agent, Settings};

/// Settings that are shared by all who decide.
#[derive(Clone, Debug, Default)]
pub struct SharedSettings(Arc<RwLock<Arc<Settings>>>);

impl SharedSettings {
    /// These settings.
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(settings))))
    }

    /// The settings now. One decision uses what one call returned.
    pub fn now(&self) -> Arc<Settings> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Pods that are made from now on have this agent.
    pub fn set_agent(&self, agent: Option<Agent>) {
        let mut settings = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut settings).agent = agent;
    }
}
