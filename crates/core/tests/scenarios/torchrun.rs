//! Elastic jobs of `pytorch`, whose pods are nodes of torchrun.

use trainyard_api::JobPhase::{Paused, Running, Starting, Succeeded};
use trainyard_api::{Elastic, Refill, TrainingJob};
use trainyard_contract::drain::{DrainReport, DrainState};

use crate::common::World;
use crate::common::jobs::{Change, pytorch, with_agent};

fn elastic(replicas: i32) -> TrainingJob {
    pytorch(&[("worker", 1)]).spec(|spec| {
        spec.roles[0].replicas = None;
        spec.elastic = Some(Elastic {
            replicas,
            min_replicas: Some(1),
            max_replicas: Some(8),
            ..Elastic::default()
        });
    })
}

fn pods(world: &World) -> Vec<String> {
    world.names(|row| !row.terminating)
}

/// torchrun ends with success in all pods or in none, and a pod that joined too late fails.
#[test]
fn an_elastic_job_succeeds_with_any_of_its_workers() {
    let mut world = World::running(elastic(3));
    world.succeed("mnist-worker-1");
    world.settle();
    assert_eq!(world.phase(), Some(Succeeded));
}

/// The program has saved its work and ended torchrun by SIGTERM.
#[test]
fn a_worker_that_leaves_ends_nothing_however_it_ends() {
    let mut world = World::new(elastic(3));
    world.settings = with_agent();
    world.reconcile();
    world.run_all();
    world.reconcile();
    world.edit(|spec| spec.elastic.as_mut().unwrap().replicas = 2);
    world.reconcile();
    let uid = world.pod("mnist-worker-2").uid.to_string();
    let state = DrainState::CheckpointDone;
    world
        .local
        .drains
        .record(&uid, DrainReport { state, step: Some(7) });
    world.reconcile();
    world.fail("mnist-worker-2", 1);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!(pods(&world), ["mnist-worker-0", "mnist-worker-1"]);
}

/// The pod of rank 0 has the store, without which torchrun ends in the others.
#[test]
fn the_end_of_rank_0_costs_one_failure_whatever_follows_from_it() {
    let mut world = World::running(elastic(3));
    for pod in ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"] {
        world.fail(pod, 1);
        world.reconcile();
    }
    assert_eq!(world.restarts(), (1, 0));
    assert!(
        matches!(world.phase(), Some(Paused | Starting)),
        "{:?}",
        world.phase()
    );
    world.settle();
    assert_eq!((world.phase(), pods(&world).len()), (Some(Running), 3));
    assert_eq!(world.restarts(), (1, 0));
}

#[test]
fn the_place_of_rank_0_does_not_stay_empty() {
    let mut world = World::running(elastic(3).spec(|spec| {
        spec.elastic.as_mut().unwrap().refill = Some(Refill::Never);
    }));
    world.fail("mnist-worker-0", 1);
    world.fail("mnist-worker-2", 1);
    world.settle();
    let mut pods = pods(&world);
    pods.sort();
    assert_eq!(pods, ["mnist-worker-0", "mnist-worker-1"]);
    assert_eq!(world.phase(), Some(Running));
}

/// Pods that are made later would be told other bounds than those that run.
#[test]
fn bounds_that_were_changed_without_admission_are_not_carried_out() {
    let mut world = World::running(elastic(2));
    world.edit(|spec| spec.elastic.as_mut().unwrap().max_replicas = Some(16));
    world.settle();
    assert_eq!(world.condition("Accepted"), "False Invalid");
    world.edit(|spec| spec.elastic.as_mut().unwrap().max_replicas = Some(8));
    world.edit(|spec| spec.elastic.as_mut().unwrap().replicas = 4);
    world.settle();
    assert_eq!((pods(&world).len(), world.phase()), (4, Some(Running)));
}
