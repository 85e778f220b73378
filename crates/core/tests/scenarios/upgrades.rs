//! Jobs that run while the operator is replaced by one of another version.

use rstest::rstest;
use trainyard_api::JobPhase::{Failed, Restarting, Running, Scaling, Succeeded};
use trainyard_api::RestartPolicy::{Never, OnFailure};
use trainyard_api::{TrainingJob, TrainingJobStatus};

use crate::common::World;
use crate::common::jobs::{role, set_image, workers};
use crate::refused::{EMPTY, Edit, NO_FRAMEWORK};

/// Jobs as kubectl showed them of a real API server, with the status that an operator had written
/// which had fields of their own for what was accepted.
const RUNNING: &str = include_str!("../former/running.json");
const RESTARTING: &str = include_str!("../former/restarting.json");
const SCALING: &str = include_str!("../former/scaling.json");

/// A world in which such a job is new, after its status was written, and that status.
fn recorded(text: &str) -> (World, TrainingJobStatus) {
    assert!(text.contains("\"acceptedRules\": {") && text.contains("\"acceptedSpec\": ["));
    let mut job: TrainingJob = serde_json::from_str(text).unwrap();
    job.metadata.generation = Some(1);
    let status = job.status.take().unwrap();
    let mut world = World::new(job);
    while world.now <= "2026-11-19T18:05:00Z".parse().unwrap() {
        world.tick(86_400);
    }
    (world, status)
}

/// A job goes on with a recorded status as with its own: nothing is written for it.
fn go_on_with(world: &mut World, status: TrainingJobStatus) {
    assert_eq!(world.status().accepted, status.accepted);
    assert!(status.accepted.rules.is_some());
    world.job.status = Some(status);
    let written = (world.log.statuses, world.log.pods.len());
    assert_eq!(world.actions(), []);
    world.reconcile();
    assert_eq!((world.log.statuses, world.log.pods.len()), written);
}

/// What a status is written as.
fn fields(world: &World) -> Vec<String> {
    let status = serde_json::to_value(world.status()).unwrap();
    status.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn a_recorded_job_that_runs_goes_on_and_keeps_what_was_accepted() {
    let (mut world, status) = recorded(RUNNING);
    world.reconcile();
    world.run_all();
    world.reconcile();
    go_on_with(&mut world, status);
    world.edit(|spec| set_image(spec, "worker", "example/train:2"));
    world.reconcile();
    assert_eq!(world.condition("Accepted"), "False Invalid");
    assert_eq!((world.phase(), world.pods.len()), (Some(Running), 3));
    let fields = fields(&world);
    assert!(fields.contains(&"accepted".to_owned()), "{fields:?}");
    let former = |field: &String| field == "acceptedRules" || field == "acceptedSpec";
    assert!(!fields.iter().any(former), "{fields:?}");
    world.succeed_all();
    world.settle();
    assert_eq!(world.phase(), Some(Succeeded));
}

#[test]
fn a_recorded_job_that_restarts_has_counted_that_failure() {
    let (mut world, mut status) = recorded(RESTARTING);
    world.reconcile();
    world.run_all();
    world.reconcile();
    world.fail("restarting-worker-1", 1);
    world.reconcile();
    // Only a UID is never the same.
    let replacing = |status: &mut TrainingJobStatus| status.restarts.take().unwrap().replacing;
    let same = replacing(&mut world.status());
    status.restarts.as_mut().unwrap().replacing[0]
        .uid
        .clone_from(&same[0].uid);
    go_on_with(&mut world, status);
    assert_eq!((world.phase(), world.restarts()), (Some(Restarting), (1, 0)));
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (1, 0)));
    assert_eq!(world.log.pods.len(), 4);
}

#[test]
fn a_recorded_job_that_scales_comes_to_the_size_that_was_decided() {
    let (mut world, status) = recorded(SCALING);
    world.job.spec.elastic.as_mut().unwrap().replicas = 4;
    world.reconcile();
    world.run_all();
    world.reconcile();
    world.edit(|spec| spec.elastic.as_mut().unwrap().replicas = 6);
    world.reconcile();
    go_on_with(&mut world, status);
    assert_eq!((world.phase(), world.pods.len()), (Some(Scaling), 6));
    world.run_all();
    world.reconcile();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    let rules = world.status().accepted.rules.unwrap();
    assert_eq!((rules.roles[0].replicas, world.log.pods.len()), (6, 6));
}

/// A job that runs, as an operator left it that wrote no rules.
fn without_rules() -> World {
    let mut world = World::running(workers(2, Never));
    world.job.status.as_mut().unwrap().accepted.rules = None;
    world
}

#[test]
fn rules_that_were_not_written_are_when_the_job_is_first_seen() {
    let mut world = without_rules();
    let written = world.log.statuses;
    world.reconcile();
    let rules = world.status().accepted.rules.unwrap();
    assert_eq!((&*rules.roles[0].name, rules.roles[0].replicas), ("worker", 2));
    assert_eq!(world.log.statuses, written + 1);
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Running), 2));
}

#[rstest]
fn a_change_that_is_not_accepted_finds_the_rules_of_before(#[values(EMPTY, NO_FRAMEWORK)] edit: Edit) {
    let mut world = without_rules();
    world.reconcile();
    world.edit(edit);
    world.fail("mnist-worker-0", 1);
    world.settle();
    assert_eq!((world.phase(), world.holding().len()), (Some(Failed), 0));
}

#[test]
fn rules_are_not_taken_from_a_spec_that_was_changed_meanwhile() {
    let mut world = without_rules();
    world.edit(|spec| role(spec, "worker").restart_policy = Some(OnFailure));
    world.reconcile();
    assert_eq!(world.condition("Accepted"), "False Invalid");
    assert_eq!(world.status().accepted.rules, None);
    // Where the pods were made from the same, the rules are the same.
    world.edit(|spec| role(spec, "worker").restart_policy = Some(Never));
    world.edit(|spec| spec.run_policy.get_or_insert_default().backoff_limit = Some(9));
    world.reconcile();
    assert_eq!(world.condition("Accepted"), "True Valid");
    world.edit(|spec| set_image(spec, "worker", "example/train:2"));
    world.succeed_all();
    world.settle();
    assert_eq!(world.phase(), Some(Succeeded));
}

#[test]
fn a_rule_that_came_later_does_not_stop_a_job_that_was_accepted() {
    let mut world = World::running(workers(2, OnFailure));
    // A newer operator would refuse it. Nobody has changed it since it was accepted.
    role(&mut world.job.spec, "worker")
        .template
        .spec
        .get_or_insert_default()
        .priority = Some(7);
    world.fail("mnist-worker-0", 1);
    world.settle();
    assert_eq!(world.condition("Accepted"), "True Valid");
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Running), 3));
    // Its user has a hand in it again, and is told.
    world.edit(|spec| spec.run_policy.get_or_insert_default().backoff_limit = Some(9));
    world.reconcile();
    assert_eq!(world.condition("Accepted"), "False Invalid");
}

#[rstest]
fn what_can_not_be_read_stops_a_job_that_was_accepted(#[values(EMPTY, NO_FRAMEWORK)] edit: Edit) {
    let mut world = World::running(workers(2, OnFailure));
    edit(&mut world.job.spec);
    world.fail("mnist-worker-0", 1);
    world.settle_without_waiting();
    assert_eq!(world.condition("Accepted"), "False Invalid");
    assert_eq!(world.log.pods.len(), 2);
}
