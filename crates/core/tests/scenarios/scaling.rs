//! Jobs whose roles are given more pods or fewer while they run.

use rstest::rstest;
use trainyard_api::JobPhase::{self, Failed, Running, Scaling, Succeeded};
use trainyard_api::RestartPolicy::{self, Always, Never, OnFailure};
use trainyard_api::{RestartScope, RolePhase, TrainingJob};
use trainyard_core::local_state::SecretState;
use trainyard_core::plan::Step;

use crate::common::World;
use crate::common::jobs::{Change, custom, mpi, pytorch, role, with_agent, workers};
use crate::crashes::{Script, at_every_write};

fn resize(world: &mut World, replicas: i32) {
    world.edit(|spec| role(spec, "worker").replicas = Some(replicas));
}

fn rolling(replicas: i32, policy: RestartPolicy) -> TrainingJob {
    workers(replicas, policy).rolls()
}

#[rstest]
fn a_role_that_grows_gets_its_pods_and_goes_on(#[values(Never, OnFailure, Always)] policy: RestartPolicy) {
    let mut world = World::running(rolling(2, policy));
    resize(&mut world, 4);
    world.reconcile();
    assert_eq!(
        world.log.pods[2..],
        ["mnist-worker-2", "mnist-worker-3"],
        "and the others are left alone"
    );
    assert_eq!(
        (world.phase(), world.role("worker").phase),
        (Some(Scaling), RolePhase::Starting)
    );
    assert_eq!(world.condition("Running"), "False Scaling");
    assert_eq!(world.status().ready.as_deref(), Some("2/4"));
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!((world.log.pods.len(), world.log.deleted.len()), (4, 0));
    assert_eq!(world.status().ready.as_deref(), Some("4/4"));
    assert_eq!(world.status().accepted.rules.unwrap().roles[0].replicas, 4);
}

#[test]
fn a_started_role_that_is_never_restarted_grows_though_the_server_takes_no_pod() {
    let mut world = World::running(rolling(1, Never));
    world.refusal = Some(trainyard_core::view::Refusal {
        kind: "Pod",
        name: "mnist-worker-1".to_owned(),
        message: "exceeded quota".to_owned(),
    });
    resize(&mut world, 2);
    world.settle();
    assert_eq!(world.phase(), Some(Scaling), "it waits, and has not failed");
    assert_eq!(world.role("worker").reason.as_deref(), Some("CreateFailed"));
    world.refusal = None;
    world.settle();
    assert_eq!((world.phase(), world.pods.len()), (Some(Running), 2));
}

#[rstest]
fn a_role_that_shrinks_loses_its_last_pods_and_nothing_counts(
    #[values(Never, OnFailure, Always)] policy: RestartPolicy,
) {
    let mut world = World::running(rolling(4, policy).backoff_limit(0));
    let written = world.log.statuses;
    resize(&mut world, 2);
    world.reconcile();
    let deleted: Vec<&str> = world.log.deleted.iter().map(|(name, _)| &**name).collect();
    assert_eq!(deleted, ["mnist-worker-3", "mnist-worker-2"], "the highest first");
    // However they end.
    world.fail("mnist-worker-3", 1);
    world.fail("mnist-worker-2", 143);
    world.reconcile();
    world.kubelets_remove();
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!(world.status().ready.as_deref(), Some("2/2"));
    assert_eq!(world.log.statuses, written + 1);
    world.succeed_all();
    world.settle();
    let end = if policy == Always { Running } else { Succeeded };
    assert_eq!(world.phase(), Some(end), "of the pods that are left");
}

#[rstest]
fn a_role_that_shrinks_and_grows_again_waits_for_the_pods_to_go(
    #[values(Never, OnFailure)] policy: RestartPolicy,
) {
    let mut world = World::running(rolling(3, policy).backoff_limit(0));
    resize(&mut world, 2);
    world.reconcile();
    resize(&mut world, 3);
    world.reconcile();
    assert_eq!(world.log.pods.len(), 3, "the last one is still on its way out");
    world.fail("mnist-worker-2", 1);
    world.reconcile();
    assert_eq!(world.phase().map(JobPhase::is_terminal), Some(false));
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!((world.log.pods.len(), world.pods.len()), (4, 3));
}

#[test]
fn a_pod_that_is_lost_after_the_role_has_grown_counts_as_any() {
    let mut world = World::running(rolling(1, Never));
    resize(&mut world, 2);
    world.settle();
    world.vanish("mnist-worker-1");
    world.settle();
    assert_eq!(world.phase(), Some(Failed));
    assert_eq!(world.role("worker").reason.as_deref(), Some("PodMissing"));
}

/// What stood against the new size goes away by itself, and nobody edits the job again.
#[rstest]
#[case::a_name_was_taken(
    |world: &mut World| world.taken.push("mnist-worker-2".to_owned()),
    |world: &mut World| world.free_names(),
    3
)]
#[case::there_was_no_agent(
    |world: &mut World| world.settings.agent = None,
    |world: &mut World| world.settings = with_agent(),
    2
)]
#[case::the_secret_was_gone(
    |world: &mut World| world.secret = false,
    |world: &mut World| (world.secret, world.local.secret) = (true, SecretState::Unknown),
    3
)]
fn a_size_that_was_objected_to_counts_once_it_is_accepted(
    #[case] object: fn(&mut World),
    #[case] lift: fn(&mut World),
    #[case] decided: i32,
) {
    let mut world = World::new(
        mpi("", 2)
            .rolls()
            .role("worker", |role| role.restart_policy = Some(Never)),
    );
    world.settings = with_agent();
    world.settle();
    object(&mut world);
    resize(&mut world, 3);
    world.settle();
    assert!(
        world.condition("Accepted").starts_with("False "),
        "it is objected to"
    );
    // What stands in the way of a pod may be seen only when it is created, which is decided before.
    assert_eq!(world.status().accepted.rules.unwrap().roles[1].replicas, decided);
    lift(&mut world);
    world.settle();
    assert_eq!((world.phase(), world.pods.len()), (Some(Running), 4));
    assert_eq!(world.condition("Accepted"), "True Valid");
    assert_eq!(world.status().accepted.rules.unwrap().roles[1].replicas, 3);
    world.vanish("mnist-worker-2");
    world.settle();
    assert_eq!(world.phase(), Some(Failed), "it is one of them");
}

#[test]
fn a_role_that_has_ended_does_not_grow() {
    let mut world = World::running(custom(&[("worker", 1), ("other", 1)]).rolls());
    world.succeed("mnist-worker-0");
    world.settle();
    resize(&mut world, 3);
    world.settle();
    assert_eq!(world.role("worker").phase, RolePhase::Succeeded);
    assert_eq!(world.log.pods.len(), 2);
}

#[test]
fn the_launcher_runs_on_while_workers_come_and_go() {
    let mut world = World::new(mpi("", 2).rolls());
    world.settings = with_agent();
    world.settle();
    let launcher = world.pod("mnist-launcher-0").uid.clone();
    resize(&mut world, 3);
    world.settle();
    assert_eq!((world.phase(), world.pods.len()), (Some(Running), 4));
    resize(&mut world, 1);
    world.settle();
    assert_eq!((world.phase(), world.pods.len()), (Some(Running), 2));
    assert_eq!(world.pod("mnist-launcher-0").uid, launcher);
    world.edit(|spec| role(spec, "launcher").replicas = Some(2));
    world.reconcile();
    assert_eq!(world.condition("Accepted"), "False Invalid");
    assert!(world.message("Accepted").contains("at most 1"));
}

#[test]
fn what_pods_were_told_at_their_start_is_not_made_wrong() {
    let mut world = World::running(pytorch(&[("worker", 2)]).rolls());
    resize(&mut world, 3);
    world.settle();
    assert_eq!(world.condition("Accepted"), "False Invalid");
    assert_eq!((world.phase(), world.pods.len()), (Some(Running), 2));
}

#[rstest]
fn the_operator_dies_while_a_role_grows_and_shrinks(#[values(Never, OnFailure)] policy: RestartPolicy) {
    let script: Script = |world, operator| {
        operator(world);
        world.run_all();
        operator(world);
        resize(world, 4);
        operator(world);
        world.run_all();
        operator(world);
        resize(world, 1);
        operator(world);
        resize(world, 2);
        operator(world);
        world.kubelets_remove();
        operator(world);
        world.run_all();
        operator(world);
    };
    let points = at_every_write(&rolling(2, policy).backoff_limit(0), script, |world| {
        assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
        assert_eq!(world.pods.len(), 2);
        assert_eq!(world.status().ready.as_deref(), Some("2/2"));
    });
    assert!(points >= 15, "{points}");
}

/// A pod of a role that shrank is still on its way out when the role grows again.
#[rstest]
fn a_pod_on_its_way_out_is_none_of_a_role_that_grows_again(
    #[values(Never, OnFailure)] policy: RestartPolicy,
    #[values(RestartScope::Pod, RestartScope::Role, RestartScope::Job)] scope: RestartScope,
) {
    let job = rolling(4, policy).backoff_limit(0).role("worker", |role| {
        role.restart_scope = Some(scope).filter(|_| policy != Never);
    });
    let mut world = World::new(job.run(|run| run.drain_timeout_seconds = Some(60)));
    world.settings = with_agent();
    world.settle();
    resize(&mut world, 3);
    world.reconcile();
    assert_eq!(world.log.deleted.len(), 1);
    resize(&mut world, 6);
    world.reconcile();
    assert_eq!(world.status().scaling, None, "nobody has taken it away");
    assert_eq!(world.condition("Running"), "True AllRolesRunning");
    assert_eq!(
        world.message("Running"),
        "All roles run. The role worker gets 6 pods when mnist-worker-3 is deleted."
    );
    assert_eq!(world.status().ready.as_deref(), Some("3/3"));
    assert_eq!(
        world.log.pods.len(),
        4,
        "those of higher indices have higher ranks"
    );
    // However it ends.
    world.fail("mnist-worker-3", 1);
    world.reconcile();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    world.kubelets_remove();
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!((world.log.pods.len(), world.pods.len()), (7, 6));
    assert_eq!(world.log.deleted.len(), 1);
    assert_eq!(world.message("Running"), "All roles run.");
}

/// The status has the pods of a role before they are created: only those are let in.
#[test]
fn a_role_that_grows_is_written_down_before_its_pods_are_created() {
    let mut world = World::running(rolling(2, OnFailure));
    resize(&mut world, 4);
    let plan = world.plan();
    let Step::WriteStatus(change) = plan.step() else {
        panic!("the status is first");
    };
    assert_eq!(change.status.accepted.rules.unwrap().roles[0].replicas, 4);
    assert_eq!(change.then.len(), 2);
}
