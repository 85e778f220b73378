//! Starting a container without ever losing it.

use std::sync::Arc;

use crate::node::runtime::{Container, ContainerSpec, Error, Sandbox};

/// A container that nobody answers for yet: it ends with this.
#[derive(Debug)]
pub struct Unclaimed {
    container: Container,
    is_claimed: bool,
}

impl Unclaimed {
    /// Takes the container over.
    pub fn claim(mut self) -> Container {
        self.is_claimed = true;
        self.container.clone()
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if !self.is_claimed {
            self.container.kill();
        }
    }
}

/// Starts a container. If whoever waits for this is no more interested, then the container is ended as soon as it has
/// been started, which can't be interrupted.
pub async fn start_unclaimed(sandbox: Arc<Sandbox>, spec: ContainerSpec) -> Result<Unclaimed, Error> {
    let starting = tokio::spawn(async move {
        let started = sandbox.start(spec).await;
        started.map(|container| Unclaimed {
            container,
            is_claimed: false,
        })
    });
    starting.await.map_err(|error| Error::System {
        what: "start a container".to_owned(),
        source: std::io::Error::other(error),
    })?
}
