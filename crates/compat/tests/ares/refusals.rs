//! Jobs that can't be run: to AresOperator they have failed, with reason InvalidDefinition.

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_compat::{ConvertError, convert, their_path};
use trainyard_core::foreign::{Child, ChildAction, ForeignView};

use super::common::view;
use super::{child, kind, object, plan, refused, told, with};

#[rstest]
#[case::unknown("custom", "/spec/frameworkType", json!("spark"), "spec.frameworkType: there is no framework \"spark\": give bagua")]
#[case::no_type(
    "custom",
    "/spec/frameworkType",
    Value::Null,
    "spec.frameworkType: is missing: give bagua"
)]
#[case::demo("custom", "/spec/frameworkType", json!("demo"), "spec.frameworkType: demo creates no pods")]
#[case::no_roles("custom", "/spec/roleSpecs", json!({}), "spec.roleSpecs: is missing: a job needs at least one role")]
#[case::no_role("custom", "/spec/roleSpecs/hub", json!(7), "spec.roleSpecs.hub: must be of type object, not integer")]
#[case::an_empty_policy("custom", "/spec/jobPhasePolicy/failed", json!([null]), "spec.jobPhasePolicy.failed[0]: is empty: give it a value, or remove it")]
#[case::a_flat_policy("custom", "/spec/jobPhasePolicy/failed", json!(["hub"]), "spec.jobPhasePolicy.failed[0]: must be of type array, not string")]
#[case::a_list_of_roles("custom", "/spec/roleSpecs", json!([]), "spec.roleSpecs: must be of type object, not array")]
#[case::a_huge_number("custom", "/spec/roleSpecs/train/replicas", json!(1_i64 << 40), "spec.roleSpecs.train.replicas: 1099511627776 is too large: give at most 2147483647")]
#[case::a_fraction("custom", "/spec/roleSpecs/train/replicas", json!(1.5), "spec.roleSpecs.train.replicas: must be of type integer, not number")]
#[case::a_framework_of_text("custom", "/spec/framework", json!("mpi"), "spec.framework: must be of type object, not string")]
#[case::a_policy_nobody_knows(
    "custom",
    "/spec/runPolicy",
    json!({"cleanPodPolicy": "Sometimes"}),
    "spec.runPolicy.cleanPodPolicy: \"Sometimes\" is not possible: give one of All, Running, None"
)]
#[case::a_template_of_text("custom", "/spec/roleSpecs/hub/template", json!("busybox"), "spec.roleSpecs.hub.template: must be of type object, not string")]
#[case::no_role_name(
    "custom",
    "/spec/roleSpecs/",
    pod("main"),
    "spec.roleSpecs[]: the role's name must not be empty"
)]
#[case::a_long_type(
    "custom",
    "/spec/frameworkType",
    json!("x".repeat(100_000)),
    &format!("spec.frameworkType: there is no framework \"{}", "x".repeat(900))
)]
#[case::no_template(
    "custom",
    "/spec/roleSpecs/hub/template",
    Value::Null,
    "spec.roleSpecs.hub.template: is missing"
)]
#[case::two_leaders(
    "tensorflow",
    "/spec/roleSpecs/master",
    pod("tensorflow"),
    "spec.roleSpecs.master: chief and master are two words for the role that leads"
)]
#[case::no_containers("custom", "/spec/roleSpecs/hub/template/spec/containers", json!([]), "spec.roleSpecs.hub.template.spec.containers: ")]
#[case::no_pods("custom", "/spec/roleSpecs/train/replicas", json!(0), "spec.roleSpecs.train.replicas: 0 pods")]
#[case::a_role_of_capitals("standalone", "/spec/roleSpecs/Worker", json!({"template": {}}), "spec.roleSpecs.Worker: ")]
#[case::a_role_it_does_not_know(
    "pytorch",
    "/spec/roleSpecs/ps",
    pod("ps"),
    "spec.roleSpecs.ps: pytorch has no role \"ps\""
)]
#[case::two_masters("pytorch", "/spec/roleSpecs/master/replicas", json!(2), "spec.roleSpecs.master.replicas: pytorch jobs have at most 1")]
#[case::no_master(
    "pytorch",
    "/spec/roleSpecs/master",
    Value::Null,
    "spec.roleSpecs.master: is missing"
)]
#[case::no_port(
    "pytorch",
    "/spec/roleSpecs/master/template/spec/containers/0/ports",
    Value::Null,
    "spec.roleSpecs.master.template.spec.containers[0].ports: has no port named \"pytorch\""
)]
#[case::no_main_container(
    "tensorflow",
    "/spec/roleSpecs/ps/template/spec/containers",
    json!([{"name": "other", "image": "i"}]),
    "spec.roleSpecs.ps.template.spec.containers: has no container named \"tensorflow\""
)]
#[case::two_chiefs("tensorflow", "/spec/roleSpecs/chief/replicas", json!(2), "spec.roleSpecs.chief.replicas: tensorflow jobs have at most 1")]
#[case::implementation(
    "mpi",
    "/spec/framework/mpi/implementation",
    json!("lam"),
    "spec.framework.mpi.implementation: \"lam\" is not possible: give one of ompi, mpich"
)]
#[case::slots("mpi", "/spec/framework/mpi/replicasPerNode", json!(-1), "spec.framework.mpi.replicasPerNode: -1 processes can't train")]
#[case::host_file(
    "mpi",
    "/spec/roleSpecs/launcher/dependence/mpiHostFile",
    json!("hosts"),
    "spec.roleSpecs.launcher.dependence.mpiHostFile: \"hosts\" is no absolute path"
)]
#[case::no_worker(
    "mpi",
    "/spec/roleSpecs/worker",
    Value::Null,
    "spec.roleSpecs.worker: is missing: a job of mpi needs this role"
)]
#[case::few_ports("bagua", "/spec/availablePorts", json!([7001]), "spec.availablePorts: 1 port is not enough: give at least 2")]
#[case::no_ports(
    "bagua",
    "/spec/availablePorts",
    Value::Null,
    "spec.availablePorts: 0 ports are not enough"
)]
#[case::the_same_port("bagua", "/spec/availablePorts", json!([7001, 7001]), "spec.availablePorts[1]: 7001 is there twice")]
#[case::few_ports_of_workers(
    "bagua-elastic",
    "/spec/roleSpecs/worker/replicas",
    json!(5),
    "spec.availablePorts: 6 ports are not enough: give at least 7, two for etcd and one for each worker"
)]
#[case::no_etcd(
    "bagua-elastic",
    "/spec/roleSpecs/etcd",
    Value::Null,
    "spec.roleSpecs.etcd: is missing"
)]
#[case::a_useless_etcd("bagua-elastic", "/spec/framework", json!({}), "spec.roleSpecs.master: is missing: a job of bagua needs this role\nspec.roleSpecs.etcd: is for elastic jobs")]
#[case::no_scheduler(
    "dask",
    "/spec/roleSpecs/scheduler",
    Value::Null,
    "spec.roleSpecs.scheduler: is missing"
)]
#[case::workers_without_a_leader(
    "dask",
    "/spec/roleSpecs/leadworker",
    Value::Null,
    "spec.roleSpecs.leadworker: is missing: a job of dask with workers needs this role"
)]
#[case::one_port(
    "dask",
    "/spec/roleSpecs/scheduler/template/spec/containers/0/ports",
    json!([{"containerPort": 1}]),
    "spec.roleSpecs.scheduler.template.spec.containers[0].ports: has 1 port: the container \"dask\" of the scheduler needs 2 ports"
)]
#[case::the_same_ports(
    "dask",
    "/spec/roleSpecs/scheduler/template/spec/containers/0/ports",
    json!([{"containerPort": 9, "name": "a"}, {"containerPort": 9, "name": "b", "protocol": "UDP"}]),
    "spec.roleSpecs.scheduler.template.spec.containers.dashboardPort: 9 is the port of the scheduler, too"
)]
#[case::nobody("custom", "/spec/roleSpecs/train/dependence", json!({}), "spec.roleSpecs.train.dependence.roleNames: is missing")]
#[case::an_end_in_failure(
    "custom",
    "/spec/roleSpecs/train/dependence/rolePhase",
    json!("Failed"),
    "spec.roleSpecs.train.dependence.rolePhase: a role can't wait until another one has failed"
)]
#[case::an_end_of_those_that_train_together(
    "pytorch",
    "/spec/roleSpecs/worker/dependence",
    json!({"roleNames": ["master"], "rolePhase": "Succeeded"}),
    "spec.roleSpecs.worker.dependence.rolePhase: the roles of pytorch jobs train together"
)]
#[case::an_empty_set("custom", "/spec/jobPhasePolicy/failed", json!([[]]), "spec.jobPhasePolicy.failed[0]: an empty set holds at once")]
#[case::a_limit("custom", "/spec/ttlSecondsAfterFailed", json!(-1), "spec.ttlSecondsAfterFailed: -1 is too small")]
#[case::a_long_name("custom", "/metadata/name", json!("a".repeat(57)), "metadata.name: the pod name")]
fn told_with_its_path(#[case] name: &str, #[case] pointer: &str, #[case] value: Value, #[case] wanted: &str) {
    let bad = with(name, pointer, value);
    let (phase, reason, message) = refused(&bad);
    assert_eq!((&*phase, &*reason), ("Failed", "InvalidDefinition"));
    assert!(message.starts_with(wanted), "{message}");
    let errors: Vec<String> = kind()
        .review(None, &bad)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(errors.join("\n"), message, "admission says the same");
    let Err(ConvertError::Invalid(errors)) = convert(&bad) else {
        panic!("it is converted")
    };
    if pointer != "/metadata/name" {
        let first = wanted.lines().next().unwrap();
        assert!(errors[0].to_string().starts_with(first), "{errors:?}");
    }
}

/// A sentence is not as long as what it quotes.
#[test]
fn what_is_told_can_be_read() {
    let (_, _, message) = refused(&with("custom", "/spec/frameworkType", json!("ü".repeat(100_000))));
    assert!(message.chars().count() < 2100, "{}", message.len());
    assert!(message.ends_with("give bagua, custom, dask, mpi, pytorch, standalone or tensorflow"));
}

/// They would have had no effect there, either.
#[test]
fn options_of_another_framework_are_told() {
    let job = with(
        "standalone",
        "/spec/framework",
        json!({"mpi": {"replicasPerNode": 3}}),
    );
    let notes = convert(&job).unwrap().notes;
    let told = "spec.framework.mpi: is of no use to a job of standalone; left out";
    assert!(notes.iter().any(|note| note == told), "{notes:?}");
}

fn pod(name: &str) -> Value {
    json!({"template": {"spec": {"containers": [{"name": name, "image": "i"}]}}})
}

/// What is wrong is told at once, and is no reason to touch anything else.
#[test]
fn all_that_is_wrong() {
    let mut bad = object("dask");
    bad["spec"]["jobPhasePolicy"] = json!({"succeeded": [["nobody"]]});
    bad["spec"]["roleSpecs"]
        .as_object_mut()
        .unwrap()
        .remove("scheduler");
    let (_, _, message) = refused(&bad);
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(
        lines,
        [
            "spec.roleSpecs.scheduler: is missing: a job of dask needs this role",
            "spec.jobPhasePolicy.succeeded[0][0]: there is no role \"nobody\": name one of launcher, leadworker, worker",
        ]
    );
    let notes = kind().notes(None, &plan(&bad, Child::None).status.unwrap());
    assert_eq!(notes[0].reason, "InvalidDefinition");
    assert!(notes[0].warning);
}

/// Also what only our own rules find, and what is wrong beside a framework that there is not.
#[rstest]
#[case::of_an_unknown_framework("spark", "spec.frameworkType: there is no framework \"spark\"")]
#[case::of_a_known_one(
    "custom",
    "spec.roleSpecs.train.dependence.mpiHostFile: only the launcher of a job of mpi"
)]
fn all_that_two_stages_find(#[case] framework: &str, #[case] first: &str) {
    let mut bad = object("custom");
    bad["spec"]["frameworkType"] = framework.into();
    let roles = &mut bad["spec"]["roleSpecs"];
    roles["hub"]["template"] = Value::Null;
    roles["prepare"]["replicas"] = json!(0);
    roles["train"]["dependence"]["mpiHostFile"] = json!("/hosts");
    let (_, _, message) = refused(&bad);
    let wanted = [
        first,
        "spec.roleSpecs.hub.template: is missing",
        "spec.roleSpecs.prepare.replicas: 0 pods",
    ];
    let mut lines: Vec<&str> = message.lines().collect();
    for wanted in wanted {
        let position = lines.iter().position(|line| line.starts_with(wanted));
        lines.remove(position.unwrap_or_else(|| panic!("{wanted} is not in {message}")));
    }
    assert_eq!(lines, [""; 0]);
}

/// Fields of a wrong type are told together.
#[test]
fn all_that_can_not_be_read() {
    let mut bad = object("custom");
    bad["spec"]["roleSpecs"]["train"]["replicas"] = json!("two");
    bad["spec"]["roleSpecs"]["hub"]["restartPolicy"] = json!("Sometimes");
    bad["spec"]["jobPhasePolicy"] = json!({"failed": ["hub", ["train"]]});
    let (_, _, message) = refused(&bad);
    let mut lines: Vec<&str> = message.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "spec.jobPhasePolicy.failed[0]: must be of type array, not string",
            "spec.roleSpecs.hub.restartPolicy: \"Sometimes\" is not possible: give one of Never, OnFailure, Always, ExitCode",
            "spec.roleSpecs.train.replicas: must be of type integer, not string",
        ]
    );
}

/// AresOperator never looks at such a job again.
#[test]
fn a_job_that_is_mended_is_run() {
    let mut job = with("custom", "/spec/frameworkType", json!("spark"));
    job["status"] = plan(&job, Child::None).status.unwrap();
    assert_eq!(plan(&job, Child::None).status, None, "it says so already");
    job["spec"]["frameworkType"] = "custom".into();
    job["metadata"]["generation"] = 2.into();
    let child = child(&job);
    let mended = told(&job, &child);
    assert_eq!(mended["status"]["phase"], "Pending");
    let conditions = mended["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions.iter().all(|condition| condition["type"] != "Failed"),
        "{conditions:?}"
    );
}

/// That a job belongs to somebody else says nothing of its definition.
#[test]
fn a_job_of_another_operator_has_not_failed() {
    let object = object("custom");
    let plan = kind().plan(&ForeignView {
        other_writer: Some("ares-operator"),
        ..view(&object, Child::None)
    });
    assert_eq!(plan.child, ChildAction::Leave);
    let status = plan.status.unwrap();
    assert_eq!(status["phase"], "Pending");
    assert_eq!(status["conditions"][0]["reason"], "ServedByAnother");
}

#[test]
fn paths_lead_back_to_roles_by_name() {
    let object = object("custom");
    let path = |ours: &str| their_path(&object, ours);
    assert_eq!(
        path("spec.roles[1].template.spec"),
        "spec.roleSpecs.prepare.template.spec"
    );
    assert_eq!(path("spec.roles[2].name"), "spec.roleSpecs.train");
    assert_eq!(
        path("spec.completion.failedWhen[1].allOf[0]"),
        "spec.jobPhasePolicy.failed[1][0]"
    );
    assert_eq!(
        path("spec.roles[2].dependsOn[0].role"),
        "spec.roleSpecs.train.dependence.roleNames[0]"
    );
    assert_eq!(path("metadata.name"), "metadata.name");
}
