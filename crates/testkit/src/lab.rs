//! A namespace of a real cluster in which one test works, through kubectl as a user would.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is the vocabulary of tests, which fail by panicking"
)]

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::Cluster;

/// How long anything may take before a test gives up; far longer than it should, so that a busy machine fails none.
const PATIENCE: Duration = Duration::from_mins(4);

/// A namespace of a real cluster, which goes away with the test.
#[derive(Debug)]
pub struct Lab {
    /// The cluster.
    pub cluster: Cluster,
    /// The namespace's name.
    pub namespace: String,
}

impl Lab {
    /// A new namespace that admits only pods of the restricted profile.
    ///
    /// # Panics
    /// Without a cluster with nodes: a suite that needs one must not pass by doing nothing.
    pub fn new(name: &str) -> Self {
        let cluster = Cluster::from_env().filter(|cluster| !cluster.state().nodes.is_empty());
        let cluster =
            cluster.unwrap_or_else(|| panic!("this suite needs a test cluster: use `make test-cluster`"));
        let lab = Self {
            cluster,
            namespace: format!("{name}-{}", std::process::id()),
        };
        let namespace = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": lab.namespace,
                "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
            },
        });
        lab.apply(&namespace.to_string()).unwrap();
        lab.until("the namespace has its service account", || {
            lab.try_kubectl("get serviceaccount default").map(drop)
        });
        lab
    }

    /// Runs kubectl in the namespace.
    pub fn try_kubectl(&self, line: &str) -> Result<String, String> {
        let arguments: Vec<&str> = ["-n", &self.namespace]
            .into_iter()
            .chain(line.split_whitespace())
            .collect();
        self.cluster
            .kubectl(&arguments, None)
            .map_err(|error| format!("{error:#}"))
    }

    /// Runs kubectl in the namespace.
    ///
    /// # Panics
    /// If it fails.
    pub fn kubectl(&self, line: &str) -> String {
        self.try_kubectl(line)
            .unwrap_or_else(|error| panic!("kubectl {line}: {error}"))
    }

    /// Applies manifests in the namespace.
    pub fn apply(&self, manifest: &str) -> Result<String, String> {
        // A namespace can't be applied within itself.
        let scoped = !manifest.contains("\"kind\":\"Namespace\"");
        let scope: &[&str] = if scoped { &["-n", &self.namespace] } else { &[] };
        let arguments: Vec<&str> = scope.iter().copied().chain(["apply", "-f", "-"]).collect();
        self.cluster
            .kubectl(&arguments, Some(manifest))
            .map_err(|error| format!("{error:#}"))
    }

    /// What `kubectl get` says.
    ///
    /// # Panics
    /// If it fails.
    pub fn get(&self, what: &str) -> Value {
        serde_json::from_str(&self.kubectl(&format!("get {what} -o json"))).unwrap()
    }

    /// The names of a job's pods.
    pub fn pods(&self, job: &str) -> Vec<String> {
        let pods = self.get(&format!("pods -l trainyard.dev/job={job}"));
        let names = pods["items"].as_array().into_iter().flatten();
        names
            .filter_map(|pod| pod["metadata"]["name"].as_str().map(ToOwned::to_owned))
            .collect()
    }

    /// Waits until an attempt succeeds.
    ///
    /// # Panics
    /// If it never does, with what the last attempt said.
    pub fn until<T>(&self, what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
        let start = Instant::now();
        loop {
            match attempt() {
                Ok(value) => return value,
                Err(last) => assert!(start.elapsed() < PATIENCE, "{}: {what}: {last}", self.namespace),
            }
            thread::sleep(Duration::from_millis(150));
        }
    }

    /// Waits until a job is in a phase.
    pub fn phase(&self, job: &str, wanted: &str) -> Value {
        self.until(&format!("{job} becomes {wanted}"), || {
            let job = self.get(&format!("tj {job}"));
            let phase = job["status"]["phase"].as_str().unwrap_or_default();
            if phase == wanted {
                Ok(job.clone())
            } else {
                Err(format!("{:#}", job["status"]))
            }
        })
    }

    /// Waits until there is nothing of a kind left.
    pub fn none(&self, what: &str) {
        self.until(&format!("no {what}"), || {
            let found = self.get(what);
            let names = found["items"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|item| item["metadata"]["name"].to_string());
            let names: Vec<String> = names.collect();
            if names.is_empty() {
                Ok(())
            } else {
                Err(names.join(", "))
            }
        });
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let arguments = ["delete", "namespace", &self.namespace, "--wait=false"];
        if let Err(error) = self.cluster.kubectl(&arguments, None) {
            eprintln!("{} was left: {error:#}", self.namespace);
        }
    }
}

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

/// A manifest of a job whose pods run shell scripts, within the restricted profile. `more` are further fields of the
/// spec, as YAML in braces.
///
/// # Panics
/// If a field is not YAML.
pub fn job(name: &str, framework: &str, roles: &[Role<'_>], more: &str) -> String {
    let role = |role: &Role<'_>| {
        let mut value = serde_json::json!({
            "name": role.name,
            "replicas": role.replicas,
            "template": {"spec": {
                "terminationGracePeriodSeconds": 1,
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [{
                    "name": "main",
                    "image": crate::images::BUSYBOX,
                    "command": ["sh", "-c", role.script],
                    "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                }],
            }},
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
