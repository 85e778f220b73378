//! Whether this machine has the resources that a job requests: a pod that fits on no node would
//! wait for ever.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::Value;
use trainyard_api::FieldError;
use trainyard_api::quantity::Amount;

use super::manifest::refuse;
use crate::validate::text;

/// Refuses a job with pods that fit on no node, even on an empty one.
pub async fn check(client: &Client, job: &Value) -> Result<()> {
    let nodes = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await?;
    refuse("this machine can't run the job", &check_roles(job, &nodes.items))
}

/// One error for each role and resource that no node has enough of.
fn check_roles(job: &Value, nodes: &[Node]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let roles = job.pointer("/spec/roles").and_then(Value::as_array);
    for (r, role) in roles.into_iter().flatten().enumerate() {
        let name = text(role, "/name").unwrap_or_default();
        for (resource, requested) in requests(role) {
            let has = max_allocatable(nodes, &resource);
            let has_amount = has.as_deref().map_or(0, thousandths);
            if requested.amount <= has_amount {
                continue;
            }
            let remedies: Vec<String> = requested
                .by
                .iter()
                .map(|(list, container)| {
                    format!("--set roles.{name}.template.spec.{list}.{container}.resources=null")
                })
                .collect();
            let message = format!(
                "a pod asks for {resource}: {}, and this machine has {}: ask for less, or add {}",
                requested.words.join(" + "),
                has.as_deref().unwrap_or("none"),
                remedies.join(" ")
            );
            errors.push(FieldError::new(format!("spec.roles[{r}]"), message));
        }
    }
    errors
}

/// How much of a resource a pod of a role requests.
#[derive(Default)]
struct Requested {
    amount: i128,
    words: Vec<String>,
    /// The lists and names of the containers that request it.
    by: BTreeSet<(&'static str, String)>,
}

/// The requests of a pod, by resource: the larger of the sum of the containers that run together
/// and of each init container, which runs alone.
fn requests(role: &Value) -> BTreeMap<String, Requested> {
    let mut all: BTreeMap<String, Requested> = BTreeMap::new();
    let list = |list: &'static str| {
        let containers = role.pointer(&format!("/template/spec/{list}"));
        let containers = containers.and_then(Value::as_array).into_iter().flatten();
        containers.map(move |container| (list, container))
    };
    let is_sidecar = |container: &Value| text(container, "/restartPolicy") == Some("Always");
    let (sidecars, alone): (Vec<_>, Vec<_>) =
        list("initContainers").partition(|(_, container)| is_sidecar(container));
    let together = list("containers").chain(sidecars);
    for (is_alone, containers) in [(false, together.collect()), (true, alone)] {
        for (list, container) in containers {
            let name = text(container, "/name").unwrap_or_default();
            for (resource, words) in container_requests(container) {
                let amount = thousandths(&words);
                let requested = all.entry(resource).or_default();
                if is_alone {
                    if amount <= requested.amount {
                        continue;
                    }
                    *requested = Requested::default();
                }
                requested.amount += amount;
                requested.words.push(words);
                requested.by.insert((list, name.to_owned()));
            }
        }
    }
    all
}

/// The requests of a container, which default to its limits.
fn container_requests(container: &Value) -> BTreeMap<String, String> {
    let mut requested = BTreeMap::new();
    for kind in ["limits", "requests"] {
        let resources = container.pointer(&format!("/resources/{kind}"));
        for (name, value) in resources.and_then(Value::as_object).into_iter().flatten() {
            let words = value
                .as_str()
                .map_or_else(|| value.to_string(), ToOwned::to_owned);
            requested.insert(name.clone(), words);
        }
    }
    requested
}

fn max_allocatable(nodes: &[Node], resource: &str) -> Option<String> {
    let there = nodes.iter().filter_map(|node| {
        let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
        Some(allocatable.get(resource)?.0.clone())
    });
    there.max_by_key(|quantity| thousandths(quantity))
}

fn thousandths(quantity: &str) -> i128 {
    Amount::parse(quantity.trim()).map_or(0, Amount::thousandths)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(containers: &Value, init: &Value) -> Vec<String> {
        let node = |cpu: &str| {
            let allocatable = json!({"cpu": cpu, "memory": "1Gi"});
            serde_json::from_value(json!({"metadata": {}, "status": {"allocatable": allocatable}})).unwrap()
        };
        let spec = json!({"containers": containers, "initContainers": init});
        let job = json!({"spec": {"roles": [{"name": "worker", "template": {"spec": spec}}]}});
        let errors = check_roles(&job, &[node("2"), node("4")]);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_fits_on_the_largest_node_is_fine() {
        let fits = json!([
            {"name": "train", "resources": {"requests": {"cpu": 3, "memory": "1024Mi"}, "limits": {"cpu": "500"}}},
            {"name": "side", "resources": {"limits": {"cpu": "1000m"}}},
        ]);
        let before = json!([{"name": "prep", "resources": {"requests": {"cpu": "4"}}}]);
        assert_eq!(found(&fits, &before), [""; 0]);
        assert_eq!(found(&json!([{"name": "train"}]), &json!([])), [""; 0]);
    }

    #[test]
    fn what_fits_nowhere_is_named_with_what_helps() {
        let large = json!([
            {"name": "train", "resources": {"requests": {"cpu": 3}, "limits": {"nvidia.com/gpu": 1}}},
            {"name": "side", "resources": {"limits": {"cpu": "1500m"}}},
        ]);
        assert_eq!(
            found(&large, &json!([])),
            [
                "spec.roles[0]: a pod asks for cpu: 3 + 1500m, and this machine has 4: ask for less, or add \
                 --set roles.worker.template.spec.containers.side.resources=null \
                 --set roles.worker.template.spec.containers.train.resources=null",
                "spec.roles[0]: a pod asks for nvidia.com/gpu: 1, and this machine has none: ask for less, or add \
                 --set roles.worker.template.spec.containers.train.resources=null",
            ]
        );
        let before = json!([{"name": "prep", "resources": {"requests": {"memory": "2Gi"}}}]);
        let said = found(&json!([{"name": "train"}]), &before);
        assert!(said[0].contains("initContainers.prep.resources=null"), "{said:?}");
    }
}
