//! Nodes without a kubelet.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

/// Creates ready nodes, unless they exist. Returns their names.
pub async fn nodes(client: &Client, count: usize) -> Result<Vec<String>> {
    let names: Vec<String> = (0..count).map(|number| format!("played-{number}")).collect();
    create_nodes(client, &names).await?;
    Ok(names)
}

/// Creates ready nodes of some names, unless they exist.
pub async fn create_nodes(client: &Client, names: &[String]) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    for name in names {
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
    }
    Ok(())
}

/// Removes nodes.
pub async fn remove_nodes(client: &Client, names: &[String]) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    for name in names {
        match api.delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).with_context(|| format!("node {name}")),
        }
    }
    Ok(())
}

/// Cordons a node.
pub async fn cordon(client: &Client, name: &str) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    api.patch(name, &PatchParams::default(), &patch)
        .await
        .with_context(|| format!("node {name}"))?;
    Ok(())
}
