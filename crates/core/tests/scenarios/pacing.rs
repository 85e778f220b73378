//! What is not done at once: writes that failed, what should happen by itself, and checks that cost
//! a request.

use std::time::Duration;

use trainyard_api::DependencyState;
use trainyard_api::RestartPolicy::{Never, OnFailure};
use trainyard_core::local_state::BackoffKind;
use trainyard_core::model::Action;
use trainyard_core::plan::Step;
use trainyard_core::view::Conflict;

use crate::common::World;
use crate::common::jobs::{self, Change, custom, mpi, workers};

fn seconds_to_wake(world: &World) -> i64 {
    let wake_at = world.plan().wake_at().unwrap();
    wake_at.duration_since(world.now).as_secs()
}

#[test]
fn no_child_is_created_while_creates_are_in_backoff_and_a_changed_spec_ends_it() {
    let mut world = World::running(workers(2, OnFailure));
    world.tick(10);
    world.reconcile();
    world.services.clear();
    assert!(matches!(&*world.actions(), [Action::CreateService(_)]));
    let (generation, now) = (world.job.metadata.generation, world.instant());
    let asked = BackoffKind::Passing(Some(Duration::from_secs(7)));
    world
        .local
        .back_off_creates(asked, generation, Some("Service"), now, 0.0);
    assert_eq!(world.plan().step(), Step::Done);
    assert_eq!(seconds_to_wake(&world), 7);
    world.tick(7);
    assert_eq!(world.actions().len(), 1, "the backoff is over");
    world
        .local
        .back_off_creates(asked, generation, Some("Service"), world.instant(), 0.0);
    assert_eq!(world.actions(), []);
    world.edit(|spec| spec.run_policy.get_or_insert_default().backoff_limit = Some(3));
    assert!(world.plan().actions().any(Action::creates));
}

#[test]
fn a_write_in_backoff_holds_up_no_other_and_is_forgotten_when_it_is_moot() {
    let mut world = World::running(workers(3, Never));
    world.tick(10);
    world.reconcile();
    for pod in ["mnist-worker-0", "mnist-worker-1"] {
        world.pod_mut(pod).labelled = false;
    }
    let [first, second] = &world.actions()[..] else {
        panic!("two pods lack their labels")
    };
    let (first, second) = (first.clone(), second.clone());
    let now = world.instant();
    world
        .local
        .back_off_writes([(first, BackoffKind::Lasting)], now, 0.0);
    assert_eq!(world.actions(), [second], "the other one goes on");
    world.pod_mut("mnist-worker-0").labelled = true;
    world.reconcile();
    assert!(world.local.write_backoffs.is_empty(), "nobody wants it any more");
}

#[test]
fn what_the_status_does_not_keep_yet_waits_for_it_even_while_other_writes_are_in_backoff() {
    let mut world = World::running(workers(1, Never).run(|run| run.active_deadline_seconds = Some(60)));
    world.tick(60);
    let Step::WriteStatus(change) = world.plan().step() else {
        panic!("the job ends")
    };
    assert_eq!(change.then.len(), 1, "its pod is removed");
    let now = world.instant();
    let failed = change
        .then
        .into_iter()
        .map(|action| (action, BackoffKind::Lasting));
    world.local.back_off_writes(failed, now, 0.0);
    let Step::WriteStatus(change) = world.plan().step() else {
        panic!("the job ends all the same")
    };
    assert_eq!(change.then, []);
}

/// A job one of whose pods waits for another, which has just come.
fn with_a_pod_that_may_start() -> World {
    let mut world = World::new(custom(&[("a", 1), ("b", 1)]).waits("a", "b", DependencyState::Running));
    world.settings = jobs::with_agent();
    world.reconcile();
    world.pod_mut("mnist-a-0").waits = true;
    world.run_on("mnist-b-0", "node-0");
    world.tick(10);
    world.reconcile();
    world
}

#[test]
fn pods_that_may_start_and_do_not_are_told_after_ten_seconds() {
    let mut world = with_a_pod_that_may_start();
    assert_eq!(seconds_to_wake(&world), 10);
    world.tick(9);
    assert_eq!(world.reconcile().step(), Step::Done);
    world.tick(1);
    assert!(matches!(&*world.actions(), [Action::StartPod { .. }]));
    world.pod_mut("mnist-a-0").waits = false;
    world.reconcile();
    assert_eq!(world.local.waits.overdue_since, None, "the next time begins anew");
}

#[test]
fn a_start_that_is_refused_is_tried_again_after_its_backoff() {
    let mut world = with_a_pod_that_may_start();
    world.tick(10);
    let refused = world
        .actions()
        .into_iter()
        .map(|start| (start, BackoffKind::Lasting));
    let (refused, now) = (refused.collect::<Vec<_>>(), world.instant());
    assert_eq!(refused.len(), 1);
    world.local.back_off_writes(refused, now, 0.0);
    assert_eq!(world.reconcile().step(), Step::Done);
    assert!(
        !world.local.write_backoffs.is_empty(),
        "it is wanted all the same"
    );
    assert_eq!(seconds_to_wake(&world), 1);
    world.tick(1);
    assert!(matches!(&*world.actions(), [Action::StartPod { .. }]));
}

#[test]
fn the_secret_that_pods_may_lack_is_looked_for_every_five_minutes() {
    let mut world = World::new(mpi("", 1));
    world.settings = jobs::with_agent();
    world.settle();
    world.tick(10);
    world.reconcile();
    let row = world.pod_mut("mnist-worker-0");
    (row.phase, row.address) = (trainyard_core::view::PodPhase::Pending, None);
    assert!(matches!(&*world.overdue(), [Action::FindSecret(_)]));
    world.local.secret_checked_at = Some(world.instant());
    world.reconcile();
    world.tick(299);
    assert_eq!(world.overdue(), []);
    world.tick(1);
    assert!(matches!(&*world.overdue(), [Action::FindSecret(_)]));
}

#[test]
fn conflicting_objects_are_checked_before_anything_else_and_then_every_thirty_seconds() {
    let mut world = World::running(workers(1, Never));
    world.conflicts.push(Conflict {
        kind: "Service",
        name: "mnist".to_owned(),
        owner: "Deployment web".to_owned(),
    });
    assert_eq!(world.plan().step(), Step::CheckConflicts);
    world.reconcile();
    assert_eq!(seconds_to_wake(&world), 30);
    world.tick(30);
    assert_eq!(world.plan().step(), Step::CheckConflicts);
}
