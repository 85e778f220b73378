//! The webhook configurations.
//!
//! They are made so that an operator that is down, or being installed, keeps nobody from doing anything: a call that
//! fails is ignored (the operator validates every job again itself and says in its status what is wrong), and
//! deletions, changes of metadata or status, and objects that are on their way out are not sent to it at all.
//!
//! `caBundle` is absent: the operator writes it, and applying the manifests again leaves alone what they do not name.

use serde_json::{Value, json};
use trainyard_api::{GROUP, VERSION};

use super::Settings;
use super::names::{self, WEBHOOK_CONFIGURATION, WEBHOOK_SERVICE};

/// Where the operator serves the defaulting webhook.
const MUTATE_PATH: &str = "/mutate";
/// Where the operator serves the validating webhook.
const VALIDATE_PATH: &str = "/validate";

/// Both configurations, or none.
pub fn objects(settings: &Settings) -> Vec<Value> {
    if !settings.webhooks {
        return Vec::new();
    }
    let mut defaulting = webhook(settings, "default", MUTATE_PATH);
    defaulting["reinvocationPolicy"] = json!("Never");
    let validating = webhook(settings, "validate", VALIDATE_PATH);
    vec![
        configuration("MutatingWebhookConfiguration", &defaulting),
        configuration("ValidatingWebhookConfiguration", &validating),
    ]
}

fn configuration(kind: &str, webhook: &Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": names::cluster_metadata(WEBHOOK_CONFIGURATION),
        "webhooks": [webhook],
    })
}

fn webhook(settings: &Settings, what: &str, path: &str) -> Value {
    let mut webhook = json!({
        "name": format!("{what}.trainingjobs.{GROUP}"),
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {
                "name": WEBHOOK_SERVICE,
                "namespace": settings.namespace,
                "path": path,
                "port": 443,
            },
        },
        "rules": [{
            "apiGroups": [GROUP],
            "apiVersions": [VERSION],
            "operations": ["CREATE", "UPDATE"],
            // No subresource: writes of status never come here.
            "resources": ["trainingjobs"],
            "scope": "Namespaced",
        }],
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "matchConditions": [
            {"name": "not-being-deleted", "expression": "!has(object.metadata.deletionTimestamp)"},
            {
                "name": "spec-is-new",
                "expression": "request.operation == 'CREATE' || object.spec != oldObject.spec",
            },
        ],
    });
    if !settings.watch_namespaces.is_empty() {
        webhook["namespaceSelector"] = json!({
            "matchExpressions": [{
                "key": "kubernetes.io/metadata.name",
                "operator": "In",
                "values": settings.watch_namespaces,
            }],
        });
    }
    webhook
}
