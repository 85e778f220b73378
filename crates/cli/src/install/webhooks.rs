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
    let jobs = Resource {
        group: GROUP,
        version: VERSION,
        plural: "trainingjobs",
    };
    let foreign = settings.compat.iter().map(|kind| Resource {
        group: kind.group(),
        version: kind.version(),
        plural: kind.plural(),
    });
    let mut defaulting = webhook(settings, "default", MUTATE_PATH, &jobs);
    defaulting["reinvocationPolicy"] = json!("Never");
    let validating = std::iter::once(jobs).chain(foreign);
    let validating = validating.map(|resource| webhook(settings, "validate", VALIDATE_PATH, &resource));
    vec![
        configuration("MutatingWebhookConfiguration", &[defaulting]),
        configuration("ValidatingWebhookConfiguration", &validating.collect::<Vec<_>>()),
    ]
}

/// What a webhook is about.
struct Resource {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
}

fn configuration(kind: &str, webhooks: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": names::cluster_metadata(WEBHOOK_CONFIGURATION),
        "webhooks": webhooks,
    })
}

fn webhook(settings: &Settings, what: &str, path: &str, resource: &Resource) -> Value {
    let Resource {
        group,
        version,
        plural,
    } = resource;
    let mut webhook = json!({
        "name": format!("{what}.{plural}.{group}"),
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
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": ["CREATE", "UPDATE"],
            // No subresource: writes of status never come here.
            "resources": [plural],
            "scope": "Namespaced",
        }],
        "failurePolicy": "Ignore",
        // Of another operator's kind only the version that is served is ours to judge.
        "matchPolicy": if *group == GROUP { "Equivalent" } else { "Exact" },
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
