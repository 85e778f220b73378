//! Requests to change the size of a job: ScaleIn and ScaleOut.

mod et_operator;
mod scripts;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::JobPhase::{Running, Scaling, Starting};
use trainyard_api::names::{ANNOTATION_CREATED, ANNOTATION_SCALE_REQUEST};
use trainyard_api::{
    Elastic, Refill, RigidPolicy, ScaleIn, ScaleKind, ScaleOut, ScalePhase, ScaleRequestStatus, TrainingJob,
    ValidSizes,
};
use trainyard_contract::drain::{DrainReport, DrainState};
use trainyard_core::local_state::LocalState;
use trainyard_core::scale_request::{self, RequestStep, RequestedJob, RequestsPlan, ScaleRequest};
use trainyard_core::view::PodPhase;

use crate::common::World;
use crate::common::jobs::{Change, custom, job, with_agent};

/// A job of a store and workers, whose number may change.
fn elastic(replicas: i32, change: impl FnOnce(&mut Elastic)) -> TrainingJob {
    let mut job = custom(&[("store", 1), ("worker", 1)]).role("worker", |role| {
        role.replicas = None;
        role.restart_policy = Some(trainyard_api::RestartPolicy::OnFailure);
    });
    let mut elastic = Elastic {
        replicas,
        min_replicas: Some(2),
        max_replicas: Some(8),
        ..Elastic::default()
    };
    change(&mut elastic);
    job.spec.elastic = Some(elastic);
    job.metadata.uid = Some("job-uid".to_owned());
    job
}

/// A job, the requests about it, and an operator that may die.
struct Desk {
    world: World,
    requests: Vec<ScaleRequest>,
    /// After so many writes for requests the operator dies once.
    dies_after: Option<usize>,
    writes: usize,
    /// What was written to the job's target.
    targets: Vec<i32>,
    deleted: Vec<String>,
    /// The job can't be found.
    job_is_gone: bool,
    /// The agent in the launcher.
    launcher: scripts::Launcher,
}

impl Desk {
    fn new(job: TrainingJob) -> Self {
        Self::of(World::running(job))
    }

    fn of(world: World) -> Self {
        Self {
            world,
            requests: Vec::new(),
            dies_after: None,
            writes: 0,
            targets: Vec::new(),
            deleted: Vec::new(),
            job_is_gone: false,
            launcher: scripts::Launcher::default(),
        }
    }

    /// Somebody creates a request.
    fn ask(&mut self, kind: ScaleKind, name: &str, mut spec: Value) {
        if spec.get("jobRef").is_none() {
            spec["jobRef"] = json!({"name": "mnist"});
        }
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("default".to_owned()),
            uid: Some(format!("uid-of-{name}")),
            creation_timestamp: Some(Time(self.world.now)),
            ..ObjectMeta::default()
        };
        self.requests.push(match kind {
            ScaleKind::ScaleIn => ScaleRequest::from(ScaleIn {
                metadata,
                spec: serde_json::from_value(spec).unwrap(),
                status: None,
            }),
            ScaleKind::ScaleOut => ScaleRequest::from(ScaleOut {
                metadata,
                spec: serde_json::from_value(spec).unwrap(),
                status: None,
            }),
        });
    }

    fn scale_in(&mut self, name: &str, to_delete: &Value) {
        self.ask(ScaleKind::ScaleIn, name, json!({"toDelete": to_delete}));
    }

    fn scale_out(&mut self, name: &str, count: i32) {
        self.ask(ScaleKind::ScaleOut, name, json!({"toAdd": {"count": count}}));
    }

    fn plan(&self) -> RequestsPlan {
        let requests: Vec<&ScaleRequest> = self.requests.iter().collect();
        if self.job_is_gone {
            return scale_request::plan(&requests, RequestedJob::Missing, self.world.now);
        }
        self.world
            .see(|view| scale_request::plan(&requests, RequestedJob::Found(view), view.now))
    }

    /// Carries out the next writes for requests. Returns true if there was one.
    fn write(&mut self) -> bool {
        let plan = self.plan();
        let has_steps = self.tell_launcher(&plan) || !plan.steps.is_empty();
        let mut deleted = Vec::new();
        for (position, step) in plan.steps {
            if self.dies_after == Some(self.writes) {
                self.dies_after = None;
                self.world.local = LocalState::default();
                return true;
            }
            self.writes += 1;
            let request = &mut self.requests[position];
            match step {
                RequestStep::SetOwners(owners) => request.metadata.owner_references = Some(owners),
                RequestStep::WriteStatus(status) => {
                    assert!(!request.status.has_ended(), "the end is final");
                    check_victims(&request.status, &status);
                    request.status = *status;
                }
                RequestStep::Resize(resize) => {
                    assert_eq!(request.status.phase, Some(ScalePhase::Scaling), "recorded first");
                    self.targets.push(resize.replicas);
                    self.world
                        .edit(|spec| spec.elastic.as_mut().unwrap().replicas = resize.replicas);
                    let annotation = (ANNOTATION_SCALE_REQUEST.to_owned(), resize.annotation);
                    self.world.job.metadata.annotations = Some(BTreeMap::from([annotation]));
                }
                RequestStep::Delete => deleted.push(request.metadata.name.clone().unwrap()),
            }
        }
        self.requests
            .retain(|request| !deleted.contains(request.metadata.name.as_ref().unwrap()));
        self.deleted.extend(deleted);
        has_steps
    }

    /// The operator works until nothing is left to do, but no time passes and no pod starts.
    fn work(&mut self) {
        for _ in 0..60 {
            let wrote = self.write();
            let before = self.world.writes();
            self.world.reconcile();
            if !wrote && before == self.world.writes() {
                return;
            }
        }
        panic!("never quiet: {:#?}", self.plan());
    }

    /// Operator and kubelets work, and as much time passes as a change of size needs.
    fn settle(&mut self) {
        for _ in 0..12 {
            self.work();
            self.world.kubelets_remove();
            self.world.run_all();
            self.world.tick(2);
        }
        self.work();
    }

    fn status(&self, name: &str) -> &ScaleRequestStatus {
        let mut requests = self.requests.iter();
        let request = requests.find(|request| request.metadata.name.as_deref() == Some(name));
        &request.unwrap_or_else(|| panic!("there is no {name}")).status
    }

    /// The phase of a request, and why.
    fn end(&self, name: &str) -> (ScalePhase, String) {
        let status = self.status(name);
        let phase = status.phase.unwrap();
        let mut conditions = status.conditions.iter();
        let condition = conditions.find(|condition| condition.type_ == phase.as_str());
        let condition = condition.unwrap_or_else(|| panic!("no condition of {phase}"));
        assert_eq!(condition.status, "True");
        (phase, condition.reason.clone())
    }

    fn message(&self, name: &str) -> &str {
        self.status(name).message.as_deref().unwrap()
    }

    fn workers(&self) -> String {
        let names = self.world.names(|row| !row.terminating);
        let short = names.iter().filter_map(|name| name.strip_prefix("mnist-worker-"));
        let mut numbers: Vec<i32> = short.map(|number| number.parse().unwrap()).collect();
        numbers.sort_unstable();
        numbers
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Those who leave are chosen once.
fn check_victims(before: &ScaleRequestStatus, after: &ScaleRequestStatus) {
    if before.phase == Some(ScalePhase::Scaling) {
        assert_eq!(
            (&before.victims, before.from, before.to),
            (&after.victims, after.from, after.to)
        );
    }
}

fn failed(reason: &str) -> (ScalePhase, String) {
    (ScalePhase::ScaleFailed, reason.to_owned())
}

fn succeeded() -> (ScalePhase, String) {
    (ScalePhase::ScaleSucceeded, "Scaled".to_owned())
}

#[test]
fn a_job_grows_by_a_request() {
    let mut desk = Desk::new(elastic(2, |_| {}));
    desk.scale_out("grow", 2);
    desk.work();
    let status = desk.status("grow");
    assert_eq!(
        (status.phase, status.from, status.to),
        (Some(ScalePhase::Scaling), Some(2), Some(4))
    );
    assert_eq!(status.joining, ["mnist-worker-2", "mnist-worker-3"]);
    let request = desk.world.status().scaling.unwrap().request.unwrap();
    assert_eq!((request.kind, &*request.name), (ScaleKind::ScaleOut, "grow"));
    let owner = &desk.requests[0].metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((&*owner.kind, &*owner.uid), ("TrainingJob", "job-uid"));
    desk.settle();
    assert_eq!(
        (desk.end("grow"), desk.workers()),
        (succeeded(), "0 1 2 3".to_owned())
    );
    assert_eq!(desk.message("grow"), "The job has 4 pods.");
    let order: Vec<&str> = desk.status("grow").conditions.iter().map(|c| &*c.type_).collect();
    assert_eq!(order, ["Created", "Scaling", "ScaleSucceeded"]);
    assert_eq!(desk.targets, [4]);
    assert!(desk.writes <= 4, "owner, decision, target, end: {}", desk.writes);
}

/// Each change costs as many writes as pods, and six.
#[test]
fn a_worker_that_leaves_in_order_by_a_request_costs_seven_writes() {
    let mut desk = Desk::new(elastic(4, |_| {}));
    desk.world.settings = with_agent();
    desk.settle();
    let before = desk.world.writes();
    desk.scale_in("shrink", &json!({"podNames": ["mnist-worker-1"]}));
    desk.work();
    let uid = desk.world.pod("mnist-worker-1").uid.to_string();
    for state in [DrainState::Acknowledged, DrainState::CheckpointDone] {
        desk.world.tick(4);
        desk.world
            .local
            .drains
            .record(&uid, DrainReport { state, step: Some(9) });
        desk.work();
    }
    assert_eq!(desk.workers(), "0 1 2 3", "it has not left");
    desk.world.succeed("mnist-worker-1");
    desk.work();
    assert_eq!((desk.end("shrink"), &*desk.workers()), (succeeded(), "0 2 3"));
    let of_job = desk.world.writes() - before;
    assert_eq!((desk.writes, of_job), (4, 2 + 1));
    let told: Vec<&str> = desk
        .world
        .log
        .events
        .iter()
        .map(|event| &*event.message)
        .collect();
    let steps = [
        "From 4 to 3 pods: 1 know that they are to leave.",
        "From 4 to 3 pods: 1 have saved their work.",
        "From 4 to 3 pods: 1 have left.",
    ];
    assert!(steps.iter().all(|step| told.contains(step)), "{told:#?}");
}

#[test]
fn a_worker_that_joins_by_a_request_costs_seven_writes() {
    let mut desk = Desk::new(elastic(4, |_| {}));
    desk.settle();
    let before = desk.world.writes();
    desk.scale_out("grow", 1);
    desk.settle();
    assert_eq!((desk.end("grow"), &*desk.workers()), (succeeded(), "0 1 2 3 4"));
    assert_eq!((desk.writes, desk.world.writes() - before), (4, 2 + 1));
}

#[rstest]
#[case::by_count(json!({"count": 2}), "0 1", &["mnist-worker-2", "mnist-worker-3"])]
#[case::by_name(json!({"podNames": ["mnist-worker-1"]}), "0 2 3", &["mnist-worker-1"])]
#[case::by_names(json!({"podNames": ["mnist-worker-3", "mnist-worker-1"]}), "0 2", &["mnist-worker-1", "mnist-worker-3"])]
#[case::by_node(json!({"nodeNames": ["far"]}), "0 1 3", &["mnist-worker-2"])]
fn those_leave_who_are_asked_for(#[case] who: Value, #[case] left: &str, #[case] victims: &[&str]) {
    let mut desk = Desk::new(elastic(4, |_| {}));
    desk.world.pod_mut("mnist-worker-2").node = Some("far".into());
    desk.scale_in("shrink", &who);
    desk.write();
    desk.write();
    assert_eq!(desk.status("shrink").victims, victims, "before anything is done");
    assert_eq!((desk.workers(), desk.targets.len()), ("0 1 2 3".to_owned(), 0));
    desk.settle();
    assert_eq!((desk.end("shrink"), &*desk.workers()), (succeeded(), left));
    assert_eq!(desk.world.phase(), Some(Running));
    assert_eq!(desk.world.restarts(), (0, 0));
}

#[test]
fn requests_come_one_after_the_other_in_the_order_of_their_creation() {
    let mut desk = Desk::new(elastic(2, |_| {}));
    desk.scale_out("first", 2);
    desk.world.tick(1);
    desk.scale_in("second", &json!({"count": 1}));
    desk.world.tick(1);
    desk.scale_out("third", 3);
    // The order in which they are seen does not matter.
    desk.requests.reverse();
    desk.work();
    assert_eq!(desk.status("first").phase, Some(ScalePhase::Scaling));
    for name in ["second", "third"] {
        assert_eq!(desk.status(name).phase, Some(ScalePhase::Created));
        assert_eq!(
            desk.message(name),
            "It waits until the requests before it have ended."
        );
    }
    desk.settle();
    desk.settle();
    desk.settle();
    assert_eq!(desk.targets, [4, 3, 6]);
    for name in ["first", "second", "third"] {
        assert_eq!(desk.end(name), succeeded(), "{name}");
    }
}

#[test]
fn fifty_requests_at_once_all_end_and_each_waits_with_one_write() {
    let mut desk = Desk::new(elastic(2, |_| {}));
    for number in 0..50 {
        if number % 2 == 0 {
            desk.scale_out(&format!("r{number:02}"), 1);
        } else {
            desk.scale_in(&format!("r{number:02}"), &json!({"count": 1}));
        }
    }
    for _ in 0..50 {
        desk.settle();
    }
    let ended = desk.requests.iter().filter(|request| request.status.has_ended());
    assert_eq!((ended.count(), desk.workers()), (50, "0 1".to_owned()));
    let expected: Vec<i32> = [3, 2].repeat(25);
    assert_eq!(desk.targets, expected);
    assert!(desk.writes <= 50 * 5, "{}", desk.writes);
}

/// What a pod of a declared framework is told of the others.
fn told(desk: &Desk, pod: &str) -> [Option<String>; 4] {
    let variable = |name| desk.world.variable(pod, name).map(ToOwned::to_owned);
    ["HOSTS", "RANK", "ME", "NEXT"].map(variable)
}

#[test]
fn pods_of_declared_frameworks_know_who_has_left() {
    let declaration = "{metadata: {name: ring}, spec: {resizes: true, roles: [{name: store}, {name: worker}], env: [\
                       {name: HOSTS, value: 'job.hosts.map(h, h).join(\",\")'}, {name: RANK, value: replica.rank}, \
                       {name: ME, value: replica.host}, {name: NEXT, value: 'job.hosts[(replica.rank + 1) % job.replicas]'}]}}";
    let mut job = elastic(3, |_| {});
    job.spec.framework.name = "ring".to_owned();
    let mut world = World::new(job);
    world
        .registry
        .declare(&serde_saphyr::from_str(declaration).unwrap());
    world.reconcile();
    world.run_all();
    world.reconcile();
    let mut desk = Desk::of(world);
    desk.scale_in("one", &json!({"podNames": ["mnist-worker-1"]}));
    desk.settle();
    assert_eq!(desk.workers(), "0 2");
    desk.world.fail("mnist-worker-2", 1);
    desk.settle();
    let host = |pod: &str| format!("mnist-{pod}.mnist.team.svc.cluster.local");
    let hosts = ["store-0", "worker-0", "worker-2"].map(host).join(",");
    let expected = [hosts, "2".to_owned(), host("worker-2"), host("store-0")].map(Some);
    assert_eq!(told(&desk, "mnist-worker-2"), expected);
    desk.scale_out("more", 2);
    desk.settle();
    assert_eq!(desk.workers(), "0 1 2 3");
    let hosts = ["store-0", "worker-0", "worker-1", "worker-2", "worker-3"];
    let hosts = hosts.map(host).join(",");
    let expected = [hosts, "4".to_owned(), host("worker-3"), host("store-0")].map(Some);
    assert_eq!(told(&desk, "mnist-worker-3"), expected);
}

#[rstest]
#[case::nobody(json!({}), "spec.toDelete: is empty: give one of count, podNames and nodeNames")]
#[case::none(json!({"count": 0}), "spec.toDelete.count: 0 pods: give a number from 1 to 10000")]
#[case::fewer_than_none(json!({"count": -3}), "spec.toDelete.count: -3 pods: give a number from 1 to 10000")]
#[case::two_ways(json!({"count": 1, "podNames": ["mnist-worker-1"]}), "spec.toDelete: has count and podNames: give one of them")]
#[case::no_names(json!({"podNames": []}), "spec.toDelete.podNames: is empty: give at least one name")]
#[case::twice(
    json!({"podNames": ["mnist-worker-1", "mnist-worker-1"]}),
    "spec.toDelete.podNames[1]: \"mnist-worker-1\" is given twice: give it once"
)]
#[case::null(
    Value::Null,
    "spec.toDelete: is missing: say who leaves, by count, podNames or nodeNames"
)]
fn a_bad_request_is_refused_without_webhooks_too(#[case] who: Value, #[case] message: &str) {
    let mut desk = Desk::new(elastic(4, |_| {}));
    desk.scale_in("bad", &who);
    desk.settle();
    assert_eq!(
        (desk.end("bad"), desk.message("bad")),
        (failed("Invalid"), message)
    );
    assert_eq!((desk.workers(), desk.targets.len()), ("0 1 2 3".to_owned(), 0));
}

#[rstest]
#[case::no_such_pod(
    "mnist-worker-9",
    "\"mnist-worker-9\" is not a pod of the job mnist: nobody leaves"
)]
#[case::begins_alike(
    "mnist-worker-1x",
    "\"mnist-worker-1x\" is not a pod of the job mnist: nobody leaves"
)]
#[case::another_spelling(
    "mnist-worker-01",
    "\"mnist-worker-01\" is not a pod of the job mnist: nobody leaves"
)]
#[case::of_another_job(
    "other-worker-1",
    "\"other-worker-1\" is not a pod of the job mnist: nobody leaves"
)]
#[case::only_the_role(
    "mnist-worker",
    "\"mnist-worker\" is not a pod of the job mnist: nobody leaves"
)]
#[case::everybody("*", "\"*\" is not a pod of the job mnist: nobody leaves")]
#[case::of_another_role(
    "mnist-store-0",
    "\"mnist-store-0\" is the pod of rank 0, which the others look for: it can't leave"
)]
fn a_name_that_matches_nothing_removes_nobody(#[case] name: &str, #[case] message: &str) {
    let mut desk = Desk::new(elastic(4, |_| {}));
    desk.scale_in("wrong", &json!({"podNames": ["mnist-worker-2", name]}));
    desk.settle();
    assert_eq!(desk.end("wrong"), failed("PodsRefused"));
    assert_eq!(
        desk.message("wrong"),
        format!("spec.toDelete.podNames[1]: {message}")
    );
    assert_eq!((desk.workers(), desk.targets.len()), ("0 1 2 3".to_owned(), 0));
}

#[test]
fn one_is_not_ten() {
    let mut desk = Desk::new(elastic(12, |elastic| elastic.max_replicas = Some(12)));
    desk.scale_in("one", &json!({"podNames": ["mnist-worker-1"]}));
    desk.settle();
    assert_eq!(desk.workers(), "0 2 3 4 5 6 7 8 9 10 11");
}

#[rstest]
#[case::a_node_of_nobody(json!({"nodeNames": ["node-9"]}), "no pod of the job mnist that can leave is on the node \"node-9\"")]
#[case::the_node_of_rank_zero(json!({"nodeNames": ["first"]}), "\"mnist-worker-0\" is the pod of rank 0")]
#[case::rank_zero(json!({"podNames": ["mnist-worker-0"]}), "\"mnist-worker-0\" is the pod of rank 0")]
fn rank_zero_and_strange_nodes_are_refused(#[case] who: Value, #[case] message: &str) {
    let mut job = elastic(4, |_| {});
    // Without a store, the first worker has rank 0.
    job.spec.roles.remove(0);
    let mut desk = Desk::new(job);
    desk.world.pod_mut("mnist-worker-0").node = Some("first".into());
    desk.scale_in("wrong", &who);
    desk.settle();
    assert_eq!(desk.end("wrong"), failed("PodsRefused"));
    assert!(
        desk.message("wrong").contains(message),
        "{}",
        desk.message("wrong")
    );
    assert_eq!(desk.workers(), "0 1 2 3");
}

#[rstest]
#[case::too_few(ScaleKind::ScaleIn, 3, "would have 1, but its minReplicas is 2")]
#[case::fewer_than_none(ScaleKind::ScaleIn, 100, "would have -96, but its minReplicas is 2")]
#[case::too_many(ScaleKind::ScaleOut, 5, "would have 9, but its maxReplicas is 8")]
#[case::between(ScaleKind::ScaleOut, 3, "would have 7, but 7 is none of its validSizes")]
fn a_size_that_the_job_cannot_have_is_refused(
    #[case] kind: ScaleKind,
    #[case] count: i32,
    #[case] message: &str,
) {
    let sizes = ValidSizes {
        values: None,
        step: Some(2),
    };
    let mut desk = Desk::new(elastic(4, |elastic| elastic.valid_sizes = Some(sizes)));
    desk.ask(
        kind,
        "r",
        json!({"toDelete": {"count": count}, "toAdd": {"count": count}}),
    );
    desk.settle();
    assert_eq!(desk.end("r"), failed("SizeRefused"));
    assert!(desk.message("r").contains(message), "{}", desk.message("r"));
    assert_eq!((desk.workers(), desk.targets.len()), ("0 1 2 3".to_owned(), 0));
}

#[rstest]
#[case::down(ScaleKind::ScaleIn, 3, "0 1")]
#[case::far_down(ScaleKind::ScaleIn, 100, "0 1")]
#[case::up(ScaleKind::ScaleOut, 100, "0 1 2 3 4 5 6 7")]
#[case::between(ScaleKind::ScaleOut, 3, "0 1 2 3 4 5")]
fn with_clamp_it_comes_as_near_as_it_can(#[case] kind: ScaleKind, #[case] count: i32, #[case] left: &str) {
    let sizes = ValidSizes {
        values: None,
        step: Some(2),
    };
    let mut desk = Desk::new(elastic(4, |elastic| elastic.valid_sizes = Some(sizes)));
    let spec = json!({"toDelete": {"count": count}, "toAdd": {"count": count}, "policy": "Clamp"});
    desk.ask(kind, "r", spec.clone());
    desk.settle();
    assert_eq!((desk.end("r"), &*desk.workers()), (succeeded(), left));
    if count == 100 {
        desk.ask(kind, "again", spec);
        desk.settle();
        let unchanged = (ScalePhase::ScaleSucceeded, "Unchanged".to_owned());
        assert_eq!((desk.end("again"), &*desk.workers()), (unchanged, left));
        assert_eq!(desk.targets.len(), 1);
    }
}

#[test]
fn with_clamp_the_first_of_those_who_are_named_leave() {
    let mut desk = Desk::new(elastic(4, |elastic| elastic.min_replicas = Some(3)));
    let names = ["mnist-worker-2", "mnist-worker-1"];
    desk.ask(
        ScaleKind::ScaleIn,
        "r",
        json!({"toDelete": {"podNames": names}, "policy": "Clamp"}),
    );
    desk.settle();
    assert_eq!((desk.end("r"), desk.workers()), (succeeded(), "0 1 3".to_owned()));
}

#[test]
fn a_request_waits_for_a_job_that_starts() {
    let mut world = World::new(elastic(2, |_| {}));
    world.reconcile();
    let mut desk = Desk::of(world);
    desk.scale_out("early", 1);
    desk.work();
    assert_eq!(desk.world.phase(), Some(Starting));
    assert_eq!(desk.status("early").phase, Some(ScalePhase::Created));
    assert_eq!(desk.message("early"), "It waits until the job runs.");
    desk.world.tick(3600);
    desk.work();
    assert_eq!(
        desk.status("early").phase,
        Some(ScalePhase::Created),
        "however long"
    );
    desk.settle();
    assert_eq!(desk.end("early"), succeeded());
}

#[test]
fn a_request_waits_for_a_job_that_does_not_exist_until_its_time_is_over() {
    let mut desk = Desk::new(elastic(2, |_| {}));
    desk.job_is_gone = true;
    desk.ask(
        ScaleKind::ScaleOut,
        "lost",
        json!({"toAdd": {"count": 1}, "timeoutSeconds": 5, "ttlSecondsAfterFinished": 10}),
    );
    desk.write();
    assert_eq!(desk.status("lost").phase, Some(ScalePhase::Created));
    let wakes = desk.plan().wake_at.unwrap();
    desk.world.tick(4);
    assert!(!desk.write());
    desk.world.tick(1);
    assert_eq!(wakes, desk.world.now);
    desk.write();
    assert_eq!(desk.end("lost"), failed("JobNotFound"));
    let message = "There is no TrainingJob mnist in this namespace, for 5 seconds.";
    assert_eq!(desk.message("lost"), message);
    desk.world.tick(9);
    assert!(!desk.write());
    desk.world.tick(1);
    desk.write();
    assert_eq!(desk.deleted, ["lost"]);
}

#[rstest]
#[case::not_elastic(|desk: &mut Desk| desk.world.job.spec.elastic = None, "NotElastic")]
#[case::of_another_controller(|desk: &mut Desk| desk.world.job.spec.managed_by = Some("x/y".to_owned()), "NotElastic")]
#[case::suspended(|desk: &mut Desk| desk.world.suspend(true), "JobSuspended")]
#[case::ended(|desk: &mut Desk| { desk.world.succeed_all(); desk.world.settle(); }, "JobEnded")]
#[case::being_deleted(|desk: &mut Desk| desk.world.job.metadata.deletion_timestamp = Some(Time(desk.world.now)), "JobDeleted")]
fn a_job_that_cannot_be_scaled_ends_its_requests(#[case] happens: fn(&mut Desk), #[case] reason: &str) {
    let mut desk = Desk::new(elastic(4, |_| {}));
    happens(&mut desk);
    desk.scale_out("r", 1);
    desk.scale_in("s", &json!({"count": 1}));
    desk.write();
    assert_eq!((desk.end("r"), desk.end("s")), (failed(reason), failed(reason)));
    assert_eq!(desk.targets.len(), 0);
}

#[rstest]
#[case::ends(|desk: &mut Desk| {
    desk.world.run_all();
    desk.world.succeed_all();
    desk.world.settle();
}, "JobEnded")]
#[case::goes(|desk: &mut Desk| desk.job_is_gone = true, "JobDeleted")]
#[case::is_suspended(|desk: &mut Desk| desk.world.suspend(true), "JobSuspended")]
#[case::is_another(|desk: &mut Desk| desk.world.job.metadata.uid = Some("another".to_owned()), "JobDeleted")]
fn a_request_ends_with_its_job(#[case] happens: fn(&mut Desk), #[case] reason: &str) {
    let mut desk = Desk::new(elastic(2, |_| {}));
    desk.scale_out("r", 2);
    desk.world.tick(1);
    desk.scale_out("later", 1);
    desk.work();
    assert_eq!(desk.world.phase(), Some(Scaling));
    happens(&mut desk);
    desk.write();
    desk.write();
    assert_eq!(
        (desk.end("r"), desk.end("later")),
        (failed(reason), failed(reason))
    );
}

#[test]
fn new_pods_that_do_not_run_in_time_are_removed_again() {
    // The lowest free index is not the highest of all.
    let mut desk = Desk::new(elastic(4, |_| {}));
    desk.scale_in("gap", &json!({"podNames": ["mnist-worker-1"]}));
    desk.settle();
    desk.ask(
        ScaleKind::ScaleOut,
        "grow",
        json!({"toAdd": {"count": 2}, "timeoutSeconds": 30}),
    );
    desk.work();
    assert_eq!(desk.status("grow").joining, ["mnist-worker-1", "mnist-worker-4"]);
    desk.world.run_on("mnist-worker-1", "node-0");
    desk.work();
    let wakes = desk.plan().wake_at.unwrap();
    desk.world.now = wakes;
    desk.work();
    assert!(desk.status("grow").rollback);
    for _ in 0..6 {
        desk.work();
        desk.world.kubelets_remove();
        desk.world.tick(2);
    }
    assert_eq!(
        (desk.end("grow"), desk.workers()),
        (failed("TimedOut"), "0 2 3".to_owned())
    );
    assert_eq!(desk.targets, [3, 5, 3]);
    assert_eq!(desk.world.phase(), Some(Running));
    assert_eq!(desk.world.restarts(), (0, 0));
    // The next one has its turn.
    desk.scale_out("again", 1);
    desk.settle();
    assert_eq!(
        (desk.end("again"), desk.workers()),
        (succeeded(), "0 1 2 3".to_owned())
    );
}

#[test]
fn a_target_that_somebody_else_writes_holds() {
    let mut desk = Desk::new(elastic(4, |_| {}));
    desk.scale_in("r", &json!({"podNames": ["mnist-worker-1"]}));
    desk.write();
    desk.write();
    assert_eq!(desk.status("r").phase, Some(ScalePhase::Scaling));
    desk.world
        .edit(|spec| spec.elastic.as_mut().unwrap().replicas = 6);
    desk.settle();
    assert_eq!(
        (desk.end("r"), desk.workers()),
        (failed("Superseded"), "0 1 2 3 4 5".to_owned())
    );
    assert_eq!(desk.targets.len(), 0);
}

/// Somebody changes the bounds of a job, and the API server takes what nobody checks.
fn set_max(desk: &mut Desk, max: i32) {
    desk.world
        .edit(|spec| spec.elastic.as_mut().unwrap().max_replicas = Some(max));
}

#[test]
fn a_size_that_the_job_cannot_have_any_more_is_not_written() {
    let mut desk = Desk::new(elastic(4, |_| {}));
    desk.scale_out("r", 2);
    desk.write();
    desk.write();
    assert_eq!(desk.status("r").to, Some(6));
    set_max(&mut desk, 5);
    desk.settle();
    assert_eq!(desk.end("r"), failed("SizeRefused"));
    assert!(
        desk.message("r").contains("its maxReplicas is 5"),
        "{}",
        desk.message("r")
    );
    assert_eq!((desk.targets.len(), desk.workers()), (0, "0 1 2 3".to_owned()));
}

#[test]
fn a_request_ends_also_if_its_target_is_not_valid_any_more() {
    let mut desk = Desk::new(elastic(4, |_| {}));
    desk.scale_out("r", 2);
    for _ in 0..3 {
        desk.write();
    }
    assert_eq!(desk.targets, [6]);
    set_max(&mut desk, 5);
    desk.settle();
    assert!(!desk.status("r").has_ended(), "{:?}", desk.status("r"));
    desk.world.tick(60);
    desk.settle();
    assert_eq!(
        (desk.end("r"), desk.workers()),
        (failed("TimedOut"), "0 1 2 3".to_owned())
    );
    assert_eq!(desk.targets, [6, 4]);
    assert_eq!(desk.world.phase(), Some(Running));
}

#[test]
fn an_old_annotation_chooses_nobody() {
    let mut desk = Desk::new(elastic(4, |_| {}));
    desk.scale_in("r", &json!({"podNames": ["mnist-worker-1"]}));
    desk.settle();
    assert_eq!(desk.workers(), "0 2 3");
    // Somebody scales up and then to the very number that the request had written.
    for replicas in [5, 3] {
        desk.world
            .edit(|spec| spec.elastic.as_mut().unwrap().replicas = replicas);
        desk.settle();
    }
    assert_eq!(desk.workers(), "0 1 2");
}

#[test]
fn a_pod_that_was_lost_and_not_replaced_can_be_asked_for() {
    let mut desk = Desk::new(elastic(4, |elastic| elastic.refill = Some(Refill::Never)));
    desk.world.fail("mnist-worker-3", 1);
    desk.settle();
    assert_eq!(desk.workers(), "0 1 2");
    desk.scale_out("more", 1);
    desk.settle();
    assert_eq!(
        (desk.end("more"), desk.workers()),
        (succeeded(), "0 1 2 3".to_owned())
    );
    assert_eq!(desk.targets, [4], "the target is the same");
}

#[test]
fn a_request_gives_its_pods_their_own_time_to_leave() {
    let mut desk = Desk::new(elastic(4, |_| {}));
    desk.ask(
        ScaleKind::ScaleIn,
        "r",
        json!({"toDelete": {"count": 1}, "drainTimeoutSeconds": 7}),
    );
    desk.world.settings = crate::common::jobs::with_agent();
    desk.work();
    let scaling = desk.world.status().scaling.unwrap();
    let time = scaling
        .deadline
        .unwrap()
        .0
        .duration_since(scaling.since.unwrap().0);
    assert_eq!(time.as_secs(), 7);
}

#[test]
fn owners_that_are_there_stay() {
    let mut desk = Desk::new(elastic(2, |_| {}));
    desk.scale_out("grow", 1);
    desk.requests[0].metadata.owner_references = Some(vec![OwnerReference {
        kind: "Pipeline".to_owned(),
        ..OwnerReference::default()
    }]);
    desk.settle();
    let owners = desk.requests[0].metadata.owner_references.as_ref().unwrap();
    let kinds: Vec<&str> = owners.iter().map(|owner| &*owner.kind).collect();
    assert_eq!(kinds, ["Pipeline", "TrainingJob"]);
}

/// Makes a request one that a request of another operator's kind owns.
fn adopt(request: &mut ScaleRequest) {
    request.metadata.owner_references = Some(vec![OwnerReference {
        kind: "Pipeline".to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
}

/// It is deleted with its controller, which would not happen while the job owns it too.
#[test]
fn a_request_with_a_controller_gets_no_other_owner() {
    let mut desk = Desk::new(elastic(2, |_| {}));
    desk.scale_out("grow", 1);
    adopt(&mut desk.requests[0]);
    desk.settle();
    assert_eq!(desk.end("grow"), succeeded());
    let owners = desk.requests[0].metadata.owner_references.as_ref().unwrap();
    assert_eq!(owners.len(), 1);
}

#[test]
fn a_request_with_a_controller_ends_with_its_job_too() {
    let mut desk = Desk::new(elastic(2, |_| {}));
    desk.scale_out("grow", 2);
    adopt(&mut desk.requests[0]);
    desk.work();
    assert_eq!(desk.world.phase(), Some(Scaling));
    desk.job_is_gone = true;
    desk.write();
    assert_eq!(desk.end("grow"), failed("JobDeleted"));
}

/// All of them are made at the same moment by an operator that was away.
#[test]
fn requests_that_were_made_of_others_go_by_when_those_were_created() {
    let mut desk = Desk::new(elastic(2, |_| {}));
    desk.scale_out("second", 1);
    desk.scale_out("first", 2);
    for (position, created) in ["2026-01-01T00:00:09Z", "2026-01-01T00:00:01Z"]
        .iter()
        .enumerate()
    {
        let note = (ANNOTATION_CREATED.to_owned(), (*created).to_owned());
        desk.requests[position].metadata.annotations = Some(BTreeMap::from([note]));
    }
    desk.settle();
    desk.settle();
    assert_eq!(desk.targets, [4, 5]);
}

#[rstest]
#[case::in_by_name(ScaleKind::ScaleIn, json!({"toDelete": {"podNames": ["mnist-worker-1"]}}), "0 2 3", &[3])]
#[case::in_by_count(ScaleKind::ScaleIn, json!({"toDelete": {"count": 2}}), "0 1", &[2])]
#[case::out(ScaleKind::ScaleOut, json!({"toAdd": {"count": 2}}), "0 1 2 3 4 5", &[6])]
fn an_operator_that_dies_between_any_two_writes_does_it_once(
    #[case] kind: ScaleKind,
    #[case] spec: Value,
    #[case] left: &str,
    #[case] targets: &[i32],
) {
    for writes in 0..10 {
        let mut desk = Desk::new(elastic(4, |_| {}));
        desk.ask(kind, "r", spec.clone());
        desk.dies_after = Some(writes);
        desk.settle();
        assert_eq!((desk.end("r"), &*desk.workers()), (succeeded(), left), "{writes}");
        assert_eq!(desk.targets, targets, "{writes}");
        let changed = desk.world.log.deleted.len() + desk.world.log.pods.len();
        assert_eq!(changed, 5 + left.split(' ').count().abs_diff(4), "{writes}");
        if desk.dies_after.is_some() {
            assert!(writes >= 4);
            return;
        }
    }
    panic!("it always dies");
}

#[test]
fn an_operator_that_dies_between_any_two_writes_rolls_back_once() {
    for writes in 0..12 {
        let mut desk = Desk::new(elastic(4, |_| {}));
        desk.ask(
            ScaleKind::ScaleOut,
            "r",
            json!({"toAdd": {"count": 2}, "timeoutSeconds": 5}),
        );
        desk.dies_after = Some(writes);
        for _ in 0..12 {
            desk.work();
            desk.world.kubelets_remove();
            desk.world.tick(2);
        }
        desk.work();
        assert_eq!(
            (desk.end("r"), desk.workers()),
            (failed("TimedOut"), "0 1 2 3".to_owned()),
            "{writes}"
        );
        assert_eq!(desk.targets, [6, 4], "{writes}");
        if desk.dies_after.is_some() {
            return;
        }
    }
    panic!("it always dies");
}

/// Random numbers that are the same for a seed, wherever the test runs.
struct Dice(u64);

impl Dice {
    /// A number below a bound.
    fn throw(&mut self, bound: i32) -> i32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        i32::try_from((self.0 >> 33) % u64::try_from(bound).unwrap()).unwrap()
    }
}

/// One thing that users, nodes or operators do to a job.
fn happen(desk: &mut Desk, dice: &mut Dice, number: i32) {
    let name = format!("r{number:02}");
    let elastic = desk.world.job.spec.elastic.clone().unwrap();
    let (replicas, max) = (elastic.replicas, elastic.max());
    match dice.throw(12) {
        0 | 1 => desk.scale_out(&name, 1 + dice.throw(4)),
        2 => desk.scale_in(&name, &json!({"count": 1 + dice.throw(4)})),
        3 => {
            let pod = format!("mnist-worker-{}", dice.throw(10));
            desk.scale_in(&name, &json!({"podNames": [pod]}));
        }
        4 => desk.scale_in(&name, &json!({"nodeNames": [format!("node-{}", dice.throw(3))]})),
        5 => {
            let running = desk
                .world
                .names(|row| row.phase == PodPhase::Running && !row.terminating);
            let workers: Vec<&String> = running.iter().filter(|pod| pod.contains("worker")).collect();
            if let Some(pod) = workers.get(usize::try_from(dice.throw(8)).unwrap()) {
                desk.world.fail(pod, 1);
            }
        }
        6 => {
            let suspend = !desk.world.job.is_suspended();
            desk.world.suspend(suspend);
        }
        7 => {
            let max = replicas.max(4 + dice.throw(6));
            desk.world
                .edit(|spec| spec.elastic.as_mut().unwrap().max_replicas = Some(max));
        }
        8 => {
            desk.world.local = LocalState::default();
            desk.dies_after = Some(desk.writes + usize::try_from(dice.throw(3)).unwrap());
        }
        9 => {
            let target = 2 + dice.throw(max - 1);
            desk.world
                .edit(|spec| spec.elastic.as_mut().unwrap().replicas = target);
        }
        10 => desk.world.run_all(),
        _ => desk.world.kubelets_remove(),
    }
    desk.work();
    desk.world.tick(i64::from(dice.throw(40)));
}

#[test]
fn whatever_happens_every_request_ends_and_the_job_has_the_size_of_its_target() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let job = elastic(2 + dice.throw(4), |_| {}).backoff_limit(1000);
        let mut desk = Desk::new(job);
        println!("seed {seed}");
        for number in 0..24 {
            happen(&mut desk, &mut dice, number);
            let has = i32::try_from(desk.workers().split(' ').count()).unwrap();
            assert!(has <= 9, "seed {seed}: {has} pods");
        }
        desk.world.suspend(false);
        for _ in 0..60 {
            desk.work();
            desk.world.kubelets_remove();
            desk.world.run_all();
            desk.world.tick(20);
        }
        desk.work();
        for request in &desk.requests {
            assert!(request.status.has_ended(), "seed {seed}: {request:#?}");
        }
        let target = desk.world.job.spec.elastic.as_ref().unwrap().replicas;
        let has = desk.workers().split(' ').count();
        assert_eq!(i32::try_from(has).unwrap(), target, "seed {seed}");
        assert_eq!(desk.world.phase(), Some(Running), "seed {seed}");
        assert!(!desk.write(), "seed {seed}: it is quiet");
    }
}

/// A job whose pods all start anew when their number changes.
fn rigid(rigid: Option<RigidPolicy>) -> TrainingJob {
    let mut job = job("jax", &[("worker", 1)]).role("worker", |role| role.replicas = None);
    job.spec.elastic = Some(Elastic {
        replicas: 2,
        min_replicas: Some(1),
        max_replicas: Some(8),
        rigid,
        ..Elastic::default()
    });
    job
}

#[test]
fn a_request_about_a_rigid_job_is_done_when_all_pods_have_started_anew() {
    let mut desk = Desk::new(rigid(None));
    desk.scale_out("grow", 2);
    desk.work();
    assert_eq!(desk.status("grow").joining, ["mnist-worker-2", "mnist-worker-3"]);
    let scaling = desk.world.status().scaling.unwrap();
    assert_eq!(scaling.request.unwrap().name, "grow");
    assert_eq!(desk.end("grow"), (ScalePhase::Scaling, "Decided".to_owned()));
    desk.settle();
    assert_eq!(
        (desk.end("grow"), desk.workers()),
        (succeeded(), "0 1 2 3".to_owned())
    );
    desk.scale_in("shrink", &json!({"count": 3}));
    desk.work();
    assert_eq!(
        desk.status("shrink").victims,
        ["mnist-worker-1", "mnist-worker-2", "mnist-worker-3"]
    );
    desk.settle();
    assert_eq!(
        (desk.end("shrink"), desk.workers()),
        (succeeded(), "0".to_owned())
    );
    assert_eq!(desk.world.restarts(), (0, 0));
}

/// All pods that were there start anew once more.
#[test]
fn a_scale_out_of_a_rigid_job_whose_pods_do_not_run_is_undone() {
    let mut desk = Desk::new(rigid(None));
    desk.scale_out("grow", 2);
    desk.work();
    desk.world.kubelets_remove();
    desk.work();
    assert_eq!(desk.workers(), "0 1 2 3");
    desk.world.run_on("mnist-worker-0", "node-0");
    desk.world.tick(61);
    desk.work();
    assert_eq!(desk.targets, [4, 2]);
    desk.settle();
    assert_eq!(
        (desk.end("grow"), desk.workers()),
        (failed("TimedOut"), "0 1".to_owned())
    );
    assert_eq!(
        (desk.world.phase(), desk.world.restarts()),
        (Some(Running), (0, 0))
    );
}

#[test]
fn nobody_is_named_in_a_rigid_job() {
    let mut desk = Desk::new(rigid(None));
    desk.scale_in("named", &json!({"podNames": ["mnist-worker-1"]}));
    desk.settle();
    assert_eq!(
        (desk.end("named"), desk.workers()),
        (failed("PodsRefused"), "0 1".to_owned())
    );
    assert!(desk.message("named").contains("give toDelete.count"));
}

#[test]
fn a_job_that_refuses_other_sizes_refuses_requests() {
    let mut desk = Desk::new(rigid(Some(RigidPolicy::Refuse)));
    desk.world
        .edit(|spec| spec.elastic.as_mut().unwrap().replicas = 5);
    desk.work();
    desk.scale_out("grow", 2);
    desk.settle();
    assert_eq!(
        (desk.end("grow"), desk.workers()),
        (failed("SizeRefused"), "0 1".to_owned())
    );
    let message = desk.message("grow");
    assert!(
        message.starts_with("The job keeps its 2 pods: jax tells every pod"),
        "{message}"
    );
}
