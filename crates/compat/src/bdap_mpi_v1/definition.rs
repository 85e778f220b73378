//! The definition of an MPIJob.

use serde_json::{Value, json};

use crate::Kind;
use crate::definition::{age, column, integer, of, status, template, text, wide_column};

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
    let status = status(json!({
        "readyWorkers": text("Ready workers of all workers, such as 2/3."),
    }));
    let columns = [
        column("Phase", ".status.phase"),
        column("Workers", ".status.readyWorkers"),
        age(),
        wide_column("Message", ".status.message"),
    ];
    of(kind, &spec, &status, &columns)
}
