//! The operator dies before or after any of its writes, and another goes on: the end is always the
//! same.

use trainyard_api::JobPhase::{Failed, Running, Succeeded};
use trainyard_api::RestartPolicy::{Never, OnFailure};
use trainyard_api::{CleanPodPolicy, TrainingJob};

use crate::common::World;
use crate::common::jobs::{Change, custom, workers};

pub(crate) type Script = fn(&mut World, &mut dyn FnMut(&mut World));

/// Runs a script for n = 0, 1, 2, ... whose operator dies after its n-th write, until it no longer
/// dies.
pub(crate) fn at_every_write(job: &TrainingJob, script: Script, check: fn(&World)) -> usize {
    for n in 0..200 {
        let mut left = Some(n);
        let mut world = World::new(job.clone());
        let mut operator = |world: &mut World| {
            while let Some(writes) = left {
                let plan = world.plan();
                if World::is_quiet(&plan) {
                    // It knows from now on since when it waits.
                    world.reconcile();
                    return;
                }
                let before = world.writes();
                if world.crash_after(writes) {
                    left = None;
                } else {
                    left = Some(writes - (world.writes() - before));
                }
            }
            world.reconcile();
        };
        script(&mut world, &mut operator);
        check(&world);
        if left.is_some() {
            return n;
        }
    }
    panic!("the script never ends");
}

#[test]
fn a_job_starts_and_succeeds() {
    let script: Script = |world, operator| {
        operator(world);
        world.run_all();
        operator(world);
        world.succeed_all();
        operator(world);
        world.kubelets_remove();
        operator(world);
    };
    let points = at_every_write(&custom(&[("a", 2), ("b", 1)]), script, |world| {
        assert_eq!(world.phase(), Some(Succeeded));
        assert_eq!(world.log.pods.len(), 3);
        assert_eq!(world.log.services, ["mnist"]);
        assert_eq!(world.restarts(), (0, 0));
    });
    assert_eq!(points, 3 + 1 + 2, "pods, Service, two states");
}

#[test]
fn failures_are_counted_once() {
    let script: Script = |world, operator| {
        operator(world);
        world.run_all();
        operator(world);
        world.fail("mnist-worker-0", 1);
        world.fail("mnist-worker-2", 1);
        operator(world);
        world.kubelets_remove();
        operator(world);
        world.run_all();
        operator(world);
    };
    let points = at_every_write(&workers(3, OnFailure).backoff_limit(2), script, |world| {
        assert_eq!((world.phase(), world.restarts()), (Some(Running), (2, 0)));
        assert_eq!(world.log.pods.len(), 5);
        assert_eq!(world.failures_in_the_ledger(), 2);
    });
    assert!(points >= 11, "{points}");
}

#[test]
fn pods_that_vanish_are_counted_once() {
    let script: Script = |world, operator| {
        operator(world);
        world.run_all();
        operator(world);
        world.vanish("mnist-worker-1");
        operator(world);
        world.run_all();
        operator(world);
    };
    at_every_write(&workers(3, OnFailure), script, |world| {
        assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
        assert_eq!(world.log.pods.len(), 4);
    });
}

#[test]
fn a_failed_job_is_cleaned() {
    let script: Script = |world, operator| {
        operator(world);
        world.run_all();
        operator(world);
        world.fail("mnist-worker-0", 1);
        operator(world);
        world.kubelets_remove();
        operator(world);
    };
    let job = workers(3, Never).run(|run| run.clean_pod_policy = Some(CleanPodPolicy::All));
    at_every_write(&job, script, |world| {
        assert_eq!(world.phase(), Some(Failed));
        assert_eq!(
            (world.pods.len(), world.services.len(), world.log.pods.len()),
            (0, 0, 3)
        );
        assert_eq!(world.status().root_cause.unwrap().exit_code, Some(1));
    });
}

#[test]
fn a_job_is_suspended_and_resumed() {
    let script: Script = |world, operator| {
        operator(world);
        world.run_all();
        operator(world);
        world.suspend(true);
        operator(world);
        world.kubelets_remove();
        operator(world);
        world.suspend(false);
        operator(world);
        world.kubelets_remove();
        operator(world);
        world.run_all();
        operator(world);
    };
    at_every_write(&workers(2, Never), script, |world| {
        assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
        assert_eq!(world.log.pods.len(), 4);
    });
}
