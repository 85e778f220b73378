//! Definitions of kinds of other operators, for clusters that have none. The words are ours; the
//! fields are those that these operators' users write.

use serde_json::{Map, Value, json};

use crate::Kind;
use crate::child::KindId;

/// Where the definition of a TrainingJob says what a pod template is.
const TEMPLATE: &str = "spec/properties/roles/items/properties/template";

/// A column of `kubectl get`, with text.
pub fn column(name: &str, path: &str) -> Value {
    json!({"name": name, "type": "string", "jsonPath": path})
}

/// A column of `kubectl get -o wide` alone.
pub fn wide_column(name: &str, path: &str) -> Value {
    let mut column = column(name, path);
    column["priority"] = 1.into();
    column
}

/// The column with the age of objects.
pub fn age() -> Value {
    json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
}

/// The definition of a kind, of what its spec and its status are.
pub fn of(kind: &Kind, spec: &Value, status: &Value, columns: &[Value]) -> Value {
    of_id(kind.id(), spec, status, columns)
}

/// The definition of a kind of any sort.
pub fn of_id(kind: KindId, spec: &Value, status: &Value, columns: &[Value]) -> Value {
    let singular = kind.name.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.plural, kind.group)},
        "spec": {
            "group": kind.group,
            "names": {
                "kind": kind.name,
                "listKind": format!("{}List", kind.name),
                "plural": kind.plural,
                "singular": singular,
            },
            "scope": "Namespaced",
            "versions": [{
                "name": kind.version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "required": ["spec"],
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": spec,
                        "status": status,
                    },
                }},
            }],
        },
    })
}

/// A pod template as a TrainingJob has it, with its metadata: what the server forgets here nobody
/// would find again.
pub fn template(description: &str) -> Value {
    let mut template = of_training_job(TEMPLATE);
    template["description"] = description.into();
    template
}

/// A part of the schema of a TrainingJob, by its path below the object's properties.
pub fn of_training_job(path: &str) -> Value {
    let definition: Value = serde_json::from_str(trainyard_api::crd::TRAINING_JOB).unwrap_or_default();
    let path = format!("/spec/versions/0/schema/openAPIV3Schema/properties/{path}");
    definition.pointer(&path).cloned().unwrap_or_default()
}

/// Any text.
pub fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

/// True or false.
pub fn boolean(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

/// A whole number. The least is written as Kubernetes' own types write it.
pub fn integer(description: &str, minimum: f64) -> Value {
    json!({"type": "integer", "format": "int32", "minimum": minimum, "description": description})
}

/// A string of those that are possible.
pub fn choice(description: &str, of: &[&str]) -> Value {
    json!({"type": "string", "enum": of, "description": description})
}

/// A time.
pub fn time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

/// Numbers of pods, by these names.
pub fn counts(names: &[&str]) -> Map<String, Value> {
    let count = || json!({"type": "integer", "format": "int32"});
    names.iter().map(|name| ((*name).to_owned(), count())).collect()
}

/// How many pods of each role there are; the names are those of the states that are counted.
pub fn replica_statuses(description: &str, states: &[&str]) -> Value {
    json!({
        "type": "object",
        "description": description,
        "additionalProperties": {"type": "object", "properties": counts(states)},
    })
}

/// What operators of one family call a run policy; `more` is what it has besides.
pub fn run_policy(more: Value) -> Value {
    let mut properties = json!({
        "cleanPodPolicy": choice("Which pods are deleted at the end.", &["None", "Running", "All"]),
        "ttlSecondsAfterFinished": integer("Seconds after its end at which the job is deleted.", 0.0),
        "activeDeadlineSeconds": {
            "type": "integer",
            "format": "int64",
            "minimum": 1.0,
            "description": "Seconds after its start at which a job fails that has not ended.",
        },
        "backoffLimit": integer("How many failed pods are replaced before the job fails.", 0.0),
        "schedulingPolicy": {
            "type": "object",
            "description": "How the pods are scheduled together. It has no effect.",
            "x-kubernetes-preserve-unknown-fields": true,
        },
    });
    add(&mut properties, more);
    json!({
        "type": "object",
        "description": "Limits in time and number, and what is left behind at the end.",
        "properties": properties,
    })
}

/// The status that [`crate::conditions::status`] writes; `more` is what it has besides.
pub fn status(more: Value) -> Value {
    let generation = || json!({"type": "integer", "format": "int64"});
    let mut properties = json!({
        "observedGeneration": generation(),
        "phase": text("Where the job is in its life."),
        "message": text("What is wrong, or how the job ended."),
        "conditions": conditions_with("observedGeneration", &generation()),
        "startTime": time("When the job was started."),
        "completionTime": time("When the job ended."),
    });
    add(&mut properties, more);
    json!({"type": "object", "properties": properties})
}

/// A list of conditions with the time of the last change of anything.
pub fn updated_conditions() -> Value {
    conditions_with("lastUpdateTime", &time("When anything of it last changed."))
}

/// A list of conditions, by their types, each with one member more than those of Kubernetes.
fn conditions_with(member: &str, schema: &Value) -> Value {
    let properties = json!({
        "type": {"type": "string"},
        "status": choice("Whether it holds.", &["True", "False", "Unknown"]),
        "reason": {"type": "string"},
        "message": {"type": "string"},
        "lastTransitionTime": time("When its status last changed."),
        member: schema,
    });
    json!({
        "type": "array",
        "description": "What holds of the job, and what does not.",
        "items": {"type": "object", "required": ["type", "status"], "properties": properties},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

fn add(properties: &mut Value, more: Value) {
    if let (Value::Object(properties), Value::Object(more)) = (properties, more) {
        properties.extend(more);
    }
}
