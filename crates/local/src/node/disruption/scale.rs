//! How many pods the controllers of some pods want.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, TypeMeta};
use kube::{Api, Client};

use super::PodState;

/// How many pods the controllers of some pods want, together. Pods without a controller do not
/// count.
pub(super) async fn expected(
    client: &Client,
    namespace: &str,
    pods: &[(&str, &PodState)],
) -> Result<i32, String> {
    let mut wanted = HashMap::new();
    for (name, pod) in pods {
        let Some(owner) = &pod.controller else { continue };
        if !wanted.contains_key(&owner.uid) {
            let replicas = replicas(client, namespace, name, owner).await?;
            wanted.insert(owner.uid.clone(), replicas);
        }
    }
    Ok(wanted.values().sum())
}

/// How many pods the controller of a pod wants, or why that is not known, in the words of
/// Kubernetes.
async fn replicas(
    client: &Client,
    namespace: &str,
    pod: &str,
    owner: &OwnerReference,
) -> Result<i32, String> {
    let types = TypeMeta {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
    };
    let kind = GroupVersionKind::try_from(types).map_err(|error| error.to_string())?;
    let resource = ApiResource::from_gvk(&kind);
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    match api.get_scale(&owner.name).await {
        Ok(scale) if scale.metadata.uid.as_deref() == Some(&owner.uid) => {
            Ok(scale.spec.and_then(|spec| spec.replicas).unwrap_or(0))
        }
        Ok(_) => Err(format!("found no controllers for pod {pod:?}")),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(format!(
            "{}.{} does not implement the scale subresource",
            resource.plural, resource.group
        )),
        Err(error) => Err(error.to_string()),
    }
}
