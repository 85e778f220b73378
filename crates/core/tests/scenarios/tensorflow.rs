//! When a TensorFlow job is done: the chief decides, or the master, or worker 0.

use rstest::rstest;
use trainyard_api::JobPhase::{self, Failed, Running, Succeeded};
use trainyard_api::PodQuorum::{self, AllPods};
use trainyard_api::RestartPolicy::Never;
use trainyard_api::{Elastic, RolePhase, TensorflowOptions};

use crate::common::World;
use crate::common::jobs::{Change, job};

const CHIEF: &[(&str, i32)] = &[("chief", 1), ("ps", 2), ("worker", 2), ("evaluator", 1)];
const MASTER: &[(&str, i32)] = &[("worker", 2), ("ps", 1), ("master", 1)];
const WORKERS: &[(&str, i32)] = &[("ps", 1), ("worker", 3), ("evaluator", 1)];

/// A job that runs, none of whose pods is replaced.
fn running(roles: &[(&str, i32)], succeeded_when: Option<PodQuorum>) -> World {
    let mut job = job("tensorflow", roles);
    for role in &mut job.spec.roles {
        role.restart_policy = Some(Never);
    }
    World::running(job.role("worker", |role| role.succeeded_when = succeeded_when))
}

/// Pods end with these exit codes, all at once.
fn end(world: &mut World, ends: &[(&str, i32)]) {
    for (pod, code) in ends {
        let pod = format!("mnist-{pod}");
        if *code == 0 {
            world.succeed(&pod);
        } else {
            world.fail(&pod, *code);
        }
    }
    // The job waits a little for what others have to say before it fails.
    world.reconcile();
    world.tick(5);
    world.reconcile();
}

#[rstest]
#[case::the_chief_succeeds(              CHIEF,  None, &[("chief-0", 0)],                                    Succeeded)]
#[case::the_chief_fails(                 CHIEF,  None, &[("chief-0", 1)],                                    Failed)]
#[case::all_workers_succeed(             CHIEF,  None, &[("worker-0", 0), ("worker-1", 0)],                  Running)]
#[case::a_worker_fails(                  CHIEF,  None, &[("worker-1", 1)],                                   Running)]
#[case::all_workers_fail(                CHIEF,  None, &[("worker-0", 1), ("worker-1", 1)],                  Running)]
#[case::workers_fail_and_it_succeeds(    CHIEF,  None, &[("worker-0", 1), ("worker-1", 1), ("chief-0", 0)],  Succeeded)]
#[case::workers_succeed_and_it_fails(    CHIEF,  None, &[("worker-0", 0), ("worker-1", 0), ("chief-0", 1)],  Failed)]
#[case::a_server_fails(                  CHIEF,  None, &[("ps-1", 1)],                                       Failed)]
#[case::servers_end(                     CHIEF,  None, &[("ps-0", 0), ("ps-1", 0)],                          Running)]
#[case::the_evaluator_ends(              CHIEF,  None, &[("evaluator-0", 0)],                                Running)]
#[case::the_master_succeeds(             MASTER, None, &[("master-0", 0)],                                   Succeeded)]
#[case::the_master_fails(                MASTER, None, &[("master-0", 1)],                                   Failed)]
#[case::workers_beside_a_master_succeed( MASTER, None, &[("worker-0", 0), ("worker-1", 0)],                  Running)]
#[case::a_worker_beside_a_master_fails(  MASTER, None, &[("worker-0", 1)],                                   Running)]
#[case::worker_0_succeeds(               WORKERS, None, &[("worker-0", 0)],                                  Succeeded)]
#[case::another_worker_succeeds(         WORKERS, None, &[("worker-1", 0), ("worker-2", 0)],                 Running)]
#[case::all_succeed(                     WORKERS, None, &[("worker-0", 0), ("worker-1", 0), ("worker-2", 0)], Succeeded)]
#[case::worker_0_fails(                  WORKERS, None, &[("worker-0", 1)],                                  Failed)]
#[case::another_worker_fails(            WORKERS, None, &[("worker-2", 1)],                                  Failed)]
#[case::one_fails_as_worker_0_succeeds(  WORKERS, None, &[("worker-0", 0), ("worker-2", 1)],                 Failed)]
#[case::the_server_ends(                 WORKERS, None, &[("ps-0", 0)],                                      Running)]
#[case::all_but_workers_end(             WORKERS, None, &[("ps-0", 0), ("evaluator-0", 0)],                  Running)]
#[case::all_are_asked_for_and_0_succeeds(WORKERS, Some(AllPods), &[("worker-0", 0)],                         Running)]
#[case::all_are_asked_for_and_succeed(   WORKERS, Some(AllPods), &[("worker-0", 0), ("worker-1", 0), ("worker-2", 0)], Succeeded)]
fn a_job_ends(
    #[case] roles: &[(&str, i32)],
    #[case] succeeded_when: Option<PodQuorum>,
    #[case] ends: &[(&str, i32)],
    #[case] phase: JobPhase,
) {
    let mut world = running(roles, succeeded_when);
    end(&mut world, ends);
    assert_eq!(world.phase(), Some(phase));
    let said = ["Succeeded", "Failed"].map(|condition| world.condition(condition));
    let expected = match phase {
        Succeeded => ["True RolesSucceeded", ""],
        Failed => ["", "True RolesFailed"],
        _ => ["", ""],
    };
    assert_eq!(said, expected);
}

/// Other operators have called such a job Succeeded and Failed.
#[rstest]
#[case::succeeded(&[("worker-0", 0)], &[("worker-1", 1), ("worker-2", 1)], Succeeded)]
#[case::failed(&[("worker-1", 1)], &[("worker-0", 0), ("worker-2", 0)], Failed)]
fn what_comes_after_the_end_does_not_change_it(
    #[case] first: &[(&str, i32)],
    #[case] then: &[(&str, i32)],
    #[case] phase: JobPhase,
) {
    let mut job = job("tensorflow", &[("worker", 3)]);
    job.spec.roles[0].restart_policy = Some(Never);
    let job = job.run(|run| run.clean_pod_policy = Some(trainyard_api::CleanPodPolicy::None));
    let mut world = World::running(job);
    end(&mut world, first);
    assert_eq!(world.phase(), Some(phase));
    end(&mut world, then);
    assert_eq!(world.phase(), Some(phase));
    let ended = ["Succeeded", "Failed"].map(|condition| !world.condition(condition).is_empty());
    assert_eq!(ended, [phase == Succeeded, phase == Failed]);
}

/// Parameter servers never end by themselves, and what they hold is given back.
#[test]
fn servers_are_removed_when_the_job_ends() {
    let mut world = World::running(job("tensorflow", CHIEF));
    world.succeed("mnist-chief-0");
    world.settle();
    assert_eq!(world.phase(), Some(Succeeded));
    assert_eq!(world.role("ps").phase, RolePhase::Stopped);
    assert_eq!(world.role("chief").phase, RolePhase::Succeeded);
    assert_eq!(world.names(|_| true), ["mnist-chief-0"]);
}

/// Without a policy of its own a worker is replaced, and the chief goes on.
#[test]
fn a_worker_that_fails_is_replaced_while_the_chief_trains() {
    let mut world = World::running(job("tensorflow", CHIEF));
    world.fail("mnist-worker-1", 1);
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    world.succeed("mnist-chief-0");
    world.reconcile();
    assert_eq!(world.phase(), Some(Succeeded));
}

/// A worker that joins finds all that it needs, and nobody has to be told of it.
#[test]
fn dynamic_workers_join_and_leave_while_all_others_go_on() {
    let roles = [("chief", 1), ("ps", 2), ("worker", 1)];
    let elastic = job("tensorflow", &roles).spec(|spec| {
        spec.framework.tensorflow = Some(TensorflowOptions {
            dynamic_workers: Some(true),
            ..TensorflowOptions::default()
        });
        spec.roles[2].replicas = None;
        spec.elastic = Some(Elastic {
            replicas: 2,
            max_replicas: Some(8),
            ..Elastic::default()
        });
    });
    let mut world = World::running(elastic);
    let uids = |world: &World| -> Vec<String> { world.pods.iter().map(|row| row.uid.to_string()).collect() };
    let before = uids(&world);
    world.edit(|spec| spec.elastic.as_mut().unwrap().replicas = 3);
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    let after = uids(&world);
    assert_eq!((before.len(), after.len()), (5, 6));
    assert!(
        before.iter().all(|uid| after.contains(uid)),
        "{before:?} {after:?}"
    );
    let config = world.variable("mnist-worker-2", "TF_CONFIG").unwrap();
    for peer in [
        "mnist-chief-0.",
        "mnist-ps-0.",
        "mnist-ps-1.",
        r#""worker":{"2":"mnist-worker-2."#,
    ] {
        assert!(config.contains(peer), "{config}");
    }

    world.edit(|spec| spec.elastic.as_mut().unwrap().replicas = 1);
    world.settle();
    let left = uids(&world);
    assert_eq!(left.len(), 4);
    assert!(left.iter().all(|uid| before.contains(uid)), "{before:?} {left:?}");
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
}
