//! Starts containers so that none is left when the start is cancelled.

use std::sync::Arc;

use crate::node::runtime::{Container, ContainerSpec, Error, Sandbox};

/// Kills its container when dropped.
#[derive(Debug)]
pub struct KillOnDrop {
    container: Container,
    is_disarmed: bool,
}

impl KillOnDrop {
    /// Returns the container, which is not killed then.
    pub fn disarm(mut self) -> Container {
        self.is_disarmed = true;
        self.container.clone()
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if !self.is_disarmed {
            self.container.kill();
        }
    }
}

/// Starts a container. If this future is dropped meanwhile, the container is killed as soon as it
/// has started.
pub async fn start_guarded(sandbox: Arc<Sandbox>, spec: ContainerSpec) -> Result<KillOnDrop, Error> {
    let starting = tokio::spawn(async move {
        let started = sandbox.start(spec).await;
        started.map(|container| KillOnDrop {
            container,
            is_disarmed: false,
        })
    });
    starting.await.map_err(|error| Error::System {
        what: "start a container".to_owned(),
        source: std::io::Error::other(error),
    })?
}
