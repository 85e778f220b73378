//! The settings that decisions depend on. They may change while the operator runs.

use std::sync::Arc;

use tokio::sync::watch;
use trainyard_core::view::{Agent, Settings};

#[derive(Clone, Debug, Default)]
pub struct SharedSettings(Arc<watch::Sender<Arc<Settings>>>);

impl SharedSettings {
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(settings))))
    }

    /// Returns the present settings. A decision must use those of one call.
    pub fn now(&self) -> Arc<Settings> {
        self.0.borrow().clone()
    }

    /// Sets the agent of pods that are created from now on.
    pub fn set_agent(&self, agent: Option<Agent>) {
        self.0
            .send_modify(|settings| Arc::make_mut(settings).agent = agent);
    }

    #[cfg(test)]
    pub(crate) fn allow_exec(&self) {
        self.0
            .send_modify(|settings| Arc::make_mut(settings).allows_exec = true);
    }

    /// Follows the settings from now on.
    pub fn follow(&self) -> watch::Receiver<Arc<Settings>> {
        self.0.subscribe()
    }
}
