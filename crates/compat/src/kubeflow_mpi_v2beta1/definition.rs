//! The definition of an MPIJob.

use serde_json::{Value, json};

use crate::Kind;
use crate::definition::{choice, column, conditions, integer, of, template, time};

/// The definition, for clusters that have none.
pub fn definition(kind: &Kind) -> Value {
    let role = |what: &str| {
        json!({
            "type": "object",
            "description": what,
            "required": ["template"],
            "properties": {
                "replicas": integer("How many pods there are.", 0.0),
                "restartPolicy": choice("What happens when a pod has failed.", &["Never", "OnFailure"]),
                "template": template("The pod. Its restartPolicy is set by the operator."),
            },
        })
    };
    let run_policy = json!({
        "type": "object",
        "description": "Limits in time and number, and what is left behind at the end.",
        "properties": {
            "cleanPodPolicy": choice("Which pods are deleted at the end.", &["None", "Running", "All"]),
            "ttlSecondsAfterFinished": integer("Seconds after its end at which the job is deleted.", 0.0),
            "activeDeadlineSeconds": {
                "type": "integer",
                "format": "int64",
                "minimum": 1.0,
                "description": "Seconds after its start at which a job fails that has not ended.",
            },
            "backoffLimit": integer("How many failed pods are replaced before the job fails.", 0.0),
            "suspend": {"type": "boolean", "description": "Whether the job holds no pods."},
            "managedBy": {"type": "string", "description": "The controller that runs the job."},
            "schedulingPolicy": {
                "type": "object",
                "description": "How the pods are scheduled together. It has no effect.",
                "x-kubernetes-preserve-unknown-fields": true,
            },
        },
    });
    let spec = json!({
        "type": "object",
        "required": ["mpiReplicaSpecs"],
        "properties": {
            "slotsPerWorker": integer("Processes in each worker; 1 if left out.", 1.0),
            "runLauncherAsWorker": {"type": "boolean", "description": "Whether processes run in the launcher, too."},
            "runPolicy": run_policy,
            "launcherCreationPolicy": choice("When the launcher's pod is created.", &["AtStartup", "WaitForWorkersReady"]),
            "sshAuthMountPath": {"type": "string", "description": "It has no effect: there is no key."},
            "mpiImplementation": choice("What mpirun is of; OpenMPI if left out.", &["OpenMPI", "Intel", "MPICH"]),
            "mpiReplicaSpecs": {
                "type": "object",
                "description": "The launcher and the workers.",
                "required": ["Launcher"],
                "properties": {
                    "Launcher": role("The one pod that calls mpirun."),
                    "Worker": role("The pods in which mpirun starts processes."),
                },
            },
        },
    });
    let count = || json!({"type": "integer", "format": "int32"});
    let role = json!({
        "type": "object",
        "properties": {"active": count(), "succeeded": count(), "failed": count()},
    });
    let status = json!({
        "type": "object",
        "properties": {
            "conditions": conditions(&[("lastUpdateTime", time("When anything of it last changed."))]),
            "replicaStatuses": {
                "type": "object",
                "description": "How many pods of each role run, have succeeded and have failed.",
                "additionalProperties": role,
            },
            "startTime": time("When the job was started, or last resumed."),
            "completionTime": time("When the job ended."),
        },
    });
    let columns = [
        column("State", "string", ".status.conditions[-1:].type"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ];
    of(kind, &spec, &status, &columns)
}
