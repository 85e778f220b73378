//! Nodes that somebody takes pods off.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is the vocabulary of tests, which fail by panicking"
)]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, EvictParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use trainyard_eventually::Wait;

use super::Lab;
use super::backend::Backend;

/// How long `kubectl drain` waits before it asks again for an eviction that was refused.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How often it looks whether a pod that it has evicted is gone.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const TOO_MANY_REQUESTS: u16 = 429;
/// How often a taint is tried to be taken away, while others change the same node.
const ATTEMPTS: usize = 10;

/// A node that takes no pods. It takes pods again with this, also when the test fails.
pub struct Drained<'a> {
    lab: &'a Lab,
    node: String,
}

/// A node with a taint, which is taken away with this, also when the test fails.
pub struct Tainted<'a> {
    lab: &'a Lab,
    node: String,
    key: String,
}

impl Lab {
    /// The names of the nodes, in order.
    pub fn nodes(&self) -> Vec<String> {
        let nodes = self.get("nodes");
        let nodes = nodes["items"].as_array().into_iter().flatten();
        let names = nodes.filter_map(|node| node["metadata"]["name"].as_str());
        let mut names: Vec<String> = names.map(ToOwned::to_owned).collect();
        names.sort();
        names
    }

    /// Has a node take no further pods.
    ///
    /// # Panics
    /// If that fails.
    pub fn cordon(&self, node: &str) -> Drained<'_> {
        let drained = Drained {
            lab: self,
            node: node.to_owned(),
        };
        let cordoned = self.set_unschedulable(node, true);
        cordoned.unwrap_or_else(|error| panic!("cordon {node}: {error}"));
        drained
    }

    fn set_unschedulable(&self, node: &str, is_so: bool) -> kube::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"unschedulable": is_so}}));
        let parameters = PatchParams::default();
        let patched = nodes.patch(node, &parameters, &patch);
        self.runtime.block_on(patched).map(drop)
    }

    /// Drains a node of the pods of these jobs, by `kubectl drain` on a real cluster and as that
    /// does it on the embedded one. Returns when the drain has ended.
    ///
    /// # Panics
    /// If that fails.
    pub fn drain(&self, node: &str, jobs: &[&str]) -> Drained<'_> {
        let drained = self.cordon(node);
        // Only what is of this test: the pods of others stay.
        let selector = format!("trainyard.dev/job in ({})", jobs.join(", "));
        match &self.backend {
            Backend::Real(cluster) => {
                let arguments = [
                    "drain",
                    node,
                    "--force",
                    "--delete-emptydir-data",
                    "--pod-selector",
                    &selector,
                ];
                cluster.kubectl(&arguments, None).unwrap();
            }
            Backend::Embedded(_) => self.runtime.block_on(self.evict_all(node, &selector)),
        }
        drained
    }

    /// What `kubectl drain` does: it lists the pods once, and asks for the eviction of each by name
    /// until that is granted or there is no such pod; then it waits until that pod is gone.
    async fn evict_all(&self, node: &str, selector: &str) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let on_node = ListParams::default().labels(selector);
        let found = pods.list(&on_node).await.unwrap();
        let found = found.items.into_iter().filter(|pod| {
            let spec = pod.spec.as_ref();
            spec.and_then(|spec| spec.node_name.as_deref()) == Some(node)
        });
        let evictions = found.map(|pod| self.evict(pod));
        futures::future::join_all(evictions).await;
    }

    async fn evict(&self, pod: Pod) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = pod.metadata.name.unwrap_or_default();
        let mut wait = Wait::new(format!("{}: {name} is evicted and gone", self.namespace));
        loop {
            match pods.evict(&name, &EvictParams::default()).await {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if status.is_not_found() => return,
                Err(kube::Error::Api(status)) if status.code == TOO_MANY_REQUESTS => {}
                Err(error) => panic!("evict {name}: {error}"),
            }
            // A sign of life of any pod: this one has to wait for others.
            let all = pods.list(&ListParams::default()).await.unwrap();
            let versions = all.items.into_iter().map(|pod| pod.metadata.resource_version);
            wait.see(versions.flatten().collect::<Vec<_>>().join(" "));
            tokio::time::sleep(ASK_AGAIN).await;
        }
        while let Some(found) = pods.get_opt(&name).await.unwrap() {
            if found.metadata.uid != pod.metadata.uid {
                return;
            }
            wait.see(format!("{:?}", found.status));
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Gives a node a taint that keeps pods off, and leaves those that are there.
    pub fn taint(&self, node: &str, key: &str) -> Tainted<'_> {
        let taint = json!({"key": key, "effect": "NoSchedule"});
        self.until(&format!("{node} has the taint {key}"), || {
            self.change_taints(node, |taints| taints.push(taint.clone()))
        });
        Tainted {
            lab: self,
            node: node.to_owned(),
            key: key.to_owned(),
        }
    }

    /// Others change taints too: what was not seen here must not be lost, so that this may fail.
    fn change_taints(&self, node: &str, change: impl Fn(&mut Vec<Value>)) -> Result<(), String> {
        let found = self.try_get(&format!("node {node}"))?;
        let mut taints = found["spec"]["taints"].as_array().cloned().unwrap_or_default();
        change(&mut taints);
        let version = &found["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(patch);
        let patched = self
            .runtime
            .block_on(nodes.patch(node, &PatchParams::default(), &patch));
        patched.map(drop).map_err(|error| error.to_string())
    }
}

impl Drop for Drained<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.lab.set_unschedulable(&self.node, false) {
            eprintln!("{} takes no pods: {error:#}", self.node);
        }
    }
}

impl Drop for Tainted<'_> {
    fn drop(&mut self) {
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let others = |taints: &mut Vec<Value>| taints.retain(|taint| taint["key"] != *self.key);
            match self.lab.change_taints(&self.node, others) {
                Ok(()) => return,
                Err(error) => last = error,
            }
        }
        eprintln!("{} keeps the taint {}: {last}", self.node, self.key);
    }
}
