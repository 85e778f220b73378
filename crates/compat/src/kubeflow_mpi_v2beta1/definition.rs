//! The definition of an MPIJob.

use serde_json::{Value, json};

use crate::Kind;
use crate::definition::{
    age, boolean, choice, column, integer, of, replica_statuses, run_policy, template, text, time,
    updated_conditions,
};

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
    let run_policy = run_policy(json!({
        "suspend": boolean("Whether the job holds no pods."),
        "managedBy": text("The controller that runs the job."),
    }));
    let spec = json!({
        "type": "object",
        "required": ["mpiReplicaSpecs"],
        "properties": {
            "slotsPerWorker": integer("Processes in each worker; 1 if left out.", 1.0),
            "runLauncherAsWorker": boolean("Whether processes run in the launcher, too."),
            "runPolicy": run_policy,
            "launcherCreationPolicy": choice("When the launcher's pod is created.", &["AtStartup", "WaitForWorkersReady"]),
            "sshAuthMountPath": text("It has no effect: there is no key."),
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
    let status = json!({
        "type": "object",
        "properties": {
            "conditions": updated_conditions(),
            "replicaStatuses": replica_statuses(
                "How many pods of each role run, have succeeded and have failed.",
                &["active", "succeeded", "failed"],
            ),
            "startTime": time("When the job was started, or last resumed."),
            "completionTime": time("When the job ended."),
        },
    });
    let columns = [column("State", ".status.conditions[-1:].type"), age()];
    of(kind, &spec, &status, &columns)
}
