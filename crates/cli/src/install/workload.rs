//! The namespace and the operator's own pods.

use serde_json::{Value, json};
use trainyard_operator::budget::LIMIT;
use trainyard_operator::options::Scripts;

use super::Settings;
use super::names::{self, ARES_OBSERVER_SERVICE, OBSERVER_SERVICE, OPERATOR, WEBHOOK_SERVICE};

/// The port of `/healthz`, `/readyz` and `/metrics`.
pub(super) const HTTP_PORT: u16 = 8080;
pub(super) const WEBHOOK_PORT: u16 = 9443;
pub(super) const OBSERVER_PORT: u16 = trainyard_operator::OBSERVER_PORT;
pub(super) const ARES_OBSERVER_PORT: u16 = trainyard_operator::observer::ARES_OBSERVER_PORT;
const ARES_OBSERVER: &str = "ares-observer";
/// The user and group of the process: any that is not root, and the same in every cluster.
const USER: u32 = 65_532;

/// The namespace. Its labels enforce the restricted profile on all of its pods.
pub fn namespace(settings: &Settings) -> Value {
    let mut metadata = names::cluster_metadata(&settings.namespace);
    for mode in ["enforce", "audit", "warn"] {
        metadata["labels"][format!("pod-security.kubernetes.io/{mode}")] = json!("restricted");
    }
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

/// The Deployment, its disruption budget, and the Services for its webhooks and its observers.
pub fn objects(settings: &Settings) -> Vec<Value> {
    let mut objects = vec![deployment(settings), disruption_budget(settings)];
    if settings.webhooks {
        objects.push(webhook_service(settings));
    }
    if settings.agent {
        objects.push(observer_service(settings));
    }
    if settings.ares_observer {
        objects.push(ares_observer_service(settings));
    }
    objects
}

fn deployment(settings: &Settings) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": names::metadata(OPERATOR, &settings.namespace),
        "spec": {
            "replicas": settings.replicas,
            "selector": {"matchLabels": names::selector()},
            "template": {
                "metadata": {
                    "labels": names::labels(),
                    "annotations": {"kubectl.kubernetes.io/default-container": "operator"},
                },
                "spec": {
                    "serviceAccountName": OPERATOR,
                    "enableServiceLinks": false,
                    "terminationGracePeriodSeconds": 30,
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": USER,
                        "runAsGroup": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "topologySpreadConstraints": [{
                        "maxSkew": 1,
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": names::selector()},
                    }],
                    "containers": [container(settings)],
                },
            },
        },
    })
}

fn container(settings: &Settings) -> Value {
    let mut ports = vec![json!({"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"})];
    if settings.webhooks {
        ports.push(json!({"name": "webhook", "containerPort": WEBHOOK_PORT, "protocol": "TCP"}));
    }
    if settings.agent {
        ports.push(json!({"name": "observer", "containerPort": OBSERVER_PORT, "protocol": "TCP"}));
    }
    if settings.ares_observer {
        ports.push(json!({"name": ARES_OBSERVER, "containerPort": ARES_OBSERVER_PORT, "protocol": "TCP"}));
    }
    json!({
        "name": "operator",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "args": args(settings),
        "env": [field_env("POD_NAME", "metadata.name"), field_env("POD_NAMESPACE", "metadata.namespace")],
        "ports": ports,
        "livenessProbe": probe("/healthz", 3),
        "readinessProbe": probe("/readyz", 2),
        // No limit on CPU: a throttled leader loses its lease.
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": format!("{}Mi", LIMIT >> 20)}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}

fn args(settings: &Settings) -> Vec<String> {
    let mut args = vec!["operator".to_owned(), "--leader-elect".to_owned()];
    if settings.webhooks {
        args.push("--webhooks".to_owned());
    }
    if settings.agent {
        args.push("--observer".to_owned());
    }
    if settings.ares_observer {
        args.push(format!("--ares-observer-address=0.0.0.0:{ARES_OBSERVER_PORT}"));
    }
    if !settings.compat.is_empty() {
        let mut flags: Vec<&str> = settings.compat.iter().map(|kind| kind.flag()).collect();
        flags.dedup();
        args.push(format!("--compat={}", flags.join(",")));
    }
    if settings.exec {
        args.push("--allow-exec".to_owned());
    }
    if settings.scripts != Scripts::Off {
        args.push(format!("--scripts={}", settings.scripts.as_str()));
    }
    args.extend(settings.node_flags.iter().cloned());
    args.extend(
        settings
            .watch_namespaces
            .iter()
            .map(|namespace| format!("--watch-namespace={namespace}")),
    );
    args
}

/// Sets the apiVersion that the API server would default: a fieldRef is atomic, and without it a
/// server-side apply after a client-side one would be a conflict.
fn field_env(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}})
}

fn probe(path: &str, failures: u8) -> Value {
    json!({
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    })
}

/// At most one replica is evicted at a time, also if there is only one: a budget that can't be met
/// would block the drain of nodes.
fn disruption_budget(settings: &Settings) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": names::metadata(OPERATOR, &settings.namespace),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": names::selector()}},
    })
}

fn webhook_service(settings: &Settings) -> Value {
    service(settings, WEBHOOK_SERVICE, "webhook", 443)
}

fn observer_service(settings: &Settings) -> Value {
    service(settings, OBSERVER_SERVICE, "observer", OBSERVER_PORT)
}

/// On port 80: clients of AresOperator are configured with a name and no port.
fn ares_observer_service(settings: &Settings) -> Value {
    service(settings, ARES_OBSERVER_SERVICE, ARES_OBSERVER, 80)
}

fn service(settings: &Settings, name: &str, port_name: &str, port: u16) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names::metadata(name, &settings.namespace),
        "spec": {
            "selector": names::selector(),
            "ports": [{"name": port_name, "port": port, "targetPort": port_name, "protocol": "TCP"}],
        },
    })
}
