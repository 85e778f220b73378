//! Names and labels of what an installation consists of.

use serde_json::{Value, json};

/// The namespace if none is given.
pub const DEFAULT_NAMESPACE: &str = "trainyard-system";
/// The Deployment, its service account and its disruption budget, the lease, and the rights that
/// every installation has.
pub const OPERATOR: &str = "trainyard-operator";
/// The rights on jobs and their children: cluster-wide, or in each watched namespace.
pub const JOBS_ROLE: &str = "trainyard-jobs";
/// The right to record events about Frameworks, if the operator watches only some namespaces.
pub const EVENTS_ROLE: &str = "trainyard-events";
/// Where events about objects that belong to no namespace are.
pub const EVENTS_NAMESPACE: &str = "default";
/// The Service through which the API server calls the webhooks.
pub const WEBHOOK_SERVICE: &str = "trainyard-webhook";
/// The Service through which pods reach the observer.
pub const OBSERVER_SERVICE: &str = trainyard_operator::observer::OBSERVER_SERVICE;
/// The Service through which programs reach what AresOperator's observer serves. They look for this
/// name.
pub const ARES_OBSERVER_SERVICE: &str = trainyard_operator::observer::ARES_OBSERVER_SERVICE;
/// The Secret in which the operator keeps its certificates.
pub const WEBHOOK_SECRET: &str = "trainyard-webhook-tls";
/// Both webhook configurations.
pub const WEBHOOK_CONFIGURATION: &str = "trainyard";
/// What may be read by everybody who may read pods.
pub const VIEW_ROLE: &str = "trainyard-view";
/// What may be changed by everybody who may change pods.
pub const EDIT_ROLE: &str = "trainyard-edit";

/// The labels by which the operator's pods are selected.
///
/// `app.kubernetes.io/managed-by: trainyard` must not be among them, nor on any Service: that label
/// marks the children of jobs, and the operator watches all that carries it.
pub fn selector() -> Value {
    json!({
        "app.kubernetes.io/name": "trainyard",
        "app.kubernetes.io/component": "operator",
    })
}

/// The labels of every object of an installation.
pub fn labels() -> Value {
    json!({
        "app.kubernetes.io/name": "trainyard",
        "app.kubernetes.io/component": "operator",
        "app.kubernetes.io/part-of": "trainyard",
    })
}

/// The metadata of an object that belongs to no namespace.
pub fn cluster_metadata(name: &str) -> Value {
    json!({"name": name, "labels": labels()})
}

/// The metadata of an object in a namespace.
pub fn metadata(name: &str, namespace: &str) -> Value {
    json!({"name": name, "namespace": namespace, "labels": labels()})
}
