//! Nodes that are about to go, and pods that leave them in order.

use std::collections::BTreeMap;

use rstest::rstest;
use trainyard_api::JobPhase::{Paused, Running, Scaling, Suspended, Suspending};
use trainyard_api::{
    Elastic, NodeDownPolicy, Progress, ProgressPolicy, Refill, RestartPolicy, RestartRecord, RestartScope,
    RoleSpec, ScalingStep, TrainingJob, TrainingJobSpec, ValidSizes,
};
use trainyard_contract::drain::{DrainReport, DrainState};
use trainyard_core::model::{DrainCause, DrainSummary, ForcedRemoval};
use trainyard_core::notice::{NodeTaint, NoticeCause};
use trainyard_core::observe::observe;
use trainyard_core::plan::Plan;
use trainyard_core::view::NodeState;

use crate::common::World;
use crate::common::jobs::{Change, custom, job, with_agent, workers};
use crate::crashes::{Script, at_every_write};

const TIMEOUT: i64 = 60;

fn drained(job: TrainingJob) -> TrainingJob {
    job.run(|run| run.drain_timeout_seconds = Some(TIMEOUT))
}

/// Three pods that train as one.
fn jax() -> TrainingJob {
    job("jax", &[("worker", 3)])
}

/// A job whose workers join and leave, beside a master, which has rank 0.
fn elastic(replicas: i32, change: impl FnOnce(&mut Elastic)) -> TrainingJob {
    let mut elastic = Elastic {
        replicas,
        drain_timeout_seconds: Some(TIMEOUT),
        ..Elastic::default()
    };
    change(&mut elastic);
    let restarts = |role: &mut RoleSpec| role.restart_policy = Some(RestartPolicy::OnFailure);
    custom(&[("master", 1), ("worker", 1)])
        .role("master", restarts)
        .role("worker", restarts)
        .role("worker", |role| role.replicas = None)
        .spec(|spec| {
            elastic.role = Some("worker".to_owned());
            spec.elastic = Some(elastic);
        })
}

/// A job that runs, whose pods have agents and each a node of its own: `a` to `d`.
fn running(job: TrainingJob) -> World {
    let mut world = World::new(job);
    world.settings = with_agent();
    world.reconcile();
    let names = world.names(|_| true);
    for (name, node) in names.iter().zip(["a", "b", "c", "d", "e", "f"]) {
        world.run_on(name, node);
    }
    world.reconcile();
    assert_eq!(world.phase(), Some(Running));
    world.tick(100);
    world
}

/// The pods that are told to leave.
fn told(world: &World) -> String {
    let observed = world.see(observe);
    let pods = observed.roles.iter().flat_map(|role| &role.pods);
    let told = pods.filter(|pod| !pod.drain.stays());
    let short = told.filter_map(|pod| pod.name.strip_prefix("mnist-"));
    short.collect::<Vec<_>>().join(" ")
}

fn nodes(world: &World) -> Vec<String> {
    world
        .status()
        .scaling
        .map(|scaling| scaling.nodes)
        .unwrap_or_default()
}

fn history(world: &World) -> Vec<RestartRecord> {
    world
        .status()
        .restarts
        .map(|restarts| restarts.history)
        .unwrap_or_default()
}

/// How many seconds the pods have that are told to leave.
fn seconds_left(world: &World) -> Option<i64> {
    let deadline = world.status().scaling?.deadline?;
    Some(deadline.0.duration_since(world.now).as_secs())
}

fn taint(key: &str) -> NoticeCause {
    NoticeCause::Taint(NodeTaint {
        key: key.into(),
        value: "".into(),
        effect: "NoExecute".into(),
        added: None,
    })
}

/// All have left, are deleted, and start anew elsewhere, when `kubectl drain` has seen it.
fn start_anew(world: &mut World) {
    world.kubelets_remove();
    world.reconcile();
    let created = world.log.pods.len();
    world.tick(5);
    world.reconcile();
    assert_eq!(world.log.pods.len(), created, "it asks every 5 s, by name");
    world.tick(1);
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    world.run_all();
    world.reconcile();
}

#[rstest]
#[case::rigid(jax())]
#[case::elastic(elastic(3, |elastic| elastic.drain_timeout_seconds = None))]
fn without_a_drain_timeout_pods_stay(#[case] job: TrainingJob) {
    let mut world = running(job);
    world.cordon("b");
    assert_eq!(world.plan(), Plan::default());
    world.announce("a", taint("aws-node-termination-handler/spot-itn"), Some(120));
    assert_eq!(world.plan(), Plan::default());
}

#[test]
fn pods_that_train_as_one_leave_a_cordoned_node_together_and_start_anew() {
    let mut world = running(drained(jax()).backoff_limit(0));
    let created = world.log.pods.len();
    world.cordon("b");
    world.reconcile();
    assert_eq!(told(&world), "worker-0 worker-1 worker-2");
    assert_eq!(
        (nodes(&world), seconds_left(&world)),
        (vec!["b".to_owned()], Some(TIMEOUT))
    );
    assert_eq!(
        (world.phase(), world.restarts()),
        (Some(Running), (0, 0)),
        "it trains meanwhile"
    );
    assert_eq!(world.condition("Running"), "True Draining");
    assert!(
        world.message("Running").contains("b is cordoned"),
        "{}",
        world.message("Running")
    );
    assert_eq!(world.plan(), world.reconcile(), "it waits");

    let all = ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"];
    for pod in all {
        world.report_drain(pod, DrainState::Acknowledged);
    }
    world.reconcile();
    world.tick(TIMEOUT - 1);
    for pod in all {
        world.report_drain(pod, DrainState::CheckpointDone);
    }
    world.reconcile();
    assert_eq!(world.scaling_step(), Some(ScalingStep::CheckpointDone));
    for pod in ["mnist-worker-0", "mnist-worker-1"] {
        world.succeed(pod);
        world.reconcile();
        assert_eq!(world.staying(), "worker-0 worker-1 worker-2", "one has not left");
    }
    world.fail("mnist-worker-2", 1);
    world.reconcile();
    assert_eq!((world.staying(), world.scaling_step()), (String::new(), None));
    assert_eq!(world.restarts(), (0, 1), "one disruption, and no failure");
    start_anew(&mut world);
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(world.condition("Running"), "True AllRolesRunning");
    assert_eq!(world.log.pods.len(), created + 3);
    let history = history(&world);
    let [record] = &*history else {
        panic!("{history:#?}")
    };
    assert_eq!(
        (&*record.pod, record.node.as_deref()),
        ("mnist-worker-1", Some("b"))
    );
    assert_eq!((&*record.reason, record.consequences), ("NodeDrained", 2));
    let events = world.log.events.iter();
    let draining: Vec<&str> = events
        .filter(|event| event.reason == trainyard_api::Reason::Draining)
        .map(|event| &*event.message)
        .collect();
    assert_eq!(
        draining[0],
        "b is cordoned: worker 0-2 are told to leave, and start anew."
    );
    assert_eq!(world.reconcile(), Plan::default(), "nothing is left to do");
}

/// A cordon is seen a moment before the pods are evicted, or together with that.
#[rstest]
#[case::after(false)]
#[case::at_once(true)]
fn pods_that_are_evicted_meanwhile_are_waited_for_too(#[case] at_once: bool) {
    let mut world = running(drained(jax()));
    world.cordon("b");
    if !at_once {
        world.reconcile();
    }
    world.ask_to_go("mnist-worker-1");
    world.reconcile();
    assert_eq!(
        (world.staying(), world.restarts()),
        ("worker-0 worker-2".to_owned(), (0, 0))
    );
    world.report_drain("mnist-worker-0", DrainState::CheckpointDone);
    world.succeed("mnist-worker-1");
    world.kubelets_remove();
    world.reconcile();
    assert_eq!(
        world.staying(),
        "worker-0 worker-2",
        "the others still save their work"
    );
    for pod in ["mnist-worker-0", "mnist-worker-2"] {
        world.succeed(pod);
    }
    world.reconcile();
    start_anew(&mut world);
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(history(&world).len(), 1);
}

#[rstest]
#[case::it_never_answers(None, 10)]
#[case::it_never_leaves(Some(DrainState::CheckpointDone), TIMEOUT)]
fn nobody_is_waited_for_for_ever(#[case] says: Option<DrainState>, #[case] seconds: i64) {
    let mut world = running(drained(jax()));
    world.cordon("b");
    world.reconcile();
    if let Some(says) = says {
        world.report_drain("mnist-worker-0", says);
    }
    world.reconcile();
    world.tick(seconds - 1);
    world.reconcile();
    assert_eq!(world.staying(), "worker-0 worker-1 worker-2");
    world.tick(1);
    world.reconcile();
    assert_eq!((world.staying(), world.restarts()), (String::new(), (0, 1)));
    start_anew(&mut world);
    assert_eq!(world.phase(), Some(Running));
}

#[test]
fn a_node_that_says_when_it_goes_leaves_less_time() {
    let mut world = running(drained(jax()));
    world.announce(
        "b",
        taint("cloud.google.com/impending-node-termination"),
        Some(15),
    );
    world.reconcile();
    assert_eq!(seconds_left(&world), Some(15));
    world.report_drain("mnist-worker-0", DrainState::Acknowledged);
    world.tick(14);
    world.reconcile();
    assert_eq!(world.staying(), "worker-0 worker-1 worker-2");
    world.tick(1);
    world.reconcile();
    assert_eq!((world.staying(), world.restarts()), (String::new(), (0, 1)));
}

#[test]
fn a_second_node_belongs_to_the_same_disruption() {
    let mut world = running(drained(jax()));
    world.cordon("b");
    world.reconcile();
    world.report_drain("mnist-worker-0", DrainState::Acknowledged);
    world.tick(20);
    world.announce("c", taint("aws-node-termination-handler/spot-itn"), Some(30));
    world.reconcile();
    assert_eq!(nodes(&world), ["b", "c"]);
    assert_eq!(seconds_left(&world), Some(30), "it goes sooner");
    world.tick(5);
    world.reconcile();
    assert_eq!(seconds_left(&world), Some(25), "its time is not given anew");
    world.succeed_all();
    world.reconcile();
    start_anew(&mut world);
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
}

#[test]
fn who_was_told_leaves_though_the_node_stays_after_all() {
    let mut world = running(drained(jax()));
    world.cordon("b");
    world.reconcile();
    world.uncordon("b");
    world.reconcile();
    assert_eq!(told(&world), "worker-0 worker-1 worker-2");
    world.succeed_all();
    world.reconcile();
    start_anew(&mut world);
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(history(&world)[0].node.as_deref(), Some("b"));
}

#[test]
fn a_role_that_tolerates_what_the_node_says_stays() {
    let tolerates = |key: &str| {
        let toleration = format!(r#"{{"tolerations": [{{"key": "{key}", "operator": "Exists"}}]}}"#);
        drained(jax()).role("worker", |role| {
            let pod = role.template.spec.as_mut().unwrap();
            let given: k8s_openapi::api::core::v1::PodSpec =
                serde_json::from_str(&format!("{{\"containers\": [], {}", &toleration[1..])).unwrap();
            pod.tolerations = given.tolerations;
        })
    };
    let mut world = running(tolerates("node.kubernetes.io/unschedulable"));
    world.cordon("b");
    assert_eq!(world.plan(), Plan::default());
    world.announce("b", taint("karpenter.sh/disrupted"), None);
    world.reconcile();
    assert_eq!(nodes(&world), ["b"]);
}

/// Others go on without it, and its role has no other pod that leaves.
#[test]
fn a_pod_that_trains_for_itself_leaves_alone() {
    let mut world = running(drained(workers(3, RestartPolicy::OnFailure)).backoff_limit(0));
    world.cordon("b");
    world.reconcile();
    assert_eq!(told(&world), "worker-1");
    world.report_drain("mnist-worker-1", DrainState::CheckpointDone);
    world.reconcile();
    world.succeed("mnist-worker-1");
    world.reconcile();
    world.tick(5);
    world.reconcile();
    assert_eq!(
        world.staying(),
        "worker-0 worker-1 worker-2",
        "who drains may evict it"
    );
    world.tick(1);
    world.reconcile();
    assert_eq!(world.staying(), "worker-0 worker-2");
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(world.log.deleted, [("mnist-worker-1".to_owned(), false)]);
    assert_eq!(
        world.role("worker").succeeded_indices,
        None,
        "its work is not done"
    );
    assert_eq!(history(&world)[0].reason, "NodeDrained");
}

#[test]
fn a_pod_that_is_not_replaced_stays() {
    let mut world = running(drained(workers(3, RestartPolicy::Never)));
    world.cordon("b");
    assert_eq!(world.plan(), Plan::default(), "the job would fail");
}

/// A place that is empty when the others are told stays so until all start anew.
#[test]
fn no_pod_is_made_again_while_the_others_leave() {
    let job = drained(jax()).role("worker", |role| role.restart_policy = Some(RestartPolicy::Always));
    let mut world = running(job);
    let created = world.log.pods.len();
    world.succeed("mnist-worker-2");
    world.cordon("b");
    world.reconcile();
    assert_eq!(told(&world), "worker-0 worker-1 worker-2");
    world.ask_to_go("mnist-worker-2");
    world.kubelets_remove();
    world.reconcile();
    assert_eq!(world.log.pods.len(), created);
    world.succeed_all();
    world.reconcile();
    start_anew(&mut world);
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(world.log.pods.len(), created + 3);
}

#[test]
fn a_job_that_is_suspended_has_time_for_a_checkpoint() {
    let mut world = running(drained(jax()));
    world.suspend(true);
    world.reconcile();
    assert_eq!(world.phase(), Some(Suspending));
    assert_eq!(world.staying(), "worker-0 worker-1 worker-2");
    assert_eq!(seconds_left(&world), Some(TIMEOUT));
    world.succeed_all();
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    assert_eq!((world.phase(), world.restarts()), (Some(Suspended), (0, 0)));
}

#[test]
fn an_elastic_worker_leaves_and_another_joins_in_its_place_at_once() {
    let mut world = running(elastic(3, |_| {}));
    world.cordon("c");
    world.reconcile();
    assert_eq!(
        (told(&world), nodes(&world)),
        ("worker-1".to_owned(), vec!["c".to_owned()])
    );
    assert_eq!(world.staying(), "master-0 worker-0 worker-1 worker-2 worker-3");
    assert_eq!(world.phase(), Some(Scaling));
    assert!(
        world
            .message("Scaling")
            .contains("c is cordoned: 1 are told to leave, and 3 join"),
        "{}",
        world.message("Scaling")
    );
    world.report_drain("mnist-worker-1", DrainState::CheckpointDone);
    world.reconcile();
    world.succeed("mnist-worker-1");
    world.reconcile_for_a_second();
    assert_eq!(world.staying(), "master-0 worker-0 worker-2 worker-3");
    assert_eq!(
        world.scaling_step(),
        Some(ScalingStep::Joining),
        "the new one does not run yet"
    );
    world.kubelets_remove();
    world.run_all();
    world.reconcile();
    assert_eq!((world.scaling_step(), world.phase()), (None, Some(Running)));
    assert_eq!(world.restarts(), (0, 0), "nothing was lost");
    world.tick(100);
    assert_eq!(world.reconcile(), Plan::default());
}

#[test]
fn two_nodes_are_one_drain() {
    let mut world = running(elastic(4, |_| {}));
    world.cordon("c");
    world.reconcile();
    world.tick(5);
    world.cordon("d");
    world.reconcile();
    assert_eq!(told(&world), "worker-1 worker-2");
    assert_eq!(nodes(&world), ["c", "d"]);
    assert_eq!(
        world.staying().split(' ').count(),
        1 + 4 + 2,
        "{}",
        world.staying()
    );
    for pod in ["mnist-worker-1", "mnist-worker-2"] {
        world.succeed(pod);
    }
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!(world.status().replicas, Some(4));
}

/// The training can't have more pods.
#[test]
fn places_are_filled_afterwards_where_there_is_no_room_for_more() {
    let mut world = running(elastic(3, |elastic| {
        (elastic.min_replicas, elastic.max_replicas) = (Some(2), Some(3));
    }));
    world.cordon("c");
    world.reconcile();
    assert_eq!(
        (told(&world), world.staying().split(' ').count()),
        ("worker-1".to_owned(), 4)
    );
    world.succeed("mnist-worker-1");
    world.reconcile_for_a_second();
    assert_eq!(world.status().replicas, Some(2));
    world.settle();
    assert_eq!((world.phase(), world.status().replicas), (Some(Running), Some(3)));
    assert_eq!(world.restarts(), (0, 0));
}

#[test]
fn as_many_leave_as_the_training_can_do_without() {
    let mut world = running(elastic(3, |elastic| {
        (elastic.min_replicas, elastic.max_replicas) = (Some(2), Some(3));
    }));
    world.cordon("c");
    world.cordon("d");
    world.reconcile();
    assert_eq!(told(&world), "worker-2");
    world.succeed("mnist-worker-2");
    world.settle();
    assert_eq!(told(&world), "", "{:#?}", world.status().scaling);
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    let stay = world.names(|row| matches!(row.node.as_deref(), Some("c" | "d")));
    assert_eq!((stay, world.status().replicas), (Vec::new(), Some(3)));
}

/// Nobody may leave, so they are told when there is just time to say that they know.
#[test]
fn who_would_make_too_few_is_told_last() {
    let fixed = |elastic: &mut Elastic| {
        (elastic.min_replicas, elastic.max_replicas) = (Some(3), Some(3));
        elastic.refill = Some(Refill::Always);
    };
    let mut world = running(elastic(3, fixed));
    world.cordon("c");
    let plan = world.reconcile();
    assert_eq!(told(&world), "");
    assert!(plan.wake_at().is_some());
    world.tick(TIMEOUT - 11);
    world.reconcile();
    assert_eq!(told(&world), "");
    // Somebody changes their mind.
    world.uncordon("c");
    world.tick(100);
    world.reconcile();
    assert_eq!((told(&world), world.phase()), (String::new(), Some(Running)));

    world.cordon("c");
    world.reconcile();
    world.tick(TIMEOUT - 10);
    world.reconcile();
    assert_eq!(
        (told(&world), seconds_left(&world)),
        ("worker-1".to_owned(), Some(10))
    );
    world.succeed("mnist-worker-1");
    world.reconcile_for_a_second();
    assert_eq!(world.phase(), Some(Paused));
    world.settle();
    assert_eq!((world.phase(), world.status().replicas), (Some(Running), Some(3)));
}

#[test]
fn places_stay_empty_where_nobody_refills() {
    let mut world = running(elastic(3, |elastic| elastic.refill = Some(Refill::Never)));
    world.cordon("c");
    world.reconcile();
    assert_eq!(told(&world), "worker-1");
    world.succeed("mnist-worker-1");
    world.settle();
    assert_eq!((world.phase(), world.status().replicas), (Some(Running), Some(2)));
}

/// Elastic pods wait for it, or were started by it.
#[test]
fn all_start_anew_when_the_pod_of_rank_0_has_to_leave() {
    let mut world = running(drained(elastic(3, |_| {})));
    world.cordon("a");
    world.reconcile();
    assert_eq!(told(&world), "master-0 worker-0 worker-1 worker-2");
    world.succeed_all();
    world.reconcile();
    start_anew(&mut world);
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(history(&world)[0].pod, "mnist-master-0");
    assert_eq!(world.pod("mnist-worker-2").attempt, 1);
    world.tick(100);
    assert_eq!(world.reconcile(), Plan::default());
}

/// More than the status can list as being replaced.
#[rstest]
#[case::that_train_as_one(job("jax", &[("worker", 300)]), &["z"])]
#[case::that_train_for_themselves(workers(300, RestartPolicy::OnFailure), &["node-0", "node-1", "z"])]
fn many_pods_are_one_disruption(#[case] job: TrainingJob, #[case] leaving: &[&str]) {
    let mut world = World::new(drained(job));
    world.settings = with_agent();
    world.reconcile();
    world.run_all();
    world.run_on("mnist-worker-299", "z");
    world.reconcile();
    world.tick(100);
    for node in leaving {
        world.cordon(node);
    }
    world.reconcile();
    world.succeed_all();
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(world.role("worker").succeeded_indices, None);
    assert_eq!(history(&world).len(), 1);
    assert_eq!(history(&world)[0].reason, "NodeDrained");
    assert_eq!(history(&world)[0].consequences, 299);
}

/// Each has its own window to say that it knows.
#[test]
fn who_is_told_late_has_time_to_answer() {
    let restarts = |role: &mut RoleSpec| role.restart_policy = Some(RestartPolicy::OnFailure);
    let job = custom(&[("left", 2), ("right", 2)])
        .role("left", restarts)
        .role("right", restarts)
        .scope("left", RestartScope::Role)
        .scope("right", RestartScope::Role);
    let mut world = running(drained(job));
    world.cordon("a");
    world.reconcile();
    assert_eq!(told(&world), "left-0 left-1");
    world.tick(9);
    world.cordon("c");
    world.reconcile();
    assert_eq!(told(&world), "left-0 left-1 right-0 right-1");
    world.tick(9);
    world.reconcile();
    assert_eq!(world.staying(), "left-0 left-1 right-0 right-1");
    world.tick(1);
    world.reconcile();
    assert_eq!((world.staying(), world.restarts()), (String::new(), (0, 1)));
}

/// The time of pods is over, or they have as much as if they were told now; and no pause is longer
/// than any other.
#[rstest]
#[case::forward(3600)]
#[case::back(-3600)]
fn a_clock_that_jumps_holds_up_nothing(#[case] seconds: i64) {
    let mut world = running(drained(jax()));
    world.cordon("b");
    world.reconcile();
    world.report_drain("mnist-worker-0", DrainState::Acknowledged);
    world.reconcile();
    world.set_clock(seconds);
    world.reconcile();
    world.tick(TIMEOUT + 10);
    world.reconcile();
    assert_eq!((world.staying(), world.restarts()), (String::new(), (0, 1)));
    world.set_clock(seconds);
    world.kubelets_remove();
    world.reconcile();
    world.tick(6);
    world.reconcile();
    assert_eq!(world.staying(), "worker-0 worker-1 worker-2");
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
}

/// The scheduler gives the place of a pod that saves its work to another one.
#[test]
fn a_pod_that_is_preempted_while_all_leave_is_part_of_the_same_disruption() {
    let mut world = running(drained(jax()).backoff_limit(0));
    world.cordon("b");
    world.reconcile();
    world.report_drain("mnist-worker-0", DrainState::Acknowledged);
    world.ask_to_go("mnist-worker-2");
    world.fail("mnist-worker-2", 143);
    world.pod_mut("mnist-worker-2").end.as_mut().unwrap().disrupted = true;
    world.kubelets_remove();
    world.reconcile();
    assert_eq!(
        (world.staying(), world.restarts()),
        ("worker-0 worker-1".to_owned(), (0, 0)),
        "the others still save their work"
    );
    world.succeed_all();
    world.reconcile();
    start_anew(&mut world);
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(history(&world).len(), 1);
}

/// All is seen at the same time: some have left, and a pod of another role has failed.
#[rstest]
#[case::that_start_anew_together(RestartScope::Role)]
#[case::of_which_one_leaves_alone(RestartScope::Pod)]
fn pods_of_another_role_start_anew_together_too(#[case] left: RestartScope) {
    let restarts = |role: &mut RoleSpec| role.restart_policy = Some(RestartPolicy::OnFailure);
    let job = custom(&[("left", 2), ("right", 2)])
        .role("left", restarts)
        .role("right", restarts)
        .scope("left", left)
        .scope("right", RestartScope::Role);
    let mut world = running(drained(job));
    world.cordon("a");
    world.reconcile();
    for pod in told(&world)
        .split(' ')
        .map(|pod| format!("mnist-{pod}"))
        .collect::<Vec<_>>()
    {
        world.succeed(&pod);
    }
    world.fail("mnist-right-1", 1);
    world.reconcile();
    assert_eq!(world.restarts(), (1, 1), "a failure and a disruption");
    let of_right = world.names(|row| row.name.contains("right") && !row.terminating);
    assert_eq!(of_right, [""; 0], "the other one goes with it");
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (1, 1)));
    assert_eq!(world.pod("mnist-right-0").attempt, 1);
    let reasons: Vec<_> = history(&world).into_iter().map(|record| record.reason).collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
}

/// It is asked by its deletion; only the next pod of its name has to wait.
#[test]
fn a_pod_whose_time_is_over_is_deleted_at_once_however_often_it_was_replaced() {
    let mut world = running(drained(workers(3, RestartPolicy::OnFailure)));
    for _ in 0..3 {
        world.fail("mnist-worker-1", 1);
        world.settle();
    }
    world.run_on("mnist-worker-1", "b");
    world.reconcile();
    world.cordon("b");
    world.reconcile();
    assert_eq!(told(&world), "worker-1");
    world.tick(10);
    world.reconcile();
    assert_eq!(world.staying(), "worker-0 worker-2", "it has said nothing");
    world.kubelets_remove();
    let plan = world.reconcile();
    assert_eq!(
        world.staying(),
        "worker-0 worker-2",
        "and is not made anew at once"
    );
    assert!(plan.wake_at().is_some());
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (3, 1)));
}

/// The time of those that leave is not theirs.
#[test]
fn a_pod_that_trains_for_itself_waits_until_others_have_left() {
    let mut world = running(drained(workers(4, RestartPolicy::OnFailure)));
    world.cordon("b");
    world.reconcile();
    world.tick(5);
    world.cordon("d");
    world.reconcile();
    assert_eq!(told(&world), "worker-1 worker-3", "they have just begun");
    for pod in ["mnist-worker-1", "mnist-worker-3"] {
        world.report_drain(pod, DrainState::Acknowledged);
    }
    world.tick(20);
    world.cordon("c");
    world.reconcile();
    assert_eq!(
        (told(&world), nodes(&world).len()),
        ("worker-1 worker-3".to_owned(), 2)
    );
    world.announce("a", taint("aws-node-termination-handler/spot-itn"), Some(30));
    world.reconcile();
    assert_eq!(told(&world), "worker-0 worker-1 worker-3", "its node goes sooner");
    assert_eq!(seconds_left(&world), Some(30));
    for pod in ["mnist-worker-0", "mnist-worker-1", "mnist-worker-3"] {
        world.succeed(pod);
    }
    world.reconcile();
    assert_eq!(
        (told(&world), seconds_left(&world)),
        ("worker-2".to_owned(), Some(TIMEOUT))
    );
    world.succeed("mnist-worker-2");
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 2)));
}

#[test]
fn a_pod_whose_node_dies_has_left() {
    let policy = |role: &mut RoleSpec| role.node_down_policy = Some(NodeDownPolicy::Fail);
    let mut world = running(drained(jax()).role("worker", policy));
    world.cordon("b");
    world.reconcile();
    for pod in ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"] {
        world.report_drain(pod, DrainState::Acknowledged);
    }
    world.reconcile();
    world.node("b", NodeState::Down);
    world.reconcile();
    assert_eq!(
        world.scaling_step(),
        Some(ScalingStep::Acknowledged),
        "others save their work"
    );
    for pod in ["mnist-worker-0", "mnist-worker-2"] {
        world.succeed(pod);
    }
    world.reconcile();
    assert_eq!((world.scaling_step(), world.restarts()), (None, (0, 1)));
}

#[test]
fn nobody_joins_in_the_place_of_one_that_leaves_with_others() {
    let mut world = running(elastic(4, |_| {}));
    world.cordon("c");
    world.cordon("d");
    world.reconcile();
    assert_eq!(told(&world), "worker-1 worker-2");
    world.report_drain("mnist-worker-2", DrainState::Acknowledged);
    world.succeed("mnist-worker-1");
    world.reconcile_for_a_second();
    world.kubelets_remove();
    world.cordon("e");
    world.reconcile();
    let scaling = world.status().scaling.unwrap();
    assert_eq!(scaling.victims.as_deref(), Some("1-3"));
    assert_eq!(scaling.joining.as_deref(), Some("4-6"));
}

#[test]
fn a_second_node_gives_elastic_workers_no_more_time() {
    let mut world = running(elastic(4, |_| {}));
    world.cordon("c");
    world.reconcile();
    world.report_drain("mnist-worker-1", DrainState::Acknowledged);
    world.tick(20);
    world.cordon("d");
    world.reconcile();
    assert_eq!(told(&world), "worker-1 worker-2");
    assert_eq!(seconds_left(&world), Some(TIMEOUT - 20));
}

/// Those that join may wait for room for long.
#[rstest]
#[case::some_may_leave_at_once(2, "worker-2")]
#[case::none_may_leave_at_once(3, "")]
fn as_many_stay_as_the_training_needs_until_others_have_joined(#[case] min: i32, #[case] at_once: &str) {
    let mut world = running(elastic(3, |elastic| elastic.min_replicas = Some(min)));
    world.cordon("c");
    world.cordon("d");
    let plan = world.reconcile();
    assert_eq!(told(&world), at_once);
    let all = "master-0 worker-0 worker-1 worker-2 worker-3 worker-4";
    assert_eq!(world.staying(), all);
    assert!(plan.wake_at().is_some());
    world.tick(5);
    world.reconcile();
    assert_eq!(
        (told(&world), world.staying()),
        (at_once.to_owned(), all.to_owned())
    );
    world.run_all();
    world.reconcile();
    assert_eq!(told(&world), "worker-1 worker-2");
    for pod in ["mnist-worker-1", "mnist-worker-2"] {
        world.succeed(pod);
    }
    world.reconcile_for_a_second();
    assert_ne!(world.phase(), Some(Paused));
    world.settle();
    assert_eq!((world.phase(), world.status().replicas), (Some(Running), Some(3)));
    assert_eq!(
        (world.staying().as_str(), world.restarts()),
        ("master-0 worker-0 worker-3 worker-4", (0, 0))
    );
}

/// While others join, those that still run are a size that the training can have.
#[test]
fn no_more_leave_at_once_than_make_a_valid_size() {
    let mut world = running(elastic(4, |elastic| {
        elastic.valid_sizes = Some(ValidSizes {
            values: Some(vec![2, 4, 5, 6]),
            ..ValidSizes::default()
        });
    }));
    world.cordon("e");
    world.reconcile();
    assert_eq!(
        (told(&world), world.staying()),
        (
            String::new(),
            "master-0 worker-0 worker-1 worker-2 worker-3 worker-4".to_owned()
        ),
        "three are no valid size"
    );
    world.run_all();
    world.reconcile();
    assert_eq!(told(&world), "worker-3");
    world.succeed("mnist-worker-3");
    world.reconcile_for_a_second();
    world.settle();
    assert_eq!(
        (world.staying().as_str(), world.phase()),
        ("master-0 worker-0 worker-1 worker-2 worker-4", Some(Running))
    );
}

#[test]
fn what_a_drain_has_cost_is_counted_though_others_still_join() {
    let mut world = running(elastic(3, |_| {}));
    world.cordon("c");
    world.reconcile();
    world.tick(7);
    world.report_drain("mnist-worker-1", DrainState::CheckpointDone);
    world.succeed("mnist-worker-1");
    world.reconcile_for_a_second();
    assert_eq!(world.scaling_step(), Some(ScalingStep::Joining));
    let expected = DrainSummary {
        cause: DrainCause::Disruption,
        seconds: Some(7),
        ..DrainSummary::default()
    };
    assert_eq!(world.log.drains, std::slice::from_ref(&expected));
    let told: Vec<&str> = world.log.events.iter().map(|event| &*event.message).collect();
    assert!(
        told.contains(&"c is cordoned: 1 have saved their work."),
        "{told:#?}"
    );
    world.run_all();
    world.settle();
    assert_eq!(world.log.drains, [expected]);
}

#[rstest]
#[case::in_time(true, 30, BTreeMap::new())]
#[case::too_late(false, TIMEOUT, BTreeMap::from([(ForcedRemoval::TimedOut, 3)]))]
fn what_a_suspension_has_cost_is_counted(
    #[case] leaves: bool,
    #[case] seconds: i64,
    #[case] forced: BTreeMap<ForcedRemoval, u64>,
) {
    let reports = |spec: &mut TrainingJobSpec| spec.progress = Some(ProgressPolicy::Report);
    let mut world = running(drained(jax()).spec(reports));
    world.progress = Some(Progress {
        step: Some(120),
        ..Progress::default()
    });
    world.suspend(true);
    world.reconcile();
    let uid = world.pod("mnist-worker-0").uid.to_string();
    let (state, step) = (DrainState::CheckpointDone, Some(118));
    world.local.drains.record(&uid, DrainReport { state, step });
    world.reconcile();
    world.tick(30);
    world.reconcile();
    assert_eq!(world.log.drains, []);
    if leaves {
        world.succeed_all();
    } else {
        world.tick(TIMEOUT - 30);
    }
    world.reconcile();
    let expected = DrainSummary {
        cause: DrainCause::Suspend,
        seconds: Some(seconds),
        forced,
        steps_lost: Some(2),
    };
    assert_eq!(world.log.drains, std::slice::from_ref(&expected));
    world.kubelets_remove();
    world.settle();
    assert_eq!(world.phase(), Some(Suspended));
    assert_eq!(world.log.drains, [expected], "once");
}

#[test]
fn who_waits_for_others_to_join_is_told_at_the_last_moment() {
    let mut world = running(elastic(3, |elastic| elastic.min_replicas = Some(3)));
    world.cordon("c");
    world.reconcile();
    world.tick(TIMEOUT - 11);
    world.reconcile();
    assert_eq!(told(&world), "");
    world.tick(1);
    world.reconcile();
    assert_eq!(
        (told(&world), seconds_left(&world)),
        ("worker-1".to_owned(), Some(10))
    );
}

#[test]
fn rank_0_does_not_wait_for_others_that_have_more_time() {
    let mut world = running(drained(elastic(3, |_| {})));
    world.edit(|spec| spec.elastic.as_mut().unwrap().replicas = 2);
    world.reconcile();
    assert_eq!(told(&world), "worker-2");
    world.report_drain("mnist-worker-2", DrainState::Acknowledged);
    world.cordon("a");
    world.reconcile();
    assert_eq!(told(&world), "worker-2", "it has as much time afterwards");
    world.announce(
        "a",
        taint("cloud.google.com/impending-node-termination"),
        Some(15),
    );
    world.reconcile();
    assert_eq!(
        (told(&world).as_str(), seconds_left(&world)),
        ("master-0 worker-0 worker-1 worker-2", Some(15))
    );
    world.succeed_all();
    world.settle();
    assert_eq!((world.phase(), world.status().replicas), (Some(Running), Some(2)));
    assert_eq!(world.restarts(), (0, 1));
}

const RIGID: Script = |world, operate| {
    world.settings = with_agent();
    operate(world);
    world.run_all();
    operate(world);
    world.cordon("node-1");
    operate(world);
    world.report_drain("mnist-worker-0", DrainState::CheckpointDone);
    operate(world);
    world.succeed_all();
    operate(world);
    world.kubelets_remove();
    operate(world);
    world.tick(6);
    operate(world);
    world.run_all();
    operate(world);
};

#[test]
fn an_operator_that_dies_at_any_write_has_all_leave_once() {
    let job = drained(jax()).backoff_limit(0);
    let writes = at_every_write(&job, RIGID, |world| {
        assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
        assert_eq!(world.names(|row| row.node.as_deref() == Some("node-1")), [""; 0]);
        assert_eq!(history(world).len(), 1);
    });
    assert!(writes > 12, "{writes}");
}

const LIVE: Script = |world, operate| {
    world.settings = with_agent();
    operate(world);
    for (name, node) in [("master-0", "a"), ("worker-0", "b"), ("worker-1", "c")] {
        world.run_on(&format!("mnist-{name}"), node);
    }
    operate(world);
    world.cordon("c");
    operate(world);
    world.report_drain("mnist-worker-1", DrainState::CheckpointDone);
    operate(world);
    world.succeed("mnist-worker-1");
    operate(world);
    world.tick(1);
    operate(world);
    world.kubelets_remove();
    world.run_all();
    operate(world);
};

#[test]
fn an_operator_that_dies_at_any_write_has_a_worker_leave_once() {
    let writes = at_every_write(&elastic(2, |_| {}), LIVE, |world| {
        assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
        assert_eq!(world.names(|row| row.node.as_deref() == Some("c")), [""; 0]);
        assert_eq!(world.status().replicas, Some(2));
    });
    assert!(writes > 8, "{writes}");
}
