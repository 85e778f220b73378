//! The definition of their kinds.

use serde_json::{Value, json};

use crate::Kind;
use crate::definition::{column, conditions, integer, of, template, time};

/// What the programs reported last, as a TrainingJob has it.
const RESULT: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/result";

fn result() -> Value {
    let definition: Value = serde_json::from_str(trainyard_api::crd::TRAINING_JOB).unwrap_or_default();
    definition.pointer(RESULT).cloned().unwrap_or_default()
}

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
    let generation = || json!({"type": "integer", "format": "int64"});
    let count = || json!({"type": "integer", "format": "int32"});
    let status = json!({
        "type": "object",
        "properties": {
            "observedGeneration": generation(),
            "phase": {"type": "string", "description": "Where the job is in its life."},
            "ready": {"type": "string", "description": "Ready pods of all pods, such as 2/3."},
            "message": {"type": "string", "description": "What is wrong, or how the job ended."},
            "replicaStatuses": {
                "type": "object",
                "description": "How many pods of each type there are, by what they have come to.",
                "additionalProperties": {
                    "type": "object",
                    "properties": {
                        "replicas": count(),
                        "active": count(),
                        "ready": count(),
                        "succeeded": count(),
                        "failed": count(),
                    },
                },
            },
            "result": result(),
            "conditions": conditions(&[("observedGeneration", generation())]),
            "startTime": time("When the job was started."),
            "completionTime": time("When the job ended."),
        },
    });
    let columns = [
        column("Phase", "string", ".status.phase"),
        column("Ready", "string", ".status.ready"),
        column("Age", "date", ".metadata.creationTimestamp"),
        json!({"name": "Result", "type": "string", "jsonPath": ".status.result.metrics", "priority": 1}),
        json!({"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1}),
    ];
    of(kind, &spec, &status, &columns)
}
