//! What pods need to know of the agent: which image has it, and how it finds and knows the observer.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::sync::watch;
use trainyard_core::view::{Agent, Observer};

use crate::observer::OBSERVER_SERVICE;
use crate::settings::SharedSettings;

/// The agent in the operator's image.
pub const AGENT: &str = "/trainyard-agent";
/// The port of the Service through which pods reach the observer, as the manifests have it.
pub const OBSERVER_PORT: u16 = 9444;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Where the operator is.
pub(crate) struct Place {
    /// A client of its cluster.
    pub client: kube::Client,
    /// Its namespace.
    pub namespace: String,
    /// The image that has the agent, where somebody said so.
    pub image: Option<String>,
}

/// The agent of an image, of which nobody tells it anything yet.
pub(crate) fn agent(image: &str) -> Agent {
    Agent {
        image: image.to_owned(),
        image_pull_policy: None,
        may_be_root: false,
        command: vec![AGENT.to_owned()],
        observer: None,
    }
}

/// Has pods made with an agent as soon as its image is known, and with one that is told of its job as soon as all is known
/// that this takes, and anew when that changes. Until then pods that wait are made late, which only takes longer.
pub(crate) async fn announce(
    settings: SharedSettings,
    place: Place,
    mut authorities: watch::Receiver<Option<String>>,
) {
    let agent = match place.image {
        Some(image) => agent(&image),
        None => own_agent(&place.client, &place.namespace).await,
    };
    tracing::info!(
        image = agent.image,
        "pods that need the agent get it from this image"
    );
    loop {
        let authority = authorities.borrow_and_update().clone();
        let observer = authority.map(|authority| Observer {
            address: format!(
                "https://{OBSERVER_SERVICE}.{}.svc:{OBSERVER_PORT}",
                place.namespace
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

/// The agent in the image that this process was started from, asked for until it is known.
async fn own_agent(client: &kube::Client, namespace: &str) -> Agent {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut pause = FIRST_PAUSE;
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
        tracing::warn!(
            why,
            ?pause,
            "the image of the agent is not known yet; trying again"
        );
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The agent in the image of the main container. Others may have been put beside it.
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
