//! The Secret by which the pods of a job know each other is deleted while the job runs.

use rstest::rstest;
use trainyard_api::RestartPolicy::Never;
use trainyard_api::{JobPhase, NodeDownPolicy, PodQuorum, TrainingJob};
use trainyard_core::local_state::SecretState;
use trainyard_core::model::Action;
use trainyard_core::view::{Conflict, NodeState};

use crate::common::World;
use crate::common::jobs::{Change, mpi, role, with_agent};
use crate::crashes::at_every_write;
use crate::mpi::{ALL, LAUNCHER, names, running};

/// A job that runs, and whose Secret somebody has deleted.
fn robbed(job: TrainingJob) -> World {
    let mut world = running(job);
    rob(&mut world);
    world
}

fn rob(world: &mut World) {
    world.secret = false;
    if matches!(world.local.secret, SecretState::Exists(_)) {
        // That does not hold for long.
        world.local.secret = SecretState::Unknown;
    }
}

#[test]
fn nobody_notices_while_no_pod_is_to_be_made() {
    let mut world = robbed(mpi("", 2));
    world.settle();
    world.succeed(LAUNCHER);
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Succeeded));
    assert_eq!(
        (world.log.found, world.log.secrets.len(), world.log.pods.len()),
        (0, 1, 3)
    );
}

#[test]
fn pods_are_replaced_only_once_it_is_known_to_be_there() {
    let mut world = robbed(mpi("", 2));
    world.secret = true;
    world.evict("mnist-worker-0");
    world.settle();
    assert_eq!(
        (world.phase(), world.all()),
        (Some(JobPhase::Running), names(ALL))
    );
    assert_eq!((world.log.found, world.log.secrets.len()), (1, 1), "once");
}

/// What the launcher has begun may come to its end without the worker.
#[test]
fn as_long_as_the_launcher_runs_nothing_is_replaced_and_the_job_says_why() {
    let mut world = robbed(mpi("", 2));
    world.evict("mnist-worker-0");
    world.settle();
    assert_eq!(world.condition("Accepted"), "False SecretMissing");
    assert_eq!(
        world.message("Accepted"),
        "Secret \"mnist-mpi\" is gone, and pods that are made now could not talk to those that have it: nothing is replaced \
         as long as the launcher runs. When it has ended, all pods start anew with another Secret; to have that now, delete \
         the pod mnist-launcher-0."
    );
    assert_eq!(world.holding(), names(&[LAUNCHER, "mnist-worker-1"]));
    assert_eq!(world.told().last().map(String::as_str), Some("SecretMissing"));
    // It is said once, and asked once.
    let (found, statuses) = (world.log.found, world.log.statuses);
    world.tick(1000);
    world.settle();
    assert_eq!(
        (world.log.found, world.log.statuses, world.log.secrets.len()),
        (found, statuses, 1)
    );
    assert_eq!(found, 1);

    let mut succeeds = world;
    succeeds.succeed(LAUNCHER);
    succeeds.settle();
    assert_eq!(succeeds.phase(), Some(JobPhase::Succeeded));
    assert_eq!(succeeds.log.secrets.len(), 1);
}

#[rstest]
#[case::failed(|world: &mut World| world.fail(LAUNCHER, 1), (1, 1))]
#[case::was_deleted_by_the_user(|world: &mut World| world.vanish(LAUNCHER), (0, 1))]
fn when_the_launcher_has_ended_all_pods_start_anew(
    #[case] ends: fn(&mut World),
    #[case] restarts: (i32, i32),
) {
    let mut world = robbed(mpi("", 2));
    world.evict("mnist-worker-0");
    world.settle();
    world.tick(30);
    ends(&mut world);
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(JobPhase::Running), "True Valid".to_owned())
    );
    assert_eq!(world.all(), names(ALL));
    assert_eq!(
        world.log.secrets.len(),
        2,
        "the pods check that they are no strangers"
    );
    assert_eq!(
        world.restarts(),
        restarts,
        "what went because of it is no failure"
    );
    assert_eq!(
        world
            .log
            .pods
            .iter()
            .filter(|pod| *pod == "mnist-worker-1")
            .count(),
        2
    );
}

#[test]
fn a_launcher_that_is_to_be_replaced_gets_new_workers() {
    let mut world = robbed(mpi("", 2));
    world.fail(LAUNCHER, 1);
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    assert_eq!(world.phase(), Some(JobPhase::Pending));
    assert_eq!(world.condition("Accepted"), "False SecretMissing");
    assert_eq!(world.condition("Running"), "False SecretMissing");
    let said = world.message("Accepted");
    assert!(
        said.ends_with(": all pods start anew with another Secret."),
        "{said}"
    );
    // The kubelets take their time, and how these pods end means nothing.
    world.fail("mnist-worker-0", 1);
    world.reconcile();
    assert_eq!(world.log.secrets.len(), 1, "one still has the first");
    world.settle();
    assert_eq!(
        (world.phase(), world.restarts()),
        (Some(JobPhase::Running), (1, 0))
    );
    assert_eq!(world.log.secrets.len(), 2);
}

/// Pods are not made before all that have another Secret are gone, however many there are.
#[test]
fn a_large_job_starts_anew_too() {
    let mut world = robbed(mpi("", 600));
    world.fail(LAUNCHER, 1);
    world.settle();
    assert_eq!(
        (world.phase(), world.restarts()),
        (Some(JobPhase::Running), (1, 0))
    );
    assert_eq!(world.log.pods.len(), 2 * 601);
}

/// Each of them would be a stranger to those that are made now, and would keep these from being
/// made.
#[rstest]
#[case::it_is_one_too_many(|world: &mut World| {
    world.edit(|spec| role(spec, "worker").replicas = Some(1));
    world.settle();
}, 1)]
#[case::its_node_is_down(|world: &mut World| world.node("node-9", NodeState::Down), 2)]
#[case::its_node_is_down_and_that_is_counted(|world: &mut World| {
    world.node("node-9", NodeState::Down);
    world.settle();
}, 2)]
fn no_pod_that_runs_is_left_behind_when_all_start_anew(
    #[case] comes_to: fn(&mut World),
    #[case] workers: usize,
) {
    let job = mpi("", 2).rolls().role("worker", |role| {
        role.node_down_policy = Some(NodeDownPolicy::Fail);
    });
    let mut world = robbed(job);
    world.run_on("mnist-worker-1", "node-9");
    world.evict("mnist-worker-0");
    world.settle();
    assert_eq!(world.condition("Accepted"), "False SecretMissing");
    comes_to(&mut world);
    world.fail(LAUNCHER, 1);
    world.settle();
    // What ran there has ended.
    world.node("node-9", NodeState::Gone);
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(JobPhase::Running), "True Valid".to_owned())
    );
    assert_eq!((world.pods.len(), world.log.secrets.len()), (1 + workers, 2));
}

#[test]
fn what_must_not_be_tried_again_fails_the_job() {
    let mut world = robbed(mpi("", 2).role("worker", |role| role.restart_policy = Some(Never)));
    world.fail(LAUNCHER, 1);
    world.settle();
    assert_eq!(world.condition("Failed"), "True RolesFailed");
    assert_eq!(
        world.message("Failed"),
        "worker: mnist-worker-0 on node-1 has a Secret that is gone: pods that are made now could not talk to it (and 1 more \
         pod)"
    );
    assert_eq!(world.role("worker").reason.as_deref(), Some("SecretMissing"));
    assert_eq!(
        world.status().root_cause.unwrap().reason.as_deref(),
        Some("SecretMissing")
    );
    assert_eq!(world.holding(), names(&[]));
}

/// One of its pods is enough, though its role would bear that.
#[test]
fn what_must_not_be_tried_again_is_not_though_others_of_its_role_have_not_begun() {
    let mut world = World::new(mpi("", 2).role("worker", |role| {
        role.restart_policy = Some(Never);
        role.failed_when = Some(PodQuorum::AllPods);
    }));
    world.settings = with_agent();
    world.reconcile();
    world.run_on("mnist-worker-0", "node-0");
    world.reconcile();
    rob(&mut world);
    world.vanish(LAUNCHER);
    world.settle();
    assert_eq!(world.condition("Failed"), "True RolesFailed");
    assert_eq!(world.role("worker").reason.as_deref(), Some("SecretMissing"));
    assert_eq!((world.log.pods.len(), world.holding()), (3, names(&[])));
}

#[test]
fn a_job_that_has_not_run_yet_starts_anew_too() {
    let mut world = World::new(mpi("", 2));
    world.settings = with_agent();
    world.reconcile();
    rob(&mut world);
    world.vanish("mnist-worker-1");
    world.settle();
    assert_eq!(
        (world.phase(), world.all()),
        (Some(JobPhase::Running), names(ALL))
    );
    assert_eq!((world.log.secrets.len(), world.restarts()), (2, (0, 0)));
}

/// They would wait for it for ever: kubelets mount it before anything of a pod starts.
#[test]
fn a_secret_that_goes_before_pods_have_started_with_it_is_missed() {
    let mut world = World::new(mpi("", 2));
    world.settings = with_agent();
    world.reconcile();
    assert_eq!(world.overdue(), [], "they wait for a node");
    world.bind_all();
    assert!(matches!(&*world.overdue(), [Action::FindSecret(_)]));
    let writes = world.writes();
    world.be_late();
    world.reconcile();
    assert_eq!(world.writes(), writes, "it is there");
    world.secret = false;
    world.be_late();
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(JobPhase::Running), "True Valid".to_owned())
    );
    assert_eq!((world.log.secrets.len(), world.restarts()), (2, (0, 0)));
    assert_eq!(world.overdue(), []);
}

#[test]
fn a_worker_that_comes_too_late_for_the_secret_does_not_end_what_the_launcher_does() {
    let mut world = running(mpi("", 2));
    world.evict("mnist-worker-0");
    world.reconcile();
    world.kubelets_remove();
    world.pods.retain(|row| &*row.name != "mnist-worker-0");
    world.reconcile();
    world.bind_all();
    rob(&mut world);
    world.be_late();
    world.reconcile();
    assert_eq!(world.condition("Accepted"), "False SecretMissing");
    assert_eq!(world.holding(), names(ALL), "they are let be");
    world.fail(LAUNCHER, 1);
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(JobPhase::Running), "True Valid".to_owned())
    );
    assert_eq!(world.log.secrets.len(), 2);
}

/// Another worker is not worth what the others have done.
#[test]
fn a_job_that_grows_is_let_be() {
    let mut world = robbed(mpi("", 1).rolls());
    world.edit(|spec| spec.roles[1].replicas = Some(2));
    world.settle();
    assert_eq!(world.condition("Accepted"), "False SecretMissing");
    assert_eq!(world.holding(), names(&[LAUNCHER, "mnist-worker-0"]));
    world.edit(|spec| spec.roles[1].replicas = Some(1));
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(JobPhase::Running), "True Valid".to_owned())
    );
    assert_eq!(world.log.deleted, []);
}

#[test]
fn a_job_that_is_suspended_and_resumed_gets_another() {
    let mut world = robbed(mpi("", 2));
    world.evict("mnist-worker-0");
    world.settle();
    world.suspend(true);
    world.settle();
    world.local.secret = SecretState::Unknown;
    world.suspend(false);
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(JobPhase::Running), "True Valid".to_owned())
    );
    assert_eq!(world.log.secrets.len(), 2);
}

#[test]
fn an_operator_that_is_new_comes_to_the_same() {
    let mut world = robbed(mpi("", 2));
    world.evict("mnist-worker-0");
    world.settle();
    let statuses = world.log.statuses;
    world.local.secret = SecretState::Unknown;
    assert!(matches!(&*world.actions(), [Action::FindSecret(_)]));
    world.settle();
    assert_eq!(
        (world.condition("Accepted"), world.log.statuses),
        ("False SecretMissing".to_owned(), statuses),
        "it says so already"
    );
}

#[test]
fn with_ssh_it_is_the_same() {
    let mut world = robbed(mpi("attach: Ssh", 2));
    world.fail(LAUNCHER, 1);
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Running));
    assert_eq!(world.log.secrets, ["mnist-ssh", "mnist-ssh"]);
}

const OWN: &str = "attach: Ssh, sshAuthSecretName: keys";

/// The world has no Secret that pods could wait for, and nobody notices.
#[test]
fn one_of_the_users_is_neither_made_nor_looked_for() {
    let mut world = running(mpi(OWN, 2));
    assert_eq!(world.writes(), 3 + 1 + 1, "pods, Service, state");
    world.evict("mnist-worker-0");
    world.settle();
    world.tick(30);
    world.fail(LAUNCHER, 1);
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(JobPhase::Running), "True Valid".to_owned())
    );
    assert_eq!(world.all(), names(ALL));
    assert_eq!((world.log.secrets.len(), world.log.found), (0, 0));
    assert_eq!(world.restarts(), (1, 1), "nothing else is started anew");
}

/// Also by pods that can't start: they wait for it, as its user was told.
#[test]
fn one_of_the_users_is_not_missed_by_pods_that_have_not_started() {
    let mut world = World::new(mpi(OWN, 2));
    world.settings = with_agent();
    world.reconcile();
    world.bind_all();
    assert_eq!(world.overdue(), []);
}

/// What an operator knows of the Secret that it had made says nothing of the user's.
#[test]
fn a_job_may_go_over_to_one_of_the_users_while_it_is_suspended() {
    let mut world = robbed(mpi("attach: Ssh", 2));
    world.evict("mnist-worker-0");
    world.settle();
    assert!(matches!(world.local.secret, SecretState::Missing(_)));
    world.suspend(true);
    world.settle();
    world.edit(|spec| spec.framework = mpi(OWN, 2).spec.framework);
    world.suspend(false);
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(JobPhase::Running), "True Valid".to_owned())
    );
    world.evict("mnist-worker-0");
    world.settle();
    assert_eq!(
        (world.phase(), world.all()),
        (Some(JobPhase::Running), names(ALL))
    );
    assert_eq!((world.log.secrets.len(), world.log.found), (1, 1), "as before");
}

/// The name of the Secret that would be made is taken, and nothing is wrong with that.
#[test]
fn a_name_that_is_not_needed_may_be_somebody_elses() {
    let mut world = World::new(mpi(OWN, 2));
    world.settings = with_agent();
    world.taken.push("mnist-ssh".to_owned());
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Running));
    world.conflicts.push(Conflict {
        kind: "Secret",
        name: "mnist-ssh".to_owned(),
        owner: "nobody".to_owned(),
    });
    world.settle();
    assert_eq!(world.condition("Accepted"), "True Valid");
    assert_eq!(world.phase(), Some(JobPhase::Running));
}

#[test]
fn the_operator_dies_at_any_write_and_no_pod_is_a_stranger() {
    let points = at_every_write(
        &mpi("", 2).one_by_one(),
        |world, operator| {
            world.settings = with_agent();
            operator(world);
            world.run_all();
            operator(world);
            rob(world);
            world.evict("mnist-worker-0");
            operator(world);
            world.kubelets_remove();
            world.fail(LAUNCHER, 1);
            for _ in 0..4 {
                operator(world);
                world.kubelets_remove();
                world.tick(60);
                operator(world);
                world.run_all();
            }
            operator(world);
        },
        |world| {
            assert_eq!(
                (world.phase(), world.restarts()),
                (Some(JobPhase::Running), (0, 1))
            );
            assert_eq!(world.all(), names(ALL));
        },
    );
    assert!(points >= 10, "{points}");
}
