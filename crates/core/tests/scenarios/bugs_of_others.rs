//! What the operators that came before this one did wrong, one test each, where that is a matter of
//! decisions. Those of MPI-Operator are in the tests of the kinds that it served.

use trainyard_api::DependencyState::{Ready, Running, Succeeded};
use trainyard_api::RestartPolicy::{Never, OnFailure};
use trainyard_api::{JobPhase, TrainingJob};
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::model::PodKey;
use trainyard_core::observe::ares::{Phase, Role, roles};
use trainyard_core::observe::{Observed, Start, observe};
use trainyard_core::view::{AllUp, NodeState, View};

use crate::common::World;
use crate::common::jobs::{self, Change, custom, mpi, workers};

fn with_agent(job: TrainingJob) -> World {
    let mut world = World::new(job);
    world.settings = jobs::with_agent();
    world
}

fn observed(world: &World) -> Observed {
    observe(&View {
        frameworks: trainyard_core::registry::Frameworks::built_in(),
        job: &world.job,
        pods: &world.pods,
        services: &world.services,
        departed: &[],
        conflicts: &[],
        local: &world.local,
        absence_is_confirmed: false,
        refusal: None,
        progress: None,
        nodes: &AllUp,
        budgets: None,
        settings: &world.settings,
        now: world.now,
        instant: world.instant(),
    })
}

/// What the agents of a role are told.
pub fn start(world: &World, role: &str) -> Start {
    let mut roles = observed(world).roles.into_iter();
    roles.find(|known| known.name == role).unwrap().start
}

fn problems(job: &TrainingJob) -> String {
    let errors = Job::parse(job).err().unwrap_or_default();
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.join("\n")
}

#[test]
fn ares_waits_for_nothing_but_running() {
    let mut world = with_agent(custom(&[("a", 1), ("b", 1)]).waits("a", "b", Ready));
    world.reconcile();
    world.run_on("mnist-b-0", "node-0");
    world.pod_mut("mnist-b-0").ready = false;
    assert!(
        matches!(start(&world, "a"), Start::Wait(_)),
        "it runs and is not ready"
    );
    world.pod_mut("mnist-b-0").ready = true;
    assert_eq!(start(&world, "a"), Start::Go);
}

#[test]
fn ares_waits_for_ever_for_what_has_already_succeeded() {
    for state in [Running, Ready, Succeeded] {
        let mut world = with_agent(custom(&[("a", 1), ("b", 1)]).waits("a", "b", state));
        world.reconcile();
        world.run_on("mnist-b-0", "node-0");
        world.succeed("mnist-b-0");
        world.reconcile();
        assert_eq!(start(&world, "a"), Start::Go, "{state:?}");
    }
}

#[test]
fn ares_waits_for_ever_for_roles_that_are_not_there_or_wait_for_each_other() {
    let absent = custom(&[("a", 1)]).waits("a", "b", Running);
    let said = problems(&absent);
    assert!(said.contains("spec.roles[0].dependsOn[0].role"), "{said}");
    let circle = custom(&[("a", 1), ("b", 1)])
        .waits("a", "b", Running)
        .waits("b", "a", Running);
    let said = problems(&circle);
    assert!(said.contains("dependsOn"), "{said}");
    let oneself = custom(&[("a", 1)]).waits("a", "a", Running);
    assert!(!problems(&oneself).is_empty());
}

#[test]
fn ares_lists_some_of_the_hosts() {
    let job = mpi("", 3);
    let parsed = Job::parse(&job).unwrap();
    // Before there is any worker.
    let launcher = build::pod(&parsed, &jobs::with_agent(), PodKey { role: 0, index: 0 }).unwrap();
    let text = serde_json::to_string(&launcher).unwrap();
    let listed = r#"\"pattern\":\"mnist-worker-{}.mnist.team.svc.cluster.local\",\"from\":0,\"count\":3"#;
    assert!(text.contains(listed), "{text}");
}

/// Also where a program asks for them as it asked Ares.
#[test]
fn ares_tells_some_of_the_addresses() {
    let mut world = World::new(custom(&[("b", 2)]));
    world.reconcile();
    let told = |world: &World| -> Role { roles(&observed(world)).remove("b").unwrap() };
    let none = |phase| Role {
        phase,
        running: false,
        ips: Vec::new(),
    };
    let address = |world: &mut World, pod: &str, address: &str| {
        world.pod_mut(pod).address = Some(address.parse().unwrap());
    };
    assert_eq!(told(&world), none(Phase::Starting));
    world.run_on("mnist-b-1", "node-0");
    address(&mut world, "mnist-b-1", "10.0.0.1");
    assert_eq!(told(&world), none(Phase::Starting));
    // It runs, and its address is not known yet.
    world.run_on("mnist-b-0", "node-1");
    world.pod_mut("mnist-b-0").address = None;
    assert_eq!(told(&world), none(Phase::Starting));
    address(&mut world, "mnist-b-0", "10.0.0.2");
    world.reconcile();
    let all = Role {
        phase: Phase::Running,
        running: true,
        ips: vec!["10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap()],
    };
    assert_eq!(told(&world), all);
    // It is going, and its address with it, although the status still says that all run.
    world.pod_mut("mnist-b-0").terminating = true;
    assert_eq!(world.role("b").phase, trainyard_api::RolePhase::Running);
    assert_eq!(told(&world), none(Phase::Starting));
}

#[test]
fn ares_is_brought_down_by_one_bad_job() {
    let absent_in_policy = custom(&[("a", 1)]).failed_when(&[&["b"]]);
    assert!(problems(&absent_in_policy).contains("spec.completion.failedWhen"));
    let mut world = World::new(absent_in_policy);
    world.settle();
    assert!(
        world.condition("Accepted").contains("Invalid"),
        "{:?}",
        world.status()
    );
    assert!(world.all().is_empty());
    let hosts_elsewhere = jobs::yaml(
        "metadata: {name: mnist}\nspec:\n  framework: {name: custom, mpi: {hostFiles: [{path: /job/hostfile, format: OpenMPI}]}}\n  \
         roles: [{name: a, template: {spec: {containers: [{name: main, image: i}]}}}]\n",
    );
    assert!(problems(&hosts_elsewhere).contains("spec.framework.mpi"));
}

#[test]
fn ares_ignores_its_own_limits() {
    let mut world = World::running(workers(1, OnFailure).run(|run| run.active_deadline_seconds = Some(60)));
    world.tick(61);
    world.reconcile();
    assert_eq!(world.phase(), Some(JobPhase::Failed), "activeDeadlineSeconds");

    let mut world = World::running(workers(1, OnFailure).backoff_limit(0));
    world.fail("mnist-worker-0", 1);
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Failed), "backoffLimit");

    let mut world = World::running(workers(1, Never).run(|run| run.ttl_seconds_after_finished = Some(5)));
    world.succeed_all();
    world.settle();
    world.tick(6);
    world.settle();
    assert!(world.gone, "ttlSecondsAfterFinished");
}

#[test]
fn ares_holds_accelerators_after_the_end() {
    let mut world = World::running(custom(&[("a", 1), ("b", 2)]).succeeded_when(&[&["a"]]));
    world.succeed("mnist-a-0");
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Succeeded));
    assert!(world.holding().is_empty(), "{:?}", world.holding());
}

#[test]
fn ares_fails_a_started_role_that_grows() {
    let mut world = World::running(workers(2, Never).rolls());
    world.edit(|spec| jobs::role(spec, "worker").replicas = Some(3));
    world.reconcile();
    assert_ne!(world.phase(), Some(JobPhase::Failed));
    world.settle_without_waiting();
    world.run_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(JobPhase::Running));
}

#[test]
fn ares_forgets_nodes_that_are_down_when_it_starts_anew() {
    let job = workers(1, Never).role("worker", |role| {
        role.node_down_policy = Some(trainyard_api::NodeDownPolicy::Fail);
    });
    let mut world = World::running(job);
    let node = world.pod("mnist-worker-0").node.clone().unwrap();
    // An operator has no memory but what it is shown: the first look of a new one is like any
    // other.
    world.node(&node, NodeState::Down);
    world.settle();
    assert_eq!(world.phase(), Some(JobPhase::Failed));
}
