//! Random lives: anything happens in any order, the operator dies anywhere, and the invariants
//! hold. Those that concern single writes are checked by the world itself.

use proptest::prelude::*;
use proptest::sample::select;
use trainyard_api::{
    CleanPodPolicy, DependencyState, NodeDownPolicy, PodQuorum, RestartPolicy, TrainingJob, UpdatePolicy,
};
use trainyard_core::plan::{Plan, Step};
use trainyard_core::view::{NodeState, PodPhase};

use crate::common::World;
use crate::common::jobs::{Change, custom, pytorch, role, set_image};

/// Something that happens. Pods are meant by their position among those that are there.
#[derive(Clone, Debug)]
enum Happening {
    Reconcile,
    /// The operator makes a plan and dies after so many writes.
    Crash(usize),
    Run(usize),
    RunAll,
    Succeed(usize),
    Fail(usize, i32),
    Evict(usize),
    AskToGo(usize),
    Vanish(usize),
    KubeletsRemove,
    Node(usize, NodeState),
    DeleteServices,
    /// Somebody else takes a name that is free, or gives all of them up.
    Take(&'static str),
    Free,
    Suspend(bool),
    /// The user changes a template, suspended or not, and perhaps changes it back.
    Image(u8),
    Resize(i32),
    Tick(i64),
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::{
        AskToGo, Crash, DeleteServices, Evict, Fail, Free, Image, KubeletsRemove, Node, Reconcile, Resize,
        Run, RunAll, Succeed, Suspend, Take, Tick, Vanish,
    };
    let pod = 0..6usize;
    let state = select(vec![NodeState::Up, NodeState::Down, NodeState::Gone]);
    prop_oneof![
        6 => Just(Reconcile),
        4 => (0..6usize).prop_map(Crash),
        2 => pod.clone().prop_map(Run),
        4 => Just(RunAll),
        1 => pod.clone().prop_map(Succeed),
        3 => (pod.clone(), select(vec![1, 127, 128, 137, 143])).prop_map(|(pod, code)| Fail(pod, code)),
        1 => pod.clone().prop_map(Evict),
        1 => pod.clone().prop_map(AskToGo),
        1 => pod.prop_map(Vanish),
        3 => Just(KubeletsRemove),
        1 => (0..2usize, state).prop_map(|(node, state)| Node(node, state)),
        1 => Just(DeleteServices),
        1 => select(vec!["mnist", "mnist-worker-0"]).prop_map(Take),
        2 => Just(Free),
        1 => any::<bool>().prop_map(Suspend),
        1 => (1..3u8).prop_map(Image),
        1 => (1..4i32).prop_map(Resize),
        3 => (1..40i64).prop_map(Tick),
    ]
}

fn job() -> impl Strategy<Value = TrainingJob> {
    let policy = select(vec![
        RestartPolicy::Never,
        RestartPolicy::OnFailure,
        RestartPolicy::Always,
        RestartPolicy::ExitCode,
    ]);
    let quorum = select(vec![PodQuorum::AnyPod, PodQuorum::AllPods]);
    let node_down = select(vec![NodeDownPolicy::Fail, NodeDownPolicy::Wait]);
    let clean = select(vec![
        CleanPodPolicy::All,
        CleanPodPolicy::Running,
        CleanPodPolicy::None,
    ]);
    let roles = (
        any::<bool>(),
        1..4i32,
        [policy.clone(), policy],
        [quorum.clone(), quorum.clone(), quorum.clone(), quorum],
        node_down,
    );
    let run = (
        clean,
        0..4i32,
        proptest::option::of(20..200i64),
        proptest::option::of(0..50i64),
    );
    let waits = proptest::option::of(select(vec![
        ("worker", "master", DependencyState::Running),
        ("worker", "master", DependencyState::Succeeded),
        ("master", "worker", DependencyState::Ready),
        ("master", "worker", DependencyState::Running),
    ]));
    let update = select(vec![UpdatePolicy::Refuse, UpdatePolicy::Roll]);
    (roles, run, 0..3u8, waits, update).prop_map(
        |(roles, (clean, limit, deadline, ttl), rules, waits, update)| {
            let (torch, size, [first, second], quorums, node_down) = roles;
            let names: &[(&str, i32)] = &[("master", 1), ("worker", size)];
            let job = if torch { pytorch(names) } else { custom(names) };
            let job = job
                .role("master", |role| {
                    role.restart_policy = Some(first);
                    role.succeeded_when = Some(quorums[0]);
                    role.failed_when = Some(quorums[1]);
                })
                .role("worker", |role| {
                    role.restart_policy = Some(second);
                    role.succeeded_when = Some(quorums[2]);
                    role.failed_when = Some(quorums[3]);
                    role.node_down_policy = Some(node_down);
                })
                .run(|run| {
                    run.clean_pod_policy = Some(clean);
                    run.backoff_limit = Some(limit);
                    run.update_policy = Some(update);
                    run.active_deadline_seconds = deadline;
                    run.ttl_seconds_after_finished = ttl;
                    run.ttl_seconds_after_failed = ttl.map(|ttl| ttl / 2);
                });
            let job = match waits {
                // It would never come, which is refused.
                Some((_, _, DependencyState::Succeeded)) if first == RestartPolicy::Always => job,
                Some((role, awaited, state)) => job.waits(role, awaited, state),
                None => job,
            };
            match rules {
                0 => job,
                // A rule that can't come true is refused.
                1 if first != RestartPolicy::Always => {
                    job.succeeded_when(&[&["master"]]).failed_when(&[&["master"]])
                }
                _ => job.failed_when(&[&["master", "worker"]]),
            }
        },
    )
}

fn happen(world: &mut World, happening: &Happening) {
    let names = world.names(|_| true);
    let pod = |i: &usize| names.get(*i % names.len().max(1)).cloned();
    let live =
        |world: &World, name: &str| matches!(world.pod(name).phase, PodPhase::Running | PodPhase::Pending);
    match happening {
        Happening::Reconcile => {
            let plan = world.reconcile();
            wakes_later(world, &plan);
        }
        Happening::Crash(writes) => {
            world.crash_after(*writes);
        }
        Happening::RunAll => world.run_all(),
        Happening::KubeletsRemove => world.kubelets_remove(),
        Happening::Node(node, state) => world.node(&format!("node-{node}"), *state),
        Happening::DeleteServices => world.services.clear(),
        Happening::Take(name) => world.taken.push((*name).to_owned()),
        Happening::Free => world.free_names(),
        Happening::Suspend(suspend) => world.suspend(*suspend),
        Happening::Image(version) => {
            world.edit(|spec| set_image(spec, "worker", &format!("example/train:{version}")));
        }
        Happening::Resize(replicas) => {
            // The API server lets this through without webhooks; the operator must refuse it on a
            // running job.
            world.edit(|spec| role(spec, "worker").replicas = Some(*replicas));
        }
        Happening::Tick(seconds) => world.tick(*seconds),
        Happening::Run(i)
        | Happening::Succeed(i)
        | Happening::Fail(i, _)
        | Happening::Evict(i)
        | Happening::AskToGo(i)
        | Happening::Vanish(i) => {
            let Some(name) = pod(i) else { return };
            match happening {
                Happening::Vanish(_) => world.vanish(&name),
                Happening::AskToGo(_) => world.ask_to_go(&name),
                _ if !live(world, &name) => {}
                Happening::Run(_) => world.run_on(&name, "node-0"),
                Happening::Succeed(_) => world.succeed(&name),
                Happening::Fail(_, code) => world.fail(&name, *code),
                _ => world.evict(&name),
            }
        }
    }
}

/// A plan that asks for nothing now never asks to be made again now.
fn wakes_later(world: &World, plan: &Plan) {
    assert!(
        plan.wake_at().is_none_or(|at| at > world.now),
        "a hot loop: {plan:#?}"
    );
}

/// The storm is over: nodes are up, nobody changes anything.
fn calm(world: &mut World) {
    world.node("node-0", NodeState::Up);
    world.node("node-1", NodeState::Up);
    world.edit(|spec| set_image(spec, "worker", "example/train:1"));
    world.free_names();
    world.settle();
}

fn check(world: &World) {
    if world.gone {
        assert!(world.pods.is_empty());
        return;
    }
    // I1: it converges, and then there is nothing to do.
    let plan = world.plan();
    assert_eq!(plan.clone().step(), Step::Done, "not quiet: {plan:#?}");
    assert_eq!(plan.actions().count(), 0, "waits for a backoff: {plan:#?}");
    assert!(plan.status().is_none() && plan.events().is_empty());
    wakes_later(world, &plan);
    // I4: nothing holds resources that should not.
    let status = world.status();
    let policy = world
        .job
        .spec
        .run_policy
        .as_ref()
        .and_then(|run| run.clean_pod_policy);
    let finished = status.phase.is_some_and(trainyard_api::JobPhase::is_terminal);
    if finished && policy != Some(CleanPodPolicy::None) {
        assert!(
            world.holding().is_empty(),
            "a finished job holds {:?}",
            world.holding()
        );
    }
    if finished && policy == Some(CleanPodPolicy::All) {
        assert!(world.pods.is_empty() && world.services.is_empty());
    }
    if status.phase == Some(trainyard_api::JobPhase::Suspended) {
        assert!(world.pods.is_empty());
    }
    if status.phase == Some(trainyard_api::JobPhase::Running) && world.condition("Accepted") == "True Valid" {
        assert_eq!(
            world.services.len(),
            1,
            "a Service that was deleted is there again"
        );
        // Pods of roles that never restart may have been lost only if their role has ended.
        for role in &status.roles {
            let replicas = if role.name == "master" {
                1
            } else {
                world.job.spec.roles[1].replicas.unwrap()
            };
            let there = role.active + role.succeeded + role.failed;
            assert!(role.phase.is_terminal() || there == replicas, "{role:#?}");
        }
    }
    // What its user changed has come. Not of a job that does not roll: pods that were made of a
    // template which was changed before the job was first accepted stay, if the operator died
    // before it had written that down.
    let rolls = world
        .job
        .spec
        .run_policy
        .as_ref()
        .is_some_and(|run| run.update_policy == Some(UpdatePolicy::Roll));
    if rolls
        && status.phase == Some(trainyard_api::JobPhase::Running)
        && world.condition("Accepted") == "True Valid"
    {
        let containers = |role: &trainyard_api::RoleSpec| role.template.spec.clone().unwrap().containers;
        let image = |role: &str| {
            let role = world.job.spec.roles.iter().find(|r| r.name == role).unwrap();
            containers(role)[0].image.clone().unwrap()
        };
        for row in world.pods.iter().filter(|row| row.phase == PodPhase::Running) {
            let role = row.name.split('-').nth(1).unwrap();
            let ended = status
                .roles
                .iter()
                .any(|r| r.name == role && r.phase.is_terminal());
            assert!(ended || world.image(&row.name) == image(role), "{row:#?}");
        }
    }
    // I5: every failure that was forgiven is counted, once.
    assert_eq!(world.restarts().0, world.failures_in_the_ledger());
    let limit = world
        .job
        .spec
        .run_policy
        .as_ref()
        .and_then(|run| run.backoff_limit);
    assert!(world.restarts().0 <= limit.unwrap(), "over its budget");
}

proptest! {
    #![proptest_config(crate::cases(1000))]

    #[test]
    fn whatever_happens_the_job_converges_and_keeps_its_promises(
        job in job(),
        storm in proptest::collection::vec(happening(), 0..60),
    ) {
        let mut world = World::new(job);
        for happening in &storm {
            happen(&mut world, happening);
        }
        calm(&mut world);
        check(&world);
    }

    /// The same happenings with and without deaths of the operator come to the same end, where only
    /// the operator acts between them.
    #[test]
    fn deaths_of_the_operator_change_nothing(
        job in job(),
        rounds in proptest::collection::vec((0..5usize, select(vec![1, 130]), 0..8usize), 1..8),
    ) {
        let mut calm_world = World::new(job.clone());
        let mut deadly = World::new(job);
        for (pod, code, writes) in &rounds {
            for world in [&mut calm_world, &mut deadly] {
                world.reconcile();
                world.kubelets_remove();
                world.reconcile();
                world.run_all();
                world.reconcile();
                happen(world, &Happening::Fail(*pod, *code));
                world.tick(1);
            }
            while deadly.crash_after(*writes) && *writes > 0 {}
            prop_assert_eq!(ended(&mut calm_world), ended(&mut deadly));
        }
    }
}

fn ended(world: &mut World) -> (Option<trainyard_api::JobPhase>, (i32, i32), usize, String) {
    world.reconcile();
    (
        world.phase(),
        world.restarts(),
        world.log.pods.len(),
        world.condition("Failed"),
    )
}
