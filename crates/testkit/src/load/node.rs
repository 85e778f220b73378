//! Nodes without a kubelet.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;

/// Creates ready nodes, unless they exist. Returns their names.
pub async fn nodes(client: &Client, count: usize) -> Result<Vec<String>> {
    let api: Api<Node> = Api::all(client.clone());
    let mut names = Vec::new();
    for number in 0..count {
        let name = format!("played-{number}");
        let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": name},
            "status": {"conditions": [{
                "type": "Ready",
                "status": "True",
                "reason": "Played",
                "lastHeartbeatTime": time,
                "lastTransitionTime": time,
            }]},
        }))?;
        match api.create(&PostParams::default(), &node).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).with_context(|| format!("node {name}")),
        }
        names.push(name);
    }
    Ok(names)
}
