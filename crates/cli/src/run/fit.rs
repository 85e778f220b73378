//! Whether this machine has the resources that a job requests: a pod that fits on no node would
//! wait for ever.

mod together;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::Value;
use trainyard_api::quantity::Amount;
use trainyard_api::{FieldError, TrainingJob};
use trainyard_core::registry::Registry;

use super::manifest::refuse;
use crate::validate::text;

/// Refuses a job that would wait for ever: one with pods that fit on no node, even on an empty one,
/// or whose pods train together and don't fit together. Returns a note if pods of another job wait
/// until others have ended.
pub async fn check(client: &Client, job: &Value, registry: &Registry) -> Result<Option<String>> {
    let nodes = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await?
        .items;
    let title = "this machine can't run the job";
    refuse(title, &check_roles(job, &nodes))?;
    match check_together(job, registry, &nodes) {
        Ok(note) => Ok(note),
        Err(error) => refuse(title, &[error]).map(|()| None),
    }
}

/// Whether all pods find room at the same time. An error if none of them could train before: those
/// that train as one start together, but an elastic job starts with fewer.
fn check_together(job: &Value, registry: &Registry, nodes: &[Node]) -> Result<Option<String>, FieldError> {
    let Ok(object) = serde_json::from_value::<TrainingJob>(job.clone()) else {
        // An invalid job is reported elsewhere.
        return Ok(None);
    };
    let roles = job.pointer("/spec/roles").and_then(Value::as_array);
    let roles = roles.into_iter().flatten().zip(&object.spec.roles).enumerate();
    let roles: Vec<together::Role<'_>> = roles
        .map(|(position, (role, typed))| together::Role::new(role, object.spec.replicas(position, typed)))
        .collect();
    let Some(shortage) = together::shortage(&roles, nodes) else {
        return Ok(None);
    };
    let frameworks = registry.for_job(&object);
    let trains_as_one = frameworks
        .of(&object)
        .is_some_and(|framework| framework.trains_as_one);
    if trains_as_one && object.spec.elastic.is_none() {
        let message = format!("its pods train together, but {shortage}");
        return Err(FieldError::new("spec.roles", message));
    }
    Ok(Some(format!(
        "not all pods can run at the same time, so that some wait until others have ended: {shortage}"
    )))
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
            let message = format!(
                "a pod asks for {resource}: {}, and this machine has {}: ask for less, or add {}",
                requested.words.join(" + "),
                has.as_deref().unwrap_or("none"),
                remedies(name, &requested.by).join(" ")
            );
            errors.push(FieldError::new(format!("spec.roles[{r}]"), message));
        }
    }
    errors
}

/// What to add to the command line so that these containers of a role request nothing.
fn remedies(role: &str, containers: &BTreeSet<(&'static str, String)>) -> Vec<String> {
    let containers = containers.iter();
    containers
        .map(|(list, container)| {
            format!("--set roles.{role}.template.spec.{list}.{container}.resources=null")
        })
        .collect()
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
    let there = nodes.iter().filter_map(|node| allocatable(node, resource));
    there.max_by_key(|quantity| thousandths(quantity))
}

/// How much of a resource a node has for pods.
fn allocatable(node: &Node, resource: &str) -> Option<String> {
    let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
    Some(allocatable.get(resource)?.0.clone())
}

fn thousandths(quantity: &str) -> i128 {
    Amount::parse(quantity.trim()).map_or(0, Amount::thousandths)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(cpu: &str) -> Node {
        let allocatable = json!({"cpu": cpu, "memory": "1Gi", "pods": "5"});
        serde_json::from_value(json!({"metadata": {}, "status": {"allocatable": allocatable}})).unwrap()
    }

    fn found(containers: &Value, init: &Value) -> Vec<String> {
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

    /// A job with a role for each of these: how many pods, and what each requests.
    fn job(framework: &str, roles: &[(&str, i32, Value)]) -> Value {
        let role = |(name, replicas, requests): &(&str, i32, Value)| {
            let container =
                json!({"name": "main", "image": "example/train", "resources": {"requests": requests}});
            json!({"name": name, "replicas": replicas, "template": {"spec": {"containers": [container]}}})
        };
        let roles: Vec<Value> = roles.iter().map(role).collect();
        let meta = json!({"name": "mnist"});
        json!({
            "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": meta,
            "spec": {"framework": {"name": framework}, "roles": roles},
        })
    }

    fn together(job: &Value, nodes: &[Node]) -> Result<Option<String>, String> {
        let checked = check_together(job, &Registry::default(), nodes);
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn pods_that_train_together_and_do_not_fit_together_are_refused() {
        let master = ("master", 1, json!({"cpu": 2}));
        let small = ("worker", 2, json!({"cpu": "1", "memory": "512Mi"}));
        let small = job("pytorch", &[master.clone(), small]);
        assert_eq!(together(&small, &[node("4")]), Ok(None));
        let said = "spec.roles: its pods train together, but worker-1 and worker-2 find no room beside the other pods: \
                    of cpu, the pod of master asks for 2, 3 pods of worker ask for 1500m each and this machine has 4. \
                    Ask for less or for fewer pods, or add \
                    --set roles.master.template.spec.containers.main.resources=null or \
                    --set roles.worker.template.spec.containers.main.resources=null or --nodes 2";
        let large = job("pytorch", &[master, ("worker", 3, json!({"cpu": "1500m"}))]);
        assert_eq!(together(&large, &[node("4")]), Err(said.to_owned()));
        assert_eq!(together(&large, &[node("4"), node("4")]), Ok(None));
    }

    #[test]
    fn pods_that_can_wait_for_each_other_are_noted() {
        let many = job("custom", &[("worker", 8, json!({"cpu": 2}))]);
        let said = "not all pods can run at the same time, so that some wait until others have ended: worker-4, worker-5, \
                    worker-6 and worker-7 find no room beside the other pods: of cpu, 8 pods of worker ask for 2 each \
                    and each of 2 nodes has 4. Ask for less or for fewer pods, or add \
                    --set roles.worker.template.spec.containers.main.resources=null or --nodes 4";
        assert_eq!(
            together(&many, &[node("4"), node("4")]),
            Ok(Some(said.to_owned()))
        );
        let mut elastic = job("pytorch", &[("worker", 8, json!({"cpu": 2}))]);
        elastic["spec"]["elastic"] = json!({"minReplicas": 1, "replicas": 3, "maxReplicas": 8});
        let said = together(&elastic, &[node("4")]).unwrap().unwrap();
        assert!(said.contains(": worker-2 finds no room"), "{said}");
    }

    #[test]
    fn a_node_has_room_for_so_many_pods() {
        let many = job("standalone", &[("worker", 11, json!({}))]);
        let said = together(&many, &[node("4")]).unwrap().unwrap();
        assert!(
            said.contains("worker-5, worker-6, worker-7, worker-8 and 2 more find no room"),
            "{said}"
        );
        assert!(
            said.ends_with(
                "of pods, 11 pods of worker ask for 1 each and this machine has 5. Ask for less or for fewer pods, or add \
                 --nodes 3"
            ),
            "{said}"
        );
    }
}
