//! The node of a container, for logs and exec.

use std::sync::Arc;

use crate::api::Api;
use crate::api::access::{NodeAccess, PodRef};
use crate::api::error::StatusError;
use crate::api::semantics::Target;
use crate::api::status;
use crate::api::store::{Object, Stored};

pub(super) struct ContainerLocation {
    stored: Arc<Stored>,
    pub(super) container: String,
    pub(super) node: Arc<dyn NodeAccess>,
}

impl ContainerLocation {
    pub(super) fn find(
        api: &Api,
        target: &Target<'_>,
        name: &str,
        wanted: Option<&str>,
    ) -> Result<Self, StatusError> {
        let stored = target.stored(name)?;
        let pod = stored.object();
        let container = container(name, &pod, wanted)?;
        let node = pod
            .get("spec")
            .and_then(|spec| spec.get("nodeName")?.as_str())
            .unwrap_or_default();
        if node.is_empty() {
            return Err(status::bad_request(format!(
                "pod {name} does not have a host assigned"
            )));
        }
        let Some(node) = api.node(node) else {
            return Err(status::internal(format!(
                "node {node:?} can't be asked about its pods: it is not there"
            )));
        };
        Ok(Self {
            stored,
            container,
            node,
        })
    }

    pub(super) fn pod(&self) -> PodRef<'_> {
        let head = &self.stored.head;
        PodRef {
            namespace: &head.namespace,
            name: &head.name,
            uid: &head.uid,
        }
    }
}

/// The named container, or the only one, init containers aside.
fn container(name: &str, pod: &Object, wanted: Option<&str>) -> Result<String, StatusError> {
    let named = |list: &str| -> Vec<String> {
        let containers = pod
            .get("spec")
            .and_then(|spec| spec.get(list)?.as_array())
            .into_iter()
            .flatten();
        let names = containers.filter_map(|container| container.get("name")?.as_str());
        names.map(ToOwned::to_owned).collect()
    };
    let (usual, init) = (named("containers"), named("initContainers"));
    match (wanted, usual.as_slice()) {
        (Some(wanted), _) if usual.iter().chain(&init).any(|one| one == wanted) => Ok(wanted.to_owned()),
        (Some(wanted), _) => Err(status::bad_request(format!(
            "container {wanted} is not valid for pod {name}"
        ))),
        (None, [only]) => Ok(only.clone()),
        (None, _) => {
            let (usual, init) = (usual.join(" "), init.join(" "));
            let others = if init.is_empty() {
                String::new()
            } else {
                format!(" or one of the init containers: [{init}]")
            };
            Err(status::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{usual}]{others}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_only_container_need_not_be_named() {
        let pod = |spec: Value| {
            let annotations = json!({"kubectl.kubernetes.io/default-container": "b"});
            let pod = json!({"metadata": {"annotations": annotations}, "spec": spec});
            pod.as_object().unwrap().clone()
        };
        let found = |pod: &Object, wanted| container("p", pod, wanted).map_err(|refusal| refusal.message);
        let one = pod(json!({"containers": [{"name": "a"}]}));
        assert_eq!(found(&one, None).unwrap(), "a");
        let after_another = pod(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}));
        assert_eq!(found(&after_another, None).unwrap(), "a");
        assert_eq!(found(&after_another, Some("i")).unwrap(), "i");
        // The annotation is for clients: servers do not read it.
        let two =
            pod(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}, {"name": "b"}]}));
        assert_eq!(
            found(&two, None).unwrap_err(),
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]"
        );
        assert_eq!(found(&two, Some("b")).unwrap(), "b");
        assert_eq!(
            found(&two, Some("c")).unwrap_err(),
            "container c is not valid for pod p"
        );
    }
}
