//! Pods that start anew together when one of them ends.

use rstest::rstest;
use serde_json::json;
use trainyard_api::JobPhase::{Failed, Restarting, Running, Succeeded, Suspended};
use trainyard_api::RestartPolicy::OnFailure;
use trainyard_api::{Elastic, RestartScope, Restarts, TrainingJob};
use trainyard_core::model::Action;
use trainyard_core::observe::observe;
use trainyard_core::view::NodeState;

use crate::common::World;
use crate::common::jobs::{Change, custom, job, mpi, pytorch, with_agent, workers};
use crate::crashes::{Script, at_every_write};

fn four() -> TrainingJob {
    pytorch(&[("worker", 4)])
}

fn restarts(world: &World) -> Restarts {
    world.status().restarts.unwrap_or_default()
}

fn attempts(world: &World) -> Vec<(String, i32)> {
    let attempts = restarts(world).attempts.into_iter();
    attempts.map(|of| (of.role, of.attempt)).collect()
}

fn deletions(actions: &[Action]) -> usize {
    let deletes = |action: &&Action| matches!(action, Action::DeletePod { .. });
    actions.iter().filter(deletes).count()
}

/// The pods of the former attempt are gone, and the new ones run.
fn start_anew(world: &mut World) {
    world.kubelets_remove();
    world.reconcile();
    world.run_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(Running));
    assert_eq!(restarts(world).group, None);
}

#[test]
fn one_that_fails_takes_all_others_with_it_and_all_start_anew() {
    let mut world = World::running(four());
    assert_eq!(world.variable("mnist-worker-0", "TRAINYARD_ATTEMPT"), Some("0"));
    world.fail("mnist-worker-1", 7);
    assert_eq!(
        deletions(&world.actions_after_status()),
        4,
        "in the same step, once the status is written"
    );
    world.reconcile();
    assert_eq!((world.phase(), world.restarts()), (Some(Restarting), (1, 0)));
    assert_eq!(attempts(&world), [("worker".to_owned(), 1)]);
    let history = restarts(&world).history;
    assert_eq!((history.len(), history[0].consequences), (1, 3));
    assert_eq!(world.log.pods.len(), 4, "the old ones are still there");
    let observed = world.see(observe);
    assert!(observed.roles[0].pods.is_empty(), "nobody is sent to them");

    for name in ["mnist-worker-2", "mnist-worker-0", "mnist-worker-3"] {
        world.fail(name, 1);
        world.reconcile();
    }
    assert_eq!(world.restarts(), (1, 0), "how they end costs nothing");
    start_anew(&mut world);
    assert_eq!(world.log.pods.len(), 8);
    assert_eq!(world.variable("mnist-worker-3", "TRAINYARD_ATTEMPT"), Some("1"));
    let reasons: Vec<&str> = world
        .log
        .events
        .iter()
        .map(|event| event.reason.as_str())
        .collect();
    assert_eq!(reasons, ["AllRolesRunning", "PodReplaced", "AllRolesRunning"]);
    let told = &world.log.events[1].message;
    assert!(told.contains("all pods of the job start anew together"), "{told}");
}

#[test]
fn none_is_created_as_long_as_one_of_the_former_attempt_is_there() {
    let mut world = World::running(four());
    world.evict("mnist-worker-0");
    world.reconcile();
    assert_eq!(world.restarts(), (0, 1), "a disruption");
    for gone in ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"] {
        world.vanish(gone);
        world.reconcile();
        assert_eq!(world.log.pods.len(), 4);
    }
    world.vanish("mnist-worker-3");
    assert_eq!(world.actions().len(), 4, "at once, without another write");
    start_anew(&mut world);
    assert_eq!(world.restarts(), (0, 1));
}

#[test]
fn a_pod_on_a_node_that_is_gone_is_fenced() {
    let mut world = World::running(four());
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    let node = world.pod("mnist-worker-2").node.clone().unwrap();
    let stuck = world.names(|row| row.node.as_ref() == Some(&node) && row.terminating);
    world.vanish("mnist-worker-1");
    world.node(&node, NodeState::Gone);
    world.reconcile();
    let forced = |name: &String| world.log.deleted.contains(&(name.clone(), true));
    assert!(stuck.iter().filter(|name| *name != "mnist-worker-1").all(forced));
    world.node(&node, NodeState::Up);
    start_anew(&mut world);
}

#[test]
fn a_pod_that_a_former_operator_creates_late_is_removed_and_counts_nowhere() {
    let mut world = World::running(four());
    let late = world.pod("mnist-worker-2").clone();
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    world.kubelets_remove();
    // A former leader creates it in the last moment.
    world.pods.push(trainyard_core::view::PodRow {
        uid: "late".into(),
        ..late
    });
    world.reconcile();
    assert_eq!(world.log.pods.len(), 4, "{:?}", world.log.pods);
    assert!(world.pod("mnist-worker-2").terminating);
    world.fail("mnist-worker-2", 1);
    start_anew(&mut world);
    assert_eq!(world.restarts(), (1, 0));
}

/// The job that this operator sees is older than its pods.
#[test]
fn nothing_is_created_by_a_status_that_is_older_than_the_pods() {
    let mut world = World::running(four());
    let old = world.job.status.clone();
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    start_anew(&mut world);
    world.job.status = old;
    world.vanish("mnist-worker-3");
    let creates = |action: &Action| matches!(action, Action::CreatePod(_));
    assert!(!world.plan().actions().any(creates), "{:?}", world.plan());
}

#[test]
fn a_group_that_fails_again_waits() {
    let mut world = World::running(four());
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    start_anew(&mut world);
    world.tick(30);
    world.fail("mnist-worker-2", 1);
    world.reconcile();
    world.kubelets_remove();
    let plan = world.reconcile();
    assert_eq!(
        world.log.pods.len(),
        8,
        "whoever failed, all were replaced once before"
    );
    let due = restarts(&world).group.unwrap().not_before.unwrap().0;
    assert_eq!(plan.wake_at(), Some(due));
    let status = plan.status().unwrap();
    let why = status.roles[0].message.clone().unwrap_or_default();
    assert!(
        why.contains("all its pods start anew, because mnist-worker-2 ended"),
        "{why}"
    );
    world.tick(10);
    start_anew(&mut world);
    assert_eq!((world.restarts(), attempts(&world)[0].1), ((2, 0), 2));
}

#[test]
fn the_budget_is_spent_one_unit_a_restart() {
    let mut world = World::running(four().backoff_limit(1));
    world.fail("mnist-worker-1", 1);
    world.fail("mnist-worker-2", 1);
    world.reconcile();
    start_anew(&mut world);
    world.tick(30);
    world.fail("mnist-worker-0", 1);
    world.reconcile();
    assert_eq!((world.phase(), world.restarts()), (Some(Failed), (1, 0)));
    assert_eq!(restarts(&world).group, None);
}

/// Nothing else says that the ends of this job's pods belong together.
#[test]
fn ends_that_are_seen_together_cost_one_unit() {
    let job = workers(3, OnFailure)
        .scope("worker", RestartScope::Job)
        .backoff_limit(1);
    let mut world = World::running(job);
    for name in ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"] {
        world.fail(name, 1);
    }
    world.reconcile();
    assert_eq!(world.restarts(), (1, 0));
    start_anew(&mut world);
}

#[test]
fn a_launcher_and_its_workers_start_anew_together() {
    for ends in ["mnist-launcher-0", "mnist-worker-1"] {
        let mut world = World::new(mpi("", 2));
        world.settings = with_agent();
        world.reconcile();
        world.run_all();
        world.reconcile();
        world.fail(ends, 1);
        world.reconcile();
        let both = [("launcher".to_owned(), 1), ("worker".to_owned(), 1)];
        assert_eq!((attempts(&world), world.restarts()), (both.to_vec(), (1, 0)));
        start_anew(&mut world);
        assert_eq!(world.log.pods.len(), 6);
    }
}

#[test]
fn a_role_starts_anew_and_others_go_on() {
    let policy = |job: TrainingJob, name: &str| job.role(name, |role| role.restart_policy = Some(OnFailure));
    let job = policy(policy(custom(&[("a", 2), ("b", 2)]), "a"), "b");
    let mut world = World::running(job.scope("a", RestartScope::Role));
    world.fail("mnist-b-0", 1);
    world.settle();
    assert_eq!(
        (attempts(&world), world.log.pods.len()),
        (vec![], 5),
        "that one alone"
    );
    world.tick(30);
    world.fail("mnist-a-0", 1);
    world.reconcile();
    assert_eq!(attempts(&world), [("a".to_owned(), 1)]);
    world.fail("mnist-b-1", 1);
    world.reconcile();
    world.vanish("mnist-b-1");
    world.reconcile();
    assert_eq!(world.log.pods.len(), 6, "b does not wait for a");
    start_anew(&mut world);
    assert_eq!(world.log.pods.len(), 8);
    assert_eq!(world.variable("mnist-b-0", "TRAINYARD_ATTEMPT"), None);
}

/// The remote shells of two attempts do not speak with each other. Where a part of the pods starts
/// anew without the others, they have to.
#[rstest]
#[case::all_together(|job| job, Some("1"))]
#[case::the_workers_alone(|job: TrainingJob| job.scope("worker", RestartScope::Role), None)]
fn pods_of_a_launcher_know_their_attempt(
    #[case] change: fn(TrainingJob) -> TrainingJob,
    #[case] after: Option<&str>,
) {
    const VARIABLE: &str = "TRAINYARD_SHELL_ATTEMPT";
    let mut world = World::new(change(mpi("", 2)));
    world.settings = with_agent();
    world.settle();
    assert_eq!(world.variable("mnist-worker-0", VARIABLE), None);
    world.fail("mnist-worker-1", 1);
    world.settle();
    assert_eq!(world.pod("mnist-worker-0").attempt, 1);
    for pod in ["mnist-launcher-0", "mnist-worker-0", "mnist-worker-1"] {
        assert_eq!(world.variable(pod, VARIABLE), after, "{pod}");
    }
}

#[test]
fn a_rank_that_has_succeeded_begins_again_with_the_others() {
    let mut world = World::running(four());
    world.succeed("mnist-worker-3");
    world.tick(5);
    world.reconcile();
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    start_anew(&mut world);
    assert_eq!(world.log.pods.len(), 8);
    world.succeed_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(Succeeded));
}

/// MultiWorkerMirroredStrategy, with a chief or without, and other collectives.
#[rstest]
#[case(job("tensorflow", &[("worker", 3)]))]
#[case(job("tensorflow", &[("chief", 1), ("worker", 2), ("evaluator", 1)]))]
#[case(job("jax", &[("worker", 3)]))]
#[case(job("paddle", &[("worker", 3)]))]
#[case(job("bagua", &[("worker", 3)]))]
fn whoever_trains_as_one_starts_anew_as_one(#[case] job: TrainingJob) {
    let mut world = World::running(job.role("worker", |role| role.restart_policy = Some(OnFailure)));
    let pods = world.log.pods.len();
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    assert_eq!((world.phase(), world.restarts()), (Some(Restarting), (1, 0)));
    start_anew(&mut world);
    assert_eq!(world.log.pods.len(), 2 * pods);
}

#[rstest]
#[case::pods_that_know_nothing_of_each_other(job("standalone", &[("worker", 2)]))]
#[case::programs_that_nobody_knows(custom(&[("worker", 2)]))]
#[case::pods_that_join_while_others_train(elastic())]
#[case::servers_keep_what_was_learnt(job("tensorflow", &[("ps", 1), ("worker", 2)]))]
#[case::a_user_says_so(four().one_by_one())]
fn others_go_on(#[case] job: TrainingJob) {
    let mut world = World::running(job.role("worker", |role| role.restart_policy = Some(OnFailure)));
    let pods = world.log.pods.len();
    world.fail("mnist-worker-1", 1);
    world.settle();
    assert_eq!((world.log.pods.len(), attempts(&world)), (pods + 1, vec![]));
}

fn elastic() -> TrainingJob {
    let job = pytorch(&[("worker", 1)]).role("worker", |role| role.replicas = None);
    job.spec(|spec| {
        spec.elastic = Some(Elastic {
            replicas: 3,
            ..Elastic::default()
        });
    })
}

/// A former version wrote no scope: what it accepted goes on as it did.
#[test]
fn a_job_of_a_former_version_goes_on_as_it_did() {
    let mut world = World::running(four());
    let mut status = serde_json::to_value(world.status()).unwrap();
    let accepted = world.status().accepted;
    status.as_object_mut().unwrap().remove("accepted");
    status["acceptedSpec"] = json!(accepted.spec);
    status["acceptedRules"] = json!(accepted.rules);
    let role = &mut status["acceptedRules"]["roles"][0];
    assert_eq!(role["restartScope"], "Job");
    role.as_object_mut().unwrap().remove("restartScope");
    world.job.status = Some(serde_json::from_value(status).unwrap());
    let statuses = world.log.statuses;
    world.reconcile();
    assert_eq!(world.log.statuses, statuses, "nothing is written");
    world.fail("mnist-worker-1", 1);
    world.settle();
    assert_eq!((world.log.pods.len(), attempts(&world)), (5, vec![]));
    world.edit(|spec| spec.suspend = Some(true));
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    world.edit(|spec| spec.suspend = None);
    world.reconcile();
    world.run_all();
    world.reconcile();
    world.tick(1000);
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    assert_eq!(attempts(&world).len(), 1, "a new run is one of this version");
}

#[test]
fn a_suspended_job_forgets_that_pods_were_to_start_anew() {
    let mut world = World::running(four());
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    world.edit(|spec| spec.suspend = Some(true));
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    assert_eq!(world.phase(), Some(Suspended));
    assert_eq!((restarts(&world).group, attempts(&world)[0].1), (None, 1));
    world.edit(|spec| spec.suspend = None);
    world.reconcile();
    world.run_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(Running));
    assert_eq!(
        world.pod("mnist-worker-0").attempt,
        1,
        "the number never goes back"
    );
}

/// The operator dies before or after any write of a restart of all pods.
#[test]
fn it_ends_the_same_whenever_the_operator_dies() {
    let script: Script = |world, operator| {
        operator(world);
        world.run_all();
        operator(world);
        world.fail("mnist-worker-1", 1);
        operator(world);
        world.vanish("mnist-worker-2");
        operator(world);
        world.kubelets_remove();
        operator(world);
        world.run_all();
        operator(world);
    };
    let points = at_every_write(&four(), script, |world| {
        assert_eq!((world.phase(), world.restarts()), (Some(Running), (1, 0)));
        assert_eq!(
            (attempts(world), world.log.pods.len()),
            (vec![("worker".to_owned(), 1)], 8)
        );
        assert_eq!(restarts(world).group, None);
        assert_eq!(restarts(world).history.len(), 1);
    });
    assert!(points >= 12, "{points}");
}
