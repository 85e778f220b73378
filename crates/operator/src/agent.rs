//! The agent in pods: its image, and how it finds and authenticates the observer.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::sync::watch;
use trainyard_core::view::{Agent, ObserverEndpoint};

use crate::backoff::Backoff;
use crate::observer::OBSERVER_SERVICE;
use crate::settings::SharedSettings;

/// The agent in the operator's image.
pub const AGENT: &str = "/trainyard-agent";
/// The port of the Service through which pods reach the observer, as the manifests have it.
pub const OBSERVER_PORT: u16 = 9444;

const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(100),
    max: Duration::from_secs(30),
};

/// What the image of the agent is found by.
pub(crate) struct AgentSource {
    pub client: kube::Client,
    /// The operator's namespace.
    pub namespace: String,
    /// The image that has the agent, if it is configured.
    pub image: Option<String>,
}

/// Returns the agent of an image, without an observer.
pub(crate) fn agent(image: &str) -> Agent {
    Agent {
        image: image.to_owned(),
        image_pull_policy: None,
        may_be_root: false,
        command: vec![AGENT.to_owned()],
        observer: None,
    }
}

/// Sets the agent of new pods as soon as its image is known, and its observer as soon as the
/// authorities are known and whenever they change. Until then pods that wait for others are created
/// later.
pub(crate) async fn keep_current(
    settings: SharedSettings,
    source: AgentSource,
    mut authorities: watch::Receiver<Option<String>>,
) {
    let agent = match source.image {
        Some(image) => agent(&image),
        None => own_agent(&source.client, &source.namespace).await,
    };
    tracing::info!(
        image = agent.image,
        "pods that need the agent get it from this image"
    );
    loop {
        let authority = authorities.borrow_and_update().clone();
        let observer = authority.map(|authority| ObserverEndpoint {
            address: format!(
                "https://{OBSERVER_SERVICE}.{}.svc:{OBSERVER_PORT}",
                source.namespace
            ),
            authority,
        });
        settings.set_agent(Some(Agent {
            observer,
            ..agent.clone()
        }));
        if authorities.changed().await.is_err() {
            return;
        }
    }
}

/// Returns the agent in the image of this process. Tries until the API server tells that image.
async fn own_agent(client: &kube::Client, namespace: &str) -> Agent {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut failures = 0;
    loop {
        let why = match std::env::var("POD_NAME") {
            Ok(name) => match pods.get(&name).await {
                Ok(pod) => match agent_of(&pod) {
                    Some(agent) => return agent,
                    None => "its pod has no container".to_owned(),
                },
                Err(error) => error.to_string(),
            },
            Err(_) => "POD_NAME is not set; give the image with --agent-image".to_owned(),
        };
        failures += 1;
        let pause = BACKOFF.pause(failures, 0.0);
        tracing::warn!(
            why,
            ?pause,
            "the image of the agent is not known yet; trying again"
        );
        tokio::time::sleep(pause).await;
    }
}

/// Returns the agent in the image of the main container. Others may have been injected beside it.
fn agent_of(pod: &Pod) -> Option<Agent> {
    let containers = &pod.spec.as_ref()?.containers;
    let main = containers.iter().find(|container| container.name == "operator");
    let main = main.or_else(|| containers.first())?;
    Some(Agent {
        image_pull_policy: main.image_pull_policy.clone(),
        may_be_root: false,
        ..agent(main.image.as_deref()?)
    })
}
