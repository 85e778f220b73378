//! The definition of an AresJob.

use serde_json::{Value, json};

use crate::Kind;
use crate::definition::{
    age, boolean, choice, column, counts, integer, of, replica_statuses, run_policy, template, text, time,
    updated_conditions,
};

/// The definition, for clusters that have none.
pub fn definition(kind: &Kind) -> Value {
    let columns = [
        column("Namespace", ".metadata.namespace"),
        column("Framework", ".spec.frameworkType"),
        column("Phase", ".status.phase"),
        age(),
    ];
    let mut definition = of(kind, &spec(), &status(), &columns);
    definition["spec"]["names"]["shortNames"] = json!(["aj"]);
    definition
}

fn spec() -> Value {
    let sets = |what: &str| {
        json!({
            "type": "array",
            "description": what,
            "items": {"type": "array", "items": {"type": "string"}},
        })
    };
    json!({
        "type": "object",
        "required": ["frameworkType", "roleSpecs"],
        "properties": {
            "frameworkType": text("bagua, custom, dask, mpi, pytorch, standalone or tensorflow."),
            "framework": framework(),
            "availablePorts": {
                "type": "array",
                "description": "The ports of a job of bagua.",
                "items": {"type": "integer", "format": "int32"},
            },
            "ttlSecondsAfterFailed": integer("Seconds after a failure at which pods and Services are deleted.", 0.0),
            "runPolicy": run_policy(json!({})),
            "jobPhasePolicy": {
                "type": "object",
                "description": "When the job has ended, in terms of its roles. If left out, the framework says.",
                "properties": {
                    "failed": sets("The job fails when all roles of one of these have failed."),
                    "succeeded": sets("The job succeeds when all roles of one of these have succeeded."),
                },
            },
            "roleSpecs": {
                "type": "object",
                "description": "The roles, by name.",
                "additionalProperties": role(),
            },
        },
    })
}

fn framework() -> Value {
    let size = |what: &str| json!({"type": "integer", "format": "int32", "description": what});
    json!({
        "type": "object",
        "description": "Options of the framework.",
        "properties": {
            "bagua": {
                "type": "object",
                "properties": {
                    "enableElastic": boolean("Whether an etcd decides which workers train."),
                    "minReplicas": size("The fewest workers that train."),
                    "maxReplicas": size("The most workers that train."),
                },
            },
            "mpi": {
                "type": "object",
                "properties": {
                    "replicasPerNode": size("Processes in each worker; 1 if left out."),
                    "implementation": choice("What mpirun is of; ompi if left out.", &["ompi", "mpich"]),
                },
            },
            "tensorflow": {
                "type": "object",
                "properties": {
                    "enableDynamicWorker": boolean("Whether workers come and go."),
                },
            },
        },
    })
}

fn role() -> Value {
    let quorum = |what: &str| choice(what, &["AnyPod", "AllPods"]);
    let phases = ["Pending", "Starting", "Running", "Failed", "Succeeded"];
    json!({
        "type": "object",
        "required": ["template"],
        "properties": {
            "replicas": integer("How many pods there are; 1 if left out.", 1.0),
            "restartPolicy": choice(
                "What happens when a pod ends; Never if left out.",
                &["Never", "Always", "OnFailure", "ExitCode"],
            ),
            "template": template("The pod. Its restartPolicy is set by the operator."),
            "controller": text("It has no effect: all roles have pods."),
            "rolePhasePolicy": {
                "type": "object",
                "properties": {
                    "failed": quorum("How many pods make the role fail."),
                    "succeeded": quorum("How many pods make the role succeed."),
                    "nodeDownAsFailed": boolean("Whether a pod has failed whose node is down."),
                },
            },
            "dependence": {
                "type": "object",
                "properties": {
                    "roleNames": {
                        "type": "array",
                        "description": "The roles that this one waits for.",
                        "items": {"type": "string"},
                    },
                    "rolePhase": choice("What they must have come to; Running if left out.", &phases),
                    "mpiHostFile": text("Where the launcher of mpi finds its hosts: paths with commas between them."),
                },
            },
        },
    })
}

fn status() -> Value {
    let text_member = |name: &str| (name.to_owned(), json!({"type": "string"}));
    let mut of_role = counts(&[
        "active",
        "succeeded",
        "failed",
        "pending",
        "unknown",
        "terminating",
    ]);
    of_role.extend(["phase", "reason", "message"].map(text_member));
    of_role.insert(
        "lastTransitionTime".to_owned(),
        time("When its phase last changed."),
    );
    json!({
        "type": "object",
        "properties": {
            "phase": text("Where the job is in its life."),
            "conditions": updated_conditions(),
            "roleStatuses": {
                "type": "object",
                "description": "The state of each role.",
                "additionalProperties": {"type": "object", "properties": of_role},
            },
            "replicaStatuses": replica_statuses(
                "How many pods of each role run, have succeeded and have failed.",
                &["active", "succeeded", "failed"],
            ),
            "startTime": time("When the job was started."),
            "runningTime": time("When all roles first ran."),
            "completionTime": time("When the job ended."),
            "lastReconcileTime": time("It is not written."),
        },
    })
}
