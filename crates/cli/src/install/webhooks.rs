//! The webhook configurations.
//!
//! An operator that is down, or being installed, blocks nobody: a call that fails is ignored (the
//! operator validates every job again and says in its status what is wrong), and deletions, changes
//! of metadata or status, and objects that are being deleted are not sent to the webhooks at all.
//!
//! Requests with a script are different: who has asked is known at admission alone. A call for one
//! that fails refuses it. An operator that does not know scripts has no such path, and refuses it
//! too. Requests of other operators' kinds are reviewed in the same way. The operator makes one of
//! ours of each, which is not reviewed again: who has asked was reviewed before.
//!
//! `caBundle` is absent: the operator writes it, and applying the manifests again does not remove
//! it.

use serde_json::{Value, json};
use trainyard_api::{GROUP, VERSION};
use trainyard_core::foreign::{ChildKind, ForeignKind};
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
    let foreign = settings.compat.iter().map(|kind| Resource::of(*kind));
    let foreign_requests = settings.compat.iter().filter(|kind| makes_requests(**kind));
    let foreign_requests: Vec<Resource> = foreign_requests.map(|kind| Resource::of(*kind)).collect();
    let mut defaulting = webhook(settings, "default", MUTATE_PATH, &jobs);
    defaulting["reinvocationPolicy"] = json!("Never");
    let validating = [jobs, frameworks, scale_ins, scale_outs]
        .into_iter()
        .chain(foreign);
    let mut validating: Vec<Value> = validating
        .map(|resource| webhook(settings, "validate", VALIDATE_PATH, &resource))
        .collect();
    if settings.scripts == Scripts::Reviewed {
        let is_made_by_us = !foreign_requests.is_empty();
        let ours = [scale_ins, scale_outs].map(|resource| of_scripts(settings, &resource, is_made_by_us));
        let foreign = foreign_requests
            .iter()
            .map(|resource| of_scripts(settings, resource, false));
        validating.extend(ours.into_iter().chain(foreign));
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

impl Resource {
    fn of(kind: &'static dyn ForeignKind) -> Self {
        Self {
            group: kind.group(),
            version: kind.version(),
            plural: kind.plural(),
            scope: "Namespaced",
        }
    }
}

/// Whether the operator makes requests of ours of the objects of a kind.
fn makes_requests(kind: &dyn ForeignKind) -> bool {
    matches!(kind.child_kind(), ChildKind::Request(_))
}

fn configuration(kind: &str, webhooks: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": names::cluster_metadata(WEBHOOK_CONFIGURATION),
        "webhooks": webhooks,
    })
}

/// The webhook that reviews who asks for a script. None of its calls may be left out but, where the
/// operator makes such requests of others that were reviewed, its own.
fn of_scripts(settings: &Settings, resource: &Resource, is_made_by_us: bool) -> Value {
    let mut webhook = webhook(settings, "script", SCRIPTS_PATH, resource);
    webhook["failurePolicy"] = json!("Fail");
    let mut conditions = vec![json!({
        "name": "has-a-new-script",
        "expression": "has(object.spec.script) && (request.operation == 'CREATE' || object.spec != oldObject.spec)",
    })];
    if is_made_by_us {
        let account = format!("system:serviceaccount:{}:{}", settings.namespace, names::OPERATOR);
        conditions.push(json!({
            "name": "not-made-of-a-reviewed-one",
            "expression": format!("request.userInfo.username != '{account}'"),
        }));
    }
    webhook["matchConditions"] = conditions.into();
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
