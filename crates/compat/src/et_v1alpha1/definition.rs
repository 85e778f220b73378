//! The definitions of et-operator's kinds.

use serde_json::{Map, Value, json};
use trainyard_api::ScaleKind;

use super::SUSPEND;
use crate::Kind;
use crate::child::KindId;
use crate::definition::{
    age, choice, column, integer, of, of_id, replica_statuses, template, text, time, updated_conditions,
};

/// The definition of a TrainingJob, for clusters that have none.
pub fn definition(kind: &Kind) -> Value {
    let bounds = json!({
        "replicas": integer("How many workers there are to be; 1 if left out.", 1.0),
        "minReplicas": integer("The fewest workers with which the job trains; 1 if left out.", 1.0),
        "maxReplicas": integer("The most workers that there may be.", 1.0),
    });
    let spec = json!({
        "type": "object",
        "required": ["etReplicaSpecs"],
        "description": format!("The annotation {SUSPEND}: \"true\" suspends the job."),
        "properties": {
            "etReplicaSpecs": {
                "type": "object",
                "required": ["launcher", "worker"],
                "properties": {
                    "launcher": role("The one pod that calls horovodrun.", json!({
                        "replicas": integer("Always 1.", 1.0),
                    })),
                    "worker": role("The pods in which processes are started.", bounds),
                },
            },
            "launcherAttachMode": choice(
                "How the launcher reaches workers. With either it is the operator's agent; with ssh it is called `ssh`, too. Left out, ssh.",
                &["ssh", "kubexec"],
            ),
            "slotsPerWorker": integer(
                "How many processes may be started in each worker; left out, the number of its accelerators, or 1.",
                1.0,
            ),
            "cleanPodPolicy": choice("Which pods are deleted at the end; left out, Running.", &["None", "Running", "All"]),
            "restartPolicy": choice("Whether the job goes on when its launcher has failed; left out, Never.", &[
                "Never", "OnFailure",
            ]),
            "backoffLimit": integer("How many failures the job survives; left out, 6.", 0.0),
        },
    });
    let status = status(&json!({
        "restartCount": integer("How many failures the job has survived.", 0.0),
        "replicas": integer("How many workers there are.", 0.0),
        "workerSelector": text("The labels of workers."),
        "targetWorkers": names("The workers that the job is to have."),
        "currentWorkers": names("Those of them that run."),
        "currentScaler": text("The request that is carried out, such as ScaleIn:default/shrink."),
    }));
    let mut definition = of(kind, &spec, &status, &[column("Phase", ".status.phase"), age()]);
    definition["spec"]["versions"][0]["subresources"]["scale"] = json!({
        "specReplicasPath": ".spec.etReplicaSpecs.worker.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.workerSelector",
    });
    definition
}

fn role(description: &str, more: Value) -> Value {
    let mut properties = json!({
        "template": template("The pod."),
        "restartPolicy": choice("Whether a worker that is lost is replaced: Never, or else.", &[
            "Never", "OnFailure", "Always", "ExitCode",
        ]),
    });
    if let (Value::Object(properties), Value::Object(more)) = (&mut properties, more) {
        properties.extend(more);
    }
    json!({"type": "object", "description": description, "properties": properties})
}

/// What the statuses of all of these kinds have, and `more`.
fn status(more: &Value) -> Value {
    let mut properties = Map::from_iter([
        ("phase".to_owned(), text("Where it is in its life.")),
        ("conditions".to_owned(), updated_conditions()),
        (
            "replicaStatuses".to_owned(),
            replica_statuses(
                "How many pods of each role there are.",
                &["active", "succeeded", "failed"],
            ),
        ),
        ("startTime".to_owned(), time("When it was started.")),
        ("completionTime".to_owned(), time("When it ended.")),
    ]);
    properties.extend(more.as_object().cloned().unwrap_or_default());
    json!({"type": "object", "properties": properties})
}

/// A list of names.
fn names(description: &str) -> Value {
    json!({"type": "array", "description": description, "items": {"type": "string"}})
}

/// The definition of a kind of requests, for clusters that have none.
pub fn request(kind: KindId, scale: ScaleKind) -> Value {
    // 0 is as good as nothing there, and what is wrong is said in the status.
    let count = |description: &str| json!({"type": "integer", "format": "int32", "description": description});
    let (change, pods) = match scale {
        ScaleKind::ScaleIn => {
            let properties = json!({"count": count("So many workers."), "podNames": names("These workers.")});
            (
                (
                    "toDelete",
                    json!({"type": "object", "description": "Who leaves: one of these.", "properties": properties}),
                ),
                ("toDeletePods", names("The workers that leave.")),
            )
        }
        ScaleKind::ScaleOut => {
            let properties = json!({"count": count("So many workers.")});
            (
                (
                    "toAdd",
                    json!({"type": "object", "description": "Who joins.", "properties": properties}),
                ),
                ("addPods", names("The workers that join.")),
            )
        }
    };
    let mut spec = json!({
        "type": "object",
        "properties": {
            "selector": {
                "type": "object",
                "description": "The TrainingJob.",
                "properties": {"name": text("Its name.")},
            },
            "timeout": count("Seconds that the change may take; left out, 60."),
            "script": text("A program in the launcher, with its arguments. No shell reads it."),
            "env": {
                "type": "array",
                "description": "The environment of the script.",
                "items": {"type": "object", "properties": {"name": text("A name."), "value": text("A value.")}},
            },
            "backoffLimit": count("How often a script that fails is tried again; left out, 0."),
        },
    });
    spec["properties"][change.0] = change.1;
    let status = status(&json!({pods.0: pods.1}));
    let columns = [column("Phase", ".status.phase"), age()];
    of_id(kind, &spec, &status, &columns)
}
