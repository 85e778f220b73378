//! Jobs of other operators, as their users write them, and what becomes of them.
//!
//! Snapshots are under `snapshots/`; `cargo insta review` shows what changed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{RestartPolicy, TrainingJob, UpdatePolicy};
use trainyard_compat::{ConvertError, Converted, Recognized, convert, known, recognize, their_path};
use trainyard_core::restart::{End, replacement};

const PI: &str = include_str!("manifests/kubeflow-pi.yaml");
const BENCHMARKS: &str = include_str!("manifests/kubeflow-benchmarks.yaml");
const HOROVOD: &str = include_str!("manifests/bdap-horovod.yaml");
const MXJOB: &str = include_str!("manifests/dl-mxjob.yaml");
const TFJOB: &str = include_str!("manifests/dl-tfjob.yaml");

fn object(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn converted(object: &Value) -> Converted {
    convert(object).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// What `convert` prints: the notes, and the job.
fn printed(text: &str) -> String {
    let Converted { job, notes } = converted(&object(text));
    let mut lines: Vec<String> = notes.iter().map(|note| format!("# {note}")).collect();
    lines.push(serde_saphyr::to_string(&job).unwrap());
    lines.join("\n")
}

/// All that is wrong with a job in which one thing was changed.
fn errors(text: &str, change: impl FnOnce(&mut Value)) -> Vec<String> {
    let mut object = object(text);
    change(&mut object);
    match convert(&object) {
        Err(ConvertError::Invalid(errors)) => errors.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

/// Sets the value at a JSON pointer whose parent exists; `null` removes it.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if value.is_null() {
        parent.remove(name).unwrap();
    } else {
        parent.insert(name.to_owned(), value);
    }
}

#[test]
fn kubeflow_pi() {
    insta::assert_snapshot!(printed(PI));
}

#[test]
fn kubeflow_benchmarks() {
    insta::assert_snapshot!(printed(BENCHMARKS));
}

#[test]
fn bdap_horovod() {
    insta::assert_snapshot!(printed(HOROVOD));
}

#[test]
fn dl_mxjob() {
    insta::assert_snapshot!(printed(MXJOB));
}

#[test]
fn dl_tfjob() {
    insta::assert_snapshot!(printed(TFJOB));
}

#[test]
fn what_is_converted_is_valid() {
    for text in [PI, BENCHMARKS, HOROVOD, MXJOB, TFJOB] {
        let mut job = converted(&object(text)).job;
        // Also after it was written and read.
        let read: TrainingJob = serde_json::from_value(serde_json::to_value(&job).unwrap()).unwrap();
        assert_eq!(read, job);
        trainyard_core::admission::default(&mut job);
        assert_eq!(trainyard_core::admission::validate(None, &job), []);
    }
}

#[test]
fn kinds_are_known_by_group_version_and_kind() {
    let of = |api: &str, kind: &str| recognize(&json!({"apiVersion": api, "kind": kind}));
    assert_eq!(of("kubeflow.org/v2beta1", "MPIJob"), Recognized::Known);
    assert_eq!(of("batch.test.bdap.com/v1", "MPIJob"), Recognized::Known);
    assert_eq!(of("mpba.fbk.eu/v1", "MXJob"), Recognized::Known);
    assert_eq!(of("mpba.fbk.eu/v1", "TFJob"), Recognized::Known);
    assert_eq!(of("mpba.fbk.eu/v1", "MPIJob"), Recognized::Related);
    assert_eq!(of("ares.io/v1", "AresJob"), Recognized::Known);
    assert_eq!(of("ares.io/v2", "AresJob"), Recognized::Related);
    assert_eq!(of("ares.io/v1", "AresQueue"), Recognized::Other);
    assert_eq!(
        of("kai.alibabacloud.com/v1alpha1", "TrainingJob"),
        Recognized::Known
    );
    assert_eq!(
        of("kai.alibabacloud.com/v1alpha1", "ScaleIn"),
        Recognized::Request
    );
    assert_eq!(of("trainyard.dev/v1alpha1", "ScaleIn"), Recognized::Other);
    assert_eq!(of("kubeflow.org/v1", "MPIJob"), Recognized::Related);
    assert_eq!(of("kubeflow.org/v1", "PyTorchJob"), Recognized::Related);
    assert_eq!(of("kubeflow.org/v1", "Notebook"), Recognized::Other);
    assert_eq!(of("batch/v1", "Job"), Recognized::Other);
    assert_eq!(of("trainyard.dev/v1alpha1", "TrainingJob"), Recognized::Other);
    assert_eq!(of("v1", "ConfigMap"), Recognized::Other);
    assert_eq!(recognize(&json!("text")), Recognized::Other);
}

#[test]
fn what_is_not_known_is_refused_with_what_is() {
    let refusal = convert(&json!({"apiVersion": "kubeflow.org/v1", "kind": "TFJob"})).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "TFJob of kubeflow.org/v1 can't be converted: what can is MPIJob of kubeflow.org/v2beta1, MPIJob of \
         batch.test.bdap.com/v1, MXJob of mpba.fbk.eu/v1, TFJob of mpba.fbk.eu/v1, AresJob of ares.io/v1, \
         TrainingJob of kai.alibabacloud.com/v1alpha1, ScaleIn of kai.alibabacloud.com/v1alpha1, ScaleOut of \
         kai.alibabacloud.com/v1alpha1"
    );
    assert_eq!(known().len(), 8);
}

#[rstest]
#[case::no_spec("/spec", Value::Null, "spec: is missing")]
#[case::a_spec_of_text("/spec", json!("all"), "spec: must be of type object, not string")]
#[case::slots("/spec/slotsPerWorker", json!("two"), "spec.slotsPerWorker: must be of type integer, not string")]
#[case::zero_slots("/spec/slotsPerWorker", json!(0), "spec.slotsPerWorker: 0 processes can't train")]
#[case::too_many_slots("/spec/slotsPerWorker", json!(4_294_967_296_u64), "spec.slotsPerWorker: 4294967296 is too large")]
#[case::implementation(
    "/spec/mpiImplementation",
    json!("LAM"),
    "spec.mpiImplementation: \"LAM\" is not possible: give one of OpenMPI, MPICH, Intel"
)]
#[case::clean_up("/spec/runPolicy/cleanPodPolicy", json!("Some"), "spec.runPolicy.cleanPodPolicy: \"Some\" is not possible: give one of All, Running, None")]
#[case::negative_deadline(
    "/spec/runPolicy/activeDeadlineSeconds",
    json!(-1),
    "spec.runPolicy.activeDeadlineSeconds: -1 is too small"
)]
#[case::manager("/spec/runPolicy/managedBy", json!("me"), "spec.runPolicy.managedBy: \"me\" is no controller's name")]
#[case::two_launchers(
    "/spec/mpiReplicaSpecs/Launcher/replicas",
    json!(2),
    "spec.mpiReplicaSpecs.Launcher.replicas: 2 launchers: there is exactly one"
)]
#[case::no_launcher(
    "/spec/mpiReplicaSpecs/Launcher",
    Value::Null,
    "spec.mpiReplicaSpecs.Launcher: is missing"
)]
#[case::no_worker(
    "/spec/mpiReplicaSpecs/Worker",
    Value::Null,
    "spec.mpiReplicaSpecs.Worker: is missing"
)]
#[case::no_number(
    "/spec/mpiReplicaSpecs/Worker/replicas",
    Value::Null,
    "spec.mpiReplicaSpecs.Worker.replicas: is missing"
)]
#[case::no_workers("/spec/mpiReplicaSpecs/Worker/replicas", json!(0), "spec.mpiReplicaSpecs.Worker.replicas: 0 pods")]
#[case::no_template(
    "/spec/mpiReplicaSpecs/Worker/template",
    Value::Null,
    "spec.mpiReplicaSpecs.Worker.template: is missing"
)]
#[case::no_containers(
    "/spec/mpiReplicaSpecs/Launcher/template/spec/containers",
    json!([]),
    "spec.mpiReplicaSpecs.Launcher.template.spec.containers: "
)]
#[case::another_role("/spec/mpiReplicaSpecs/worker", json!({}), "spec.mpiReplicaSpecs.worker: an MPIJob has a Launcher and a Worker")]
#[case::a_policy_it_never_had(
    "/spec/mpiReplicaSpecs/Worker/restartPolicy",
    json!("Always"),
    "spec.mpiReplicaSpecs.Worker.restartPolicy: \"Always\" is not possible: give one of Never, OnFailure"
)]
#[case::deep_inside(
    "/spec/mpiReplicaSpecs/Worker/template/spec/containers",
    json!([{"name": "a", "image": "b", "env": [{"name": "X", "value": 3}]}]),
    "spec.mpiReplicaSpecs.Worker.template.spec.containers[0].env[0].value: must be of type string, not integer: put it in quotes"
)]
#[case::ours(
    "/spec/mpiReplicaSpecs/Launcher/template/spec/containers",
    json!([{"name": "a", "image": "b", "env": [{"name": "TRAINYARD_X", "value": "3"}]}]),
    "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].env[0].name: "
)]
#[case::a_command_in_the_image(
    "/spec/mpiReplicaSpecs/Worker/template/spec/containers",
    json!([{"name": "a", "image": "b", "args": ["serve"]}]),
    "spec.mpiReplicaSpecs.Worker.template.spec.containers[0].args: the agent starts the worker's program"
)]
#[case::a_name_that_is_too_long("/metadata/name", json!("a".repeat(64)), "metadata.name: ")]
fn what_is_wrong_with_an_mpijob_is_told_with_its_path(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] wanted: &str,
) {
    assert_told(PI, pointer, value, wanted);
}

#[rstest]
#[case::no_number("/spec/numWorkers", Value::Null, "spec.numWorkers: is missing")]
#[case::no_workers("/spec/numWorkers", json!(0), "spec.numWorkers: 0 pods")]
#[case::no_template("/spec/workerTemplate", Value::Null, "spec.workerTemplate: is missing")]
#[case::no_pod("/spec/launcherTemplate/spec", Value::Null, "spec.launcherTemplate")]
#[case::restarts(
    "/spec/workerTemplate/spec/restartPolicy",
    json!("Often"),
    "spec.workerTemplate.spec.restartPolicy: \"Often\" is not possible"
)]
#[case::no_image(
    "/spec/workerTemplate/spec/containers",
    json!([{"name": "a", "image": 7}]),
    "spec.workerTemplate.spec.containers[0].image: must be of type string, not integer: put it in quotes"
)]
fn what_is_wrong_with_a_bdap_job_is_told_with_its_path(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] wanted: &str,
) {
    assert_told(HOROVOD, pointer, value, wanted);
}

#[rstest]
#[case::no_spec("/spec", Value::Null, "spec: is missing")]
#[case::a_spec_that_is_no_list("/spec", json!({"replicas": 1}), "spec: must be of type array, not object")]
#[case::nothing("/spec", json!([]), "spec: a job needs at least one role")]
#[case::no_type(
    "/spec/1/replicaType",
    Value::Null,
    "spec[1].replicaType: is missing: give one of scheduler, server, worker"
)]
#[case::another_type("/spec/1/replicaType", json!("PS"), "spec[1].replicaType: there is no type \"PS\"")]
#[case::a_type_twice("/spec/1/replicaType", json!("Worker"), "spec[2].replicaType: there are \"WORKER\" replicas already")]
#[case::one_too_few("/spec", json!([{"replicaType": "Worker", "template": {}}]), "spec: mxnet jobs need a role \"scheduler\"")]
#[case::two_schedulers("/spec/0/replicas", json!(2), "spec[0].replicas: mxnet jobs have at most 1 \"scheduler\" pod")]
#[case::no_pods("/spec/2/replicas", json!(0), "spec[2].replicas: 0 pods: give at least 1, or remove the role; to stop a job, delete it")]
#[case::words("/spec/2/replicas", json!("two"), "spec[2].replicas: must be of type integer, not string")]
#[case::no_template("/spec/0/template", Value::Null, "spec[0].template: is missing")]
#[case::no_containers("/spec/0/template/spec/containers", json!([]), "spec[0].template.spec.containers: ")]
#[case::restarts(
    "/spec/2/template/spec/restartPolicy",
    json!("Often"),
    "spec[2].template.spec.restartPolicy: \"Often\" is not possible"
)]
#[case::an_empty_entry("/spec", json!([null]), "spec[0]: is empty: give it a value, or remove it")]
#[case::a_name_that_is_too_long("/metadata/name", json!("a".repeat(64)), "metadata.name: ")]
#[case::names_of_pods_that_are_too_long("/metadata/name", json!("a".repeat(54)), "metadata.name: the pod name")]
fn what_is_wrong_with_an_mxjob_is_told_with_its_path(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] wanted: &str,
) {
    assert_told(MXJOB, pointer, value, wanted);
}

#[test]
fn all_that_is_wrong_with_an_mxjob_is_told_at_once() {
    let found = errors(MXJOB, |object| {
        object["spec"] = json!([{}, {"replicaType": "boss"}]);
    });
    assert_eq!(found.len(), 4, "{found:#?}");
}

/// What our own rules find is told together with what can't be translated.
#[rstest]
#[case::kubeflow(PI, "/spec/mpiReplicaSpecs/Launcher/replicas", "/spec/mpiReplicaSpecs/Worker/replicas", &[
    "spec.mpiReplicaSpecs.Launcher.replicas: -1 launchers",
    "spec.mpiReplicaSpecs.Worker.replicas: -1 pods",
])]
#[case::bdap(HOROVOD, "/spec/launcherTemplate/spec/restartPolicy", "/spec/numWorkers", &[
    "spec.launcherTemplate.spec.restartPolicy: ",
    "spec.numWorkers: -1 pods",
])]
#[case::dl(MXJOB, "/spec/1/replicaType", "/spec/2/replicas", &[
    "spec[1].replicaType: there is no type \"-1\"",
    "spec[2].replicas: -1 pods",
])]
#[case::dl_without_a_template(MXJOB, "/spec/1/template", "/spec/2/replicas", &[
    "spec[1].template: is missing",
    "spec[2].replicas: -1 pods",
])]
fn all_that_two_stages_find(
    #[case] job: &str,
    #[case] first: &str,
    #[case] second: &str,
    #[case] wanted: &[&str],
) {
    let found = errors(job, |object| {
        let value = match first.rsplit('/').next() {
            Some("replicas") => json!(-1),
            Some("template") => Value::Null,
            _ => json!("-1"),
        };
        set(object, first, value);
        set(object, second, json!(-1));
    });
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert!(found.starts_with(wanted), "{found}");
    }
}

/// With one field changed, the errors begin as wanted, and none has a path of ours.
fn assert_told(job: &str, pointer: &str, value: Value, wanted: &str) {
    let errors = errors(job, |object| set(object, pointer, value));
    assert!(
        errors.iter().any(|error| error.starts_with(wanted)),
        "{errors:#?}"
    );
    assert!(
        errors
            .iter()
            .all(|error| !error.contains("roles[") && !error.starts_with("spec[0].name")),
        "{errors:#?}"
    );
}

#[test]
fn all_that_is_missing_is_told_at_once() {
    let found = errors(HOROVOD, |object| object["spec"] = json!({}));
    assert_eq!(found.len(), 3, "{found:#?}");
    let found = errors(PI, |object| {
        object["spec"]["mpiReplicaSpecs"] = json!({"Master": {}});
    });
    assert_eq!(found.len(), 3, "{found:#?}");
}

/// The paths that notes speak of, where a job was changed.
fn noted(text: &str, pointer: &str, value: Value) -> Vec<String> {
    let mut object = object(text);
    set(&mut object, pointer, value);
    let notes = converted(&object).notes;
    notes
        .iter()
        .map(|note| note.split_once(": ").unwrap().0.to_owned())
        .collect()
}

#[rstest]
#[case::of_the_spec("/spec/gangScheduling", json!(true), "spec.gangScheduling")]
#[case::of_a_container(
    "/spec/mpiReplicaSpecs/Launcher/template/spec/containers/0/imagePolicy",
    json!("Never"),
    "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].imagePolicy"
)]
#[case::that_the_operator_sets(
    "/spec/mpiReplicaSpecs/Worker/template/spec/hostname",
    json!("me"),
    "spec.mpiReplicaSpecs.Worker.template.spec.hostname"
)]
#[case::that_has_no_counterpart(
    "/spec/runPolicy/schedulingPolicy",
    json!({"minAvailable": 2}),
    "spec.runPolicy.schedulingPolicy"
)]
#[case::that_means_something_else("/spec/launcherCreationPolicy", json!("AtStartup"), "spec.launcherCreationPolicy")]
#[case::of_the_cluster("/metadata/finalizers", json!(["a/b"]), "metadata.finalizers")]
#[case::elastic(
    "/spec/mpiReplicaSpecs/Launcher/template/spec/containers/0/args",
    json!(["--host-discovery-script", "/etc/mpi/discover_hosts.sh"]),
    "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0]"
)]
fn no_field_is_dropped_silently(#[case] pointer: &str, #[case] value: Value, #[case] path: &str) {
    let without = converted(&object(PI)).notes.len();
    let paths = noted(PI, pointer, value);
    assert_eq!(paths.len(), without + 1, "{paths:#?}");
    assert!(paths.iter().any(|noted| noted == path), "{paths:#?}");
}

#[test]
fn fields_have_the_names_that_users_know() {
    for (text, ours, theirs) in [
        (
            PI,
            "spec.roles[1].replicas",
            "spec.mpiReplicaSpecs.Worker.replicas",
        ),
        (PI, "spec.roles", "spec.mpiReplicaSpecs"),
        (PI, "spec.suspend", "spec.runPolicy.suspend"),
        (PI, "spec.suspended", "spec.suspended"),
        (PI, "spec.runPolicy.backoffLimit", "spec.runPolicy.backoffLimit"),
        (HOROVOD, "spec.roles[1].replicas", "spec.numWorkers"),
        (
            HOROVOD,
            "spec.roles[0].template.spec",
            "spec.launcherTemplate.spec",
        ),
        (MXJOB, "spec.roles[1].replicas", "spec[1].replicas"),
        (
            MXJOB,
            "spec.roles[2].restartPolicy",
            "spec[2].template.spec.restartPolicy",
        ),
        (MXJOB, "spec.roles", "spec"),
        ("kind: ConfigMap", "spec.suspend", "spec.suspend"),
    ] {
        assert_eq!(their_path(&object(text), ours), theirs);
    }
}

#[test]
fn an_empty_field_is_no_field() {
    let mut given = object(PI);
    let wanted = converted(&given);
    for pointer in [
        "/status",
        "/spec/runLauncherAsWorker",
        "/spec/mpiReplicaSpecs/Worker/template/spec/containers/0/env",
        "/metadata/creationTimestamp",
    ] {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        given.pointer_mut(parent).unwrap()[name] = Value::Null;
    }
    assert_eq!(converted(&given), wanted);
}

#[test]
fn a_name_may_be_generated() {
    let mut given = object(PI);
    given["metadata"] = json!({"generateName": "dice-"});
    let job = converted(&given).job;
    assert_eq!(job.metadata.name, None);
    assert_eq!(job.metadata.generate_name.as_deref(), Some("dice-"));
}

#[rstest]
#[case::none(json!(null), json!(null), false)]
#[case::a_server(json!(["/usr/sbin/sshd", "-De"]), json!(null), false)]
#[case::a_server_as_arguments(json!(null), json!(["sshd", "-D"]), false)]
#[case::a_script_that_ends_in_one(json!(["sh", "-c", "mkdir /run/sshd && /usr/sbin/sshd -De"]), json!(null), true)]
#[case::a_program(json!(["python"]), json!(["serve.py"]), true)]
fn a_worker_loses_its_ssh_server_and_what_asks_for_it(
    #[case] command: Value,
    #[case] args: Value,
    #[case] kept: bool,
) {
    let mut given = object(PI);
    let container = given
        .pointer_mut("/spec/mpiReplicaSpecs/Worker/template/spec/containers/0")
        .unwrap();
    container["command"] = command.clone();
    container["args"] = args.clone();
    let Converted { job, notes } = converted(&given);
    let worker = serde_json::to_value(&job.spec.roles[1].template).unwrap();
    let container = &worker["spec"]["containers"][0];
    let (wanted_command, wanted_args) = if kept {
        (command, args)
    } else {
        (Value::Null, Value::Null)
    };
    assert_eq!(container["command"], wanted_command);
    assert_eq!(container["args"], wanted_args);
    // An SSH server is no program of the image's that is missed.
    assert!(
        notes
            .iter()
            .all(|note| !note.contains("what its image would run")),
        "{notes:#?}"
    );
    assert_eq!(container.get("readinessProbe").is_some(), kept);
    assert_eq!(
        notes.iter().any(|note| note.contains(".readinessProbe: ")),
        !kept,
        "{notes:#?}"
    );
}

/// What the other operator does where nothing is said, or ours with a note.
#[test]
fn what_is_left_out_means_what_it_meant() {
    let mut given = object(PI);
    set(&mut given, "/spec/slotsPerWorker", Value::Null);
    set(&mut given, "/spec/runPolicy", Value::Null);
    let Converted { job, notes } = converted(&given);
    assert_eq!(job.spec.framework.mpi.unwrap().slots_per_worker, Some(1));
    assert_eq!(job.spec.run_policy, None);
    assert_eq!(job.spec.roles[0].create_policy, None);
    assert!(
        notes
            .iter()
            .any(|note| note.starts_with("spec.runPolicy.cleanPodPolicy: is not given")),
        "{notes:#?}"
    );
}

/// A launcher that is a Job is tried again with either policy, and a worker that is gone is made
/// anew.
#[rstest]
#[case("Never")]
#[case("OnFailure")]
fn an_mpijob_restarts_as_it_did(#[case] given: &str) {
    let mut job = object(PI);
    for role in ["Launcher", "Worker"] {
        set(
            &mut job,
            &format!("/spec/mpiReplicaSpecs/{role}/restartPolicy"),
            json!(given),
        );
    }
    let Converted { job, notes } = converted(&job);
    assert_eq!(job.spec.roles[0].restart_policy, Some(RestartPolicy::OnFailure));
    let worker = job.spec.roles[1].restart_policy.unwrap();
    // Also one that ended well: sshd does when its pod is deleted.
    for end in [End::Disruption, End::Success, End::Failure(Some(255))] {
        assert!(replacement(worker, end).is_some(), "{end:?}");
    }
    let path = "spec.mpiReplicaSpecs.Worker.restartPolicy: ";
    assert!(notes.iter().any(|note| note.starts_with(path)), "{notes:#?}");
}

#[test]
fn a_deadline_that_began_with_the_launcher_is_told() {
    let mut job = object(PI);
    set(&mut job, "/spec/runPolicy/activeDeadlineSeconds", json!(100));
    let tells = |job: &Value| {
        let notes = converted(job).notes;
        notes
            .iter()
            .any(|note| note.starts_with("spec.runPolicy.activeDeadlineSeconds: "))
    };
    assert!(!tells(&job));
    set(
        &mut job,
        "/spec/launcherCreationPolicy",
        json!("WaitForWorkersReady"),
    );
    assert!(tells(&job));
}

/// Of a plain pod, Always is the default.
#[rstest]
#[case(json!("Never"), RestartPolicy::Never)]
#[case(json!("OnFailure"), RestartPolicy::OnFailure)]
#[case(json!("Always"), RestartPolicy::OnFailure)]
fn a_bdap_template_says_how_its_role_restarts(#[case] given: Value, #[case] wanted: RestartPolicy) {
    let mut text = object(HOROVOD);
    set(&mut text, "/spec/launcherTemplate/spec/restartPolicy", given);
    let job = converted(&text).job;
    assert_eq!(job.spec.roles[0].restart_policy, Some(wanted));
    assert_eq!(job.spec.roles[1].restart_policy, Some(RestartPolicy::OnFailure));
}

#[test]
fn a_bdap_worker_without_a_command_is_told_what_does_not_run() {
    let paths = noted(
        HOROVOD,
        "/spec/workerTemplate/spec/containers",
        json!([{"name": "a", "image": "b"}]),
    );
    assert!(
        paths.contains(&"spec.workerTemplate.spec.containers[0]".to_owned()),
        "{paths:#?}"
    );
}

/// Its jobs follow changes while they run, and so have the script.
#[test]
fn a_bdap_launcher_may_ask_for_hosts() {
    let mut text = object(HOROVOD);
    let launcher = "/spec/launcherTemplate/spec/containers/0/args";
    set(
        &mut text,
        launcher,
        json!(["horovodrun --host-discovery-script /etc/mpi/discover_hosts.sh"]),
    );
    let Converted { job, notes } = converted(&text);
    assert_eq!(
        job.spec.run_policy.unwrap().update_policy,
        Some(UpdatePolicy::Roll)
    );
    assert_eq!(notes, converted(&object(HOROVOD)).notes);
}
