//! The generated manifests in the repository, and the definition of a job.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use trainyard_api::crd::CLIENT_SIDE_APPLY_LIMIT;

use super::{list, objects, printed, repository};

#[test]
fn the_files_in_deploy_are_up_to_date() {
    let fresh = tempfile::tempdir().unwrap();
    printed(&format!("install --output-dir {}", fresh.path().display()));
    let committed = repository().join("deploy");
    let names = |directory: &Path| -> BTreeSet<_> {
        let entries = fs::read_dir(directory).into_iter().flatten();
        entries
            .map(|entry| entry.unwrap().file_name())
            .filter(|n| n.to_string_lossy().ends_with(".yaml"))
            .collect()
    };
    let advice = "deploy/ is out of date: run `make manifests` and commit what it changes";
    assert_eq!(names(&committed), names(fresh.path()), "{advice}");
    for name in names(fresh.path()) {
        let same = fs::read(committed.join(&name)).unwrap() == fs::read(fresh.path().join(&name)).unwrap();
        assert!(same, "{advice} ({})", name.to_string_lossy());
    }
}

#[test]
fn the_kustomization_names_every_file() {
    let kustomization = fs::read_to_string(repository().join("deploy/kustomization.yaml")).unwrap();
    let kustomization: Value = serde_saphyr::from_str(&kustomization).unwrap();
    let files: Vec<&str> = list(&kustomization, "/resources")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(
        files,
        [
            "namespace.yaml",
            "webhooks.yaml",
            "crds.yaml",
            "rbac.yaml",
            "operator.yaml"
        ]
    );
}

fn definition() -> Value {
    objects("install --crds-only").remove(0)
}

fn schema() -> Value {
    definition()
        .pointer("/spec/versions/0/schema/openAPIV3Schema")
        .cloned()
        .unwrap()
}

/// Client-side apply keeps the whole object, as JSON, in an annotation.
#[test]
fn the_definition_fits_into_an_annotation() {
    let size = serde_json::to_string(&definition()).unwrap().len();
    assert!(size < CLIENT_SIDE_APPLY_LIMIT, "{size} bytes");
}

fn visit(schema: &Value, path: &str, check: &mut dyn FnMut(&Value, &str)) {
    check(schema, path);
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        visit(property, &format!("{path}.{name}"), check);
    }
    for nested in ["items", "additionalProperties"] {
        if let Some(nested) = schema.get(nested).filter(|nested| nested.is_object()) {
            visit(nested, &format!("{path}[]"), check);
        }
    }
}

#[test]
fn every_field_outside_of_the_pod_template_is_described() {
    let mut silent = Vec::new();
    visit(&schema(), "", &mut |field, path| {
        let in_template = path.starts_with(".spec.roles[].template.");
        let item = path.ends_with("[]");
        if !path.is_empty() && !in_template && !item && field.get("description").is_none() {
            silent.push(path.to_owned());
        }
    });
    assert!(
        silent.is_empty(),
        "`kubectl explain` has nothing to say about {silent:?}"
    );
}

#[test]
fn lists_of_named_things_are_keyed() {
    let mut unkeyed = Vec::new();
    let mut keyed = BTreeSet::new();
    visit(&schema(), "", &mut |field, path| {
        if field.get("type").and_then(Value::as_str) != Some("array") {
            return;
        }
        if field.get("x-kubernetes-list-map-keys").is_some() {
            keyed.insert(path.to_owned());
        } else if field.pointer("/items/properties/name").is_some() {
            unkeyed.push(path.to_owned());
        }
    });
    // Headers of a probe and options of the resolver may repeat: Kubernetes' own schema of a pod
    // has no key for them.
    unkeyed.retain(|path| !path.ends_with(".httpHeaders") && !path.ends_with(".dnsConfig.options"));
    // The operator alone writes the status, and nobody merges it but for conditions.
    unkeyed.retain(|path| !path.starts_with(".status."));
    assert!(unkeyed.is_empty(), "{unkeyed:?}");
    let pod = ".spec.roles[].template.spec";
    for list in [".spec.roles", ".status.conditions"] {
        assert!(keyed.contains(list), "{list}");
    }
    for list in [
        "containers",
        "initContainers",
        "volumes",
        "containers[].env",
        "containers[].ports",
    ] {
        assert!(keyed.contains(&format!("{pod}.{list}")), "{list}");
    }
}
