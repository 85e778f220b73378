//! The examples are right.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::{printed, repository, text};

/// Those of other operators, of which there are several in one place.
const FOREIGN: &str = "compat";

/// Every manifest of ours under `examples/`.
fn manifests() -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join("examples")).unwrap();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|example| !example.ends_with(FOREIGN))
        .map(|example| example.join("job.yaml"))
        .collect();
    files.sort();
    assert!(files.len() >= 2);
    files
}

#[test]
fn all_are_valid() {
    for file in manifests() {
        assert!(printed(&format!("validate -f {}", file.display())).contains(": valid\n"));
    }
}

#[test]
fn those_of_other_operators_can_be_served() {
    let examples = fs::read_dir(repository().join("examples").join(FOREIGN)).unwrap();
    let files = examples.map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = files
        .filter(|file| file.extension().is_some_and(|ext| ext == "yaml"))
        .collect();
    assert_eq!(files.len(), trainyard_compat::served().len());
    for file in files {
        assert!(printed(&format!("validate -f {}", file.display())).contains(": valid"));
        let documents: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(file).unwrap()).unwrap();
        let object = &documents[0];
        let kinds = trainyard_compat::served();
        let kind = kinds.iter().find(|kind| {
            text(object, "/apiVersion").starts_with(kind.group()) && text(object, "/kind") == kind.kind()
        });
        assert_eq!(kind.unwrap().review(None, object), []);
        if let Some(config) = documents.get(1) {
            let program = repository().join("examples/mxnet/train.py");
            assert_eq!(
                text(config, "/data/linear.py"),
                fs::read_to_string(program).unwrap()
            );
        }
    }
}

#[test]
fn the_program_in_the_manifest_is_the_program_beside_it() {
    let mut compared = 0;
    for file in manifests() {
        let manifest = fs::read_to_string(&file).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&manifest).unwrap();
        let Some(config) = documents.iter().find(|document| document["kind"] == "ConfigMap") else {
            continue;
        };
        let program = fs::read_to_string(file.with_file_name("train.py")).unwrap();
        assert_eq!(text(config, "/data/train.py"), program, "{}", file.display());
        compared += 1;
    }
    assert!(compared > 10);
}

/// The manifests in the pages of frameworks.
#[test]
fn what_pages_show_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("job.yaml");
    let mut shown = 0;
    for page in fs::read_dir(repository().join("docs/frameworks")).unwrap() {
        let page = page.unwrap().path();
        let content = fs::read_to_string(&page).unwrap();
        let blocks = content.split("```yaml\n").skip(1);
        let blocks = blocks.filter_map(|block| block.split("```").next());
        for block in blocks.filter(|block| block.starts_with("apiVersion: trainyard.dev")) {
            fs::write(&file, block).unwrap();
            let said = printed(&format!("validate -f {}", file.display()));
            assert!(said.contains(": valid\n"), "{}: {said}", page.display());
            shown += 1;
        }
    }
    assert!(shown > 12);
}

#[test]
fn all_pods_satisfy_the_restricted_profile() {
    // The quickstart is what a laptop's user writes; its kustomization adds what a cluster may ask
    // for.
    let quickstart = repository().join("examples/quickstart/job.yaml");
    for file in manifests().into_iter().filter(|file| *file != quickstart) {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(&file).unwrap()).unwrap();
        for role in super::list(&documents[0], "/spec/roles") {
            let pod = role.pointer("/template/spec").unwrap();
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{}", file.display());
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            for container in super::list(pod, "/containers") {
                assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
                assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
            }
        }
    }
}
