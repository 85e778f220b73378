//! The settings that decisions depend on, which may become known while the operator runs.

use std::sync::Arc;

use tokio::sync::watch;
use trainyard_core::view::{Agent, Settings};

/// Settings that are shared by all who decide.
#[derive(Clone, Debug, Default)]
pub struct SharedSettings(Arc<watch::Sender<Arc<Settings>>>);

impl SharedSettings {
    /// These settings.
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(settings))))
    }

    /// The settings now. One decision uses what one call returned.
    pub fn now(&self) -> Arc<Settings> {
        self.0.borrow().clone()
    }

    /// Pods that are made from now on have this agent.
    pub fn set_agent(&self, agent: Option<Agent>) {
        self.0
            .send_modify(|settings| Arc::make_mut(settings).agent = agent);
    }

    /// Jobs may have the right to start programs through the API server from now on.
    #[cfg(test)]
    pub(crate) fn allow_exec(&self) {
        self.0
            .send_modify(|settings| Arc::make_mut(settings).allows_exec = true);
    }

    /// The settings from now on.
    pub fn follow(&self) -> watch::Receiver<Arc<Settings>> {
        self.0.subscribe()
    }
}
