//! Jobs that run while the operator is replaced by one of another version.

use rstest::rstest;
use trainyard_api::JobPhase::{Failed, Running, Succeeded};
use trainyard_api::RestartPolicy::{Never, OnFailure};

use crate::common::World;
use crate::common::jobs::{role, set_image, workers};
use crate::refused::{EMPTY, Edit, NO_FRAMEWORK};

/// A job that runs, as an operator left it that wrote no rules.
fn without_rules() -> World {
    let mut world = World::running(workers(2, Never));
    world.job.status.as_mut().unwrap().accepted_rules = None;
    world
}

#[test]
fn rules_that_were_not_written_are_when_the_job_is_first_seen() {
    let mut world = without_rules();
    let written = world.log.statuses;
    world.reconcile();
    let rules = world.status().accepted_rules.unwrap();
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
    assert_eq!(world.status().accepted_rules, None);
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
