//! MPIJobs of mpi-operator are served over SSH, as their users know it.

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{MpiAttach, TrainingJob};
use trainyard_core::build;
use trainyard_core::foreign::Child;
use trainyard_core::job::Job;
use trainyard_core::plan::PodKey;

use super::{PI, child, kind, object, refused, settings};

const WORKER: &str = "/spec/mpiReplicaSpecs/Worker/template/spec/containers/0";

/// A pod of a role, as it is created.
fn pod(child: &TrainingJob, role: usize) -> Value {
    let job = Job::parse(child).unwrap();
    serde_json::to_value(build::pod(&job, &settings(), PodKey { role, index: 0 })).unwrap()
}

/// Where the main container finds the key, and the volume that it is in.
fn key(pod: &Value) -> (Vec<&str>, &Value) {
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let volume = volumes
        .iter()
        .find(|volume| volume["secret"]["secretName"] == "dice-ssh")
        .unwrap();
    let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
    let mounts = mounts.iter().filter(|mount| mount["name"] == volume["name"]);
    let paths = mounts.map(|mount| mount["mountPath"].as_str().unwrap());
    (paths.collect(), &volume["secret"])
}

#[rstest]
#[case::neither(json!(null), json!(null), json!(["/usr/sbin/sshd", "-De"]), json!(null))]
#[case::empty(json!([]), json!([]), json!(["/usr/sbin/sshd", "-De"]), json!([]))]
#[case::a_command(json!(["/bin/serve"]), json!(null), json!(["/bin/serve"]), json!(null))]
#[case::args_alone(json!(null), json!(["-f", "/own/config"]), json!(null), json!(["-f", "/own/config"]))]
#[case::both(json!(["sshd"]), json!(["-D"]), json!(["sshd"]), json!(["-D"]))]
fn a_worker_runs_what_it_ran(
    #[case] command: Value,
    #[case] args: Value,
    #[case] runs: Value,
    #[case] with: Value,
) {
    let mut object = object(PI);
    let container = object.pointer_mut(WORKER).unwrap();
    container["command"] = command;
    container["args"] = args;
    let child = child(&object);
    let attach = child.spec.framework.mpi.as_ref().unwrap().attach;
    assert_eq!(attach, Some(MpiAttach::Ssh));
    let worker = pod(&child, 1);
    let main = &worker["spec"]["containers"][0];
    assert_eq!((&main["command"], &main["args"]), (&runs, &with));
    assert_eq!(main["readinessProbe"], json!({"tcpSocket": {"port": 2222}}));
    assert_eq!(worker["spec"]["initContainers"], Value::Null, "nothing is added");
}

#[rstest]
#[case::given(Some("/home/roller/.ssh"), "/home/roller/.ssh", 0o444)]
#[case::left_out(None, "/root/.ssh", 0o600)]
#[case::empty(Some(""), "/root/.ssh", 0o600)]
fn the_key_is_where_its_users_look(#[case] given: Option<&str>, #[case] directory: &str, #[case] mode: i32) {
    let mut object = object(PI);
    object["spec"]["sshAuthMountPath"] = given.into();
    let child = child(&object);
    for role in [0, 1] {
        let pod = pod(&child, role);
        let (paths, secret) = key(&pod);
        assert_eq!(paths, [directory]);
        assert_eq!(secret["defaultMode"], mode);
        let items = secret["items"].as_array().unwrap().iter();
        let files: Vec<_> = items.map(|item| item["path"].as_str().unwrap()).collect();
        assert_eq!(files, ["id_rsa", "id_rsa.pub", "authorized_keys"]);
    }
}

#[test]
fn a_place_that_is_taken_is_refused_with_its_path() {
    let mut object = object(PI);
    object["spec"]["sshAuthMountPath"] = "/etc/mpi/keys".into();
    let (reason, message) = refused(&object, Child::None);
    assert_eq!(reason, "Invalid");
    assert!(message.starts_with("spec.sshAuthMountPath: "), "{message}");
    assert_eq!(
        kind("kubeflow-mpi").review(None, &object)[0].path,
        "spec.sshAuthMountPath"
    );
}
