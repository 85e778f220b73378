//! Objects of other operators' kinds in a cluster: the TrainingJob that each owns, and the status
//! that it gets.
//!
//! Snapshots are under `snapshots/`; `cargo insta review` shows what changed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

#[path = "../common/mod.rs"]
mod common;

mod changes;
mod counts;
mod deadline;
mod dl;
mod events;
mod ssh;

use changes::change;
use common::{of_job, settings, stored, view};
use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{CleanPodPolicy, Dialect, JobPhase, TrainingJob};
use trainyard_compat::served;
use trainyard_core::build;
use trainyard_core::foreign::{Child, ChildAction, ForeignKind, ForeignPlan, ForeignView, Obstacle};
use trainyard_core::job::Job;

const PI: &str = include_str!("../manifests/kubeflow-pi.yaml");
const BENCHMARKS: &str = include_str!("../manifests/kubeflow-benchmarks.yaml");
const HOROVOD: &str = include_str!("../manifests/bdap-horovod.yaml");
const MXJOB: &str = include_str!("../manifests/dl-mxjob.yaml");
const TFJOB: &str = include_str!("../manifests/dl-tfjob.yaml");

/// An object as a server shows it.
fn object(text: &str) -> Value {
    let mut object = stored(serde_saphyr::from_str(text).unwrap());
    object.as_object_mut().unwrap().remove("status");
    object
}

fn kind(flag: &str) -> &'static dyn ForeignKind {
    served().into_iter().find(|kind| kind.flag() == flag).unwrap()
}

fn kind_of(object: &Value) -> &'static dyn ForeignKind {
    let version = object["apiVersion"].as_str().unwrap();
    let mut kinds = served().into_iter();
    kinds
        .find(|kind| {
            format!("{}/{}", kind.group(), kind.version()) == version && object["kind"] == kind.kind()
        })
        .unwrap()
}

fn plan(object: &Value, child: Child<'_>) -> ForeignPlan {
    kind_of(object).plan(&view(object, child))
}

/// The ConfigMap that a plan sees to.
fn config(plan: &ForeignPlan) -> Option<Value> {
    let config = plan.config.as_ref();
    config.map(|config| serde_json::to_value(config).unwrap())
}

/// The child of a new object.
fn child(object: &Value) -> TrainingJob {
    let plan = plan(object, Child::None);
    assert_eq!(
        plan.status, None,
        "nothing is told before there is something to tell"
    );
    match plan.child {
        ChildAction::Create(job) => *job,
        other => panic!("{other:?}"),
    }
}

/// A child that has come to a phase, with a status as the engine writes it.
fn at(object: &Value, phase: JobPhase) -> TrainingJob {
    let mut job = child(object);
    let ended = phase.is_terminal();
    let mut status = json!({
        "phase": phase,
        "conditions": [{
            "type": "Accepted", "status": "True", "reason": "Valid", "message": "",
            "lastTransitionTime": "2026-02-03T04:00:00Z",
        }],
        "roles": [
            {"name": "launcher", "phase": "Running", "active": i32::from(!ended), "succeeded": i32::from(ended)},
            {"name": "worker", "phase": "Running", "active": 2, "ready": 2},
        ],
        "startTime": "2026-02-03T04:00:01Z",
    });
    if ended {
        status["completionTime"] = "2026-02-03T04:04:01Z".into();
        let ended = json!({
            "type": phase, "status": "True", "reason": "Ended", "message": "launcher has ended",
            "lastTransitionTime": "2026-02-03T04:04:01Z",
        });
        status["conditions"].as_array_mut().unwrap().push(ended);
    }
    job.status = Some(serde_json::from_value(status).unwrap());
    job
}

/// The object after its status was written.
fn told(object: &Value, child: &TrainingJob) -> Value {
    let mut object = object.clone();
    let plan = plan(&object, of_job(child));
    object["status"] = plan.status.unwrap();
    object
}

/// Why an object, or a change of it, is not carried out.
fn refusal(object: &Value) -> (String, String) {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    let refuses = |condition: &&Value| match condition["type"].as_str().unwrap() {
        "Accepted" => condition["status"] == "False",
        kind => kind == "Refused" && condition["status"] == "True",
    };
    let found = conditions.iter().find(refuses).unwrap();
    let text = |member: &str| found[member].as_str().unwrap().to_owned();
    (text("reason"), text("message"))
}

/// What is told of an object that is not served.
fn refused(object: &Value, child: Child<'_>) -> (String, String) {
    let plan = plan(object, child);
    assert_eq!(plan.child, ChildAction::Leave);
    refusal(&json!({"status": plan.status.unwrap()}))
}

fn conditions(object: &Value) -> Vec<(&str, &str, &str)> {
    let all = object["status"]["conditions"].as_array().unwrap().iter();
    let words =
        all.map(|condition| ["type", "status", "reason"].map(|member| condition[member].as_str().unwrap()));
    words
        .map(|[kind, status, reason]| (kind, status, reason))
        .collect()
}

/// Everything that a job of each kind owns: names, labels, environment, files of every role.
#[rstest]
#[case::pi("kubeflow_pi", PI)]
#[case::benchmarks("kubeflow_benchmarks", BENCHMARKS)]
#[case::horovod("bdap_horovod", HOROVOD)]
#[case::mxjob("dl_mxjob", MXJOB)]
#[case::tfjob("dl_tfjob", TFJOB)]
fn children(#[case] name: &str, #[case] text: &str) {
    let mut child = child(&object(text));
    child.metadata.uid = Some("child-uid".to_owned());
    let job = Job::parse(&child).unwrap();
    let settings = settings();
    let mut documents = vec![serde_saphyr::to_string(&child.metadata).unwrap()];
    let config = config(&plan(&object(text), Child::None));
    documents.extend(config.map(|config| serde_saphyr::to_string(&config).unwrap()));
    let services = build::service_keys(&job).into_iter();
    documents.extend(services.map(|key| serde_saphyr::to_string(&build::service(&job, key)).unwrap()));
    let pods = job.keys().filter(|key| key.index <= 1);
    documents.extend(pods.map(|key| serde_saphyr::to_string(&build::pod(&job, &settings, key)).unwrap()));
    insta::assert_snapshot!(name, documents.join("---\n"));
}

#[test]
fn a_child_belongs_to_its_object_and_says_which_spec_it_follows() {
    let object = object(PI);
    let child = child(&object);
    let owner = &child.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (&*owner.api_version, &*owner.kind),
        ("kubeflow.org/v2beta1", "MPIJob")
    );
    assert_eq!((&*owner.uid, owner.controller), ("object-uid", Some(true)));
    assert_eq!(
        child.metadata.annotations.as_ref().unwrap()["trainyard.dev/generation"],
        "1"
    );
    assert_eq!(
        child.metadata.labels, None,
        "labels of an object are not those of another"
    );
    assert_eq!(child.spec.dialect, Some(Dialect::KubeflowMpi));
    assert_eq!(
        child.spec.run_policy.unwrap().ttl_seconds_after_finished,
        None,
        "it is the object's"
    );
}

#[rstest]
#[case(PI)]
#[case(HOROVOD)]
fn a_life(#[case] text: &str) {
    let new = object(text);
    let mut object = new.clone();
    let name = if text == PI { "kubeflow" } else { "bdap" };
    let mut statuses = Vec::new();
    let phases = [
        JobPhase::Starting,
        JobPhase::Running,
        JobPhase::Restarting,
        JobPhase::Suspended,
        JobPhase::Running,
        JobPhase::Succeeded,
    ];
    for phase in phases {
        let child = at(&new, phase);
        object = told(&object, &child);
        statuses.push(serde_saphyr::to_string(&object["status"]).unwrap());
        let again = plan(&object, of_job(&child));
        assert_eq!(
            (again.status, again.child),
            (None, ChildAction::Leave),
            "{phase:?}: it says so already"
        );
    }
    insta::assert_snapshot!(format!("{name}_life"), statuses.join("---\n"));
}

#[test]
fn a_failure_is_told_with_its_cause() {
    let object = object(PI);
    let child = at(&object, JobPhase::Failed);
    let failed = told(&object, &child);
    let last = conditions(&failed).pop();
    assert_eq!(last, Some(("Failed", "True", "MPIJobFailed")));
    let said = failed["status"]["conditions"].as_array().unwrap().last().unwrap()["message"].as_str();
    assert_eq!(said, Some("MPIJob research/dice has failed: launcher has ended"));
    let mut evicted = child;
    let status = evicted.status.as_mut().unwrap();
    status.root_cause =
        Some(serde_json::from_value(json!({"role": "worker", "pod": "p", "reason": "Evicted"})).unwrap());
    let evicted = told(&object, &evicted);
    assert_eq!(
        conditions(&evicted).pop(),
        Some(("Failed", "True", "MPIJobEvicted"))
    );
}

/// Its operator never had one.
#[test]
fn a_job_of_bdap_has_a_status() {
    let object = object(HOROVOD);
    let running = told(&object, &at(&object, JobPhase::Running));
    assert_eq!(running["status"]["phase"], "Running");
    assert_eq!(running["status"]["readyWorkers"], "2/5");
    assert_eq!(running["status"]["observedGeneration"], 1);
}

#[test]
fn what_the_engine_says_of_a_child_is_told_with_the_paths_of_the_object() {
    let object = object(HOROVOD);
    let mut child = at(&object, JobPhase::Pending);
    let refused = json!([{
        "type": "Accepted", "status": "False", "reason": "Unsupported",
        "message": "spec.roles[1].template.spec.containers[0]: is odd",
        "lastTransitionTime": "2026-02-03T04:00:00Z",
    }]);
    child.status.as_mut().unwrap().conditions = serde_json::from_value(refused).unwrap();
    let said = refusal(&told(&object, &child));
    assert_eq!(said.0, "Unsupported");
    assert_eq!(said.1, "spec.workerTemplate.spec.containers[0]: is odd");
}

#[test]
fn what_can_not_be_translated_is_told_with_its_path() {
    let mut bad = object(HOROVOD);
    bad["spec"]["numWorkers"] = 0.into();
    let (reason, message) = refused(&bad, Child::None);
    assert_eq!(reason, "Invalid");
    assert!(message.starts_with("spec.numWorkers: "), "{message}");
    let mut bad = object(PI);
    bad["spec"] = json!("nonsense");
    assert!(
        refused(&bad, Child::None)
            .1
            .starts_with("spec: must be of type object")
    );
    bad["metadata"] = json!("nonsense");
    plan(&bad, Child::None);
}

#[rstest]
#[case::kubeflow(PI, 55, None)]
#[case::kubeflow_just_right(PI, 54, Some(()))]
#[case::bdap(HOROVOD, 55, None)]
#[case::dl(MXJOB, 52, None)]
#[case::dl_just_right(MXJOB, 51, Some(()))]
fn names_of_pods_are_host_names(#[case] text: &str, #[case] length: usize, #[case] fine: Option<()>) {
    let mut object = object(text);
    object["metadata"]["name"] = "a".repeat(length).into();
    let plan = plan(&object, Child::None);
    assert_eq!(matches!(plan.child, ChildAction::Create(_)), fine.is_some());
    if fine.is_none() {
        let (_, message) = refusal(&json!({"status": plan.status.unwrap()}));
        assert!(message.starts_with("metadata.name: the pod name"), "{message}");
        assert!(message.ends_with("shorten the name by 1"), "{message}");
    }
}

#[test]
fn a_job_of_somebody_else_is_not_touched() {
    let object = object(HOROVOD);
    let mut other = child(&object);
    other.metadata.owner_references = None;
    assert_eq!(refused(&object, of_job(&other)).0, "OwnershipConflict");
    // That of a former object of the same name is about to go.
    let mut former = child(&object);
    former.metadata.owner_references.as_mut().unwrap()[0].uid = "former".to_owned();
    assert_eq!(plan(&object, of_job(&former)), ForeignPlan::default());
    let mut kin = child(&object);
    kin.metadata.owner_references.as_mut().unwrap()[0].uid = "another".to_owned();
    kin.metadata.owner_references.as_mut().unwrap()[0].name = "another".to_owned();
    assert_eq!(refused(&object, of_job(&kin)).0, "OwnershipConflict");
}

#[test]
fn a_child_that_can_not_be_read_is_told() {
    let object = object(HOROVOD);
    let child = child(&object);
    let (reason, message) = refused(&object, Child::Malformed(&child.metadata, "spec.roles: is odd"));
    assert_eq!(reason, "Invalid");
    assert!(message.contains("spec.roles: is odd"), "{message}");
}

#[rstest]
#[case("kubeflow.org/mpi-operator", true)]
#[case("trainyard.dev/operator", true)]
#[case("kueue.x-k8s.io/multikueue", false)]
fn who_manages_a_job(#[case] by: &str, #[case] ours: bool) {
    let mut object = object(PI);
    object["spec"]["runPolicy"]["managedBy"] = by.into();
    let plan = plan(&object, Child::None);
    assert_eq!(matches!(plan.child, ChildAction::Create(_)), ours);
    assert_eq!(plan.status, None);
    object["spec"]["slotsPerWorker"] = 0.into();
    assert_eq!(kind("kubeflow-mpi").review(None, &object).is_empty(), !ours);
}

#[test]
fn what_another_operator_has_begun_is_left_to_it() {
    let object = object(PI);
    let view = ForeignView {
        other_writer: Some("mpi-operator"),
        ..view(&object, Child::None)
    };
    let plan = kind("kubeflow-mpi").plan(&view);
    assert_eq!(plan.child, ChildAction::Leave);
    let (reason, message) = refusal(&json!({"status": plan.status.unwrap()}));
    assert_eq!(reason, "ServedByAnother");
    assert!(message.contains("written by mpi-operator"), "{message}");
}

#[test]
fn what_the_server_says_of_a_child_is_told_and_it_is_tried_again() {
    let object = object(PI);
    let refused = Obstacle::Refused("exceeded quota".to_owned());
    let view = ForeignView {
        obstacle: Some(&refused),
        ..view(&object, Child::None)
    };
    let plan = kind("kubeflow-mpi").plan(&view);
    assert!(matches!(plan.child, ChildAction::Create(_)));
    let (reason, message) = refusal(&json!({"status": plan.status.unwrap()}));
    assert_eq!(reason, "Refused");
    assert!(message.ends_with("exceeded quota"), "{message}");
}

#[test]
fn an_object_that_goes_is_let_go() {
    let mut object = object(PI);
    object["metadata"]["deletionTimestamp"] = "2026-02-03T04:00:00Z".into();
    assert_eq!(plan(&object, Child::None), ForeignPlan::default());
}

#[test]
fn reviews_name_the_fields_that_users_wrote() {
    let bdap = kind("bdap-mpi");
    let object = object(HOROVOD);
    assert_eq!(bdap.review(None, &object), []);
    assert_eq!(bdap.review(Some(&object), &object), []);
    let mut bad = object.clone();
    bad["spec"]["workerTemplate"]["spec"]["containers"][0]["ports"] = json!([{"containerPort": 7522}]);
    let errors = bdap.review(None, &bad);
    assert_eq!(
        errors[0].path,
        "spec.workerTemplate.spec.containers[0].ports[0].containerPort"
    );
    let kubeflow = kind("kubeflow-mpi");
    let before = self::object(PI);
    let after = change(&before, "/spec/slotsPerWorker", 4.into());
    let errors = kubeflow.review(Some(&before), &after);
    assert_eq!(errors[0].path, "spec", "{errors:?}");
}

/// Bug: finished jobs kept their workers, and accelerators, until they were deleted by hand.
#[test]
fn finished_jobs_keep_no_workers() {
    let child = child(&object(HOROVOD));
    assert_eq!(
        child.spec.run_policy.unwrap().clean_pod_policy,
        Some(CleanPodPolicy::Running)
    );
}

/// Bug: its definition forgot what users gave the metadata of a template.
#[test]
fn metadata_of_templates_is_kept() {
    let child = child(&object(HOROVOD));
    let job = Job::parse(&child).unwrap();
    let labels = job.roles[0]
        .template
        .metadata
        .as_ref()
        .unwrap()
        .labels
        .as_ref()
        .unwrap();
    assert_eq!(labels["course"], "ml");
}

/// What a user gave a template must be there when the server has stored it: one of the other
/// operator's definitions forgot it.
#[rstest]
#[case(
    "kubeflow-mpi",
    "/spec/properties/mpiReplicaSpecs/properties/Worker/properties/template"
)]
#[case("bdap-mpi", "/spec/properties/workerTemplate")]
#[case("dl", "/spec/items/properties/template")]
#[case("ares", "/spec/properties/roleSpecs/additionalProperties/properties/template")]
fn definitions_keep_the_metadata_of_templates(#[case] flag: &str, #[case] template: &str) {
    let definition = kind(flag).definition();
    let properties = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let template = properties.pointer(template).unwrap();
    assert!(template["properties"]["metadata"]["properties"]["labels"].is_object());
    assert!(template["properties"]["spec"]["properties"]["containers"].is_object());
    assert!(definition["spec"]["versions"][0]["subresources"]["status"].is_object());
}
