//! Network policies: who reaches the operator.

use serde_json::{Value, json};
use trainyard_api::names::{LABEL_MANAGED_BY, MANAGED_BY};

use super::Settings;
use super::names::{self, OPERATOR};
use super::workload::{ARES_OBSERVER_PORT, HTTP_PORT, OBSERVER_PORT, WEBHOOK_PORT};

/// The policy for the operator's pods, if it is wanted.
pub fn objects(settings: &Settings) -> Vec<Value> {
    if !settings.network_policies {
        return Vec::new();
    }
    vec![json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": names::metadata(OPERATOR, &settings.namespace),
        "spec": {
            "podSelector": {"matchLabels": names::selector()},
            "policyTypes": ["Ingress"],
            "ingress": ingress(settings),
        },
    })]
}

fn ingress(settings: &Settings) -> Vec<Value> {
    // API servers, kubelets and whatever collects metrics are no pods, or have labels that nobody
    // here knows.
    let mut open = vec![port(HTTP_PORT)];
    if settings.webhooks {
        open.push(port(WEBHOOK_PORT));
    }
    let mut of_jobs = Vec::new();
    if settings.agent {
        of_jobs.push(port(OBSERVER_PORT));
    }
    if settings.ares_observer {
        of_jobs.push(port(ARES_OBSERVER_PORT));
    }
    let mut rules = vec![json!({"ports": open})];
    if !of_jobs.is_empty() {
        rules.push(json!({"from": [pods_of_jobs(settings)], "ports": of_jobs}));
    }
    rules
}

fn port(number: u16) -> Value {
    json!({"port": number, "protocol": "TCP"})
}

fn pods_of_jobs(settings: &Settings) -> Value {
    let namespaces = if settings.watch_namespaces.is_empty() {
        json!({})
    } else {
        json!({"matchExpressions": [{
            "key": "kubernetes.io/metadata.name",
            "operator": "In",
            "values": settings.watch_namespaces,
        }]})
    };
    json!({
        "namespaceSelector": namespaces,
        "podSelector": {"matchLabels": {LABEL_MANAGED_BY: MANAGED_BY}},
    })
}
