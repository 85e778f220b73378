//! Pods that wait for other roles, and the agents in them.
//!
//! Agents are processes as pods have them, started with what the operator has written into the pods
//! and with tokens of these pods; only the pods themselves are simulated. They find the operators
//! by a host name.

mod agents;
mod names;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Client;
use kube::api::{Api, ListParams, PostParams, Request};
use serde::Deserialize;
use serde_json::{Value, json};
use trainyard_contract::observer::AUDIENCE;
use trainyard_core::agent::WAIT_CONTAINER;
use trainyard_operator::OBSERVER_PORT;
use trainyard_operator::observer::OBSERVER_SERVICE;

pub use agents::{Agent, Agents};
pub use names::HostNames;

const MAX_PARALLEL: usize = 32;

/// The name by which agents find the operators of a namespace.
pub fn host(namespace: &str) -> String {
    format!("{OBSERVER_SERVICE}.{namespace}.svc")
}

/// Two addresses of this machine at which observers can be served. The port is fixed, so that tests
/// in parallel need different addresses, which are chosen at random.
pub fn addresses() -> [Ipv4Addr; 2] {
    let [high, middle] = [(); 2].map(|()| fastrand::u8(1..255));
    let low = fastrand::u8(1..127);
    [low, low + 127].map(|low| Ipv4Addr::new(127, high, middle, low))
}

/// Arguments of an operator that is one of several in its namespace and serves the observer at an
/// address.
pub fn operator_arguments(namespace: &str, address: Ipv4Addr) -> Vec<String> {
    vec![
        "--leader-elect".to_owned(),
        "--observer".to_owned(),
        format!("--observer-address={address}:{OBSERVER_PORT}"),
        "--agent-image=registry.example/trainyard:dev".to_owned(),
        format!("--namespace={namespace}"),
    ]
}

/// A job of a server and clients. If it waits, the programs of the clients may start when the
/// server runs.
pub fn job(name: &str, pods: usize, waits: bool) -> Value {
    let template = json!({"spec": {"containers": [{"name": "main", "image": "registry.example/train:1"}]}});
    let mut clients = json!({"name": "client", "replicas": pods.saturating_sub(1), "template": template});
    if waits {
        clients["dependsOn"] = json!([{"role": "server", "state": "Running"}]);
    }
    json!({
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"framework": {"name": "custom"}, "roles": [
            {"name": "server", "replicas": 1, "template": template},
            clients,
        ]},
    })
}

/// The pod of such a job that the others wait for.
pub fn server(job: &str) -> String {
    format!("{job}-server-0")
}

/// The pods of such a job that wait.
pub fn clients(job: &str, pods: usize) -> impl Iterator<Item = String> + use<> {
    let prefix = format!("{job}-client-");
    (0..pods.saturating_sub(1)).map(move |index| format!("{prefix}{index}"))
}

/// A pod with an agent, such as one that waits: what its agent is told, and what its kubelet would
/// give it.
pub struct Waiter {
    /// Its name.
    pub name: String,
    /// The variables of its agent.
    pub env: BTreeMap<String, String>,
    /// Its token.
    pub token: String,
}

/// The waiting pods of jobs, by job. The pods must exist.
pub async fn waiters(
    client: &Client,
    namespace: &str,
    jobs: &[String],
    pods: usize,
) -> Result<Vec<Vec<Waiter>>> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let found = api.list(&ListParams::default()).await?.items;
    let mut by_name: BTreeMap<String, Pod> = BTreeMap::new();
    for pod in found {
        by_name.insert(pod.metadata.name.clone().unwrap_or_default(), pod);
    }
    let by_name = &by_name;
    let of_job = |job: &String| clients(job, pods).collect::<Vec<_>>();
    let all: Vec<Vec<String>> = jobs.iter().map(of_job).collect();
    let mut waiters = futures::stream::iter(all.iter().flatten().cloned())
        .map(|name| async move {
            let pod = by_name.get(&name).with_context(|| format!("no pod {name}"))?;
            let token = token(client, pod).await?;
            let env = environment(pod, WAIT_CONTAINER)?;
            anyhow::Ok(Waiter { name, env, token })
        })
        .buffered(MAX_PARALLEL);
    let mut by_job = Vec::new();
    for names in &all {
        let mut of_job = Vec::new();
        for _ in names {
            of_job.extend(waiters.try_next().await?);
        }
        by_job.push(of_job);
    }
    Ok(by_job)
}

/// What the agent in a container of a pod is told, and the token of the pod. It must exist.
pub async fn agent_of(client: &Client, namespace: &str, pod: &str, container: &str) -> Result<Waiter> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let found = api.get(pod).await?;
    Ok(Waiter {
        name: pod.to_owned(),
        env: environment(&found, container)?,
        token: token(client, &found).await?,
    })
}

/// What the operator tells the agent in a container of a pod.
fn environment(pod: &Pod, container: &str) -> Result<BTreeMap<String, String>> {
    let containers = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref());
    let is_agent = |found: &&Container| found.name == container;
    let agent = containers.and_then(|containers| containers.iter().find(is_agent));
    let variables = agent
        .and_then(|agent| agent.env.clone())
        .context("a pod without an agent")?;
    Ok(variables
        .into_iter()
        .map(|variable| (variable.name, variable.value.unwrap_or_default()))
        .collect())
}

#[derive(Deserialize)]
struct TokenAnswer {
    status: TokenStatus,
}

#[derive(Deserialize)]
struct TokenStatus {
    token: String,
}

/// What a kubelet would put into the pod.
async fn token(client: &Client, pod: &Pod) -> Result<String> {
    let meta = &pod.metadata;
    let accounts = format!(
        "/api/v1/namespaces/{}/serviceaccounts",
        meta.namespace.as_deref().unwrap_or_default()
    );
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": [AUDIENCE],
            "expirationSeconds": 3600,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid},
        },
    });
    let request = Request::new(accounts).create_subresource(
        "token",
        "default",
        &PostParams::default(),
        serde_json::to_vec(&body)?,
    )?;
    Ok(client.request::<TokenAnswer>(request).await?.status.token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_job_that_waits_has_dependencies() {
        let depends = |waits| job("j", 3, waits)["spec"]["roles"][1]["dependsOn"].clone();
        assert_eq!(depends(true), json!([{"role": "server", "state": "Running"}]));
        assert_eq!(depends(false), Value::Null);
        assert_eq!(clients("j", 3).collect::<Vec<_>>(), ["j-client-0", "j-client-1"]);
    }

    #[test]
    fn addresses_are_of_this_machine_and_differ() {
        let [first, second] = addresses();
        assert!(first.is_loopback() && second.is_loopback() && first != second);
    }
}
