//! Manifests of jobs whose pods run shell scripts.

#![allow(
    clippy::unwrap_used,
    reason = "this is the vocabulary of tests, which fail by panicking"
)]

use serde_json::Value;
use trainyard_contract::environment::SHELL_IDLE_TIMEOUT;

/// One role of a job of [`job`].
#[derive(Clone, Debug)]
pub struct Role<'a> {
    /// Its name.
    pub name: &'a str,
    /// How many pods it has.
    pub replicas: u32,
    /// What its pods do: a shell script.
    pub script: &'a str,
    /// Further fields of the role, as YAML in braces.
    pub more: &'a str,
}

impl<'a> Role<'a> {
    /// A role of workers.
    pub fn worker(replicas: u32, script: &'a str) -> Self {
        Self {
            name: "worker",
            replicas,
            script,
            more: "",
        }
    }
}

/// A pod template within the restricted profile, with one container of an image and these further
/// fields.
///
/// # Panics
/// If the fields are no object.
pub fn template(image: &str, container: &Value) -> Value {
    let mut template = serde_json::json!({"spec": {
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [{
            "name": "main",
            "image": image,
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        }],
    }});
    let main = template["spec"]["containers"][0].as_object_mut().unwrap();
    main.extend(container.as_object().unwrap().clone());
    template
}

/// Gives the main container of a template a `/tmp` of its own. On the embedded cluster it would be
/// that of the machine, with what pods of other users have left there.
///
/// # Panics
/// If the template has no containers.
pub fn own_tmp(template: &mut Value) {
    let pod = &mut template["spec"];
    pod["volumes"] = serde_json::json!([{"name": "tmp", "emptyDir": {}}]);
    pod["containers"][0]["volumeMounts"] = serde_json::json!([{"name": "tmp", "mountPath": "/tmp"}]);
}

/// Has remote shells of the main container of a template wait long for a worker that is silent:
/// where many tests share a processor, a worker or an API server may get none for seconds.
///
/// # Panics
/// If the template has no containers.
pub fn tolerate_silence(template: &mut Value) {
    let env = &mut template["spec"]["containers"][0]["env"];
    if env.is_null() {
        *env = serde_json::json!([]);
    }
    let tolerance = serde_json::json!({"name": SHELL_IDLE_TIMEOUT, "value": "600"});
    env.as_array_mut().unwrap().push(tolerance);
}

/// Has the pods of a template of [`crate::images::MPI`] use the SSH of that image: they run as a
/// user whom it knows, and those that are called (`serves`) are ready when its server listens.
/// Their keys belong into [`crate::images::SSH_KEYS`].
///
/// # Panics
/// If the template has no containers.
pub fn over_ssh(template: &mut Value, serves: bool) {
    let pod = &mut template["spec"];
    pod["securityContext"]["runAsUser"] = 65532.into();
    if serves {
        pod["containers"][0]["readinessProbe"] =
            serde_json::json!({"tcpSocket": {"port": crate::images::SSH_PORT}, "periodSeconds": 1});
    }
}

/// A manifest of a job whose pods run shell scripts, within the restricted profile. `more` are
/// further fields of the spec, as YAML in braces.
///
/// # Panics
/// If a field is not YAML.
pub fn job(name: &str, framework: &str, roles: &[Role<'_>], more: &str) -> String {
    let role = |role: &Role<'_>| {
        let mut value = serde_json::json!({
            "name": role.name,
            "replicas": role.replicas,
            "template": template(crate::images::BUSYBOX, &serde_json::json!({"command": ["sh", "-c", role.script]})),
        });
        merge(&mut value, role.more);
        value
    };
    let mut spec = serde_json::json!({
        "framework": {"name": framework},
        "roles": roles.iter().map(role).collect::<Vec<_>>(),
    });
    merge(&mut spec, more);
    serde_json::json!({
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": spec,
    })
    .to_string()
}

fn merge(value: &mut Value, more: &str) {
    let more: Value = serde_json::from_str(if more.is_empty() { "{}" } else { more }).unwrap();
    for (key, field) in more.as_object().unwrap() {
        value[key] = field.clone();
    }
}
