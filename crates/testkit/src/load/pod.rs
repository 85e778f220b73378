//! The few fields of a pod that a kubelet's player needs.

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlimPod {
    pub metadata: SlimMeta,
    pub spec: SlimSpec,
    #[serde(default)]
    pub status: SlimStatus,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlimMeta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    #[serde(default)]
    pub deletion_timestamp: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlimSpec {
    #[serde(default)]
    pub node_name: Option<String>,
    pub containers: Vec<SlimContainer>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct SlimContainer {
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct SlimStatus {
    #[serde(default)]
    pub phase: String,
}
