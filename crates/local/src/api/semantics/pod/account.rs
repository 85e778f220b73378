//! The service account of a pod, and its token.

use serde_json::{Map, Value, json};

use crate::api::Shared;
use crate::api::error::StatusError;
use crate::api::meta;
use crate::api::status;
use crate::api::store::{Object, key};

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME: &str = "kube-api-access-";
/// An hour and 7 seconds, by which an automatic token is recognized.
const TOKEN_SECONDS: i64 = 3607;

/// Sets the service account, which must exist.
pub(super) fn admit(object: &mut Object, shared: &Shared) -> Result<(), StatusError> {
    let namespace = meta::text(object, "namespace").to_owned();
    let pod = meta::text(object, "name").to_owned();
    let spec = meta::member(object, "spec");
    let named = |name: &str| {
        spec.get(name)
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty())
    };
    let account = named("serviceAccountName")
        .or(named("serviceAccount"))
        .unwrap_or("default")
        .to_owned();
    let (Some(accounts), Some(pods)) = (
        shared.kinds.get("v1", "serviceaccounts"),
        shared.kinds.get("v1", "pods"),
    ) else {
        return Ok(());
    };
    let Some(found) = shared.store.get(accounts.table, &key(&namespace, &account)) else {
        let why = format!(
            "error looking up service account {namespace}/{account}: serviceaccount {account:?} not found"
        );
        return Err(status::forbidden(&pods, &pod, &why));
    };
    for name in ["serviceAccountName", "serviceAccount"] {
        spec.insert(name.into(), account.clone().into());
    }
    let found = found.object();
    let wanted = spec
        .get("automountServiceAccountToken")
        .or(found.get("automountServiceAccountToken"));
    if wanted != Some(&Value::Bool(false)) {
        let volume = meta::generated(VOLUME, shared.environment.number());
        mount_token(spec, &volume);
    }
    if spec
        .get("imagePullSecrets")
        .and_then(Value::as_array)
        .is_none_or(Vec::is_empty)
        && let Some(secrets) = found.get("imagePullSecrets")
    {
        spec.insert("imagePullSecrets".into(), secrets.clone());
    }
    Ok(())
}

/// Mounts the token into each container, unless something else is mounted there.
fn mount_token(spec: &mut Map<String, Value>, new: &str) {
    let volumes = spec
        .get("volumes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let known = volumes
        .filter_map(|volume| volume.get("name")?.as_str())
        .find(|name| name.starts_with(VOLUME));
    let (name, exists) = (known.unwrap_or(new).to_owned(), known.is_some());
    let mut used = false;
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            let Some(mounts) = mounts.as_array_mut() else {
                continue;
            };
            let is_there = |mount: &Value| mount.get("mountPath").and_then(Value::as_str) == Some(MOUNT_PATH);
            if !mounts.iter().any(is_there) {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
                used = true;
            }
        }
    }
    if !used || exists {
        return;
    }
    let volume = json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": crate::api::semantics::namespace::AUTHORITY, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}});
    let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
    if let Some(volumes) = volumes.as_array_mut() {
        volumes.push(volume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(spec: Value) -> Value {
        let Value::Object(mut spec) = spec else {
            return Value::Null;
        };
        mount_token(&mut spec, "kube-api-access-x");
        Value::Object(spec)
    }

    #[test]
    fn containers_find_their_token_unless_something_is_in_its_place() {
        let spec = mounted(json!({
            "volumes": [{"name": "own", "emptyDir": {}}],
            "initContainers": [{"name": "a"}],
            "containers": [{"name": "b", "volumeMounts": [{"name": "own", "mountPath": MOUNT_PATH}]}],
        }));
        let mount = json!([{"name": "kube-api-access-x", "readOnly": true, "mountPath": MOUNT_PATH}]);
        assert_eq!(spec["initContainers"][0]["volumeMounts"], mount);
        assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], "own");
        assert_eq!(spec["volumes"][1]["name"], "kube-api-access-x");

        let own =
            json!({"containers": [{"name": "b", "volumeMounts": [{"name": "v", "mountPath": MOUNT_PATH}]}]});
        assert_eq!(mounted(own.clone()), own);

        // A pod that was copied from one that is there has the volume already.
        let copied =
            mounted(json!({"volumes": [{"name": "kube-api-access-y"}], "containers": [{"name": "b"}]}));
        assert_eq!(copied["volumes"].as_array().map(Vec::len), Some(1));
        assert_eq!(
            copied["containers"][0]["volumeMounts"][0]["name"],
            "kube-api-access-y"
        );
    }
}
