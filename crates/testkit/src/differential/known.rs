//! The known differences between the embedded API and a real kube-apiserver, each with its reason. Whatever else differs
//! fails the test.

use serde_json::Value;

use super::history::History;
use super::normalise::Answer;
use super::operation::Operation;

/// One known difference.
pub struct Known {
    /// What differs, and why that is right or does not matter.
    pub reason: &'static str,
    /// Takes it out of both answers.
    forgive: fn(&Operation, &mut Answer, &mut Answer),
}

/// All known differences.
pub const KNOWN: &[Known] = &[
    Known {
        reason: "The real server of the tests is told to give pods other tolerations for lost nodes than servers do \
                 by themselves, so that tests of lost nodes need not wait for five minutes.",
        forgive: |_, real, embedded| {
            without_default_tolerations(&mut real.object);
            without_default_tolerations(&mut embedded.object);
        },
    },
    Known {
        reason: "A real server takes the status of a service that is not there for a service to be created, and then \
                 misses the addresses that it did not give it. Either is a refusal; that there is no such service \
                 is the more helpful one.",
        forgive: |operation, real, embedded| {
            let of_status = matches!(operation, Operation::Update { kind, status: true, .. } if kind.plural == "services");
            let misses_addresses = real.code == 422 && lacks(real, "spec.clusterIPs");
            if of_status && misses_addresses && embedded.code == 404 {
                real.clone_from(embedded);
            }
        },
    },
];

fn lacks(answer: &Answer, field: &str) -> bool {
    let required = (field.to_owned(), "FieldValueRequired".to_owned());
    answer
        .error
        .as_ref()
        .is_some_and(|error| error.causes.contains(&required))
}

/// Takes the known differences out of two answers.
pub fn forgive(operation: &Operation, real: &mut Answer, embedded: &mut Answer) {
    for known in KNOWN {
        (known.forgive)(operation, real, embedded);
    }
}

/// The same for what watches tell, which are objects alone.
pub fn forgive_object(object: &mut Value) {
    without_default_tolerations(object);
}

fn without_default_tolerations(object: &mut Value) {
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(without_default_tolerations);
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(tolerations) = spec.get_mut("tolerations").and_then(Value::as_array_mut) {
        tolerations.retain(|toleration| {
            let key = toleration["key"].as_str().unwrap_or_default();
            !matches!(
                key,
                "node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable"
            )
        });
        if tolerations.is_empty() {
            spec.remove("tolerations");
        }
    }
}

/// Takes the known differences out of the history of a small pod:
///
/// - a real runtime says the name of an image in full, with its registry, and the embedded node has none;
/// - both sides are looked at from time to time, so that a pod which ran for less than that was not seen running;
/// - why a container waits is told in words, which name the pod's UID.
pub fn forgive_history(history: &mut History) {
    if history.phases.len() > 2 {
        history.phases.retain(|phase| phase != "Running");
    }
    for list in ["containerStatuses", "initContainerStatuses"] {
        let containers = history.end.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            container["image"] = Value::Null;
            for state in ["state", "lastState"] {
                let waiting = container[state].get_mut("waiting").and_then(Value::as_object_mut);
                waiting.map(|waiting| waiting.remove("message"));
            }
        }
    }
}
