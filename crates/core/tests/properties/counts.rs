//! What a status counts is what has happened: an observer who knows the cause of every end keeps
//! the same books.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;
use trainyard_api::RestartPolicy::{self, Always, ExitCode, Never, OnFailure};
use trainyard_api::{JobPhase, TrainingJob};
use trainyard_core::indices;
use trainyard_core::view::PodPhase;

use crate::common::World;
use crate::common::jobs::{Change, custom, pytorch};

/// Something that happens to pods, and is the cause of all that follows.
#[derive(Clone, Debug)]
enum Cause {
    Fail(usize, i32),
    Evict(usize),
    /// Somebody deletes a pod, whose program then ends with a code.
    Delete(usize, i32),
    /// A node is drained, and the programs end with a code.
    Drain(usize, i32),
    Reboot(usize),
    Succeed(usize),
    SuspendAndResume,
}

/// What the operator does between two things that happen.
#[derive(Clone, Copy, Debug)]
enum Between {
    Nothing,
    Reconcile,
    Crash(usize),
}

/// Something that happens, and what comes of it where pods train as one.
#[derive(Clone, Debug)]
struct Happening {
    cause: Cause,
    /// Whether the other pods fail because of it, and how long after each other.
    others_follow: bool,
    delay: i64,
    between: Vec<Between>,
}

fn happening() -> impl Strategy<Value = Happening> {
    let pod = 0..4usize;
    let code = select(vec![0, 1, 143]);
    let cause = prop_oneof![
        3 => (pod.clone(), select(vec![1, 127, 128, 137, 255])).prop_map(|(pod, code)| Cause::Fail(pod, code)),
        2 => pod.clone().prop_map(Cause::Evict),
        2 => (pod.clone(), code.clone()).prop_map(|(pod, code)| Cause::Delete(pod, code)),
        2 => (0..2usize, code).prop_map(|(node, code)| Cause::Drain(node, code)),
        1 => (0..2usize).prop_map(Cause::Reboot),
        2 => pod.prop_map(Cause::Succeed),
        1 => Just(Cause::SuspendAndResume),
    ];
    let between = prop_oneof![
        Just(Between::Nothing),
        Just(Between::Reconcile),
        (0..8usize).prop_map(Between::Crash),
    ];
    let between = proptest::collection::vec(between, 1..6);
    (cause, any::<bool>(), 0..3i64, between).prop_map(|(cause, others_follow, delay, between)| Happening {
        cause,
        others_follow,
        delay,
        between,
    })
}

/// The books of somebody who knows the cause of every end.
struct Books {
    policy: RestartPolicy,
    trains_as_one: bool,
    limit: i32,
    failures: i32,
    disruptions: i32,
    done: BTreeSet<i32>,
    ended: Option<JobPhase>,
}

impl Books {
    /// So many pods were taken away at once.
    fn disruption(&mut self, pods: usize) {
        if pods == 0 {
            return;
        }
        match self.policy {
            Never => self.ended = Some(JobPhase::Failed),
            _ if self.trains_as_one => self.disruptions += 1,
            _ => self.disruptions += i32::try_from(pods).unwrap(),
        }
    }

    fn failure(&mut self, code: i32) {
        let stands = self.policy == Never || self.policy == ExitCode && code < 128;
        if stands || self.failures == self.limit {
            self.ended = Some(JobPhase::Failed);
        } else {
            self.failures += 1;
        }
    }

    fn success(&mut self, index: i32, pods: usize) {
        if self.policy != Always {
            self.done.insert(index);
        }
        if self.done.len() == pods {
            self.ended = Some(JobPhase::Succeeded);
        }
    }
}

fn operate(world: &mut World, between: Between) {
    match between {
        Between::Nothing => {}
        Between::Reconcile => drop(world.reconcile()),
        Between::Crash(writes) => drop(world.crash_after(writes)),
    }
}

fn end(world: &mut World, name: &str, code: i32) {
    if code == 0 {
        world.succeed(name);
    } else {
        world.fail(name, code);
    }
}

fn running(world: &World) -> Vec<String> {
    world.names(|row| row.phase == PodPhase::Running && !row.terminating)
}

fn on_node(world: &World, node: &str) -> Vec<String> {
    let running = running(world).into_iter();
    running
        .filter(|name| world.pod(name).node.as_deref() == Some(node))
        .collect()
}

/// Makes it happen, in the world and in the books; whether others may follow.
fn happen(world: &mut World, books: &mut Books, happening: &Happening, pods: usize) -> bool {
    let names = running(world);
    let pick = |i: &usize| names.get(i % names.len().max(1)).cloned();
    let first = happening.between.first().copied().unwrap_or(Between::Nothing);
    match &happening.cause {
        Cause::Fail(i, code) => {
            let Some(name) = pick(i) else { return false };
            world.fail(&name, *code);
            books.failure(*code);
        }
        Cause::Evict(i) => {
            let Some(name) = pick(i) else { return false };
            world.evict(&name);
            books.disruption(1);
        }
        Cause::Delete(i, code) => {
            let Some(name) = pick(i) else { return false };
            world.ask_to_go(&name);
            operate(world, first);
            world.tick(1);
            end(world, &name, *code);
            books.disruption(1);
        }
        Cause::Drain(node, code) => {
            let node = format!("node-{node}");
            let hit = on_node(world, &node);
            world.drain(&node);
            operate(world, first);
            for name in &hit {
                world.tick(1);
                end(world, name, *code);
            }
            books.disruption(hit.len());
            return !hit.is_empty();
        }
        Cause::Reboot(node) => {
            let node = format!("node-{node}");
            let hit = on_node(world, &node).len();
            books.disruption(hit);
            world.reboot(&node);
            return hit > 0;
        }
        Cause::Succeed(i) => {
            let Some(name) = pick(i) else { return false };
            let index = name.rsplit_once('-').unwrap().1.parse().unwrap();
            world.succeed(&name);
            books.success(index, pods);
            return false;
        }
        Cause::SuspendAndResume => {
            world.suspend(true);
            world.settle();
            world.suspend(false);
            books.done.clear();
            return false;
        }
    }
    true
}

fn follow(world: &mut World, happening: &Happening) {
    let mut between = happening.between.iter().cycle();
    for name in running(world) {
        operate(world, *between.next().unwrap());
        world.tick(happening.delay);
        // What the operator has just made anew does not follow.
        if world
            .pods
            .iter()
            .any(|row| *row.name == *name && row.phase == PodPhase::Running)
        {
            world.fail(&name, 1);
        }
    }
}

fn job(as_one: bool, pods: i32, policy: RestartPolicy, limit: i32) -> TrainingJob {
    let roles = [("worker", pods)];
    let job = if as_one { pytorch(&roles) } else { custom(&roles) };
    job.role("worker", |role| role.restart_policy = Some(policy))
        .backoff_limit(limit)
        .one_by_one()
}

proptest! {
    #![proptest_config(crate::cases(2000))]

    #[test]
    fn the_counts_of_a_status_are_those_of_somebody_who_knows_all(
        (as_one, pods, limit) in (any::<bool>(), 1..5i32, 0..4i32),
        policy in select(vec![Never, OnFailure, Always, ExitCode]),
        life in proptest::collection::vec(happening(), 1..12),
    ) {
        let mut world = World::new(job(as_one, pods, policy, limit));
        let mut books = Books {
            policy,
            trains_as_one: as_one,
            limit,
            failures: 0,
            disruptions: 0,
            done: BTreeSet::new(),
            ended: None,
        };
        world.settle();
        for happening in &life {
            let may_follow = happen(&mut world, &mut books, happening, usize::try_from(pods).unwrap());
            if as_one && may_follow && happening.others_follow {
                follow(&mut world, happening);
            }
            operate(&mut world, *happening.between.last().unwrap());
            world.settle();
            prop_assert_eq!(world.phase(), Some(books.ended.unwrap_or(JobPhase::Running)), "{:?}", happening);
            prop_assert_eq!(world.restarts(), (books.failures, books.disruptions), "{:?}", happening);
            if books.ended.is_some() {
                break;
            }
            prop_assert_eq!(world.role("worker").succeeded_indices, indices::format(&books.done));
            world.tick(60);
        }
    }
}
