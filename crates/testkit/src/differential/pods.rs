//! Small pods, each about one feature of a kubelet. They write what they find into their
//! termination message, which is compared.

mod ends;
mod environment;
mod hooks;
mod identity;
mod probes;
mod restarts;
mod several;
mod unschedulable;
mod volumes;

use std::path::Path;

use serde_json::{Value, json};

/// When a pod is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When it has ended.
    Ended,
    /// When it is ready.
    Ready,
    /// When a container waits, for this reason.
    Waits(&'static str),
    /// When a container waits, for this reason, and another one runs.
    WaitsBeside(&'static str),
    /// When all others have ended; it must stay in this phase.
    Stays(&'static str),
    /// When it is gone. It is deleted when it has reached this state.
    Deleted(&'static Until),
}

/// One small pod.
#[derive(Clone, Debug)]
pub struct SmallPod {
    /// Its name.
    pub name: &'static str,
    /// When it is compared.
    pub until: Until,
    /// Its spec.
    pub spec: Value,
    /// Whether its containers run long enough to be seen by every watch.
    pub is_long: bool,
}

impl SmallPod {
    fn until(mut self, until: Until) -> Self {
        self.until = until;
        self.is_long |= matches!(until, Until::Ready | Until::Deleted(Until::Ready));
        self
    }

    fn lasting(mut self) -> Self {
        self.is_long = true;
        self
    }
}

/// Redirects output to the termination message.
const REPORT: &str = "> /dev/termination-log";

/// A script that runs until it is asked to end.
const LONG_RUNNING: &str = "trap 'exit 0' TERM; touch /tmp/trapped; sleep 1000 & wait";

/// A script that does not end when it is asked to.
const STUBBORN: &str = "trap '' TERM; sleep 1000; true";

fn main(script: &str) -> Value {
    json!({"name": "main", "image": crate::images::BUSYBOX, "command": ["sh", "-c", script]})
}

fn named(name: &str, script: &str) -> Value {
    with(main(script), &json!({"name": name}))
}

fn with(mut container: Value, more: &Value) -> Value {
    json_patch::merge(&mut container, more);
    container
}

/// A pod of one container, which is not started again.
fn pod(name: &'static str, container: Value) -> SmallPod {
    pod_with(name, container, &json!({}))
}

/// The same, with further fields of the spec.
fn pod_with(name: &'static str, container: Value, more: &Value) -> SmallPod {
    let containers = vec![container];
    let mut spec = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 2,
        "containers": containers,
    });
    json_patch::merge(&mut spec, more);
    SmallPod {
        name,
        until: Until::Ended,
        spec,
        is_long: false,
    }
}

/// The objects that the pods refer to.
pub fn referenced_objects() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"},
            "data": {"one": "1", "two": "zwei"}, "binaryData": {"raw": "AAEC"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secrets"}, "stringData": {"key": "hush"}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "kept"}, "spec": {
            "accessModes": ["ReadWriteMany"], "storageClassName": "", "resources": {"requests": {"storage": "1Mi"}},
        }}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web-too"}, "spec": {"ports": [
            {"name": "http", "port": 80}, {"name": "names-too", "port": 53, "protocol": "UDP"},
        ]}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "headless"}, "spec": {
            "clusterIP": "None", "ports": [{"port": 80}],
        }}),
    ]
}

/// A volume for the claim, which only the embedded cluster makes by itself.
pub fn volume(namespace: &str, directory: &Path) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": namespace}, "spec": {
        "accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Mi"},
        "claimRef": {"namespace": namespace, "name": "kept"},
        "hostPath": {"path": directory, "type": "Directory"},
    }})
}

/// All of them.
pub fn small_pods() -> Vec<SmallPod> {
    let all = [
        ends::pods(),
        environment::pods(),
        hooks::pods(),
        identity::pods(),
        probes::pods(),
        restarts::pods(),
        several::pods(),
        unschedulable::pods(),
        volumes::pods(),
    ];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_at_least_forty_and_each_has_a_name_of_its_own() {
        let pods = small_pods();
        let names: std::collections::BTreeSet<&str> = pods.iter().map(|pod| pod.name).collect();
        assert!(pods.len() >= 40, "{}", pods.len());
        assert_eq!(names.len(), pods.len());
    }
}
