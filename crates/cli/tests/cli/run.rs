//! `trainyard run`, as far as it needs no cluster.

use serde_json::{Value, json};
use trainyard_core::frameworks::FRAMEWORKS;

use super::{objects, trainyard, trainyard_with};

const JOB: &str = "
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: mnist, uid: abc}
spec:
  framework: {name: pytorch}
  roles:
  - name: worker
    replicas: 2
    template: {spec: {containers: [{name: train, image: example/mnist, command: [python3, train.py]}]}}
status: {phase: Running}
";

/// What a wrong call says; its exit code must be 2.
fn refused(line: &str, input: &str) -> String {
    let output = trainyard_with(line, input);
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_command_becomes_a_manifest() {
    let printed = objects("run -n 4 --print -- python3 train.py --epochs 3");
    assert_eq!(printed.len(), 1);
    assert_eq!(printed[0]["metadata"]["name"], "train");
    let worker = &printed[0]["spec"]["roles"][0];
    assert_eq!(worker["replicas"], 4);
    let command = &worker["template"]["spec"]["containers"][0]["command"];
    assert_eq!(*command, json!(["python3", "train.py", "--epochs", "3"]));
}

/// Each framework runs a command, or says which roles to write.
#[test]
fn a_framework_without_a_role_for_a_command_says_which_roles_to_write() {
    let mut refusing = Vec::new();
    for framework in FRAMEWORKS.iter() {
        let name = framework.name();
        let line = format!("run -n 2 --framework {name} --print -- ./main");
        if framework.role_of_command().is_some() {
            let roles = objects(&line).remove(0)["spec"]["roles"].take();
            assert_eq!(
                (&roles[0]["replicas"], &roles[1]),
                (&json!(2), &Value::Null),
                "{name}"
            );
            continue;
        }
        let said = refused(&line, "");
        let roles = framework.roles.iter().map(|role| &*role.name);
        let roles = roles.collect::<Vec<_>>().join(", ");
        let wanted = format!(
            "{name} jobs have several roles ({roles}), each with a command of its own: write a manifest with them, as in \
             docs/frameworks/{name}.md, and run that"
        );
        assert!(said.contains(&wanted), "{said}");
        refusing.push(name);
    }
    assert_eq!(refusing, ["mpi", "horovod", "mxnet", "dask"]);
}

#[test]
fn the_manifest_that_is_printed_is_a_manifest() {
    let printed = trainyard("run -n 2 --framework custom --print -e A=1 -- ./main");
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(trainyard_with("validate -f -", &text).status.success(), "{text}");
    let again = trainyard_with("run --print -", &text);
    assert_eq!(String::from_utf8(again.stdout).unwrap(), text);
}

#[test]
fn fields_are_changed_and_what_a_cluster_wrote_is_left_out() {
    let line = "run - --print --set roles.worker.replicas=5 --set metadata.labels.team=7 --env EPOCHS=3";
    let output = trainyard_with(line, JOB);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let job: Value = serde_saphyr::from_str(&String::from_utf8(output.stdout).unwrap()).unwrap();
    assert_eq!(job["spec"]["roles"][0]["replicas"], 5);
    assert_eq!(job["metadata"], json!({"name": "mnist", "labels": {"team": "7"}}));
    let container = &job["spec"]["roles"][0]["template"]["spec"]["containers"][0];
    assert_eq!(container["env"], json!([{"name": "EPOCHS", "value": "3"}]));
    assert_eq!(job.get("status"), None);
}

#[test]
fn what_cannot_run_says_why() {
    for (input, sentence) in [
        ("a: [1\nb: 2".to_owned(), "no valid YAML"),
        (format!("{JOB}---\n{JOB}"), "has 2 TrainingJobs"),
        (
            JOB.replace("TrainingJob", "Deployment"),
            "there is no kind \"Deployment\"",
        ),
        (JOB.replace("replicas", "replicsa"), "did you mean \"replicas\"?"),
        (
            JOB.replace("framework", "suspend: true\n  framework"),
            "--set suspend=false",
        ),
    ] {
        let said = refused("run --print -", &input);
        assert!(said.contains(sentence), "{said}");
    }
    let said = refused("run --print - --set roles.wroker.replicas=2", JOB);
    assert!(
        said.contains("there is no \"wroker\" in spec.roles: there are worker"),
        "{said}"
    );
}
