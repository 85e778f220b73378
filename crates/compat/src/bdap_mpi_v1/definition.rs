//! The definition of an MPIJob.

use serde_json::{Value, json};

use crate::Kind;
use crate::definition::{column, conditions, integer, of, template, time};

/// The definition, for clusters that have none.
pub fn definition(kind: &Kind) -> Value {
    let spec = json!({
        "type": "object",
        "required": ["numWorkers", "launcherTemplate", "workerTemplate"],
        "properties": {
            "numWorkers": integer("How many workers there are.", 1.0),
            "launcherTemplate": template("The one pod that calls mpirun. It starts when the workers are ready."),
            "workerTemplate": template("The pods in which mpirun starts processes, one in each."),
        },
    });
    let generation = || json!({"type": "integer", "format": "int64"});
    let status = json!({
        "type": "object",
        "properties": {
            "observedGeneration": generation(),
            "phase": {"type": "string", "description": "Where the job is in its life."},
            "readyWorkers": {"type": "string", "description": "Ready workers of all workers, such as 2/3."},
            "message": {"type": "string", "description": "What is wrong, or how the job ended."},
            "conditions": conditions(&[("observedGeneration", generation())]),
            "startTime": time("When the job was started."),
            "completionTime": time("When the job ended."),
        },
    });
    let columns = [
        column("Phase", "string", ".status.phase"),
        column("Workers", "string", ".status.readyWorkers"),
        column("Age", "date", ".metadata.creationTimestamp"),
        json!({"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1}),
    ];
    of(kind, &spec, &status, &columns)
}
