//! The generated definition: what `kubectl` shows of it, what the API server accepts, and what
//! apply needs.

use std::sync::OnceLock;

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::crd;

fn definition() -> &'static Value {
    static DEFINITION: OnceLock<Value> = OnceLock::new();
    DEFINITION.get_or_init(|| serde_json::to_value(crd::training_job().unwrap()).unwrap())
}

fn version() -> &'static Value {
    &definition()["spec"]["versions"][0]
}

/// The schema at a path such as `spec.roles[].template`.
fn schema(path: &str) -> &'static Value {
    let mut schema = &version()["schema"]["openAPIV3Schema"];
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let name = step.trim_end_matches("[]");
        schema = schema["properties"]
            .get(name)
            .unwrap_or_else(|| panic!("{path}: there is no {name}"));
        if step.ends_with("[]") {
            schema = &schema["items"];
        }
    }
    schema
}

/// Calls `visit` for every field, with its path and whether it is inside a pod template.
fn every_field(visit: &mut dyn FnMut(&str, &Value, bool)) {
    fn walk(path: &str, schema: &Value, inside: bool, visit: &mut dyn FnMut(&str, &Value, bool)) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            visit(&path, property, inside);
            walk(&path, property, inside || path == ".spec.roles[].template", visit);
        }
        for nested in ["items", "additionalProperties"] {
            if schema.get(nested).is_some_and(Value::is_object) {
                let path = format!("{path}[]");
                visit(&path, &schema[nested], inside);
                walk(&path, &schema[nested], inside, visit);
            }
        }
    }
    walk("", &version()["schema"]["openAPIV3Schema"], false, visit);
}

#[test]
fn the_definition_of_frameworks_is_what_the_types_say() {
    let current = crd::FRAMEWORK.trim_end() == crd::generate_framework().unwrap();
    assert!(
        current,
        "crates/api/src/crd/framework.json is out of date: run `make manifests`"
    );
    let definition = serde_json::to_value(crd::framework().unwrap()).unwrap();
    assert_eq!(definition["spec"]["scope"], "Cluster");
    let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    // Every list and every expression has a bound.
    for (name, property) in spec["properties"].as_object().unwrap() {
        let is_bounded = match property["type"].as_str() {
            Some("array") => property["maxItems"].is_u64(),
            Some("object") => property["maxProperties"].is_u64(),
            _ => true,
        };
        assert!(is_bounded, "{name}");
    }
    let value = &spec["properties"]["env"]["items"]["properties"]["value"];
    assert_eq!(value["maxLength"], 4096);
}

#[test]
fn what_is_written_down_is_what_the_types_say() {
    let current = crd::TRAINING_JOB.trim_end() == crd::generate().unwrap();
    assert!(
        current,
        "crates/api/src/crd/training_job.json is out of date: run `make manifests`"
    );
}

#[test]
fn it_fits_into_the_annotation_of_client_side_apply() {
    let json = serde_json::to_string(definition()).unwrap();
    assert!(json.len() < crd::CLIENT_SIDE_APPLY_LIMIT, "{} bytes", json.len());
    if let Ok(path) = std::env::var("CRD_OUT") {
        std::fs::write(path, json).unwrap();
    }
}

#[test]
fn it_is_named_as_users_call_it() {
    assert_eq!(definition()["metadata"]["name"], "trainingjobs.trainyard.dev");
    let spec = &definition()["spec"];
    assert_eq!(spec["scope"], "Namespaced");
    assert_eq!(
        spec["names"],
        json!({
            "kind": "TrainingJob", "plural": "trainingjobs", "singular": "trainingjob", "shortNames": ["tj"],
            "categories": ["all"],
        })
    );
    assert_eq!(
        (&version()["name"], &version()["served"], &version()["storage"]),
        (&json!("v1alpha1"), &json!(true), &json!(true))
    );
    let scale = json!({
        "specReplicasPath": ".spec.elastic.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    });
    assert_eq!(version()["subresources"], json!({"status": {}, "scale": scale}));
    let description = version()["schema"]["openAPIV3Schema"]["description"].as_str();
    assert_eq!(
        description,
        Some("A distributed training: a framework, and the roles whose pods train together.")
    );
}

#[test]
fn get_prints_these_columns() {
    let columns = version()["additionalPrinterColumns"].as_array().unwrap();
    let columns: Vec<([&str; 3], bool)> = columns
        .iter()
        .map(|c| {
            (
                ["name", "type", "jsonPath"].map(|key| c[key].as_str().unwrap()),
                c["priority"] == 1,
            )
        })
        .collect();
    let (usual, wide) = (false, true);
    let accepted = ".status.conditions[?(@.type==\"Accepted\")].reason";
    let expected = [
        (["Framework", "string", ".spec.framework.name"], usual),
        (["Phase", "string", ".status.phase"], usual),
        (["Ready", "string", ".status.ready"], usual),
        (["Restarts", "integer", ".status.restarts.failures"], usual),
        (["Age", "date", ".metadata.creationTimestamp"], usual),
        (["Accepted", "string", accepted], wide),
        (["Disruptions", "integer", ".status.restarts.disruptions"], wide),
        (["Cause", "string", ".status.rootCause.reason"], wide),
        (["Failed Pod", "string", ".status.rootCause.pod"], wide),
        (["Node", "string", ".status.rootCause.node"], wide),
        (["Result", "string", ".status.result.metrics"], wide),
    ];
    assert_eq!(columns, expected);
    for ([_, _, path], _) in columns
        .iter()
        .filter(|([.., path], _)| !path.starts_with(".metadata"))
    {
        schema(&path.replace("[?(@.type==\"Accepted\")]", "[]"));
    }
}

/// A job that has replaced nothing has replaced 0 pods: the column is not blank.
#[test]
fn restarts_begin_with_nought() {
    let restarts = schema("status.restarts");
    assert_eq!(restarts["default"], json!({"failures": 0, "disruptions": 0}));
}

#[test]
fn explain_reads_well_for_every_field() {
    let mut silent = Vec::new();
    let mut fields = 0;
    every_field(&mut |path, field, inside| {
        // Items are explained by their list.
        if inside || path.ends_with("[]") || path == ".apiVersion" || path == ".kind" || path == ".metadata" {
            return;
        }
        fields += 1;
        let text = field["description"].as_str().unwrap_or_default();
        // A sentence: it begins with a capital (or a digit), ends with a full stop, and is not the
        // type's own name.
        let ours = !path.starts_with(".status.conditions[]");
        if text.len() < 10 || !text.ends_with('.') || (ours && text.starts_with(char::is_lowercase)) {
            silent.push(format!("{path}: {text:?}"));
        }
    });
    assert!(fields > 70, "{fields} fields were looked at");
    assert!(silent.is_empty(), "{silent:#?}");
}

#[test]
fn the_template_carries_no_descriptions_but_its_own() {
    every_field(&mut |path, field, inside| {
        assert!(!inside || field.get("description").is_none(), "{path}");
    });
    assert!(
        schema("spec.roles[].template")["description"]
            .as_str()
            .unwrap()
            .starts_with("The pod that runs")
    );
}

/// The API server records of each write who wrote what, down to the atomic parts: a status of one
/// writer must not be recorded field by field.
#[test]
fn parts_of_the_status_are_atomic_but_for_conditions() {
    let status = schema("status");
    let mut parts = 0;
    for (name, part) in status["properties"].as_object().unwrap() {
        let kind = match part["type"].as_str().unwrap() {
            "object" => "x-kubernetes-map-type",
            "array" if name != "conditions" => "x-kubernetes-list-type",
            _ => continue,
        };
        assert_eq!(part[kind], "atomic", "{name}");
        parts += 1;
    }
    assert!(parts >= 8, "{parts} parts");
}

/// Lists whose items Kubernetes itself identifies by keys, in its own OpenAPI document.
const POD: &str = "spec.roles[].template.spec";

#[rstest]
#[case("spec.roles", &["name"])]
#[case("status.conditions", &["type"])]
#[case("+containers", &["name"])]
#[case("+initContainers", &["name"])]
#[case("+ephemeralContainers", &["name"])]
#[case("+volumes", &["name"])]
#[case("+imagePullSecrets", &["name"])]
#[case("+hostAliases", &["ip"])]
#[case("+topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"])]
#[case("+resourceClaims", &["name"])]
#[case("+schedulingGates", &["name"])]
#[case("+resources.claims", &["name"])]
#[case("+containers[].env", &["name"])]
#[case("+containers[].ports", &["containerPort", "protocol"])]
#[case("+containers[].volumeMounts", &["mountPath"])]
#[case("+containers[].volumeDevices", &["devicePath"])]
#[case("+containers[].resources.claims", &["name"])]
#[case("+initContainers[].env", &["name"])]
#[case("+initContainers[].ports", &["containerPort", "protocol"])]
#[case("+initContainers[].volumeMounts", &["mountPath"])]
#[case("+ephemeralContainers[].env", &["name"])]
fn keyed_lists_have_their_keys(#[case] path: &str, #[case] keys: &[&str]) {
    let path = path
        .strip_prefix('+')
        .map_or(path.to_owned(), |path| format!("{POD}.{path}"));
    let list = schema(&path);
    assert_eq!(list["type"], "array", "{path}");
    assert_eq!(list["x-kubernetes-list-type"], "map", "{path}");
    assert_eq!(list["x-kubernetes-list-map-keys"], json!(keys), "{path}");
}

#[test]
fn the_api_server_accepts_every_key() {
    // A key must be a scalar that every item has: required, or with a default; and never null.
    let mut keyed = 0;
    every_field(&mut |path, field, _| {
        for key in field["x-kubernetes-list-map-keys"]
            .as_array()
            .into_iter()
            .flatten()
        {
            keyed += 1;
            let key = key.as_str().unwrap();
            let item = &field["items"];
            let property = &item["properties"][key];
            let required = item["required"]
                .as_array()
                .is_some_and(|required| required.contains(&json!(key)));
            assert!(
                required || property.get("default").is_some(),
                "{path}: {key} may be absent"
            );
            assert!(
                ["string", "integer"].contains(&property["type"].as_str().unwrap()),
                "{path}: {key}"
            );
            assert!(property.get("nullable").is_none(), "{path}: {key} may be null");
        }
        if field["x-kubernetes-list-type"] == "map" {
            assert!(field["x-kubernetes-list-map-keys"].is_array(), "{path}");
        }
    });
    assert!(keyed > 30, "{keyed} keys were looked at");
}

#[test]
fn the_schema_is_structural() {
    every_field(&mut |path, field, _| {
        let typed = field["type"].is_string()
            || field["x-kubernetes-int-or-string"] == true
            || field["x-kubernetes-preserve-unknown-fields"] == true;
        assert!(typed, "{path} has no type: {field}");
        for banned in ["$ref", "definitions", "$defs", "const", "oneOf", "allOf"] {
            assert!(field.get(banned).is_none(), "{path} has {banned}");
        }
        assert!(
            !(field.get("properties").is_some() && field["additionalProperties"].is_object()),
            "{path} has both properties and additionalProperties"
        );
        if let Some(values) = field["enum"].as_array() {
            assert!(values.iter().all(Value::is_string), "{path}: {values:?}");
        }
    });
}

#[test]
fn formats_are_those_the_api_server_knows() {
    const KNOWN: &[&str] = &[
        "int32",
        "int64",
        "float",
        "double",
        "byte",
        "date",
        "date-time",
        "duration",
        "password",
    ];
    let mut seen = 0;
    every_field(&mut |path, field, _| {
        if let Some(format) = field["format"].as_str() {
            seen += 1;
            assert!(KNOWN.contains(&format), "{path}: {format}");
        }
    });
    assert!(seen > 20);
}

/// CEL costs are estimated from these bounds, and status must not grow without end. Nobody is to
/// store a template that takes more memory than there is.
#[test]
fn every_list_and_every_map_is_bounded() {
    let mut inside_templates = 0;
    every_field(&mut |path, field, inside| {
        let is_foreign = path.starts_with(".status.conditions") || path == ".metadata";
        if is_foreign {
            return;
        }
        let is_map = field.get("additionalProperties").is_some();
        let is_bounded = match field["type"].as_str() {
            Some("array") => field["maxItems"].is_u64(),
            Some("object") if is_map => field["maxProperties"].is_u64(),
            _ => return,
        };
        assert!(is_bounded, "{path}");
        inside_templates += usize::from(inside);
    });
    assert!(inside_templates > 150, "{inside_templates} were looked at");
}

#[rstest]
#[case("containers", 64)]
#[case("containers[].env", 1024)]
#[case("containers[].args", 4096)]
#[case("containers[].volumeMounts", 256)]
#[case("volumes", 256)]
fn templates_have_room(#[case] list: &str, #[case] max: u64) {
    assert_eq!(schema(&format!("{POD}.{list}"))["maxItems"], max);
}

#[test]
fn every_string_of_ours_is_bounded() {
    every_field(&mut |path, field, inside| {
        // Kubernetes' own types have their own bounds; names of enums bound themselves.
        let foreign = inside || path.starts_with(".status.conditions") || path.ends_with("[]");
        if foreign || [".apiVersion", ".kind", ".metadata"].contains(&path) {
            return;
        }
        if field["type"] == "string" {
            let bounded = ["maxLength", "enum", "format"]
                .iter()
                .any(|key| field.get(key).is_some());
            assert!(bounded, "{path}");
        }
    });
}

#[test]
fn names_in_the_rules_of_completion_are_bounded_and_unique() {
    for list in ["succeededWhen", "failedWhen"] {
        let set = schema(&format!("spec.completion.{list}[].allOf"));
        assert_eq!(set["x-kubernetes-list-type"], "set");
        assert_eq!((&set["minItems"], &set["maxItems"]), (&json!(1), &json!(16)));
        assert_eq!(set["items"]["maxLength"], 32);
    }
}

#[rstest]
#[case("spec.roles[].name", "maxLength", json!(32))]
#[case("spec.roles[].name", "pattern", json!("^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
#[case("spec.roles[].replicas", "minimum", json!(1.0))]
#[case("spec.roles[].replicas", "maximum", json!(10000.0))]
#[case("spec.roles", "minItems", json!(1))]
#[case("spec.roles", "maxItems", json!(16))]
#[case("spec.runPolicy.backoffLimit", "minimum", json!(0.0))]
#[case("spec.runPolicy.activeDeadlineSeconds", "minimum", json!(1.0))]
#[case("spec.runPolicy.ttlSecondsAfterFinished", "minimum", json!(0.0))]
#[case("spec.runPolicy.ttlSecondsAfterFailed", "minimum", json!(0.0))]
#[case("spec.runPolicy.cleanPodPolicy", "enum", json!(["All", "Running", "None"]))]
#[case("spec.roles[].restartPolicy", "enum", json!(["Never", "OnFailure", "Always", "ExitCode"]))]
#[case("spec.roles[].succeededWhen", "enum", json!(["AnyPod", "AllPods", "FirstPod"]))]
#[case("spec.roles[].failedWhen", "enum", json!(["AnyPod", "AllPods", "FirstPod"]))]
#[case("spec.roles[].nodeDownPolicy", "enum", json!(["Fail", "Wait"]))]
#[case("spec.roles[].placement.spread", "enum", json!(["Required", "Preferred"]))]
#[case("spec.framework.pytorch.masterService", "enum", json!(["Headless", "ClusterIP"]))]
#[case("spec.framework.mpi.implementation", "enum", json!(["OpenMPI", "MPICH", "Intel"]))]
#[case("spec.framework.mpi.attach", "enum", json!(["Agent", "Ssh", "Exec"]))]
#[case("spec.framework.mpi.slotsPerWorker", "minimum", json!(1.0))]
#[case("spec.framework.mpi.hostFiles", "maxItems", json!(8))]
#[case("spec.framework.mpi.hostFiles", "x-kubernetes-list-map-keys", json!(["path"]))]
#[case("spec.framework.mpi.remoteShells", "x-kubernetes-list-type", json!("set"))]
#[case("spec.framework.mpi.remoteShells[]", "enum", json!(["Ssh", "Pdsh"]))]
#[case("spec.framework.pytorch.port", "maximum", json!(65535.0))]
#[case("spec.framework.pytorch.procsPerNode", "minimum", json!(1.0))]
#[case("spec.managedBy", "maxLength", json!(63))]
fn what_the_schema_itself_refuses(#[case] path: &str, #[case] rule: &str, #[case] value: Value) {
    assert_eq!(schema(path)[rule], value, "{path}");
}

#[rstest]
#[case("", &["spec"])]
#[case("spec", &["framework", "roles"])]
#[case("spec.framework", &["name"])]
#[case("spec.roles[]", &["name", "template"])]
#[case("spec.roles[].placement", &["spread"])]
fn what_must_be_given(#[case] path: &str, #[case] required: &[&str]) {
    assert_eq!(schema(path)["required"], json!(required));
}

#[test]
fn labels_and_annotations_of_the_template_survive_and_nothing_else_of_its_metadata() {
    let metadata = schema("spec.roles[].template.metadata");
    let names: Vec<&String> = metadata["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["annotations", "labels"]);
    assert_eq!(
        metadata["properties"]["labels"]["additionalProperties"],
        json!({"type": "string"})
    );
}

#[test]
fn metadata_of_volume_claims_in_the_template_survives_too() {
    let claim = schema(&format!("{POD}.volumes[].ephemeral.volumeClaimTemplate.metadata"));
    let kept = claim["x-kubernetes-preserve-unknown-fields"] == true
        || claim["properties"]["labels"]["additionalProperties"].is_object();
    assert!(kept, "{claim}");
}
