//! What pods must not reach.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::cluster::Cluster;
use super::pods::{main_status, once};

pub async fn root_directory(cluster: Cluster) {
    let script = "pwd; echo x > /trainyard-wrote-this; cat /trainyard-wrote-this; \
                  for d in /dev/kmsg /dev/mem /dev/loop-control; do test ! -e $d || echo sees $d; done; \
                  grep -q '^sysfs /sys sysfs ro' /proc/mounts || echo can write to /sys";
    cluster.create("pod", once(script)).await;
    cluster.until_phase("pod", "Succeeded").await;
    let wrote = Path::new("/trainyard-wrote-this");
    let is_written = wrote.exists();
    drop(std::fs::remove_file(wrote));
    assert!(!is_written, "the pod has written to the machine");
    assert_eq!(cluster.log("pod").await, "/\nx\n");
}

/// A container that puts a link into a volume, and one that asks for a part of the volume behind
/// the link.
pub async fn sub_path(cluster: Cluster) {
    let outside = std::env::current_dir().unwrap().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let mut spec = once("true");
    spec["volumes"] = json!([{"name": "shared", "emptyDir": {}}]);
    let script = format!("ln -s {} /v/link", outside.display());
    spec["initContainers"] = json!([{
        "name": "first", "image": "test", "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "shared", "mountPath": "/v"}],
    }]);
    spec["containers"][0]["volumeMounts"] =
        json!([{"name": "shared", "mountPath": "/v", "subPath": "link/made"}]);
    cluster.create("pod", spec).await;
    let waiting = |pod: &Pod| main_status(pod).state.and_then(|state| state.waiting);
    let is_refused = |pod: &Pod| {
        waiting(pod).is_some_and(|waiting| waiting.reason.as_deref() == Some("CreateContainerConfigError"))
    };
    let pod = cluster.until("pod", is_refused).await;
    let message = waiting(&pod).unwrap().message.unwrap();
    assert!(
        message.starts_with("subPath \"link/made\" of volume \"shared\" leads out of the volume"),
        "{message}"
    );
    assert_eq!(std::fs::read_dir(outside).unwrap().count(), 0);
    cluster.delete("pod").await;
}
