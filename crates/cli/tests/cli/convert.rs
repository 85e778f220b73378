//! Jobs of other operators: `convert`, and what `validate` and `run` make of them.

use std::fs;

use serde_json::Value;

use super::{repository, text, trainyard_with};

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: data}\ndata: {a: \"0644\"}\n";
const OURS: &str =
    "apiVersion: trainyard.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: mine}\nspec: {}\n";

fn manifest(name: &str) -> String {
    fs::read_to_string(repository().join("crates/compat/tests/manifests").join(name)).unwrap()
}

/// The exit code, the standard output and the standard error.
fn call(line: &str, input: &str) -> (i32, String, String) {
    let output = trainyard_with(line, input);
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn objects(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(yaml).unwrap()
}

#[test]
fn what_is_converted_is_valid_and_says_what_is_different() {
    for (name, origin) in [
        ("kubeflow-pi.yaml", "MPIJob of kubeflow.org/v2beta1"),
        ("kubeflow-benchmarks.yaml", "MPIJob of kubeflow.org/v2beta1"),
        ("bdap-horovod.yaml", "MPIJob of batch.test.bdap.com/v1"),
        ("dl-mxjob.yaml", "MXJob of mpba.fbk.eu/v1"),
        ("dl-tfjob.yaml", "TFJob of mpba.fbk.eu/v1"),
        ("ares/sample-pytorch.yaml", "AresJob of ares.io/v1"),
    ] {
        for line in ["convert -f -", "convert -", "convert - -o yaml"] {
            let (code, out, err) = call(line, &manifest(name));
            assert_eq!((code, err.as_str()), (0, ""), "{name}");
            assert!(
                out.starts_with(&format!("---\n# Converted from {origin}:\n# - ")),
                "{out}"
            );
            assert_eq!(call("validate -", &out).0, 0, "{name}: {out}");
        }
    }
}

#[test]
fn json_has_no_comments_so_that_notes_are_elsewhere() {
    let (code, out, err) = call("convert - -o json", &manifest("kubeflow-pi.yaml"));
    let job: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, text(&job, "/kind")), (0, "TrainingJob"));
    assert!(err.contains("trainyard: spec.sshAuthMountPath: "), "{err}");
    let both = format!(
        "{}---\n{}",
        manifest("kubeflow-pi.yaml"),
        manifest("bdap-horovod.yaml")
    );
    let list: Value = serde_json::from_str(&call("convert - -o json", &both).1).unwrap();
    assert_eq!(
        (text(&list, "/kind"), super::list(&list, "/items").len()),
        ("List", 2)
    );
}

#[test]
fn what_is_no_job_of_another_operator_stays_as_it_is() {
    let input = format!("{CONFIG_MAP}---\n{}---\n{OURS}", manifest("kubeflow-pi.yaml"));
    let (code, out, _) = call("convert -", &input);
    let printed = objects(&out);
    assert_eq!(code, 0);
    assert_eq!(printed[0], objects(CONFIG_MAP)[0]);
    assert_eq!(text(&printed[1], "/spec/framework/name"), "mpi");
    assert_eq!(printed[2], objects(OURS)[0]);
}

#[test]
fn if_one_can_not_be_converted_nothing_is_printed() {
    let good = manifest("kubeflow-pi.yaml");
    let relative = good.replace("v2beta1", "v1");
    let cases = [
        (
            CONFIG_MAP.to_owned(),
            "trainyard: there is nothing to convert: what can be is MPIJob of ",
        ),
        (String::new(), "trainyard: there is nothing to convert"),
        (
            format!("{good}---\n{relative}"),
            "trainyard: -: document 2: apiVersion: MPIJob of kubeflow.org/v1 can't be converted: what can is ",
        ),
        (
            good.replace("slotsPerWorker: 2", "slotsPerWorker: two"),
            "trainyard: -: document 1: spec.slotsPerWorker: must be of type integer, not string",
        ),
        // A bound of the definition, which is not among the rules.
        (
            good.replace("slotsPerWorker: 2", "slotsPerWorker: 5000"),
            "trainyard: -: document 1: spec.slotsPerWorker: 5000 is too large: give at most 1024",
        ),
        (
            "a: 1\n".to_owned(),
            "trainyard: -: document 1: this is no Kubernetes object",
        ),
        ("a: [\n".to_owned(), "trainyard: -: this is no valid YAML: "),
    ];
    for (input, wanted) in cases {
        let (code, out, err) = call("convert -", &input);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.starts_with(wanted), "{err}");
    }
}

#[test]
fn validate_holds_them_to_what_they_become() {
    let good = manifest("kubeflow-pi.yaml");
    let (code, out, err) = call("validate -", &good);
    assert_eq!((code, err.as_str()), (0, ""));
    let mut lines = out.lines();
    assert_eq!(
        lines.next(),
        Some("-: MPIJob dice: valid, converted to a TrainingJob")
    );
    let notes: Vec<&str> = lines.collect();
    assert!(
        !notes.is_empty() && notes.iter().all(|note| note.starts_with("  note: spec")),
        "what is different: {out}"
    );
    let typo = good.replacen("spec:\n", "spec:\n  slots: 2\n", 1);
    let (code, out, _) = call("validate -", &typo);
    assert_eq!(code, 0);
    let told = "\n  note: spec.slots: there is no such field in this kind; it is left out\n";
    assert!(out.contains(told), "{out}");
    let bad = good.replace("replicas: 2", "replicas: 12000");
    let (code, out, _) = call("validate -", &bad);
    assert_eq!(code, 1);
    assert!(
        out.contains("\n  spec.mpiReplicaSpecs.Worker.replicas: 12000 is too large"),
        "{out}"
    );
    let relative = good.replace("v2beta1", "v1");
    assert!(call("validate -", &relative).1.contains("not checked"));
}

#[test]
fn run_takes_them_too() {
    let (code, out, err) = call("run --print -", &manifest("bdap-horovod.yaml"));
    assert_eq!(code, 0, "{err}");
    let printed = objects(&out);
    assert_eq!(text(&printed[0], "/kind"), "TrainingJob");
    let bad = manifest("bdap-horovod.yaml").replace("numWorkers: 5", "numWorkers: 0");
    let (code, out, err) = call("run --print -", &bad);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.contains("document 1 can't be converted to a TrainingJob"),
        "{err}"
    );
    assert!(err.contains("\n  spec.numWorkers: 0 pods"), "{err}");
}
