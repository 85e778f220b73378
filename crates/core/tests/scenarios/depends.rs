//! Roles that wait for each other.

use std::collections::BTreeSet;

use rstest::rstest;
use trainyard_api::DependencyState::{self, Ready, Running, Succeeded};
use trainyard_api::RestartPolicy::{Never, OnFailure};
use trainyard_api::{CreatePolicy, JobPhase, RolePhase, TrainingJob};
use trainyard_contract::start::WAITED_IN_VAIN;
use trainyard_core::agent::WAIT_CONTAINER;
use trainyard_core::build;
use trainyard_core::deduce::Tally;
use trainyard_core::depends::{Outlook, outlook};
use trainyard_core::job::Job;
use trainyard_core::local_state::SecretState;
use trainyard_core::model::{Action, PodKey};
use trainyard_core::observe::Start;
use trainyard_core::view::{PodPhase, Settings};

use crate::bugs_of_others::start;
use crate::common::World;
use crate::common::jobs::{self, Change, custom, mpi};

#[rstest]
//                          state     phase                 act rea suc   comes
#[case::nothing_yet(        Running,   RolePhase::Pending,   [0, 0, 0], Outlook::Open)]
#[case::some_run(           Running,   RolePhase::Starting,  [1, 1, 0], Outlook::Open)]
#[case::all_run(            Running,   RolePhase::Running,   [2, 0, 0], Outlook::Met)]
#[case::running_is_not_ready(Ready,    RolePhase::Running,   [2, 1, 0], Outlook::Open)]
#[case::all_are_ready(      Ready,     RolePhase::Running,   [2, 2, 0], Outlook::Met)]
#[case::done_was_ready(     Ready,     RolePhase::Running,   [1, 1, 1], Outlook::Met)]
#[case::done_did_run(       Running,   RolePhase::Running,   [1, 0, 1], Outlook::Met)]
#[case::running_is_not_done(Succeeded, RolePhase::Running,   [2, 2, 0], Outlook::Open)]
#[case::done(               Succeeded, RolePhase::Succeeded, [0, 0, 2], Outlook::Met)]
#[case::done_with_any_pod(  Ready,     RolePhase::Succeeded, [0, 0, 1], Outlook::Met)]
#[case::failed(             Succeeded, RolePhase::Failed,    [0, 0, 1], Outlook::Never)]
#[case::failed_after_it_ran(Running,   RolePhase::Failed,    [1, 1, 0], Outlook::Never)]
#[case::stopped(            Running,   RolePhase::Stopped,   [0, 0, 0], Outlook::Never)]
fn what_becomes_of_what_is_waited_for(
    #[case] state: DependencyState,
    #[case] phase: RolePhase,
    #[case] counts: [i32; 3],
    #[case] comes: Outlook,
) {
    let [active, ready, succeeded] = counts;
    let tally = Tally {
        replicas: 2,
        needed: 2,
        active,
        ready,
        succeeded,
        ..Tally::default()
    };
    assert_eq!(outlook(state, phase, &tally), comes);
}

/// A launcher that waits for two workers.
fn launcher(state: DependencyState) -> TrainingJob {
    custom(&[("launcher", 1), ("worker", 2)]).waits("launcher", "worker", state)
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const WORKERS: &[&str] = &["mnist-worker-0", "mnist-worker-1"];
const ALL: &[&str] = &["mnist-launcher-0", "mnist-worker-0", "mnist-worker-1"];

/// A world whose pods have an agent.
fn with_agent(job: TrainingJob) -> World {
    let mut world = World::new(job);
    world.settings = jobs::with_agent();
    world
}

#[rstest]
#[case::without_an_agent(Settings::default())]
#[case::with_one_that_nobody_tells_anything(jobs::with_silent_agent())]
fn pods_are_created_when_what_they_wait_for_has_come(#[case] settings: Settings) {
    let mut world = World::new(launcher(Ready));
    world.settings = settings;
    world.start();
    assert_eq!(world.all(), names(WORKERS));
    let said = world.role("launcher");
    assert_eq!(said.phase, RolePhase::Pending);
    assert_eq!(said.reason.as_deref(), Some("WaitingForRoles"));
    assert_eq!(
        said.message.as_deref(),
        Some("waits for the role worker to be ready")
    );

    world.run_all();
    world.pod_mut("mnist-worker-1").ready = false;
    world.reconcile();
    assert_eq!(world.all(), names(WORKERS), "running is not ready");

    world.pod_mut("mnist-worker-1").ready = true;
    world.reconcile();
    assert_eq!(world.all(), names(ALL));
    world.run_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(JobPhase::Running));
    assert_eq!(world.role("launcher").reason, None);
}

#[test]
fn waiting_costs_no_write() {
    let writes = |job: TrainingJob| {
        let mut world = World::new(job);
        for _ in 0..3 {
            world.reconcile();
            world.run_all();
        }
        world.reconcile();
        assert_eq!(world.phase(), Some(JobPhase::Running));
        world.writes()
    };
    let independent = custom(&[("launcher", 1), ("worker", 2)]);
    assert_eq!(writes(launcher(Running)), writes(independent));
}

#[test]
fn with_an_agent_all_pods_are_created_at_once_unless_the_user_says_otherwise() {
    let mut world = with_agent(launcher(Running));
    world.start();
    assert_eq!(world.all(), names(ALL));
    assert_eq!(
        world.role("launcher").message.as_deref(),
        Some("waits for the role worker to run")
    );

    let late = CreatePolicy::WhenDependenciesMet;
    let mut world = with_agent(launcher(Running).role("launcher", |role| role.create_policy = Some(late)));
    world.reconcile();
    assert_eq!(world.all(), names(WORKERS));
    world.run_all();
    world.reconcile();
    assert_eq!(world.all(), names(ALL));
}

/// Deadlines of other operators' jobs begin with a launcher that is created late.
#[test]
fn that_pods_are_created_late_is_written_at_once() {
    let late = CreatePolicy::WhenDependenciesMet;
    let mut world = with_agent(launcher(Running).role("launcher", |role| role.create_policy = Some(late)));
    world.start();
    world.tick(1);
    world.run_all();
    world.reconcile();
    assert_eq!(world.role("launcher").phase, RolePhase::Starting);
    assert_eq!(world.log.statuses, 2);
    // Its counters wait, as all do.
    world.trouble("mnist-launcher-0", "ImagePullBackOff", "no such image");
    world.reconcile();
    assert_eq!(world.log.statuses, 2);
}

#[test]
fn a_role_that_has_succeeded_has_run() {
    let mut world = World::new(launcher(Running));
    world.reconcile();
    world.run_all();
    world.succeed("mnist-worker-0");
    world.succeed("mnist-worker-1");
    world.reconcile();
    assert_eq!(world.role("worker").phase, RolePhase::Succeeded);
    assert_eq!(world.all(), names(ALL));
}

/// The workers fail, which is not the job's failure: what waits for them can't start any more.
#[rstest]
#[case::pods_that_do_not_exist(false)]
#[case::pods_that_wait(true)]
fn what_can_never_come_ends_the_wait(#[case] agent: bool) {
    let job = launcher(Succeeded)
        .failed_when(&[&["launcher"]])
        .role("launcher", |role| role.restart_policy = Some(OnFailure));
    let mut world = if agent { with_agent(job) } else { World::new(job) };
    world.reconcile();
    world.run_on("mnist-worker-0", "node-0");
    world.run_on("mnist-worker-1", "node-1");
    world.reconcile();
    world.fail("mnist-worker-1", 7);
    world.reconcile();
    assert_eq!(world.phase(), Some(JobPhase::Failed));
    let said = "mnist-launcher-0 can't start: it waits for the role worker, which has ended";
    assert_eq!(world.role("launcher").reason.as_deref(), Some("DependencyFailed"));
    assert_eq!(world.role("launcher").message.as_deref(), Some(said));
    assert_eq!(
        world.status().root_cause.unwrap().pod,
        "mnist-worker-1",
        "what failed first, and not what it took with it"
    );
    assert_eq!(world.restarts(), (0, 0), "another try could do no better");
}

#[test]
fn an_agent_that_gives_up_waiting_is_not_tried_again() {
    let job = launcher(Succeeded)
        .failed_when(&[&["launcher"]])
        .role("launcher", |role| role.restart_policy = Some(OnFailure));
    let mut world = with_agent(job);
    world.reconcile();
    world.run_on("mnist-worker-0", "node-0");
    world.run_on("mnist-worker-1", "node-1");
    world.fail("mnist-launcher-0", i32::from(WAITED_IN_VAIN));
    let end = world.pod_mut("mnist-launcher-0").end.as_mut().unwrap();
    end.container = Some(WAIT_CONTAINER.to_owned());
    world.reconcile();
    assert_eq!(world.phase(), Some(JobPhase::Failed));
    assert_eq!(world.restarts(), (0, 0));
}

#[test]
fn who_was_let_go_does_not_wait_again() {
    let job = launcher(Running).failed_when(&[&["launcher"]]);
    let mut world = with_agent(job);
    world.reconcile();
    world.run_on("mnist-worker-0", "node-0");
    world.run_on("mnist-worker-1", "node-1");
    // Its image is being pulled.
    world.pod_mut("mnist-launcher-0").released = true;
    world.reconcile();
    world.fail("mnist-worker-1", 7);
    world.reconcile();
    assert_eq!(world.role("worker").phase, RolePhase::Failed);
    assert_eq!(world.role("launcher").phase, RolePhase::Starting);
    world.run_on("mnist-launcher-0", "node-0");
    world.succeed("mnist-launcher-0");
    world.reconcile();
    assert_eq!(world.role("launcher").phase, RolePhase::Succeeded);
}

#[test]
fn who_waits_though_it_may_start_is_told_in_another_way() {
    let mut world = with_agent(launcher(Running));
    world.reconcile();
    world.pod_mut("mnist-launcher-0").waits = true;
    assert_eq!(world.overdue(), [], "what it waits for has not come");
    world.run_on("mnist-worker-0", "node-0");
    world.run_on("mnist-worker-1", "node-1");
    let uid = world.pod_mut("mnist-launcher-0").uid.to_string();
    let name = "mnist-launcher-0".to_owned();
    assert_eq!(world.overdue(), [Action::StartPod { name, uid }]);
    world.pod_mut("mnist-launcher-0").terminating = true;
    assert_eq!(world.overdue(), []);
    world.pod_mut("mnist-launcher-0").terminating = false;
    world.pod_mut("mnist-launcher-0").waits = false;
    assert_eq!(world.overdue(), [], "it goes");
}

#[test]
fn a_chain_that_breaks_breaks_to_its_end() {
    let job = custom(&[("a", 1), ("b", 1), ("c", 1)])
        .waits("a", "b", Running)
        .waits("b", "c", Succeeded)
        .failed_when(&[&["a"]]);
    let mut world = World::new(job);
    world.reconcile();
    assert_eq!(world.all(), names(&["mnist-c-0"]));
    world.run_all();
    world.reconcile();
    world.fail("mnist-c-0", 1);
    world.reconcile();
    assert_eq!(world.phase(), Some(JobPhase::Failed));
    assert_eq!(
        world.message("Failed"),
        "a: mnist-a-0 can't start: it waits for the role b, which has ended; \
         b: mnist-b-0 can't start: it waits for the role c, which has ended; \
         c: mnist-c-0 on node-0: exit code 1 (Error)"
    );
}

#[test]
fn a_replacement_waits_as_the_first_did() {
    let job = launcher(Ready).role("launcher", |role| role.restart_policy = Some(OnFailure));
    let mut world = World::new(job);
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Running));
    world.pod_mut("mnist-worker-0").ready = false;
    world.fail("mnist-launcher-0", 1);
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    assert_eq!(world.all(), names(WORKERS));
    assert_eq!(world.phase(), Some(JobPhase::Restarting));
    world.pod_mut("mnist-worker-0").ready = true;
    world.reconcile();
    assert_eq!(world.all(), names(ALL));
}

#[test]
fn the_order_is_kept_after_a_resumption() {
    let mut world = World::new(launcher(Running));
    world.settle();
    world.suspend(true);
    world.settle_without_waiting();
    assert_eq!(world.all(), BTreeSet::new());
    world.suspend(false);
    world.reconcile();
    assert_eq!(world.all(), names(WORKERS));
    world.run_all();
    world.reconcile();
    assert_eq!(world.all(), names(ALL));
}

fn uids(world: &World) -> BTreeSet<String> {
    world.pods.iter().map(|row| row.uid.to_string()).collect()
}

/// Whether the pod of the launcher waits inside before its program starts.
fn waits_inside(world: &World) -> bool {
    let job = Job::parse(&world.job).unwrap();
    let pod = build::pod(&job, &world.settings, PodKey { role: 0, index: 0 }).unwrap();
    let init = pod.spec.unwrap().init_containers.unwrap();
    init.iter().any(|container| container.name == WAIT_CONTAINER)
}

/// The Secret of a job is deleted, and its launcher fails: all pods start anew, because those that
/// stayed would not know the others. The launcher waits for the workers as it did at first, and not
/// for those that were.
#[rstest]
#[case::inside_where_somebody_tells_it(jobs::with_agent(), ALL)]
#[case::outside_where_nobody_does(jobs::with_silent_agent(), WORKERS)]
fn the_order_is_kept_when_all_pods_start_anew(#[case] settings: Settings, #[case] made: &[&str]) {
    let launcher = "mnist-launcher-0";
    let inside = made.contains(&launcher);
    let mut world = World::new(mpi("", 2));
    world.settings = settings;
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Running));
    let first = uids(&world);
    (world.secret, world.local.secret) = (false, SecretState::Unknown);
    world.fail(launcher, 1);
    for _ in 0..4 {
        world.reconcile();
        world.kubelets_remove();
        world.tick(60);
    }
    world.reconcile();
    assert!(first.is_disjoint(&uids(&world)), "all are other pods");
    assert_eq!(waits_inside(&world), inside);
    let waits = |world: &mut World| {
        world.reconcile();
        assert_eq!(world.all(), names(made));
        let said = "waits for the role worker to be ready".to_owned();
        assert_eq!(start(world, "launcher"), Start::Wait(said));
        if inside {
            world.pod_mut(launcher).waits = true;
            assert_eq!(world.overdue(), [], "nor is it told in another way");
        }
    };
    waits(&mut world);
    world.run_on("mnist-worker-0", "node-0");
    waits(&mut world);
    world.run_on("mnist-worker-1", "node-1");
    world.pod_mut("mnist-worker-1").ready = false;
    waits(&mut world);

    world.pod_mut("mnist-worker-1").ready = true;
    assert_eq!(start(&world, "launcher"), Start::Go);
    assert_eq!(
        world.overdue().len(),
        usize::from(inside),
        "if nobody has told it"
    );
    world.settle();
    assert_eq!(
        (world.phase(), world.restarts()),
        (Some(JobPhase::Running), (1, 0))
    );
    assert_eq!(world.all(), names(ALL));
}

#[test]
fn a_refused_pod_of_another_role_is_not_told_of_one_that_waits() {
    let mut world = World::new(launcher(Running).role("worker", |role| role.restart_policy = Some(Never)));
    world.refusal = Some(trainyard_core::view::Refusal {
        kind: "Pod",
        name: "mnist-worker-0".to_owned(),
        message: "exceeded quota".to_owned(),
    });
    world.start();
    assert_eq!(world.role("worker").reason.as_deref(), Some("CreateFailed"));
    assert_eq!(world.role("launcher").reason.as_deref(), Some("WaitingForRoles"));
    assert!(world.pods.iter().all(|row| row.phase == PodPhase::Pending));
}
