//! What the operator may do, and what users may do with jobs.
//!
//! Rights on jobs and their children are cluster-wide, or in each watched namespace if there are
//! any. Everything else is the same for both: nodes and the webhook configurations (which have no
//! namespace), and the lease and the certificates in the operator's own namespace. Events about
//! Frameworks, which have no namespace, are in `default`.

use serde_json::{Value, json};
use trainyard_api::GROUP;
use trainyard_core::foreign::ChildKind;
use trainyard_operator::options::Scripts;

use super::Settings;
use super::names::{
    self, EDIT_ROLE, EVENTS_NAMESPACE, EVENTS_ROLE, JOBS_ROLE, OPERATOR, VIEW_ROLE, WEBHOOK_CONFIGURATION,
    WEBHOOK_SECRET,
};

const API: &str = "rbac.authorization.k8s.io/v1";

/// The service account and all roles with their bindings.
pub fn objects(settings: &Settings) -> Vec<Value> {
    let own = &settings.namespace;
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": names::metadata(OPERATOR, own)}),
        cluster_role(OPERATOR, &cluster_rules(settings)),
        cluster_role_binding(OPERATOR, own),
        role(OPERATOR, own, &own_rules(settings)),
        role_binding(OPERATOR, own, own),
    ];
    if settings.watch_namespaces.is_empty() {
        objects.extend([
            cluster_role(JOBS_ROLE, &job_rules(settings)),
            cluster_role_binding(JOBS_ROLE, own),
        ]);
    } else if settings.cluster_writes {
        // Events about Frameworks come with their status.
        objects.extend([
            role(EVENTS_ROLE, EVENTS_NAMESPACE, &json!([event_rule()])),
            role_binding(EVENTS_ROLE, EVENTS_NAMESPACE, own),
        ]);
    }
    for watched in &settings.watch_namespaces {
        objects.extend([
            role(JOBS_ROLE, watched, &job_rules(settings)),
            role_binding(JOBS_ROLE, watched, own),
        ]);
    }
    objects.extend(user_roles(settings));
    objects
}

/// Rights on jobs and on what jobs own.
fn job_rules(settings: &Settings) -> Value {
    let mut rules = vec![
        // Patched, because a ScaleIn or a ScaleOut changes the spec.elastic.replicas of its job.
        rule(
            GROUP,
            "trainingjobs",
            None,
            &["get", "list", "watch", "patch", "delete"],
        ),
        rule(GROUP, "trainingjobs/status", None, &["update", "patch"]),
        json!({
            "apiGroups": [GROUP],
            "resources": ["scaleins", "scaleouts"],
            // Patched, because the job becomes their owner; deleted after their
            // ttlSecondsAfterFinished.
            "verbs": ["get", "list", "watch", "patch", "delete"],
        }),
        json!({
            "apiGroups": [GROUP],
            "resources": ["scaleins/status", "scaleouts/status"],
            "verbs": ["patch"],
        }),
        // For clusters with the admission plug-in OwnerReferencesPermissionEnforcement: children
        // name their job as the owner that blocks its deletion.
        rule(GROUP, "trainingjobs/finalizers", None, &["update"]),
        json!({
            "apiGroups": [""],
            "resources": ["pods", "services"],
            "verbs": ["get", "list", "watch", "create", "patch", "delete"],
        }),
        // Deleted also where none is made: without an agent, or nodes, evictions must not wait.
        rule(
            "policy",
            "poddisruptionbudgets",
            None,
            &["list", "watch", "create", "delete"],
        ),
        event_rule(),
    ];
    if settings.agent {
        // A job's remote shell has its credentials in a Secret. The operator creates it, and gets
        // it to learn who owns it; it never lists, watches, changes or deletes Secrets.
        rules.push(rule("", "secrets", None, &["create", "get"]));
    }
    if !settings.compat.is_empty() {
        // An object of such a kind owns a TrainingJob, which is updated with it.
        rules.push(rule(GROUP, "trainingjobs", None, &["create", "update"]));
        // Events about such an object have the form that its users know.
        rules.push(rule("", "events", None, &["create"]));
    }
    for kind in &settings.compat {
        let (group, plural) = (kind.group(), kind.plural());
        if let ChildKind::Request(request) = kind.child_kind() {
            // An object of such a kind owns a request, and its job becomes its owner.
            rules.push(rule(GROUP, request.plural(), None, &["create"]));
            rules.push(rule(group, plural, None, &["patch"]));
        }
        // They are deleted when their ttlSecondsAfterFinished is over.
        rules.extend([
            rule(group, plural, None, &["get", "list", "watch", "delete"]),
            rule(group, &format!("{plural}/status"), None, &["update"]),
            rule(group, &format!("{plural}/finalizers"), None, &["update"]),
        ]);
    }
    if settings.compat.iter().any(|kind| kind.has_config()) {
        // Users of that kind expect the list of hosts in a ConfigMap.
        rules.push(rule("", "configmaps", None, &["create", "get", "update"]));
    }
    if settings.exec {
        // RBAC lets nobody grant rights that they do not have.
        rules.push(rule("", "pods/exec", None, &["create", "get"]));
        rules.push(rule("", "serviceaccounts", None, &["create", "get"]));
        rules.push(json!({
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["roles", "rolebindings"],
            "verbs": ["create", "get", "patch"],
        }));
    }
    Value::Array(rules)
}

fn event_rule() -> Value {
    rule("events.k8s.io", "events", None, &["create"])
}

/// Rights on objects that belong to no namespace.
fn cluster_rules(settings: &Settings) -> Value {
    let nodes = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]});
    let frameworks = rule(GROUP, "frameworks", None, &["get", "list", "watch"]);
    let framework_status = rule(GROUP, "frameworks/status", None, &["update"]);
    // RBAC allows a list or watch by name only if it selects that name; the operator does.
    let configurations = json!({
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        "resourceNames": [WEBHOOK_CONFIGURATION],
        "verbs": if settings.cluster_writes {
            ["get", "list", "watch", "patch"].as_slice()
        } else {
            &["get", "list", "watch"]
        },
    });
    let mut rules = vec![nodes, frameworks];
    if settings.cluster_writes {
        rules.push(framework_status);
    }
    if settings.webhooks {
        rules.push(configurations);
    }
    if settings.scripts == Scripts::Reviewed {
        // Who asks for a script must be allowed to run commands in pods.
        rules.push(rule(
            "authorization.k8s.io",
            "subjectaccessreviews",
            None,
            &["create"],
        ));
    }
    Value::Array(rules)
}

/// Rights in the operator's own namespace. RBAC can't limit a creation to a name.
fn own_rules(settings: &Settings) -> Value {
    let lease = |name: Option<&str>, verbs: &[&str]| rule("coordination.k8s.io", "leases", name, verbs);
    let mut rules = vec![
        lease(Some(OPERATOR), &["get", "update"]),
        lease(None, &["create"]),
    ];
    if settings.agent {
        // The operator reads its own pod to learn its image, which has the agent.
        rules.push(rule("", "pods", None, &["get"]));
    }
    if settings.webhooks || settings.agent {
        rules.push(rule(
            "",
            "secrets",
            Some(WEBHOOK_SECRET),
            &["get", "list", "watch", "update"],
        ));
        rules.push(rule("", "secrets", None, &["create"]));
    }
    Value::Array(rules)
}

fn rule(group: &str, resource: &str, name: Option<&str>, verbs: &[&str]) -> Value {
    match name {
        Some(name) => {
            json!({"apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": verbs})
        }
        None => json!({"apiGroups": [group], "resources": [resource], "verbs": verbs}),
    }
}

/// Roles that the cluster's own `view`, `edit` and `admin` take in, so that whoever may see or
/// change pods in a namespace may see or change its jobs.
fn user_roles(settings: &Settings) -> [Value; 2] {
    let mut read = vec![json!({
        "apiGroups": [GROUP],
        "resources": [
            "trainingjobs", "trainingjobs/status", "frameworks",
            "scaleins", "scaleins/status", "scaleouts", "scaleouts/status",
        ],
        "verbs": ["get", "list", "watch"],
    })];
    let mut write = vec![json!({
        "apiGroups": [GROUP],
        "resources": ["trainingjobs", "scaleins", "scaleouts"],
        "verbs": ["create", "update", "patch", "delete", "deletecollection"],
    })];
    // What `kubectl scale` and autoscalers write.
    write.push(rule(
        GROUP,
        "trainingjobs/scale",
        None,
        &["get", "update", "patch"],
    ));
    for kind in &settings.compat {
        let (group, plural) = (kind.group(), kind.plural());
        let status = format!("{plural}/status");
        read.push(
            json!({"apiGroups": [group], "resources": [plural, status], "verbs": ["get", "list", "watch"]}),
        );
        write.push(rule(
            group,
            plural,
            None,
            &["create", "update", "patch", "delete", "deletecollection"],
        ));
        let definition = kind.definition();
        let scale = definition.pointer("/spec/versions/0/subresources/scale");
        if scale.is_some() {
            let scale = format!("{plural}/scale");
            write.push(rule(group, &scale, None, &["get", "update", "patch"]));
        }
    }
    let all: Vec<Value> = read.iter().chain(&write).cloned().collect();
    [
        aggregated(VIEW_ROLE, &["view", "edit", "admin"], &read.into()),
        aggregated(EDIT_ROLE, &["edit", "admin"], &all.into()),
    ]
}

fn aggregated(name: &str, into: &[&str], rules: &Value) -> Value {
    let mut role = cluster_role(name, rules);
    for target in into {
        role["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{target}")] =
            json!("true");
    }
    role
}

fn cluster_role(name: &str, rules: &Value) -> Value {
    json!({"apiVersion": API, "kind": "ClusterRole", "metadata": names::cluster_metadata(name), "rules": rules})
}

fn role(name: &str, namespace: &str, rules: &Value) -> Value {
    json!({"apiVersion": API, "kind": "Role", "metadata": names::metadata(name, namespace), "rules": rules})
}

fn cluster_role_binding(name: &str, own: &str) -> Value {
    json!({
        "apiVersion": API,
        "kind": "ClusterRoleBinding",
        "metadata": names::cluster_metadata(name),
        "roleRef": role_ref("ClusterRole", name),
        "subjects": subjects(own),
    })
}

fn role_binding(name: &str, namespace: &str, own: &str) -> Value {
    json!({
        "apiVersion": API,
        "kind": "RoleBinding",
        "metadata": names::metadata(name, namespace),
        "roleRef": role_ref("Role", name),
        "subjects": subjects(own),
    })
}

fn role_ref(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})
}

fn subjects(own: &str) -> Value {
    json!([{"kind": "ServiceAccount", "name": OPERATOR, "namespace": own}])
}
