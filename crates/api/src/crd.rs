//! The generated CustomResourceDefinitions, made fit for every way of applying them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use crate::declaration::DeclaredFramework;
use crate::job::TrainingJob;
use crate::scale_request::{ScaleIn, ScaleKind, ScaleOut};

/// The largest definition that client-side `kubectl apply` can store in its annotation.
pub const CLIENT_SIDE_APPLY_LIMIT: usize = 262_144;

/// Keys of the lists inside a pod template, by the name of the list's field. Without them apply
/// replaces whole lists.
const LIST_KEYS: &[(&str, &[&str])] = &[
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("env", &["name"]),
    ("ports", &["containerPort", "protocol"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    ("volumes", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("hostAliases", &["ip"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    ("claims", &["name"]),
    ("resizePolicy", &["resourceName"]),
    ("sysctls", &["name"]),
    ("ownerReferences", &["uid"]),
];

/// The most items of the lists inside a pod template, by the name of the list's field: far more
/// than anybody needs, so that no job that runs becomes invalid. What all of them may take together
/// is bounded by the operator.
const MAX_ITEMS: &[(&str, u64)] = &[
    ("containers", 64),
    ("initContainers", 64),
    ("ephemeralContainers", 64),
    ("env", 1024),
    ("command", 4096),
    ("args", 4096),
    // Of a rule about nodes: their names.
    ("values", 4096),
    ("items", 1024),
];
/// The most items of every other list there, such as volumes.
const MAX_OTHER_ITEMS: u64 = 256;
/// The most entries of a map there, such as annotations.
const MAX_ENTRIES: u64 = 512;

/// Keys that the API server requires to have a value in every item, with the value that Kubernetes
/// itself assumes.
const KEY_DEFAULTS: &[(&str, &str, &str)] = &[("ports", "protocol", "TCP")];

/// The definition of [`TrainingJob`] as JSON, as [`generate`] made it. Making it anew takes longer
/// than all else that a short run does; a test fails if it is not what the types say.
pub const TRAINING_JOB: &str = include_str!("crd/training_job.json");

/// The definition of [`DeclaredFramework`] as JSON, as [`generate_framework`] made it.
pub const FRAMEWORK: &str = include_str!("crd/framework.json");

/// The definition of [`ScaleIn`] as JSON, as [`generate_request`] made it.
pub const SCALE_IN: &str = include_str!("crd/scale_in.json");

/// The definition of [`ScaleOut`] as JSON, as [`generate_request`] made it.
pub const SCALE_OUT: &str = include_str!("crd/scale_out.json");

/// The definitions of all kinds of Trainyard's as JSON: those of jobs first.
pub const ALL: [&str; 4] = [TRAINING_JOB, FRAMEWORK, SCALE_IN, SCALE_OUT];

/// The definitions of all kinds of Trainyard's: those of jobs first.
///
/// # Errors
/// If one can't be read, which a test rules out.
pub fn all() -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
    ALL.into_iter().map(serde_json::from_str).collect()
}

/// The definition of [`TrainingJob`].
///
/// # Errors
/// If it can't be read, which a test rules out.
pub fn training_job() -> Result<CustomResourceDefinition, serde_json::Error> {
    serde_json::from_str(TRAINING_JOB)
}

/// The definition of [`DeclaredFramework`].
///
/// # Errors
/// If it can't be read, which a test rules out.
pub fn framework() -> Result<CustomResourceDefinition, serde_json::Error> {
    serde_json::from_str(FRAMEWORK)
}

/// Makes the definition of [`DeclaredFramework`] from its types: for `make manifests`, which writes
/// it down.
///
/// # Errors
/// If the type that definitions have can't hold it, which a test rules out.
pub fn generate_framework() -> Result<String, serde_json::Error> {
    written(serde_json::to_value(DeclaredFramework::crd())?)
}

/// Makes the definition of [`ScaleIn`] or [`ScaleOut`] from its types: for `make manifests`, which
/// writes it down.
///
/// # Errors
/// If the type that definitions have can't hold it, which a test rules out.
pub fn generate_request(kind: ScaleKind) -> Result<String, serde_json::Error> {
    written(serde_json::to_value(match kind {
        ScaleKind::ScaleIn => ScaleIn::crd(),
        ScaleKind::ScaleOut => ScaleOut::crd(),
    })?)
}

/// Makes the definition of [`TrainingJob`] from its types: for `make manifests`, which writes it
/// down.
///
/// # Errors If the schema does not have the shape that the rewriting expects, which a test rules
/// out.
pub fn generate() -> Result<String, serde_json::Error> {
    let mut crd = serde_json::to_value(TrainingJob::crd())?;
    if let Some(template) = crd.pointer_mut(
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/roles/items/properties/template",
    ) {
        let description = template.get("description").cloned();
        slim(template);
        preserve_template_metadata(template);
        if let (Some(description), Some(object)) = (description, template.as_object_mut()) {
            object.insert("description".to_owned(), description);
        }
    }
    written(crd)
}

/// A definition as it is written down.
fn written(mut crd: Value) -> Result<String, serde_json::Error> {
    join_lines(&mut crd);
    // Through the type, which leaves out what it does not know.
    let crd: CustomResourceDefinition = serde_json::from_value(crd)?;
    serde_json::to_string(&serde_json::to_value(&crd)?)
}

/// Doc comments are broken into lines for the reader of the source; `kubectl explain` breaks them
/// anew.
fn join_lines(value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (key, nested) in object.iter_mut() {
                match nested {
                    Value::String(text) if key == "description" => {
                        let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
                        *text = paragraphs.collect::<Vec<_>>().join("\n\n");
                    }
                    nested => join_lines(nested),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(join_lines),
        _ => {}
    }
}

/// Drops descriptions, which would take the definition over the limit, and adds the keys of keyed
/// lists, and the bounds of all lists and maps.
fn slim(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    object.remove("description");
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in properties.iter_mut() {
            key_list(name, property);
            bound(name, property);
            slim(property);
        }
    }
    for nested in ["items", "additionalProperties"] {
        if let Some(nested) = object.get_mut(nested) {
            slim(nested);
        }
    }
}

/// Bounds a list or a map that has no bound yet.
fn bound(name: &str, property: &mut Value) {
    let Some(property) = property.as_object_mut() else {
        return;
    };
    let (rule, max) = if property.contains_key("items") {
        let known = MAX_ITEMS.iter().find(|(list, _)| *list == name);
        ("maxItems", known.map_or(MAX_OTHER_ITEMS, |(_, max)| *max))
    } else if property.contains_key("additionalProperties") {
        ("maxProperties", MAX_ENTRIES)
    } else {
        return;
    };
    property.entry(rule).or_insert_with(|| json!(max));
}

fn key_list(name: &str, property: &mut Value) {
    let Some((_, keys)) = LIST_KEYS.iter().find(|(list, _)| *list == name) else {
        return;
    };
    let Some(list) = property.as_object_mut() else {
        return;
    };
    let Some(items) = list.get_mut("items").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(properties) = items.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    // The name of a list alone is ambiguous (probes have `ports` too): it is keyed only if its
    // items have the keys.
    if !keys.iter().all(|key| properties.contains_key(*key)) {
        return;
    }
    for (_, key, value) in KEY_DEFAULTS.iter().filter(|(list, _, _)| *list == name) {
        if let Some(key) = properties.get_mut(*key).and_then(Value::as_object_mut) {
            key.insert("default".to_owned(), json!(value));
            // A key with a default can't also be null.
            key.remove("nullable");
        }
    }
    require_keys(items, name, keys);
    list.insert("x-kubernetes-list-type".to_owned(), json!("map"));
    list.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys));
}

/// The API server accepts a map key only if it is required or has a default.
fn require_keys(items: &mut Map<String, Value>, list: &str, keys: &[&str]) {
    let defaulted = |key: &str| KEY_DEFAULTS.iter().any(|(l, k, _)| *l == list && *k == key);
    let missing: Vec<&str> = keys.iter().copied().filter(|key| !defaulted(key)).collect();
    let required = items.entry("required").or_insert_with(|| json!([]));
    if let Some(required) = required.as_array_mut() {
        for key in missing {
            if !required.iter().any(|r| r == key) {
                required.push(json!(key));
            }
        }
    }
}

/// `metadata` of a template is an ordinary object to the API server, which would prune labels and
/// annotations if the schema did not name them; the generated schema of `ObjectMeta` has far more
/// than a template may carry.
fn preserve_template_metadata(template: &mut Value) {
    let strings =
        json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": MAX_ENTRIES});
    if let Some(properties) = template.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert(
            "metadata".to_owned(),
            json!({"type": "object", "properties": {"labels": strings, "annotations": strings}}),
        );
    }
}
