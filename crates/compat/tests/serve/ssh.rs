//! MPIJobs of mpi-operator are served over SSH, as their users know it.

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{JobPhase, MpiAttach, TrainingJob};
use trainyard_core::build;
use trainyard_core::foreign::{Child, ChildAction, ForeignView, Obstacle};
use trainyard_core::job::Job;
use trainyard_core::model::PodKey;

use super::changes::change;
use super::common::{of_job, settings, view};
use super::{PI, at, child, config, kind, object, plan, refusal, refused};

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

/// Its users look for the hosts in a ConfigMap. It is the object's, as there, and says what the
/// launcher's file says.
#[rstest]
#[case("OpenMPI", false, "dice-worker-0.NAME slots=2\ndice-worker-1.NAME slots=2\n")]
#[case(
    "Intel",
    true,
    "dice-launcher.NAME:2\ndice-worker-0.NAME:2\ndice-worker-1.NAME:2\n"
)]
#[case("MPICH", false, "dice-worker-0.NAME:2\ndice-worker-1.NAME:2\n")]
fn the_hosts_are_in_a_config_map(
    #[case] implementation: &str,
    #[case] launcher_works: bool,
    #[case] hosts: &str,
) {
    let mut object = object(PI);
    object["spec"]["mpiImplementation"] = implementation.into();
    object["spec"]["runLauncherAsWorker"] = launcher_works.into();
    let config = config(&plan(&object, Child::None)).unwrap();
    let hosts = hosts.replace("NAME", "dice.research.svc.cluster.local");
    assert_eq!(config["data"], json!({"hostfile": hosts}));
    assert_eq!(config["metadata"]["name"], "dice-config");
    assert_eq!(config["metadata"]["labels"]["app"], "dice");
    let owner = &config["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"], &owner["controller"]),
        (&json!("MPIJob"), &json!("object-uid"), &json!(true))
    );
}

#[test]
fn the_config_map_follows_a_job_that_is_changed() {
    let before = object(PI);
    let mut suspended = change(&before, "/spec/mpiReplicaSpecs/Worker/replicas", 1.into());
    suspended["spec"]["runPolicy"]["suspend"] = true.into();
    let mut child = at(&before, JobPhase::Suspended);
    child.spec.suspend = Some(true);
    let plan = plan(&suspended, of_job(&child));
    assert!(matches!(plan.child, ChildAction::Replace(_)), "{plan:?}");
    let config = config(&plan).unwrap();
    assert_eq!(
        config["data"]["hostfile"],
        "dice-worker-0.dice.research.svc.cluster.local slots=2\n"
    );
    let quiet = super::plan(&before, of_job(&at(&before, JobPhase::Running)));
    assert_eq!(quiet.config, None, "nobody asks for it again");
}

/// The server would refuse it for ever, and the job needs it for nothing.
#[test]
fn a_list_of_hosts_that_no_config_map_can_hold_is_left_out_and_told() {
    let mut object = object(PI);
    let mut list_of = |workers: i32| {
        object["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = workers.into();
        let plan = plan(&object, Child::None);
        assert!(matches!(plan.child, ChildAction::Create(_)), "{plan:?}");
        let told: String = plan.notes.iter().map(|note| &*note.message).collect();
        (config(&plan).unwrap()["data"].clone(), told)
    };
    let (data, told) = list_of(15_000);
    assert!(data["hostfile"].as_str().unwrap().len() <= 1 << 20);
    assert!(!told.contains("dice-config"), "{told}");
    let (data, told) = list_of(19_999);
    assert_eq!(data, json!(null));
    assert!(told.contains("ConfigMap dice-config: is empty"), "{told}");
}

#[test]
fn a_config_map_of_somebody_else_is_told() {
    let object = object(PI);
    let taken = Obstacle::Taken("dice-config".to_owned());
    let mut view = ForeignView {
        obstacle: Some(&taken),
        ..view(&object, Child::None)
    };
    let new = kind("kubeflow-mpi").plan(&view);
    assert!(matches!(new.child, ChildAction::Create(_)), "it is tried again");
    let (reason, message) = refusal(&json!({"status": new.status.unwrap()}));
    assert_eq!(reason, "OwnershipConflict");
    assert!(
        message.starts_with("there is a ConfigMap dice-config that is somebody else's"),
        "{message}"
    );
    let running = at(&object, JobPhase::Running);
    let changed = change(&object, "/spec/runPolicy/ttlSecondsAfterFinished", 5.into());
    view.object = &changed;
    view.child = of_job(&running);
    let plan = kind("kubeflow-mpi").plan(&view);
    let (_, message) = refusal(&json!({"status": plan.status.unwrap()}));
    assert!(message.contains("the job goes on as it was"), "{message}");
}
