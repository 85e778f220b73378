//! The known differences between the embedded cluster and a real one, each with its reason: those
//! of the API, and those of pods. Whatever else differs fails the tests.

use std::collections::BTreeMap;

use serde_json::Value;

use super::history::{History, Timeline};
use super::normalise::Answer;
use super::operation::Operation;
use super::pods::{SmallPod, Until};

/// One known difference.
pub struct KnownDifference {
    /// What differs, and why that is right or does not matter.
    pub reason: &'static str,
    /// Removes it from both answers.
    remove_known: fn(&Operation, &mut Answer, &mut Answer),
}

/// All known differences.
pub const KNOWN_DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        reason: "The real server of the tests is told to give pods other tolerations for lost nodes than servers do \
                 by themselves, so that tests of lost nodes need not wait for five minutes.",
        remove_known: |_, real, embedded| {
            without_default_tolerations(&mut real.object);
            without_default_tolerations(&mut embedded.object);
        },
    },
    KnownDifference {
        reason: "A real server takes the status of a service that is not there for a service to be created, and then \
                 misses the addresses that it did not give it. Either is a refusal; that there is no such service \
                 is the more helpful one.",
        remove_known: |operation, real, embedded| {
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

/// Removes the known differences from two answers.
pub fn remove_known(operation: &Operation, real: &mut Answer, embedded: &mut Answer) {
    for known in KNOWN_DIFFERENCES {
        (known.remove_known)(operation, real, embedded);
    }
}

/// The same for the object of a watch event.
pub fn remove_known_from_object(object: &mut Value) {
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

/// One known difference between how a real kubelet and the embedded node run the same pod.
pub struct KnownPodDifference {
    /// What differs, and why that is right or does not matter.
    pub reason: &'static str,
    /// Removes it from both histories.
    remove_known: fn(&SmallPod, &mut History, &mut History),
}

/// All known differences of pods.
pub const KNOWN_POD_DIFFERENCES: &[KnownPodDifference] = &[
    KnownPodDifference {
        reason: "A kubelet looks at containers about once a second and writes what they are then, so that what came and \
                 went in between is not told. The embedded node is told at once, and misses less.",
        remove_known: |pod, real, embedded| {
            let pairs = |real: &mut BTreeMap<String, Timeline>, embedded: &mut BTreeMap<String, Timeline>| {
                for (name, real) in real {
                    if let Some(embedded) = embedded.get_mut(name) {
                        without_moments(pod.is_long, real, embedded);
                    }
                }
            };
            without_moments(pod.is_long, &mut real.phases, &mut embedded.phases);
            pairs(&mut real.conditions, &mut embedded.conditions);
            pairs(&mut real.containers, &mut embedded.containers);
        },
    },
    KnownPodDifference {
        reason: "The embedded node does not change the resources of pods that run, nor mounts differently from what was \
                 asked for, and there is only one generation of a pod: it does not tell which of those it has come to.",
        remove_known: |_, real, embedded| {
            for history in [real, embedded] {
                without(
                    &mut history.end,
                    &[
                        "observedGeneration",
                        "resources",
                        "allocatedResources",
                        "volumeMounts",
                    ],
                );
            }
        },
    },
    KnownPodDifference {
        reason: "A busy kubelet may tell of the first wait before a restart so late that it is the second, and may start \
                 a container once more before it learns that its pod is to go.",
        remove_known: |pod, real, embedded| {
            if let Until::Waits(CRASH_LOOP)
            | Until::WaitsBeside(CRASH_LOOP)
            | Until::Deleted(Until::Waits(CRASH_LOOP)) = pod.until
            {
                for history in [real, embedded] {
                    without(&mut history.end, &["restartCount"]);
                    let (first, second) = ("back-off 10s", "back-off 20s");
                    replace(&mut history.end, second, first);
                }
            }
        },
    },
    KnownPodDifference {
        reason: "Images are not pulled, so that there is neither a registry in their names nor an identifier of what \
                 was pulled.",
        remove_known: |_, real, embedded| {
            for history in [real, embedded] {
                without(&mut history.end, &["image", "imageID"]);
            }
        },
    },
];

/// Removes the known differences from two histories of a pod.
pub fn remove_known_from_history(pod: &SmallPod, real: &mut History, embedded: &mut History) {
    for known in KNOWN_POD_DIFFERENCES {
        (known.remove_known)(pod, real, embedded);
    }
}

/// Removes fields at any depth.
fn without(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !names.contains(&name.as_str()));
            fields.values_mut().for_each(|value| without(value, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| without(value, names)),
        _ => {}
    }
}

/// Replaces words in strings at any depth.
fn replace(value: &mut Value, words: &str, instead: &str) {
    match value {
        Value::String(text) => *text = text.replace(words, instead),
        Value::Array(items) => {
            for value in items {
                replace(value, words, instead);
            }
        }
        Value::Object(fields) => {
            for value in fields.values_mut() {
                replace(value, words, instead);
            }
        }
        _ => {}
    }
}

const CRASH_LOOP: &str = "CrashLoopBackOff";

/// The first states of a pod, which a fast node may skip.
const BEGINNINGS: &[&str] = &[
    "False",
    "False ContainersNotReady",
    "False ContainersNotInitialized",
];

/// Removes states that may have been too short to be seen on one side.
fn without_moments(is_long: bool, real: &mut Timeline, embedded: &mut Timeline) {
    if real == embedded {
        return;
    }
    for own in [real, embedded] {
        if own.len() > 1 && BEGINNINGS.contains(&own[0].as_str()) {
            own.remove(0);
        }
        let end = own.pop();
        own.retain(|state| !may_be_missed(is_long, state));
        own.extend(end);
        own.dedup();
    }
}

/// Whether a state may be too short to be seen: the first states always, the others if the
/// containers do not run for long.
fn may_be_missed(is_long: bool, state: &str) -> bool {
    let first = ["waiting ContainerCreating", "waiting PodInitializing"];
    let between = [
        "Running",
        "running",
        "True",
        "waiting PostStartHookError",
        "waiting RunContainerError",
    ];
    let is_brief =
        || between.contains(&state) || BEGINNINGS.contains(&state) || state.starts_with("terminated");
    first.contains(&state) || (!is_long && is_brief())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forgiven(is_long: bool, real: &[&str], embedded: &[&str]) -> bool {
        let timeline = |states: &[&str]| states.iter().map(ToString::to_string).collect::<Timeline>();
        let (mut real, mut embedded) = (timeline(real), timeline(embedded));
        without_moments(is_long, &mut real, &mut embedded);
        real == embedded
    }

    #[test]
    fn a_moment_may_be_missed_and_nothing_else() {
        assert!(forgiven(
            false,
            &["Pending", "Succeeded"],
            &["Pending", "Running", "Succeeded"]
        ));
        assert!(!forgiven(
            true,
            &["Pending", "Succeeded"],
            &["Pending", "Running", "Succeeded"]
        ));
        assert!(!forgiven(
            false,
            &["Pending", "Running"],
            &["Pending", "Running", "Succeeded"]
        ));
        assert!(!forgiven(
            false,
            &["Pending", "Failed"],
            &["Pending", "Running", "Succeeded"]
        ));
        assert!(!forgiven(
            false,
            &["waiting A", "terminated B 1"],
            &["terminated B 1"]
        ));
        assert!(forgiven(true, &["True"], &["False", "True"]));
        assert!(!forgiven(true, &["True"], &["True", "False", "True"]));
        assert!(!forgiven(false, &["A", "B", "C"], &["B", "A", "C"]));
    }
}
