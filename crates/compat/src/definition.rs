//! Definitions of kinds of other operators, for clusters that have none. The words are ours; the
//! fields are those that these operators' users write.

use serde_json::{Value, json};

use crate::Kind;

/// Where the definition of a TrainingJob says what a pod template is.
const TEMPLATE: &str =
    "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/roles/items/properties/template";

/// A column of `kubectl get`.
pub fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path})
}

/// The definition of a kind, of what its spec and its status are.
pub fn of(kind: &Kind, spec: &Value, status: &Value, columns: &[Value]) -> Value {
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
    let definition: Value = serde_json::from_str(trainyard_api::crd::TRAINING_JOB).unwrap_or_default();
    let mut template = definition.pointer(TEMPLATE).cloned().unwrap_or_default();
    template["description"] = description.into();
    template
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

/// A list of conditions, by their types; `more` is what each has besides.
pub fn conditions(more: &[(&str, Value)]) -> Value {
    let mut properties = json!({
        "type": {"type": "string"},
        "status": choice("Whether it holds.", &["True", "False", "Unknown"]),
        "reason": {"type": "string"},
        "message": {"type": "string"},
        "lastTransitionTime": time("When its status last changed."),
    });
    for (name, schema) in more {
        properties[*name] = schema.clone();
    }
    json!({
        "type": "array",
        "description": "What holds of the job, and what does not.",
        "items": {"type": "object", "required": ["type", "status"], "properties": properties},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}
