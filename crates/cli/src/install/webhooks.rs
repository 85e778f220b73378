//! The webhook configurations.
//!
//! An operator that is down, or being installed, blocks nobody: a call that fails is ignored (the
//! operator validates every job again and says in its status what is wrong), and deletions, changes
//! of metadata or status, and objects that are being deleted are not sent to the webhooks at all.
//!
//! Requests with a script are different: who has asked is known at admission alone. A call for one
//! that fails refuses it. An operator that does not know scripts has no such path, and refuses it
//! too.
//!
//! `caBundle` is absent: the operator writes it, and applying the manifests again does not remove
//! it.

use serde_json::{Value, json};
use trainyard_api::{GROUP, VERSION};
use trainyard_operator::options::Scripts;

use super::Settings;
use super::names::{self, WEBHOOK_CONFIGURATION, WEBHOOK_SERVICE};

const MUTATE_PATH: &str = "/mutate";
const VALIDATE_PATH: &str = "/validate";
const SCRIPTS_PATH: &str = "/scripts";

/// Both configurations; none if the installation has no webhooks.
pub fn objects(settings: &Settings) -> Vec<Value> {
    if !settings.webhooks {
        return Vec::new();
    }
    let jobs = Resource {
        group: GROUP,
        version: VERSION,
        plural: "trainingjobs",
        scope: "Namespaced",
    };
    let frameworks = Resource {
        plural: "frameworks",
        scope: "Cluster",
        ..jobs
    };
    let [scale_ins, scale_outs] = ["scaleins", "scaleouts"].map(|plural| Resource { plural, ..jobs });
    let foreign = settings.compat.iter().map(|kind| Resource {
        group: kind.group(),
        version: kind.version(),
        plural: kind.plural(),
        scope: "Namespaced",
    });
    let mut defaulting = webhook(settings, "default", MUTATE_PATH, &jobs);
    defaulting["reinvocationPolicy"] = json!("Never");
    let validating = [jobs, frameworks, scale_ins, scale_outs]
        .into_iter()
        .chain(foreign);
    let mut validating: Vec<Value> = validating
        .map(|resource| webhook(settings, "validate", VALIDATE_PATH, &resource))
        .collect();
    if settings.scripts == Scripts::Reviewed {
        validating.extend([scale_ins, scale_outs].map(|resource| of_scripts(settings, &resource)));
    }
    vec![
        configuration("MutatingWebhookConfiguration", &[defaulting]),
        configuration("ValidatingWebhookConfiguration", &validating),
    ]
}

#[derive(Clone, Copy)]
struct Resource {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    scope: &'static str,
}

fn configuration(kind: &str, webhooks: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": names::cluster_metadata(WEBHOOK_CONFIGURATION),
        "webhooks": webhooks,
    })
}

/// The webhook that reviews who asks for a script. None of its calls may be left out.
fn of_scripts(settings: &Settings, resource: &Resource) -> Value {
    let mut webhook = webhook(settings, "script", SCRIPTS_PATH, resource);
    webhook["failurePolicy"] = json!("Fail");
    webhook["matchConditions"] = json!([{
        "name": "has-a-new-script",
        "expression": "has(object.spec.script) && (request.operation == 'CREATE' || object.spec != oldObject.spec)",
    }]);
    webhook
}

fn webhook(settings: &Settings, what: &str, path: &str, resource: &Resource) -> Value {
    let Resource {
        group,
        version,
        plural,
        scope,
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
            "scope": scope,
        }],
        "failurePolicy": "Ignore",
        // Other versions of another operator's kind are not ours to validate.
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
    if !settings.watch_namespaces.is_empty() && *scope == "Namespaced" {
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
