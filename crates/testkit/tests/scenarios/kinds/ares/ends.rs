//! AresOperator's own samples, and a job of each type, to their end.

use serde_json::{Map, Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::Lab;

use super::super::wake;
use super::{ARES, phase};

/// Does nothing until its sleep is killed, and then what the manifest says. Their samples wait for
/// a word from outside in the same way. It ends when it is told to, as programs do.
const WAIT: &str = "trap 'exit 143' TERM; sleep 86400 & wait; exec \"$@\"";

/// A job, and the status in which it ends.
struct Case {
    manifest: &'static str,
    /// The roles whose programs come to their end, with how many of their pods, in this order. The
    /// others stay until they are stopped with the job.
    ending: &'static [(&'static str, u32)],
    /// The other roles.
    stopped: &'static [&'static str],
}

macro_rules! case {
    ($file:literal, $ending:expr, $stopped:expr) => {
        Case {
            manifest: include_str!(concat!("../../../../../compat/tests/manifests/ares/", $file)),
            ending: &$ending,
            stopped: &$stopped,
        }
    };
}

/// AresOperator's samples.
const SAMPLES: [Case; 6] = [
    case!("sample-bagua.yaml", [("worker", 2)], ["etcd"]),
    case!("sample-custom.yaml", [("worker", 2), ("launcher", 1)], []),
    case!("sample-mpi.yaml", [("launcher", 1)], ["worker"]),
    case!("sample-pytorch.yaml", [("master", 1), ("worker", 1)], []),
    case!("sample-standalone.yaml", [("worker", 1)], []),
    case!(
        "sample-tensorflow.yaml",
        [("master", 1), ("worker", 2)],
        ["evaluator"]
    ),
];

/// A job of each type.
const OURS: [Case; 8] = [
    case!("bagua.yaml", [("master", 1), ("worker", 1)], []),
    case!("bagua-elastic.yaml", [("worker", 2)], ["etcd"]),
    // Training begins when all is prepared, and one pod that trained is enough.
    case!("custom.yaml", [("prepare", 1), ("train", 1)], ["hub"]),
    case!(
        "dask.yaml",
        [("launcher", 1)],
        ["leadworker", "scheduler", "worker"]
    ),
    case!("mpi.yaml", [("launcher", 1)], ["worker"]),
    case!("pytorch.yaml", [("master", 1), ("worker", 2)], []),
    case!("standalone.yaml", [("worker", 2)], []),
    case!(
        "tensorflow.yaml",
        [("worker", 2), ("chief", 1)],
        ["evaluator", "ps"]
    ),
];

impl Case {
    /// The manifest with an image that is there, and programs that end when the scenario says so.
    /// Nothing else of a sample differs.
    fn job(&self) -> Value {
        let mut job: Value = serde_saphyr::from_str(self.manifest).unwrap();
        for role in job["spec"]["roleSpecs"].as_object_mut().unwrap().values_mut() {
            for container in role["template"]["spec"]["containers"].as_array_mut().unwrap() {
                container["image"] = images::BUSYBOX.into();
                let program = container["command"].as_array().unwrap();
                let command = [json!("sh"), json!("-c"), json!(WAIT), json!("sh")];
                container["command"] = command.iter().chain(program).cloned().collect();
            }
        }
        job
    }

    /// Ours, without what is not possible here.
    fn own_job(&self) -> Value {
        let mut job = self.job();
        // A scenario has a namespace of its own.
        job["metadata"].as_object_mut().unwrap().remove("namespace");
        for role in job["spec"]["roleSpecs"].as_object_mut().unwrap().values_mut() {
            for container in role["template"]["spec"]["containers"].as_array_mut().unwrap() {
                // No node has accelerators.
                container.as_object_mut().unwrap().remove("resources");
            }
        }
        job
    }

    /// Has the programs of the job come to their end.
    fn play(&self, lab: &Lab, job: &Value) {
        let name = job["metadata"]["name"].as_str().unwrap();
        for (role, count) in self.ending {
            let is_awaited = |other: &Value| {
                let dependence = &other["dependence"];
                dependence["rolePhase"] == "Succeeded" && dependence["roleNames"] == json!([role])
            };
            let mut roles = job["spec"]["roleSpecs"].as_object().unwrap().values();
            if roles.any(is_awaited) {
                role_phase(lab, name, role, "Running");
            } else {
                was_running(lab, name);
            }
            for index in 0..*count {
                end(lab, &format!("{name}-{role}-{index}"), job, role);
            }
        }
    }

    /// The status of the job at its end, without times.
    fn status(&self, job: &Value) -> Value {
        let name = job["metadata"]["name"].as_str().unwrap();
        let (mut roles, mut counts) = (Map::new(), Map::new());
        for (role, count) in self.ending {
            roles.insert(
                (*role).to_owned(),
                json!({"phase": "Succeeded", "succeeded": count}),
            );
            counts.insert((*role).to_owned(), json!({"succeeded": count}));
        }
        for role in self.stopped {
            roles.insert((*role).to_owned(), json!({"phase": "Running"}));
            counts.insert((*role).to_owned(), json!({}));
        }
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            let message = format!("AresJob {name} {message}.");
            json!({"type": kind, "status": status, "reason": reason, "message": message})
        };
        json!({
            "phase": "Succeeded",
            "conditions": [
                condition("Created", "True", "Starting", "is Starting"),
                condition("Running", "False", "Succeeded", "has ended"),
                condition("Succeeded", "True", "Succeeded", "is Succeeded"),
            ],
            "roleStatuses": roles,
            "replicaStatuses": counts,
        })
    }
}

/// Waits until a job has been running.
fn was_running(lab: &Lab, name: &str) {
    lab.until(&format!("{name} runs"), || {
        let status = lab.get(&format!("{ARES} {name}"))["status"].clone();
        if status["runningTime"].is_string() {
            Ok(())
        } else {
            Err(format!("{status:#}"))
        }
    });
}

/// Waits until a role is in a phase.
fn role_phase(lab: &Lab, name: &str, role: &str, wanted: &str) {
    lab.until(&format!("{role} of {name} is {wanted}"), || {
        let status = lab.try_get(&format!("tj {name}"))?["status"].clone();
        let mut roles = status["roles"].as_array().into_iter().flatten();
        if roles.any(|found| found["name"] == role && found["phase"] == wanted) {
            Ok(())
        } else {
            Err(format!("{status:#}"))
        }
    });
}

/// Has the program of a pod come to its end.
fn end(lab: &Lab, pod: &str, job: &Value, role: &str) {
    let containers = &job["spec"]["roleSpecs"][role]["template"]["spec"]["containers"];
    let trains = |container: &&Value| container["name"] == job["spec"]["frameworkType"];
    let containers = containers.as_array().unwrap();
    let main = containers.iter().find(trains).unwrap_or(&containers[0]);
    wake(lab, pod, main["name"].as_str().unwrap());
}

/// Takes the times out of a status. Returns the others, and the times of the job.
fn without_times(mut status: Value) -> (Value, [Value; 3]) {
    let mut take = |name: &str| status.as_object_mut().unwrap().remove(name).unwrap_or_default();
    let times = ["startTime", "runningTime", "completionTime"].map(&mut take);
    let roles = status["roleStatuses"].as_object_mut().unwrap().values_mut();
    for role in roles {
        assert!(
            role.as_object_mut()
                .unwrap()
                .remove("lastTransitionTime")
                .is_some()
        );
    }
    for condition in status["conditions"].as_array_mut().unwrap() {
        for time in ["lastTransitionTime", "lastUpdateTime"] {
            assert!(condition.as_object_mut().unwrap().remove(time).is_some());
        }
    }
    (status, times)
}

/// Ends well, with the status that AresOperator documents, and holds nothing then.
pub fn ares_jobs_of_all_types_come_to_their_end() {
    let (lab, _operator) = Lab::with_kinds_and_profile("ares", "privileged");
    let samples = SAMPLES.iter().map(|case| (case, case.job()));
    let all: Vec<(&Case, Value)> = samples
        .chain(OURS.iter().map(|case| (case, case.own_job())))
        .collect();
    for (_, job) in &all {
        lab.apply_one(job.clone()).unwrap();
    }
    for (case, job) in &all {
        case.play(&lab, job);
    }
    for (case, job) in &all {
        let name = job["metadata"]["name"].as_str().unwrap();
        phase(&lab, name, "Succeeded");
        let times = lab.until(&format!("{name} holds nothing"), || {
            let status = lab.get(&format!("{ARES} {name}"))["status"].clone();
            let (status, times) = without_times(status);
            if status == case.status(job) {
                Ok(times)
            } else {
                Err(format!("{status:#} is not {:#}", case.status(job)))
            }
        });
        let times = times.map(|time| time.as_str().unwrap().to_owned());
        assert!(times.is_sorted(), "{name}: {times:?}");
    }
    let log = lab.logs("waves-launcher-0");
    let namespace = &lab.namespace;
    let host = format!("waves-worker-1.waves-worker.{namespace}.svc.cluster.local:2");
    assert_eq!(log.matches(&host).count(), 2, "in both places: {log}");
    lab.until("nothing runs any more", || {
        let pods = lab.get("pods");
        let mut phases = pods["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pod| &pod["status"]["phase"]);
        if phases.all(|phase| phase == "Succeeded" || phase == "Failed") {
            Ok(())
        } else {
            Err(format!("{pods:#}"))
        }
    });
}
