//! Random lives of elastic jobs: targets change, pods leave or do not, fail or vanish, the operator
//! dies anywhere. No pod that runs is deleted before it has left or its time is over.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;
use proptest::sample::select;
use trainyard_api::{Elastic, JobPhase, Refill, RestartPolicy, StartAt, TrainingJob};
use trainyard_contract::drain::{DrainReport, DrainState};
use trainyard_core::members::Members;
use trainyard_core::plan::Step;
use trainyard_core::view::PodPhase;

use crate::common::World;
use crate::common::jobs::{Change, custom, with_agent};

/// How long a program that says nothing is waited for.
pub(crate) const ACKNOWLEDGE_SECONDS: i64 = 10;
pub(crate) const DRAIN_SECONDS: i64 = 60;

/// Something that happens. Pods are meant by their position among those that exist.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    Reconcile,
    Crash(usize),
    RunAll,
    Run(usize),
    Scale(i32),
    Bounds(i32, i32),
    /// The program of a pod says how far it is, whether it was told to leave or not.
    Report(usize, DrainState),
    /// It ends, with an exit code.
    End(usize, i32),
    Vanish(usize),
    AskToGo(usize),
    KubeletsRemove,
    Suspend(bool),
    Tick(i64),
}

pub(crate) fn happening() -> impl Strategy<Value = Happening> {
    use Happening::{
        AskToGo, Bounds, Crash, End, KubeletsRemove, Reconcile, Report, Run, RunAll, Scale, Suspend, Tick,
        Vanish,
    };
    let pod = 0..8usize;
    let state = select(vec![DrainState::Acknowledged, DrainState::CheckpointDone]);
    prop_oneof![
        8 => Just(Reconcile),
        4 => (0..6usize).prop_map(Crash),
        5 => Just(RunAll),
        1 => pod.clone().prop_map(Run),
        5 => (1..7i32).prop_map(Scale),
        1 => (1..4i32, 3..7i32).prop_map(|(min, max)| Bounds(min, max)),
        4 => (pod.clone(), state).prop_map(|(pod, state)| Report(pod, state)),
        3 => (pod.clone(), select(vec![0, 1, 143])).prop_map(|(pod, code)| End(pod, code)),
        1 => pod.clone().prop_map(Vanish),
        1 => pod.prop_map(AskToGo),
        3 => Just(KubeletsRemove),
        1 => any::<bool>().prop_map(Suspend),
        4 => (1..40i64).prop_map(Tick),
    ]
}

fn job() -> impl Strategy<Value = TrainingJob> {
    let start = select(vec![StartAt::Min, StartAt::Target]);
    let refill = select(vec![Refill::Always, Refill::Always, Refill::Never]);
    (1..5i32, 1..4i32, start, refill).prop_map(|(replicas, min, start_at, refill)| {
        let mut job = custom(&[("store", 1), ("worker", 1)])
            .role("worker", |role| {
                role.replicas = None;
                role.restart_policy = Some(RestartPolicy::OnFailure);
            })
            .role("store", |role| role.restart_policy = Some(RestartPolicy::Always))
            .succeeded_when(&[&["worker"]])
            .run(|run| run.backoff_limit = Some(1000));
        job.spec.elastic = Some(Elastic {
            replicas: replicas.max(min),
            min_replicas: Some(min),
            max_replicas: Some(6),
            start_at: Some(start_at),
            refill: Some(refill),
            drain_timeout_seconds: Some(DRAIN_SECONDS),
            ..Elastic::default()
        });
        job
    })
}

/// What pods know, by their UIDs.
#[derive(Default)]
pub(crate) struct Drains {
    /// When they were told to leave.
    since: BTreeMap<String, Timestamp>,
    /// Pods that did not run when the role was without them already: they leave without a word.
    dropped: BTreeSet<String>,
    /// When they reported first, and what last. Their agents say it again and again.
    pub(crate) reports: BTreeMap<String, (Timestamp, DrainReport)>,
}

fn index(name: &str) -> Option<i32> {
    name.strip_prefix("mnist-worker-")?.parse().ok()
}

/// Takes note of who is told to leave.
fn listen(world: &World, told: &mut Drains) {
    let rules = world
        .job
        .status
        .as_ref()
        .and_then(|status| status.accepted.rules.as_ref());
    let worker = rules.and_then(|rules| rules.roles.iter().find(|role| role.name == "worker"));
    if let Some(worker) = worker {
        let members = match &worker.members {
            Some(listed) => Members::parse(listed, 1000),
            None => Members::first(worker.replicas),
        };
        let waiting = world.pods.iter().filter(|row| row.phase == PodPhase::Pending);
        let dropped = waiting.filter(|row| index(&row.name).is_some_and(|index| !members.contains(index)));
        told.dropped.extend(dropped.map(|row| row.uid.to_string()));
    }
    let Some(scaling) = world
        .job
        .status
        .as_ref()
        .and_then(|status| status.scaling.clone())
    else {
        return;
    };
    let victims = trainyard_core::indices::parse(scaling.victims.as_deref().unwrap_or_default(), 1000);
    let since = scaling.since.map_or(world.now, |since| since.0);
    for row in &world.pods {
        if index(&row.name).is_some_and(|index| victims.contains(&index)) {
            told.since.entry(row.uid.to_string()).or_insert(since);
        }
    }
}

/// The operator works. Whom it deletes had left, or was out of time.
fn watch_over(world: &mut World, told: &mut Drains, work: impl FnOnce(&mut World)) {
    listen(world, told);
    let before = world.pods.clone();
    let now = world.now;
    work(world);
    listen(world, told);
    let status = world.status();
    let goes_on = status
        .phase
        .is_some_and(|phase| !phase.is_terminal() && !phase.is_suspended());
    for row in before
        .iter()
        .filter(|row| row.phase == PodPhase::Running && !row.terminating)
    {
        let after = world.pods.iter().find(|after| after.uid == row.uid);
        let is_deleted = after.is_none_or(|after| after.terminating);
        let is_dropped = told.dropped.contains(&*row.uid);
        if !goes_on || !is_deleted || is_dropped || index(&row.name).is_none() {
            continue;
        }
        let since = told.since.get(&*row.uid).unwrap_or_else(|| {
            panic!("{} was not told to leave, and is deleted: {status:#?}", row.name);
        });
        let is_in_time =
            |(at, _): &(Timestamp, DrainReport)| at.duration_since(*since).as_secs() < ACKNOWLEDGE_SECONDS;
        let patience = if told.reports.get(&*row.uid).is_some_and(is_in_time) {
            DRAIN_SECONDS
        } else {
            ACKNOWLEDGE_SECONDS
        };
        // The status has whole seconds.
        assert!(
            now.duration_since(*since).as_secs() >= patience - 1,
            "{} is deleted before its time: {status:#?}",
            row.name
        );
    }
}

/// Agents report within seconds to whoever leads.
fn report_again(world: &mut World, told: &Drains) {
    for (uid, (_, report)) in &told.reports {
        world.local.drains.record(uid, report.clone());
    }
}

pub(crate) fn happen(world: &mut World, told: &mut Drains, happening: &Happening) {
    let names = world.names(|_| true);
    let pod = |i: &usize| names.get(*i % names.len().max(1)).cloned();
    match happening {
        Happening::Reconcile => watch_over(world, told, |world| drop(world.reconcile())),
        Happening::Crash(writes) => watch_over(world, told, |world| {
            world.crash_after(*writes);
        }),
        Happening::RunAll => world.run_all(),
        Happening::KubeletsRemove => world.kubelets_remove(),
        Happening::Suspend(suspend) => world.suspend(*suspend),
        Happening::Tick(seconds) => {
            world.tick(*seconds);
            report_again(world, told);
        }
        Happening::Scale(replicas) => world.edit(|spec| {
            let elastic = spec.elastic.as_mut().unwrap();
            elastic.replicas = (*replicas).clamp(elastic.min(), elastic.max());
        }),
        Happening::Bounds(min, max) => world.edit(|spec| {
            let elastic = spec.elastic.as_mut().unwrap();
            (elastic.min_replicas, elastic.max_replicas) = (Some(*min), Some(*max));
            elastic.replicas = elastic.replicas.clamp(*min, *max);
        }),
        Happening::Run(i)
        | Happening::Report(i, _)
        | Happening::End(i, _)
        | Happening::Vanish(i)
        | Happening::AskToGo(i) => {
            let Some(name) = pod(i) else { return };
            let is_alive = matches!(world.pod(&name).phase, PodPhase::Running | PodPhase::Pending);
            match happening {
                Happening::Vanish(_) => world.vanish(&name),
                Happening::AskToGo(_) => world.ask_to_go(&name),
                Happening::Report(_, state) => {
                    let uid = world.pod(&name).uid.to_string();
                    let report = DrainReport {
                        state: *state,
                        step: None,
                    };
                    let first = told.reports.get(&uid).map_or(world.now, |(at, _)| *at);
                    told.reports.insert(uid, (first, report));
                    report_again(world, told);
                }
                _ if !is_alive => {}
                Happening::End(_, 0) => world.succeed(&name),
                Happening::End(_, code) => world.fail(&name, *code),
                _ => world.run_on(&name, "node-0"),
            }
        }
    }
}

/// What holds at every moment.
fn check_always(world: &World) {
    let Some(status) = &world.job.status else { return };
    let goes_on = |phase: JobPhase| !phase.is_terminal() && !phase.is_suspended();
    if !status.phase.is_some_and(goes_on) {
        return;
    }
    let elastic = world.job.spec.elastic.as_ref().unwrap();
    let worker = status.roles.iter().find(|role| role.name == "worker").unwrap();
    // A job with too few pods says so, or is on its way.
    if status.phase == Some(JobPhase::Running) && status.observed_generation == world.job.metadata.generation
    {
        let there = worker.active + worker.succeeded + worker.failed;
        assert!(
            there >= elastic.min().min(status.replicas.unwrap()),
            "{status:#?}"
        );
    }
    // Bounds that were lowered are reached in order, and never is a pod added beyond them.
    if let Some(scaling) = &status.scaling
        && scaling.joining.is_some()
    {
        assert!(scaling.to <= 6, "{status:#?}");
    }
}

/// The storm is over: pods leave when they are told to, and the target is reached.
pub(crate) fn calm(world: &mut World, told: &mut Drains, mut reconcile: impl FnMut(&mut World, &mut Drains)) {
    world.suspend(false);
    report_again(world, told);
    for _ in 0..60 {
        reconcile(world, told);
        world.kubelets_remove();
        world.run_all();
        world.tick(30);
        report_again(world, told);
        let plan = world.plan();
        let rests = plan.clone().step() == Step::Done && plan.actions().count() == 0;
        if rests && world.status().scaling.is_none() && world.names(|row| row.terminating).is_empty() {
            return;
        }
    }
    panic!("it never rests: {:#?}", world.status());
}

proptest! {
    #![proptest_config(crate::cases(1000))]

    #[test]
    fn elastic_jobs_come_to_their_size(
        job in job(),
        happenings in proptest::collection::vec(happening(), 1..60),
    ) {
        let mut world = World::new(job);
        world.settings = with_agent();
        let mut told = Drains::default();
        for happening in &happenings {
            happen(&mut world, &mut told, happening);
            check_always(&world);
        }
        calm(&mut world, &mut told, |world, told| {
            watch_over(world, told, |world| drop(world.reconcile()));
        });
        let status = world.status();
        let elastic = world.job.spec.elastic.clone().unwrap();
        let (replicas, refill) = (status.replicas.unwrap_or_default(), elastic.refill);
        if status.phase == Some(JobPhase::Running) {
            prop_assert!(
                replicas == elastic.replicas || refill == Some(Refill::Never) && replicas <= elastic.replicas,
                "{:#?}",
                status
            );
            prop_assert!(replicas <= elastic.max() && replicas > 0);
        }
    }
}
