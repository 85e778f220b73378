//! A namespace in which one scenario works, on a real cluster or on the embedded one.
//!
//! Scenarios use the API alone, so that the same source runs on both: see [`backend`].

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is the vocabulary of tests, which fail by panicking"
)]

pub mod backend;
mod command;
mod drain;
mod follow;
mod kinds;
mod logs;
mod manifest;
mod objects;
mod processes;

use std::thread;

use kube::api::{Api, DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use trainyard_eventually::{LOOK_INTERVAL, Wait};

use crate::cluster::Cluster;
use crate::operator::Operator;
use backend::Backend;
pub use backend::{Image, Scenarios, main};
pub use drain::{Drained, Tainted};
pub use follow::{Change, Follower};
pub use manifest::{Role, job, over_ssh, own_tmp, template, tolerate_silence};
use objects::{Query, kind_of, resource_of};
pub use processes::{StoppedProcesses, uptime};

/// After so many checks without a change, a wait also checks the pods: a job shows no progress
/// while its containers start one after the other.
const CHECKS_BEFORE_PODS: u32 = 40;

/// A namespace, which goes away with the test.
pub struct Lab {
    /// The namespace's name.
    pub namespace: String,
    backend: Backend,
    client: Client,
    runtime: Runtime,
}

impl Lab {
    /// A new namespace that admits only pods of the restricted profile.
    ///
    /// # Panics
    /// Without a cluster with nodes: a suite that needs one must not pass by doing nothing.
    pub fn new(name: &str) -> Self {
        Self::with_profile(name, "restricted")
    }

    /// A new namespace that admits pods of a profile.
    ///
    /// # Panics
    /// Without a cluster with nodes.
    pub fn with_profile(name: &str, profile: &str) -> Self {
        let backend = Backend::choose();
        let runtime = Runtime::new().unwrap();
        let client = runtime.block_on(backend.client()).unwrap();
        let lab = Self {
            namespace: format!("{name}-{}", std::process::id()),
            backend,
            client,
            runtime,
        };
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": lab.namespace,
                "labels": {"pod-security.kubernetes.io/enforce": profile},
            },
        });
        lab.apply(&namespace.to_string()).unwrap();
        lab.until("the namespace has its service account", || {
            lab.try_get("serviceaccount default").map(drop)
        });
        lab
    }

    /// A new namespace, and an operator that watches it alone.
    pub fn with_operator(name: &str) -> (Self, Operator) {
        Self::with_operator_and_profile(name, "restricted")
    }

    /// The same, in a namespace that admits pods of a profile.
    pub fn with_operator_and_profile(name: &str, profile: &str) -> (Self, Operator) {
        let lab = Self::with_profile(name, profile);
        let operator = Operator::start(&lab.backend.operator(), &lab.namespace);
        (lab, operator)
    }

    /// The same, with an agent that the operator can put into pods: [`crate::images::AGENT`], and
    /// with `--allow-exec`.
    pub fn with_agent(name: &str) -> (Self, Operator) {
        let lab = Self::new(name);
        let start = lab
            .backend
            .operator_with(&["--agent-image", crate::images::AGENT, "--allow-exec"]);
        let operator = Operator::start(&start, &lab.namespace);
        (lab, operator)
    }

    /// The same, with an operator that tells the agent about its job, and where pods find it:
    /// `hostAliases` for their templates, because the operator is no pod and no Service leads to
    /// it. One at a time can have its port.
    ///
    /// # Panics
    /// Without a cluster with nodes.
    pub fn with_observer(name: &str) -> (Self, Operator, Value) {
        let lab = Self::new(name);
        let (operator, aliases) = lab.start_observer(&[]);
        (lab, operator, aliases)
    }

    /// The same, in a namespace that admits pods of a profile, and with further arguments for the
    /// operator.
    ///
    /// # Panics
    /// Without a cluster with nodes.
    pub fn with_observer_and(name: &str, profile: &str, more: &[&'static str]) -> (Self, Operator, Value) {
        let lab = Self::with_profile(name, profile);
        let (operator, aliases) = lab.start_observer(more);
        (lab, operator, aliases)
    }

    /// The same, with an operator that has launchers run the scripts of requests.
    ///
    /// # Panics
    /// Without a cluster with nodes.
    pub fn with_scripts(name: &str) -> (Self, Operator, Value) {
        let lab = Self::new(name);
        let (operator, aliases) = lab.start_observer(&["--scripts=unreviewed"]);
        (lab, operator, aliases)
    }

    /// Starts such an operator, with further arguments.
    fn start_observer(&self, more: &[&'static str]) -> (Operator, Value) {
        let namespace: &'static str = self.namespace.clone().leak();
        let mut arguments = vec![
            "--agent-image",
            crate::images::AGENT,
            "--observer",
            "--namespace",
            namespace,
        ];
        arguments.extend(more);
        let start = self.backend.operator_with(arguments.leak());
        let operator = Operator::start(&start, &self.namespace);
        let host = format!("trainyard-observer.{namespace}.svc");
        let addresses = self.backend.own_addresses();
        let alias = |address: &String| json!({"ip": address, "hostnames": [host]});
        let aliases = addresses.iter().map(alias).collect();
        (operator, Value::Array(aliases))
    }

    /// The same, with an operator that answers like AresOperator's observer, at port 8081, and has
    /// no agent; and the addresses where pods may find it. One at a time can have its port.
    pub fn with_ares_observer(name: &str) -> (Self, Operator, Vec<String>) {
        let lab = Self::new(name);
        let start = lab
            .backend
            .operator_with(&["--ares-observer-address=0.0.0.0:8081"]);
        let operator = Operator::start(&start, &lab.namespace);
        let addresses = lab.backend.own_addresses();
        (lab, operator, addresses)
    }

    /// Creates a definition. Returns false if it exists.
    ///
    /// # Panics
    /// If it is refused.
    pub fn define(&self, definition: Value) -> bool {
        let definition: DynamicObject = serde_json::from_value(definition).unwrap();
        let (resource, _) = resource_of("customresourcedefinition");
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let created = self
            .runtime
            .block_on(api.create(&PostParams::default(), &definition));
        match created {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.is_already_exists() => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Whether this is the embedded cluster.
    pub fn is_embedded(&self) -> bool {
        matches!(self.backend, Backend::Embedded(_))
    }

    /// The real cluster, for what only that has.
    ///
    /// # Panics
    /// On the embedded one.
    pub fn cluster(&self) -> &Cluster {
        match &self.backend {
            Backend::Real(cluster) => cluster,
            Backend::Embedded(_) => panic!("this is about a real cluster"),
        }
    }

    /// Applies manifests, in JSON: creates what is not there, replaces what is.
    ///
    /// # Panics
    /// If a manifest is no object that the lab knows.
    pub fn apply(&self, manifests: &str) -> Result<(), String> {
        for manifest in manifests.split("\n---\n") {
            self.apply_one(serde_json::from_str(manifest).unwrap())
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Applies one manifest.
    ///
    /// # Panics
    /// If it is no object that the lab knows.
    pub fn apply_one(&self, manifest: Value) -> Result<(), kube::Error> {
        let mut object: DynamicObject = serde_json::from_value(manifest).unwrap();
        let (resource, namespaced) = resource_of(&kind_of(object.types.as_ref().unwrap()));
        let api: Api<DynamicObject> = if namespaced {
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        };
        let name = object.metadata.name.clone().unwrap();
        self.runtime.block_on(async {
            match api.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    let found = api.get(&name).await?;
                    object.metadata.resource_version = found.metadata.resource_version;
                    api.replace(&name, &PostParams::default(), &object)
                        .await
                        .map(drop)
                }
                created => created.map(drop),
            }
        })
    }

    /// Creates an object of a manifest whose name the server may make. Returns its name.
    ///
    /// # Panics
    /// If that fails.
    pub fn create(&self, manifest: Value) -> String {
        let object: DynamicObject = serde_json::from_value(manifest).unwrap();
        let api = self.api(&Query::parse(&kind_of(object.types.as_ref().unwrap())));
        let created = self.runtime.block_on(api.create(&PostParams::default(), &object));
        created
            .unwrap_or_else(|error| panic!("create: {error}"))
            .name_any()
    }

    /// Has every node offer so much of a resource which none has, as a device plug-in does.
    ///
    /// # Panics
    /// If that fails.
    pub fn offer(&self, resource: &str, quantity: &str) {
        let api = self.api(&Query::parse("nodes"));
        let offered = json!({resource: quantity});
        let patch = Patch::Merge(json!({"status": {"capacity": offered, "allocatable": offered}}));
        for node in self.get("nodes")["items"].as_array().into_iter().flatten() {
            let name = node["metadata"]["name"].as_str().unwrap();
            self.runtime
                .block_on(api.patch_status(name, &PatchParams::default(), &patch))
                .unwrap_or_else(|error| panic!("patch the status of {name}: {error}"));
            // A kubelet says in its own time what of its capacity pods may have.
            self.until(&format!("{name} offers {resource}"), || {
                let status = self.get(&format!("node {name}"))["status"].clone();
                let is_so = status["allocatable"][resource] == quantity;
                is_so
                    .then_some(())
                    .ok_or_else(|| status["allocatable"].to_string())
            });
        }
    }

    fn api(&self, wanted: &Query<'_>) -> Api<DynamicObject> {
        let (resource, namespaced) = resource_of(wanted.kind);
        if namespaced {
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    /// An object (`pod NAME`), or all of a kind (`pods`, `pods -l SELECTOR`).
    pub fn try_get(&self, what: &str) -> Result<Value, String> {
        let wanted = Query::parse(what);
        let api = self.api(&wanted);
        let found = self.runtime.block_on(async {
            Ok::<_, kube::Error>(if let Some(name) = wanted.name {
                serde_json::to_value(api.get(name).await?)
            } else {
                let parameters = ListParams {
                    label_selector: wanted.selector.map(ToOwned::to_owned),
                    ..ListParams::default()
                };
                serde_json::to_value(api.list(&parameters).await?)
            })
        });
        found
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())
    }

    /// The same.
    ///
    /// # Panics
    /// If it fails.
    pub fn get(&self, what: &str) -> Value {
        self.try_get(what)
            .unwrap_or_else(|error| panic!("get {what}: {error}"))
    }

    /// Deletes an object, and does not wait until it is gone.
    ///
    /// # Panics
    /// If that fails.
    pub fn delete(&self, what: &str) {
        let wanted = Query::parse(what);
        let api = self.api(&wanted);
        self.runtime
            .block_on(api.delete(wanted.name.unwrap(), &DeleteParams::default()))
            .unwrap_or_else(|error| panic!("delete {what}: {error}"));
    }

    /// Changes an object by a merge patch.
    ///
    /// # Panics
    /// If that fails.
    pub fn merge(&self, what: &str, patch: &Value) {
        let wanted = Query::parse(what);
        let api = self.api(&wanted);
        self.runtime
            .block_on(api.patch(
                wanted.name.unwrap(),
                &PatchParams::default(),
                &Patch::Merge(patch),
            ))
            .unwrap_or_else(|error| panic!("patch {what}: {error}"));
    }

    /// Gives a job another size, as `kubectl scale` does.
    ///
    /// # Panics
    /// If that fails.
    pub fn scale(&self, job: &str, replicas: i32) {
        let api = self.api(&Query::parse("tj"));
        let size = json!({"spec": {"replicas": replicas}});
        self.runtime
            .block_on(api.patch_scale(job, &PatchParams::default(), &Patch::Merge(size)))
            .unwrap_or_else(|error| panic!("scale {job}: {error}"));
    }

    /// The log of a pod.
    ///
    /// # Panics
    /// If it can't be read.
    pub fn logs(&self, pod: &str) -> String {
        self.try_logs(pod)
            .unwrap_or_else(|error| panic!("logs of {pod}: {error}"))
    }

    /// The same, where there may be none yet.
    pub fn try_logs(&self, pod: &str) -> Result<String, String> {
        let pods: Api<k8s_openapi::api::core::v1::Pod> =
            Api::namespaced(self.client.clone(), &self.namespace);
        self.runtime
            .block_on(pods.logs(pod, &LogParams::default()))
            .map_err(|error| error.to_string())
    }

    /// The events about an object, one a line: reason, and what it says.
    ///
    /// # Panics
    /// If they can't be read.
    pub fn events(&self, name: &str) -> String {
        self.events_in(&self.namespace, name)
    }

    /// The events about an object that belongs to no namespace.
    ///
    /// # Panics
    /// If they can't be read.
    pub fn cluster_events(&self, name: &str) -> String {
        self.events_in("default", name)
    }

    fn events_in(&self, namespace: &str, name: &str) -> String {
        let (resource, _) = resource_of("events");
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let events = self.runtime.block_on(api.list(&ListParams::default()));
        let events = events.unwrap_or_else(|error| panic!("events of {name}: {error}"));
        let events = serde_json::to_value(events).unwrap_or_default();
        let about =
            |event: &&Value| event["involvedObject"]["name"] == name || event["regarding"]["name"] == name;
        let line = |event: &Value| {
            let words = event["message"].as_str().or(event["note"].as_str());
            format!(
                "{} {}\n",
                event["reason"].as_str().unwrap_or_default(),
                words.unwrap_or_default()
            )
        };
        let items = events["items"].as_array().into_iter().flatten();
        items.filter(about).map(line).collect()
    }

    /// Waits for an event with this reason about an object.
    pub fn wait_for_event(&self, name: &str, reason: &str) {
        self.until(&format!("an event {reason}"), || {
            let events = self.events(name);
            let told = events.lines().any(|line| line.starts_with(reason));
            if told { Ok(()) } else { Err(events) }
        });
    }

    /// The names of a job's pods.
    pub fn pods(&self, job: &str) -> Vec<String> {
        let pods = self.get(&format!("pods -l trainyard.dev/job={job}"));
        let names = pods["items"].as_array().into_iter().flatten();
        names
            .filter_map(|pod| pod["metadata"]["name"].as_str().map(ToOwned::to_owned))
            .collect()
    }

    /// Waits until an attempt succeeds. A failed attempt returns what it saw instead.
    ///
    /// # Panics
    /// When neither what it saw nor any pod of the namespace has changed for too long.
    pub fn until<T>(&self, what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
        let mut wait = Wait::new(format!("{}: {what}", self.namespace));
        loop {
            match attempt() {
                Ok(value) => return value,
                Err(seen) => wait.see(seen),
            }
            if wait.unchanged_looks() % CHECKS_BEFORE_PODS == CHECKS_BEFORE_PODS - 1 {
                wait.note_sign(self.pod_versions());
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Changes whenever a pod of the namespace does.
    fn pod_versions(&self) -> String {
        let pods = self.try_get("pods").unwrap_or_default();
        let versions = pods["items"].as_array().into_iter().flatten();
        let versions = versions.map(|pod| pod["metadata"]["resourceVersion"].to_string());
        versions.collect()
    }

    /// Waits until a job is in a phase.
    pub fn wait_for_phase(&self, job: &str, wanted: &str) -> Value {
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

    /// Waits until a job has ended.
    ///
    /// # Panics
    /// If it ends in another phase, with the logs of its pods.
    pub fn wait_until_ended(&self, job: &str, wanted: &str) -> Value {
        let ended = self.until(&format!("{job} ends"), || {
            let job = self.get(&format!("tj {job}"));
            let phase = job["status"]["phase"].as_str().unwrap_or_default();
            if matches!(phase, "Succeeded" | "Failed") {
                Ok(job.clone())
            } else {
                Err(format!("{:#}", job["status"]))
            }
        });
        if ended["status"]["phase"] != wanted {
            let pods = self.get("pods");
            let names = pods["items"].as_array().into_iter().flatten();
            let logs = names
                .filter_map(|pod| pod["metadata"]["name"].as_str())
                .map(|pod| format!("{pod}: {}\n", self.try_logs(pod).unwrap_or_else(|error| error)));
            let logs: String = logs.collect();
            panic!("{}: {job}: {:#}\n{logs}", self.namespace, ended["status"]);
        }
        ended
    }

    /// Waits until there is nothing of a kind left.
    pub fn wait_until_gone(&self, what: &str) {
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
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client.clone());
        let deletion = async { namespaces.delete(&self.namespace, &DeleteParams::default()).await };
        if let Err(error) = self.runtime.block_on(deletion) {
            eprintln!("{} was left: {error:#}", self.namespace);
        }
        self.backend.remove_volumes(&self.namespace);
    }
}
