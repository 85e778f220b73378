//! MPI jobs: a launcher that decides, and workers that it needs.

use std::collections::BTreeSet;

use rstest::rstest;
use trainyard_api::RestartPolicy::Never;
use trainyard_api::{Dialect, JobPhase, RolePhase, TrainingJob};
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::local_state::{ExecRightState, LocalState, SecretState};
use trainyard_core::model::{Action, PodKey, PodNames};
use trainyard_core::remote_shell::INSTALL_CONTAINER;
use trainyard_core::view::{Refusal, Settings};

use crate::common::World;
use crate::common::jobs::{Change, mpi, role, with_agent, with_silent_agent};
use crate::crashes::at_every_write;

pub const LAUNCHER: &str = "mnist-launcher-0";
const WORKERS: &[&str] = &["mnist-worker-0", "mnist-worker-1"];
pub const ALL: &[&str] = &[LAUNCHER, "mnist-worker-0", "mnist-worker-1"];

pub fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn world(job: TrainingJob) -> World {
    let mut world = World::new(job);
    world.settings = with_agent();
    world
}

pub fn running(job: TrainingJob) -> World {
    let mut world = world(job.one_by_one());
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Running));
    world
}

/// The launcher has no index in its name there, so that two would be one. The spec can't say so,
/// but anybody can edit a status.
#[test]
fn accepted_rules_with_two_launchers_of_one_name_are_no_rules() {
    let mut job = mpi("", 2);
    job.spec.dialect = Some(Dialect::KubeflowMpi);
    let mut world = running(job);
    let status = world.job.status.as_mut().unwrap();
    status.accepted.rules.as_mut().unwrap().roles[0].replicas = 2;
    world.edit(|spec| role(spec, "worker").replicas = Some(0));
    world.vanish("mnist-launcher");
    // Counted by these rules it would be awaited twice, which no server takes.
    world.settle();
    assert_eq!(world.condition("Accepted"), "False Invalid");
}

#[test]
fn the_secret_and_the_service_come_before_all_pods() {
    let mut world = world(mpi("", 2));
    let first = world.actions();
    assert!(
        first.iter().all(|action| !matches!(action, Action::CreatePod(_))),
        "{first:?}"
    );
    assert_eq!(first.len(), 2);
    world.reconcile();
    assert_eq!(
        (&*world.log.services, &*world.log.secrets),
        (&["mnist".to_owned()][..], &["mnist-mpi".to_owned()][..])
    );
    assert_eq!(world.all(), names(ALL));
    assert_eq!(world.writes(), 3 + 1 + 1, "pods, Service, Secret");
}

fn with_exec(job: TrainingJob) -> World {
    let mut world = world(job);
    world.settings.allows_exec = true;
    world
}

#[test]
fn the_right_to_start_programs_comes_before_all_pods_and_covers_those_that_exist() {
    let mut world = with_exec(mpi("attach: Exec", 2));
    let first = world.actions();
    assert!(
        first.contains(&Action::CreateExecRight)
            && first.iter().all(|action| !matches!(action, Action::CreatePod(_))),
        "{first:?}"
    );
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Running));
    assert_eq!(world.log.grants, [WORKERS]);
    assert_eq!(world.log.secrets, [""; 0]);
    assert!(world.actions().is_empty());
}

/// The pods of a `StatefulSet` mnist-worker are called as the workers of the job mnist.
#[test]
fn a_statefulset_whose_pods_are_called_as_the_workers_is_out_of_reach() {
    let mut world = with_exec(mpi("attach: Exec", 2));
    world.taken = vec![WORKERS[1].to_owned()];
    world.settle();
    assert_eq!(world.condition("Accepted"), "False OwnershipConflict");
    assert_eq!(world.covered.as_deref(), Some(&[][..]), "of no pod");
    assert!(
        world
            .log
            .grants
            .iter()
            .all(|pods| !pods.contains(&WORKERS[1].to_owned())),
        "{:?}",
        world.log.grants
    );

    // It comes while the job runs, and takes the name of a worker that is replaced.
    let mut world = with_exec(mpi("attach: Exec", 2));
    world.settle();
    world.taken = vec![WORKERS[1].to_owned()];
    world.evict(WORKERS[1]);
    world.settle();
    assert_eq!(world.condition("Accepted"), "False OwnershipConflict");
    assert_eq!(world.covered.as_deref(), Some(&[][..]));
    world.free_names();
    world.settle();
    assert_eq!(world.log.grants.last().unwrap(), WORKERS);
}

#[rstest]
#[case::it_is_suspended(|world: &mut World| world.edit(|spec| spec.suspend = Some(true)))]
#[case::it_is_suspended_and_attaches_otherwise(|world: &mut World| world.edit(|spec| {
    spec.suspend = Some(true);
    spec.framework.mpi = None;
}))]
#[case::it_attaches_otherwise(|world: &mut World| world.edit(|spec| spec.framework.mpi = None))]
#[case::it_has_succeeded(|world: &mut World| world.succeed(LAUNCHER))]
#[case::it_is_being_deleted(World::begin_deletion)]
#[case::it_is_being_deleted_and_attaches_otherwise(|world: &mut World| {
    world.edit(|spec| spec.framework.mpi = None);
    world.begin_deletion();
})]
fn a_right_ends(#[case] event: fn(&mut World), #[values(false, true)] another_leads: bool) {
    let mut world = with_exec(mpi("attach: Exec", 2));
    world.settle();
    assert_eq!(world.log.grants, [WORKERS]);
    event(&mut world);
    let is_being_deleted = world.job.metadata.deletion_timestamp.is_some();
    let keeps_its_pods =
        world.job.spec.framework.mpi.is_none() && !world.job.is_suspended() && !is_being_deleted;
    if another_leads && keeps_its_pods {
        // Such a change is refused, and the job goes on as it was: one that does not know what was
        // granted can't know how it attached.
        return;
    }
    if another_leads {
        world.local = LocalState::default();
    }
    // It ends before the status says so.
    let first = world.actions();
    assert!(first.contains(&Action::Grant(PodNames::default())), "{first:?}");
    assert!(!is_being_deleted || first.len() == 1, "{first:?}");
    world.settle();
    assert_eq!(world.covered.as_deref(), Some(&[][..]));
    assert!(world.actions().is_empty());
}

#[test]
fn a_right_covers_no_pod_that_is_gone() {
    let mut world = with_exec(mpi("attach: Exec", 2));
    world.settle();
    world.refusal = Some(Refusal {
        kind: "Pod",
        name: WORKERS[0].to_owned(),
        message: "exceeded quota".to_owned(),
    });
    world.vanish(WORKERS[0]);
    world.settle();
    assert_eq!(world.log.grants.last().unwrap(), &WORKERS[1..]);
}

#[test]
fn a_right_for_other_pods_than_there_are_is_made_right() {
    let mut world = with_exec(mpi("attach: Exec", 2));
    world.settle();
    let five = (0..5)
        .map(|index| format!("mnist-worker-{index}").into())
        .collect();
    world.covered = Some(five);
    // Who has just become the leader finds out, and nobody asks again.
    assert!(world.actions().is_empty());
    world.local.exec_right = ExecRightState::Unknown;
    assert_eq!(world.actions().len(), 1);
    world.settle();
    assert_eq!(world.log.grants, [WORKERS, WORKERS]);
    assert!(world.actions().is_empty());
}

/// No pod that runs needs it again: a stream that is open stays so.
#[test]
fn a_right_that_was_deleted_is_given_again_before_the_next_launcher_and_not_earlier() {
    let mut world = with_exec(mpi("attach: Exec", 2).one_by_one());
    world.settle();
    world.covered = None;
    world.evict("mnist-worker-0");
    world.settle();
    assert_eq!((world.phase(), &world.covered), (Some(JobPhase::Running), &None));
    world.fail(LAUNCHER, 1);
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Running));
    assert_eq!(world.log.grants, [WORKERS, WORKERS]);
    // One that is there is looked at, and left as it is.
    world.fail(LAUNCHER, 1);
    world.settle();
    assert_eq!(
        (world.phase(), world.log.grants.len()),
        (Some(JobPhase::Running), 2)
    );
}

#[rstest]
fn an_operator_that_is_new_takes_the_right_to_pods_that_go(#[values(false, true)] allowed: bool) {
    let mut world = with_exec(mpi("attach: Exec", 2).rolls());
    world.settle();
    (world.local.exec_right, world.settings.allows_exec) = (ExecRightState::Unknown, allowed);
    world.edit(|spec| role(spec, "worker").replicas = Some(1));
    world.settle();
    assert_eq!((world.phase(), world.pods.len()), (Some(JobPhase::Running), 2));
    assert_eq!(world.condition("Accepted"), "True Valid");
    assert_eq!(
        world.log.grants.last().unwrap().len(),
        if allowed { 1 } else { 2 },
        "who may not give it can't change it"
    );
}

#[test]
fn without_the_right_to_give_it_the_job_says_so_and_goes_on_by_itself() {
    let mut world = world(mpi("attach: Exec", 2));
    world.settle();
    assert_eq!(world.condition("Accepted"), "False Unsupported");
    let said = world.message("Accepted");
    let expected = "install it with --exec, or start it with --allow-exec";
    assert!(said.contains(expected), "{said}");
    assert_eq!(world.all(), names(&[]));
    world.settings.allows_exec = true;
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Running));
}

#[rstest]
#[case::inside_where_somebody_tells_it(with_agent(), ALL)]
#[case::outside_where_nobody_does(with_silent_agent(), WORKERS)]
fn the_launcher_waits_for_the_workers(#[case] settings: Settings, #[case] first: &[&str]) {
    let mut world = World::new(mpi("", 2));
    world.settings = settings;
    world.start();
    assert_eq!(world.all(), names(first));
    let said = world.role("launcher");
    assert_eq!(
        said.message.as_deref(),
        Some("waits for the role worker to be ready")
    );
    world.run_on("mnist-worker-0", "node-0");
    world.run_on("mnist-worker-1", "node-1");
    world.reconcile();
    assert_eq!(world.all(), names(ALL));
    world.run_on(LAUNCHER, "node-0");
    world.reconcile();
    assert_eq!(world.phase(), Some(JobPhase::Running));
    assert_eq!(world.log.secrets.len(), 1);
}

#[test]
fn the_launcher_decides_that_the_job_has_succeeded() {
    let mut world = running(mpi("", 2));
    world.succeed(LAUNCHER);
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Succeeded));
    assert_eq!(world.role("worker").phase, RolePhase::Stopped);
    assert_eq!(world.holding(), names(&[]), "workers hold nothing any more");
}

#[test]
fn a_launcher_that_fails_is_tried_again_as_long_as_the_budget_lasts() {
    let mut world = running(mpi("", 2).backoff_limit(1));
    world.fail(LAUNCHER, 1);
    world.settle();
    assert_eq!(
        (world.phase(), world.restarts()),
        (Some(JobPhase::Running), (1, 0))
    );
    assert_eq!(world.log.pods.iter().filter(|pod| *pod == LAUNCHER).count(), 2);
    world.fail(LAUNCHER, 1);
    world.settle();
    assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
    assert_eq!(world.status().root_cause.unwrap().pod, LAUNCHER);
    assert_eq!(world.holding(), names(&[]));
    assert_eq!(world.log.secrets.len(), 1);
}

#[test]
fn a_worker_that_fails_or_is_evicted_is_replaced() {
    let mut world = running(mpi("", 2));
    world.fail("mnist-worker-1", 137);
    world.settle();
    world.tick(30);
    world.evict("mnist-worker-0");
    world.settle();
    assert_eq!(
        (world.phase(), world.restarts()),
        (Some(JobPhase::Running), (1, 1))
    );
    assert_eq!(world.all(), names(ALL));
    assert_eq!(world.log.secrets.len(), 1, "those that stayed know the new ones");
}

/// As a drained node, a preemption, or somebody by hand does it. The agent in a worker ends with
/// the code of the signal by which it is told: the worker is not done, and has to be replaced.
#[test]
fn a_worker_that_is_told_to_go_is_replaced() {
    let mut world = running(mpi("", 2));
    world.ask_to_go("mnist-worker-1");
    world.fail("mnist-worker-1", 143);
    world.settle();
    assert_eq!(
        (world.phase(), world.restarts()),
        (Some(JobPhase::Running), (0, 1)),
        "no failure of the job"
    );
    assert_eq!(world.all(), names(ALL));
}

/// As `sshd` ends when it is told to, or a program beside the agent.
#[test]
fn a_worker_that_ended_well_before_the_launcher_is_replaced() {
    let mut world = running(mpi("", 2));
    world.succeed("mnist-worker-1");
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Running));
    assert_eq!(world.all(), names(ALL));
}

#[rstest]
#[case::failed(|world: &mut World| world.fail("mnist-worker-1", 1))]
#[case::was_evicted(|world: &mut World| world.evict("mnist-worker-1"))]
fn a_worker_that_is_not_replaced_ends_the_job_and_leaves_nobody_in_vain(#[case] happens: fn(&mut World)) {
    let mut world = running(mpi("", 2).role("worker", |role| role.restart_policy = Some(Never)));
    happens(&mut world);
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Failed));
    assert_eq!(world.status().root_cause.unwrap().pod, "mnist-worker-1");
    assert_eq!(world.holding(), names(&[]));
}

#[test]
fn the_secret_outlives_a_suspension() {
    let mut world = running(mpi("", 2));
    world.suspend(true);
    world.settle();
    assert_eq!((world.all(), world.secret), (names(&[]), true));
    // It is forgotten meanwhile, and found again.
    world.local.secret = SecretState::Unknown;
    world.suspend(false);
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Running));
    assert_eq!(world.log.secrets.len(), 1);
}

#[test]
fn a_secret_of_somebody_else_is_left_alone_and_no_pod_is_made() {
    let mut world = world(mpi("", 2));
    world.taken = vec!["mnist-mpi".to_owned()];
    world.reconcile();
    assert_eq!(world.condition("Accepted"), "False OwnershipConflict");
    assert!(
        world
            .message("Accepted")
            .starts_with("Secret \"mnist-mpi\" exists and belongs to Deployment web"),
        "{}",
        world.message("Accepted")
    );
    assert_eq!(world.all(), names(&[]));
    world.free_names();
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Running));
}

#[test]
fn without_an_agent_the_job_says_so_and_goes_on_when_there_is_one() {
    let mut world = World::new(mpi("", 2));
    world.reconcile();
    assert_eq!(world.phase(), Some(JobPhase::Pending));
    assert_eq!(world.condition("Accepted"), "False Unsupported");
    assert_eq!(
        world.message("Accepted"),
        "mpi needs the agent in its pods, and this operator has none to put there: install it without --no-agent, or start \
         it with --agent-image. The job goes on by itself when there is one."
    );
    assert_eq!(world.told(), ["Unsupported"]);
    assert_eq!(world.writes(), 1, "the status");
    assert_eq!(world.reconcile().wake_at(), None);

    world.settings = with_silent_agent();
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Running));
    assert_eq!(world.condition("Accepted"), "True Valid");
}

#[test]
fn a_job_that_runs_needs_no_agent_until_a_pod_is_to_be_made() {
    let mut world = running(mpi("", 2));
    let statuses = world.log.statuses;
    world.settings = Settings::default();
    world.settle();
    assert_eq!(
        (world.condition("Accepted"), world.log.statuses),
        ("True Valid".to_owned(), statuses)
    );
    world.evict("mnist-worker-0");
    world.settle();
    assert_eq!(world.condition("Accepted"), "False Unsupported");
    assert_eq!(
        world.holding(),
        names(&[LAUNCHER, "mnist-worker-1"]),
        "the rest goes on"
    );
    world.settings = with_agent();
    world.settle();
    assert_eq!(
        (world.phase(), world.restarts()),
        (Some(JobPhase::Running), (0, 1))
    );
}

#[test]
fn a_start_that_another_has_begun_is_not_undone_while_the_agent_is_not_known() {
    let mut world = world(mpi("", 2));
    world.reconcile();
    world.vanish("mnist-worker-1");
    world.settings = Settings::default();
    world.reconcile();
    assert_eq!(world.condition("Accepted"), "False Unsupported");
    assert_eq!((world.phase(), world.all().len()), (Some(JobPhase::Starting), 2));
    world.settings = with_agent();
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Running));
}

#[test]
fn the_operator_dies_at_any_write_and_the_secret_is_made_once() {
    let job = mpi("", 2).one_by_one();
    let points = at_every_write(
        &job,
        |world, operator| {
            world.settings = with_agent();
            operator(world);
            world.run_all();
            operator(world);
            world.fail(LAUNCHER, 1);
            operator(world);
            world.kubelets_remove();
            world.tick(60);
            operator(world);
            world.run_all();
            operator(world);
            world.succeed(LAUNCHER);
            operator(world);
            world.kubelets_remove();
            operator(world);
        },
        |world| {
            assert_eq!(
                (world.phase(), world.restarts()),
                (Some(JobPhase::Succeeded), (1, 0))
            );
            assert_eq!(world.log.secrets, ["mnist-mpi"]);
            assert_eq!(world.log.pods.len(), 4);
            assert_eq!(world.holding(), names(&[]));
        },
    );
    assert!(points >= 10, "{points}");
}

/// What the launcher's agent is to list, as it is told.
fn hosts(job: &TrainingJob) -> serde_json::Value {
    let job = Job::parse(job).unwrap();
    let pod = build::pod(&job, &with_agent(), PodKey { role: 0, index: 0 }).unwrap();
    let init = pod.spec.unwrap().init_containers.unwrap();
    let install = init
        .iter()
        .find(|container| container.name == INSTALL_CONTAINER)
        .unwrap();
    let told = install.env.as_ref().unwrap()[0].value.as_ref().unwrap();
    serde_json::from_str::<serde_json::Value>(told).unwrap()["hosts"].clone()
}

#[rstest]
#[case(1)]
#[case(1000)]
fn the_size_of_a_job_does_not_change_the_size_of_its_pods(#[case] workers: i32) {
    let pattern = "mnist-worker-{}.mnist.team.svc.cluster.local";
    let said = serde_json::json!([{"pattern": pattern, "from": 0, "count": workers, "slots": 1}]);
    assert_eq!(hosts(&mpi("", workers)), said);
    let mut world = world(mpi("", workers));
    world.reconcile();
    let workers = usize::try_from(workers).unwrap();
    assert_eq!(world.writes(), workers + 1 + 1 + 1, "pods, Service, Secret");
    world.run_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(JobPhase::Running));
}

#[test]
fn a_launcher_that_works_is_the_first_host() {
    let said = serde_json::json!([
        {"pattern": "mnist-launcher-{}.mnist.team.svc.cluster.local", "from": 0, "count": 1, "slots": 3},
        {"pattern": "mnist-worker-{}.mnist.team.svc.cluster.local", "from": 0, "count": 2, "slots": 3},
    ]);
    assert_eq!(hosts(&mpi("launcherAsWorker: true, slotsPerWorker: 3", 2)), said);
}

#[test]
fn with_ssh_it_is_all_the_same() {
    let mut world = running(mpi("attach: Ssh", 2));
    assert_eq!(world.writes(), 3 + 1 + 1 + 1, "pods, Service, Secret, state");
    world.succeed(LAUNCHER);
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Succeeded));
    assert_eq!(world.log.secrets, ["mnist-ssh"]);
    let mut world = World::new(mpi("attach: Ssh", 2).spec(|spec| spec.roles.reverse()));
    world.reconcile();
    assert_eq!(
        world.condition("Accepted"),
        "False Unsupported",
        "who lists the hosts?"
    );
}
