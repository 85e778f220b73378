//! Fields of a job that have no effect on this machine.

use std::collections::BTreeSet;

use serde_json::Value;
use trainyard_local::yard::{Isolation, Yard};

use super::manifest::{containers, has_grpc_probes, pods};
use crate::validate::text;

pub fn notes(job: &Value, yard: &Yard) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |note: &str| notes.push(note.to_owned());
    if has_grpc_probes(job) {
        note("probes by gRPC are not asked here, and containers that have them count as if they had none");
    }
    if asks_for_user(job) && !yard.has_users() {
        note(match yard.isolation {
            Isolation::Plain => {
                "runAsUser and runAsGroup have no effect here: plain processes run as you, as only root can run them as others"
            }
            _ => {
                "containers with runAsUser or runAsGroup see themselves as that user and group, and are you: what they write \
                 is yours"
            }
        });
    }
    if !yard.has_users() {
        if has_pod_field(job, "fsGroup") {
            note("fsGroup has no effect here: only root can give files to another group");
        }
        if has_pod_field(job, "supplementalGroups") {
            note("supplementalGroups have no effect here: only root can be in other groups");
        }
    }
    let rights = ignored_privileges(job, yard.isolation);
    if !rights.is_empty() {
        let rights: Vec<&str> = rights.into_iter().collect();
        notes.push(format!(
            "no effect here: {}; containers have the rights that a container runtime gives by default",
            rights.join(", ")
        ));
    }
    notes
}

/// Whether a container has a runAsUser or runAsGroup other than root.
fn asks_for_user(job: &Value) -> bool {
    let all = pods(job).chain(containers(job));
    let mut contexts = all.filter_map(|one| one.get("securityContext"));
    contexts.any(|context| {
        let asked = ["runAsUser", "runAsGroup"]
            .iter()
            .filter_map(|field| context.get(field));
        asked.into_iter().any(|id| id.as_i64().is_some_and(|id| id != 0))
    })
}

/// Whether a field of a pod's security context is set and not empty.
fn has_pod_field(job: &Value, field: &str) -> bool {
    pods(job).any(|pod| {
        let value = pod.pointer(&format!("/securityContext/{field}"));
        value.is_some_and(|value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()))
    })
}

/// The names of the fields that ask for privileges which containers do not get.
fn ignored_privileges(job: &Value, isolation: Isolation) -> BTreeSet<&'static str> {
    let is_true = |value: Option<&Value>| value == Some(&Value::Bool(true));
    let mut found = BTreeSet::new();
    for pod in pods(job) {
        // Plain processes have no namespaces of their own.
        for field in ["hostPID", "hostIPC"] {
            if isolation != Isolation::Plain && is_true(pod.get(field)) {
                found.insert(field);
            }
        }
    }
    if has_pod_field(job, "sysctls") {
        found.insert("sysctls");
    }
    for container in containers(job) {
        let added = container.pointer("/securityContext/capabilities/add");
        if added
            .and_then(Value::as_array)
            .is_some_and(|added| !added.is_empty())
        {
            found.insert("capabilities.add");
        }
        if is_true(container.pointer("/securityContext/privileged")) {
            found.insert("privileged");
        }
        if text(container, "/securityContext/procMount") == Some("Unmasked") {
            found.insert("procMount");
        }
    }
    for one in pods(job).chain(containers(job)) {
        for field in ["seccompProfile", "appArmorProfile"] {
            if text(one, &format!("/securityContext/{field}/type")) == Some("Localhost") {
                found.insert(field);
            }
        }
        if one
            .pointer("/securityContext/seLinuxOptions")
            .is_some_and(Value::is_object)
        {
            found.insert("seLinuxOptions");
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(pod: &Value) -> Value {
        json!({"spec": {"roles": [{"template": {"spec": pod}}]}})
    }

    #[test]
    fn rights_that_containers_do_not_get_are_named_once() {
        let job = with(&json!({
            "hostPID": true,
            "hostIPC": false,
            "securityContext": {
                "seccompProfile": {"type": "RuntimeDefault"},
                "appArmorProfile": {"type": "Localhost", "localhostProfile": "mine"},
                "sysctls": [{"name": "net.core.somaxconn", "value": "1024"}],
            },
            "containers": [
                {"securityContext": {"privileged": true, "capabilities": {"add": ["SYS_PTRACE"]}}},
                {"securityContext": {"privileged": true, "seccompProfile": {"type": "Localhost"}}},
            ],
        }));
        let found = |isolation| {
            ignored_privileges(&job, isolation)
                .into_iter()
                .collect::<Vec<_>>()
                .join(" ")
        };
        let all = "appArmorProfile capabilities.add hostPID privileged seccompProfile sysctls";
        assert_eq!(found(Isolation::Root), all);
        assert_eq!(found(Isolation::Plain), all.replace("hostPID ", ""));
    }

    #[test]
    fn what_satisfies_the_restricted_profile_needs_no_note() {
        let job = with(&json!({
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"securityContext": {
                "allowPrivilegeEscalation": false, "privileged": false, "capabilities": {"drop": ["ALL"], "add": []},
            }}],
        }));
        assert!(ignored_privileges(&job, Isolation::Root).is_empty() && !asks_for_user(&job));
    }

    #[test]
    fn users_and_groups_are_found_wherever_they_are_asked_for() {
        let job = with(&json!({"securityContext": {"runAsUser": 1000}, "containers": [{}]}));
        assert!(asks_for_user(&job));
        let job = with(&json!({"containers": [{"securityContext": {"runAsGroup": 7}}]}));
        assert!(asks_for_user(&job));
        let job = with(&json!({"securityContext": {"runAsUser": 0, "fsGroup": 7}, "containers": [{}]}));
        assert!(!asks_for_user(&job) && has_pod_field(&job, "fsGroup"));
        assert!(!has_pod_field(&job, "supplementalGroups"));
    }
}
