//! Starts containers so that none is left running when nobody waits for its start any more.

use std::sync::Arc;

use crate::node::runtime::{Container, ContainerSpec, Error, Sandbox};

/// Kills its container when dropped, unless somebody takes the container over.
#[derive(Debug)]
pub struct KillOnDrop {
    container: Container,
    is_disarmed: bool,
}

impl KillOnDrop {
    /// Takes the container over. It is not killed.
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

/// Starts a container, which can't be interrupted. If this future is dropped meanwhile, the
/// container is killed as soon as it has started.
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
