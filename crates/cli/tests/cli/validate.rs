//! What `validate` finds.

use serde_json::{Value, json};

use super::{trainyard, trainyard_with};

const GOOD: &str = "
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: mnist}
spec:
  framework: {name: pytorch}
  roles:
  - name: worker
    replicas: 2
    template:
      spec:
        containers:
        - name: train
          image: example/mnist
          env: [{name: EPOCHS, value: \"3\"}]
          resources: {limits: {cpu: 2, memory: 1Gi}}
        volumes:
        - name: data
          configMap: {name: data, defaultMode: 0644}
";

/// The exit code and the report as JSON.
fn validate(input: &str) -> (i32, Value) {
    let output = trainyard_with("validate -f - -o json", input);
    let report = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code().unwrap(), report)
}

/// All errors of all documents, as `path: message`.
fn errors(input: &str) -> Vec<String> {
    let (code, report) = validate(input);
    let errors: Vec<String> = super::list(&report, "/documents")
        .iter()
        .flat_map(|document| super::list(document, "/errors"))
        .map(|error| {
            format!(
                "{}: {}",
                super::text(error, "/path"),
                super::text(error, "/message")
            )
        })
        .collect();
    assert_eq!(code, i32::from(!errors.is_empty()), "{errors:?}");
    errors
}

/// The one error of a job that is good but for one replacement.
fn error(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let mut errors = errors(&GOOD.replace(from, to));
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.remove(0)
}

#[test]
fn a_good_job_is_valid() {
    assert_eq!(
        validate(GOOD),
        (
            0,
            json!({
                "valid": true,
                "documents": [{"file": "-", "document": 1, "kind": "TrainingJob", "name": "mnist", "errors": []}],
            })
        )
    );
    for line in ["validate -f -", "validate -", "validate - -f /dev/null"] {
        let output = trainyard_with(line, GOOD);
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            "-: TrainingJob mnist: valid\n",
            "{line}"
        );
    }
}

#[test]
fn unknown_fields_are_found_with_their_path_and_the_likely_meaning() {
    assert_eq!(
        error("replicas: 2", "replicsa: 2"),
        "spec.roles[0].replicsa: there is no field \"replicsa\" here: did you mean \"replicas\"?"
    );
    assert_eq!(
        error(
            "image: example/mnist",
            "image: example/mnist\n          imagePolicy: Never"
        ),
        "spec.roles[0].template.spec.containers[0].imagePolicy: there is no field \"imagePolicy\" here: did you mean \
         \"imagePullPolicy\"?"
    );
    assert!(error("{name: mnist}", "{name: mnist, colour: red}").starts_with("metadata.colour: "));
    assert!(error("spec:\n  framework", "zzz: 1\nspec:\n  framework").ends_with("\"zzz\" here: remove it"));
}

#[test]
fn wrong_types_are_found() {
    assert_eq!(
        error("replicas: 2", "replicas: two"),
        "spec.roles[0].replicas: must be of type integer, not string"
    );
    assert_eq!(
        error("replicas: 2", "replicas: 1000000000000000000000000000000"),
        "spec.roles[0].replicas: is too large for a number of this field"
    );
    assert_eq!(
        error("replicas: 2", "replicas: 1.5"),
        "spec.roles[0].replicas: must be of type integer, not number"
    );
    assert_eq!(
        error("value: \"3\"", "value: 3"),
        "spec.roles[0].template.spec.containers[0].env[0].value: must be of type string, not integer: put it in quotes"
    );
    assert_eq!(
        error("replicas: 2", "restartPolicy: Sometimes"),
        "spec.roles[0].restartPolicy: \"Sometimes\" is not possible: give one of Never, OnFailure, Always, ExitCode"
    );
}

#[test]
fn what_is_too_large_for_the_operator_is_found() {
    let large = format!("value: \"{}\"", "x".repeat(600_000));
    let found = error("value: \"3\"", &large);
    assert!(
        found.starts_with("spec: this has 6") && found.contains("at most 524288 are possible: "),
        "{found}"
    );
    let volumes: Vec<String> = (0..400)
        .map(|i| format!("        - {{name: v{i}, emptyDir: {{}}}}\n"))
        .collect();
    let heavy = GOOD.replace("volumes:\n", &format!("volumes:\n{}", volumes.concat()));
    let found = errors(&heavy).join("\n");
    assert!(
        found.contains("spec: this takes") && found.contains("fewer volumes"),
        "{found}"
    );
    let name = format!("name: {}", "x".repeat(10_000));
    let found = error("name: pytorch", &name);
    assert!(found.len() < 2500, "what is quoted is cut: {found}");
    assert!(found.contains("standalone, custom, or declare it: "), "{found}");
    assert!(found.ends_with(" --framework-file"), "{found}");
}

/// The value is not repeated: YAML has read `no` as false, 0777 as 511 and 1.10 as 1.1.
#[test]
fn advice_does_not_change_the_value() {
    for value in ["no", "0777", "1.10", "true", "1_000"] {
        let found = errors(&GOOD.replace("value: \"3\"", &format!("value: {value}")));
        assert!(
            found.iter().all(|error| error.ends_with(": put it in quotes")),
            "{value}: {found:?}"
        );
    }
}

#[test]
fn metadata_is_held_to_its_schema() {
    assert_eq!(
        error("{name: mnist}", "{name: mnist, labels: {a: true, b: c}}"),
        "metadata.labels[a]: must be of type string, not boolean: put it in quotes"
    );
    assert_eq!(
        error("{name: mnist}", "{name: 7}"),
        "metadata.name: must be of type string, not integer: put it in quotes"
    );
    assert_eq!(
        error("{name: mnist}", "{name: mnist, lables: {a: b}}"),
        "metadata.lables: there is no field \"lables\" here: did you mean \"labels\"?"
    );
    // As tools write it, and as `kubectl get -o yaml` shows it.
    let written = "{name: mnist, creationTimestamp: null, annotations: null, uid: x, generation: 2, \
                   resourceVersion: \"5\", managedFields: [{manager: kubectl}]}";
    assert_eq!(errors(&GOOD.replace("{name: mnist}", written)), [""; 0]);
}

#[test]
fn messages_are_for_those_who_write_manifests() {
    let found = errors("a: 1\na: 2\n");
    assert!(
        found[0].contains("the field \"a\" is there twice: remove one, at line 2"),
        "{found:?}"
    );
    let large = format!("a:\n{}", "- 1\n".repeat(300_000));
    let found = errors(&large);
    assert!(
        found[0].contains("it is too large to be read: split it"),
        "{found:?}"
    );
    for found in [errors("a: 1\na: 2\n"), errors(&large)] {
        assert!(
            !found[0].contains("Policy") && !found[0].contains('{'),
            "{found:?}"
        );
    }
    assert_eq!(
        errors("apiVersion: trainyard.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: a}\nspec: null\n"),
        ["spec: is empty: it must be given"]
    );
}

#[test]
fn one_job_can_not_be_in_a_file_twice() {
    let found = errors(&format!(
        "{GOOD}---\n{}",
        GOOD.replace("replicas: 2", "replicas: 3")
    ));
    assert_eq!(
        found,
        ["metadata.name: document 1 has a job of this name already: give each its own"]
    );
    let elsewhere = GOOD.replace("{name: mnist}", "{name: mnist, namespace: other}");
    assert_eq!(errors(&format!("{GOOD}---\n{elsewhere}")), [""; 0]);
    let generated = GOOD.replace("{name: mnist}", "{generateName: mnist-}");
    assert_eq!(errors(&format!("{generated}---\n{generated}")), [""; 0]);
}

#[test]
fn missing_fields_are_found() {
    assert_eq!(
        error("framework: {name: pytorch}", "framework: {}"),
        "spec.framework.name: is missing: it must be given"
    );
}

#[test]
fn rules_are_applied_and_each_field_is_named_once() {
    let found = error("replicas: 2", "replicas: 0");
    assert!(
        found.starts_with("spec.roles[0].replicas: 0 pods: give at least 1"),
        "{found}"
    );
    assert!(error("{name: pytorch}", "{name: caffe}").starts_with("spec.framework.name: "));
    assert!(
        error("value: \"3\"", "value: \"3\"}, {name: RANK, value: \"0\"")
            .contains("env[1].name: RANK is set by")
    );
    assert!(error("{name: mnist}", "{name: Mnist}").starts_with("metadata.name: "));
}

#[test]
fn what_no_pod_could_be_made_of_is_found() {
    let cases = [
        (
            "cpu: 2,",
            "cpu: lots,",
            "containers[0].resources.limits[cpu]: \"lots\" is no amount",
        ),
        (
            "image: example/mnist",
            "image: \"\"",
            "containers[0].image: the container has no image",
        ),
        (
            "image: example/mnist",
            "image: example/mnist\n          volumeMounts: [{name: models, mountPath: /models}]",
            "containers[0].volumeMounts[0].name: there is no volume \"models\"",
        ),
    ];
    for (from, to, said) in cases {
        let found = error(from, to);
        assert!(
            found.starts_with(&format!("spec.roles[0].template.spec.{said}")),
            "{found}"
        );
    }
    let found = error(
        "replicas: 2",
        "placement: {spread: Required, topologyKey: bad key}",
    );
    assert!(
        found.starts_with("spec.roles[0].placement.topologyKey: \"bad key\" is no key"),
        "{found}"
    );
    let found = error("{name: mnist}", "{name: mnist, namespace: BAD NS}");
    assert!(
        found.starts_with("metadata.namespace: the name must consist of"),
        "{found}"
    );
    let found = error("template:\n", "template:\n      metadata: {labels: {a b: c}}\n");
    assert!(
        found.starts_with("spec.roles[0].template.metadata.labels[a b]: \"a b\" is no key"),
        "{found}"
    );
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let bad = GOOD
        .replace("replicas: 2", "replicas: -1\n    color: red")
        .replace("{name: pytorch}", "{name: caffe}");
    assert_eq!(errors(&bad).len(), 3, "{:?}", errors(&bad));
}

#[test]
fn what_cannot_be_read_hides_nothing() {
    let bad = GOOD
        .replace("value: \"3\"", "value: 3}, {name: RANK, value: \"0\"")
        .replace(
            "replicas: 2",
            "replicas: 99999999999\n    restartPolicy: Sometimes\n    container: absent",
        )
        .replace("volumes:\n", "hostname: here\n        volumes:\n        - {}\n")
        .replace(
            "spec:\n  framework",
            "spec:\n  completion: {succeededWhen: [{allOf: [chief]}, 7]}\n  framework",
        );
    let found = errors(&bad);
    let mut paths: Vec<&str> = found
        .iter()
        .map(|error| error.split(": ").next().unwrap())
        .collect();
    paths.sort_unstable();
    let pod = "spec.roles[0].template.spec";
    let expected = [
        "spec.completion.succeededWhen[0].allOf[0]".to_owned(),
        "spec.completion.succeededWhen[1]".to_owned(),
        "spec.roles[0].container".to_owned(),
        "spec.roles[0].replicas".to_owned(),
        "spec.roles[0].restartPolicy".to_owned(),
        format!("{pod}.containers[0].env[0].value"),
        format!("{pod}.containers[0].env[1].name"),
        format!("{pod}.hostname"),
        format!("{pod}.volumes[0].name"),
    ];
    assert_eq!(paths, expected, "{found:#?}");
    assert_eq!(
        error("replicas: 2", "replicas: 99999999999"),
        "spec.roles[0].replicas: 99999999999 is too large: give at most 10000"
    );
}

#[test]
fn what_is_missing_is_said_once_and_hides_nothing() {
    let found = errors("apiVersion: trainyard.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: X}\n");
    assert_eq!(found.len(), 2, "{found:?}");
    let found = errors(
        &GOOD
            .replace("framework: {name: pytorch}", "suspend: 1")
            .replace("{name: mnist}", "{name: X}"),
    );
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn bounds_of_the_schema_hold() {
    let found = error(
        "{name: pytorch}",
        "{name: pytorch, pytorch: {procsPerNode: 2000}}",
    );
    assert_eq!(
        found,
        "spec.framework.pytorch.procsPerNode: 2000 is too large: give at most 1024"
    );
    let found = error("replicas: 2", "replicas: 2\n    container: \"\"");
    assert!(found.starts_with("spec.roles[0].container: "), "{found}");
    let found = error("value: \"3\"", "value: \"3\"}, {name: EPOCHS, value: \"4\"");
    assert!(
        found.ends_with("env[1]: there is an item with the same name already"),
        "{found}"
    );
    let twice = "{name: pytorch}\n  completion: {failedWhen: [{allOf: [worker, worker]}]}";
    assert_eq!(
        error("{name: pytorch}", twice),
        "spec.completion.failedWhen[0].allOf[1]: \"worker\" is there already: remove it"
    );
}

#[test]
fn kinds_and_versions_are_told_apart() {
    assert!(error("v1alpha1", "v9").starts_with("apiVersion: "));
    assert!(error("kind: TrainingJob", "kind: TrainJob").starts_with("kind: "));
    assert_eq!(errors("a: 1\n").len(), 1);
    assert_eq!(errors("just text\n").len(), 1);
}

#[test]
fn other_kinds_in_the_same_file_are_left_alone() {
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: data}\n";
    let (code, report) = validate(&format!("{other}---\n---\n{GOOD}"));
    assert_eq!(code, 0);
    assert_eq!(report["documents"][0]["skipped"], true);
    assert_eq!(report["documents"][1]["name"], "mnist");
    // But if there is nothing else, nothing was checked, and that is not what was asked for.
    assert_eq!(validate(other).0, 1);
    assert_eq!(validate("").0, 1);
}

#[test]
fn lists_are_unpacked() {
    let item = GOOD.trim().replace('\n', "\n  ");
    let (code, report) = validate(&format!("apiVersion: v1\nkind: List\nitems:\n- {item}\n"));
    assert_eq!((code, &report["documents"][0]["name"]), (0, &json!("mnist")));
}

#[test]
fn a_generated_name_counts_with_its_suffix() {
    assert!(errors(&GOOD.replace("{name: mnist}", "{generateName: mnist-}")).is_empty());
    let long = "m".repeat(50);
    assert_eq!(
        errors(&GOOD.replace("{name: mnist}", &format!("{{generateName: {long}}}"))).len(),
        1
    );
}

#[test]
fn text_that_is_no_yaml_is_an_answer_and_a_missing_file_is_none() {
    let found = errors("a: [1\nb: 2");
    assert!(found[0].contains("no valid YAML"), "{found:?}");
    assert!(errors("a: 1\na: 2\n")[0].contains("no valid YAML"));
    assert_eq!(trainyard("validate -f /nonexistent.yaml").status.code(), Some(2));
}

#[test]
fn reports_can_be_yaml() {
    let output = trainyard_with("validate -f - -o yaml", GOOD);
    let report: Value = serde_saphyr::from_str(&String::from_utf8(output.stdout).unwrap()).unwrap();
    assert_eq!(report, validate(GOOD).1);
}

const RING: &str = "
apiVersion: trainyard.dev/v1alpha1
kind: Framework
metadata: {name: ring}
spec:
  params: {port: {type: integer, default: 7000}}
  env: [{name: RING_NEXT, value: 'job.hosts[(replica.rank + 1) % job.replicas]'}]
---
";

#[test]
fn frameworks_that_are_declared_beside_a_job_are_known() {
    let job = GOOD.replace("{name: pytorch}", "{name: ring, params: {port: 7001}}");
    assert_eq!(errors(&format!("{RING}{job}")), [""; 0]);
    assert_eq!(errors(&format!("{job}---{RING}")), [""; 0], "in any order");
    assert_eq!(errors(RING), [""; 0]);
    let said = errors(&job);
    assert!(
        said[0].starts_with("spec.framework.name: there is no framework \"ring\""),
        "{said:?}"
    );
    let wrong = job.replace("port: 7001", "prt: 7001");
    let said = "spec.framework.params.prt: the framework has no such param: use port";
    assert_eq!(errors(&format!("{RING}{wrong}")), [said]);
}

#[test]
fn what_is_wrong_with_a_framework_is_said_with_it() {
    let broken = RING.replace("job.hosts", "job.hostz");
    let said = "spec.env[0].value: column 1: job has no field \"hostz\": it has name, namespace, roles, hosts, replicas, \
                master";
    assert_eq!(errors(&broken), [said]);
    let unknown = RING.replace("params:", "image: x\n  params:");
    let said = errors(&unknown);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("spec.image: "), "{said:?}");
    let job = GOOD.replace("{name: pytorch}", "{name: ring}");
    let of_job = &validate(&format!("{unknown}{job}")).1["documents"][1]["errors"];
    let message = of_job[0]["message"].as_str().unwrap();
    let expected = "the Framework \"ring\" can't be used until its declaration is corrected: spec.image: ";
    assert!(message.starts_with(expected), "{of_job}");
}

#[test]
fn frameworks_come_from_files_of_their_own() {
    let directory = std::env::temp_dir().join(format!("trainyard-frameworks-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("ring.yaml");
    std::fs::write(&file, RING).unwrap();
    let job = GOOD.replace("{name: pytorch}", "{name: ring}");
    let line = format!("validate --framework-file {} -f -", file.display());
    let output = trainyard_with(&line, &job);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let line = format!("run --print --framework-file {} -", file.display());
    let job = job.replace(
        "image: example/mnist",
        "image: example/mnist\n          command: [\"true\"]",
    );
    let output = trainyard_with(&line, &job);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("kind: Framework"), "{text}");
    for (name, content, said) in [
        ("empty.yaml", "---\n", "this file has no Framework"),
        ("job.yaml", GOOD, "this is no Framework"),
        ("twice.yaml", RING, "document 1 of "),
    ] {
        let other = directory.join(name);
        std::fs::write(&other, content).unwrap();
        let (file, other) = (file.display(), other.display());
        let line = format!("validate --framework-file {file} --framework-file {other} -f -");
        let output = trainyard_with(&line, &job);
        let report = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{report}");
        assert!(report.contains(said), "{report}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

/// A name may be anything that YAML can hold, and what is said of it is read on a terminal.
#[test]
fn names_move_no_cursor_and_change_no_title() {
    let bad = GOOD.replace("name: mnist", "name: \"\\e]0;mine\\a\"");
    let bad = bad.replace("name: pytorch", "name: \"\\e[2Jpytorch\"");
    let output = trainyard_with("validate -f -", &bad);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("\\u{1b}[2Jpytorch"), "{said}");
    assert!(!said.contains(['\u{1b}', '\u{7}']), "{said:?}");
}
