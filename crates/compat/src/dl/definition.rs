//! The definition of their kinds.

use serde_json::{Value, json};

use crate::Kind;
use crate::definition::{
    age, column, integer, of, of_training_job, replica_statuses, status, template, text, wide_column,
};

/// The definition, for clusters that have none.
pub fn definition(kind: &Kind) -> Value {
    let spec = json!({
        "type": "array",
        "description": "The replicas of the job, with an entry for each type.",
        "minItems": 1,
        "maxItems": 16,
        "items": {
            "type": "object",
            "required": ["replicaType", "template"],
            "properties": {
                "replicas": integer("How many pods there are. Default: 1.", 1.0),
                "replicaType": {
                    "type": "string",
                    "maxLength": 32,
                    "description": "What these pods do in the training, in upper or lower case.",
                },
                "template": template("Each of these pods."),
            },
        },
    });
    let status = status(json!({
        "ready": text("Ready pods of all pods, such as 2/3."),
        "replicaStatuses": replica_statuses(
            "How many pods of each type there are, by what they have come to.",
            &["replicas", "active", "ready", "succeeded", "failed"],
        ),
        "result": of_training_job("status/properties/result"),
    }));
    let columns = [
        column("Phase", ".status.phase"),
        column("Ready", ".status.ready"),
        age(),
        wide_column("Result", ".status.result.metrics"),
        wide_column("Message", ".status.message"),
    ];
    of(kind, &spec, &status, &columns)
}
