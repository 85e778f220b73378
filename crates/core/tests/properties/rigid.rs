//! Random lives of elastic jobs whose pods all start anew at another size. No pod is deleted before
//! all have left or their time is over, and never are there pods of two sizes.

use proptest::prelude::*;
use proptest::sample::select;
use trainyard_api::{Elastic, JobPhase, RestartPolicy, Scaling, ScalingStep, TrainingJob};
use trainyard_core::view::{PodPhase, PodRow};

use crate::common::World;
use crate::common::jobs::{Change, job, with_agent};
use crate::elastic::{ACKNOWLEDGE_SECONDS, DRAIN_SECONDS, Drains, Happening, calm, happen, happening};

/// The variable by which xgboost tells how many pods there are.
const SIZE: &str = "WORLD_SIZE";

fn rigid_job() -> impl Strategy<Value = TrainingJob> {
    let policy = select(vec![RestartPolicy::OnFailure, RestartPolicy::Always]);
    (1..5i32, 1..4i32, policy).prop_map(|(replicas, min, policy)| {
        job("xgboost", &[("master", 1), ("worker", 1)])
            .role("worker", |role| {
                role.replicas = None;
                role.restart_policy = Some(policy);
            })
            .role("master", |role| {
                role.restart_policy = Some(RestartPolicy::OnFailure);
            })
            .succeeded_when(&[&["master"]])
            .run(|run| run.backoff_limit = Some(1000))
            .spec(|spec| {
                spec.elastic = Some(Elastic {
                    replicas: replicas.max(min),
                    min_replicas: Some(min),
                    max_replicas: Some(6),
                    drain_timeout_seconds: Some(DRAIN_SECONDS),
                    ..Elastic::default()
                });
            })
    })
}

fn scaling(world: &World) -> Option<Scaling> {
    let status = world.job.status.as_ref()?;
    status.scaling.as_deref().cloned()
}

/// Whether it was decided, and written down, that all pods have left.
fn is_decided(world: &World) -> bool {
    let scaling = scaling(world);
    scaling.is_some_and(|scaling| scaling.restarts_all() && scaling.step == ScalingStep::Restarting)
}

/// The operator works. When it decides that all pods have left, they had, or were out of time. Only
/// then does it delete them. Those that begin to run after that leave without a word.
fn watch_over(world: &mut World, drains: &Drains, work: impl FnOnce(&mut World)) {
    let was_decided = is_decided(world);
    let before = world.pods.clone();
    work(world);
    let status = world.status();
    let goes_on = |phase: JobPhase| !phase.is_terminal() && !phase.is_suspended();
    if was_decided || !status.phase.is_some_and(goes_on) {
        return;
    }
    let exists = |row: &&PodRow| {
        world
            .pods
            .iter()
            .any(|after| after.uid == row.uid && !after.terminating)
    };
    let runs = |row: &&PodRow| row.phase == PodPhase::Running && !row.terminating;
    let running: Vec<&PodRow> = before.iter().filter(runs).collect();
    if !is_decided(world) {
        // One that ended for a reason of its own takes the others with it.
        let mut current = running.iter().filter(|row| !world.is_former(row));
        assert!(current.all(exists), "{running:#?} {status:#?}");
        return;
    }
    let knows = |row: &&PodRow| drains.reports.contains_key(&*row.uid);
    let patience = match running.as_slice() {
        [] => return,
        all if all.iter().any(knows) => DRAIN_SECONDS,
        _ => ACKNOWLEDGE_SECONDS,
    };
    let since = scaling(world).and_then(|scaling| scaling.since).unwrap().0;
    // The status has whole seconds.
    let waited = world.now.duration_since(since).as_secs();
    assert!(
        waited >= patience - 1,
        "after {waited} s: {running:#?} {status:#?}"
    );
}

/// What holds at every moment.
fn check_always(world: &World) {
    let sizes: Vec<Option<&str>> = world
        .pods
        .iter()
        .map(|row| world.variable(&row.name, SIZE))
        .collect();
    assert!(sizes.windows(2).all(|pair| pair[0] == pair[1]), "{sizes:?}");
}

proptest! {
    #![proptest_config(crate::cases(1000))]

    #[test]
    fn rigid_jobs_come_to_their_size(
        job in rigid_job(),
        happenings in proptest::collection::vec(happening(), 1..60),
    ) {
        let mut world = World::new(job);
        world.settings = with_agent();
        let mut drains = Drains::default();
        for happening in &happenings {
            match happening {
                Happening::Reconcile => watch_over(&mut world, &drains, |world| drop(world.reconcile())),
                Happening::Crash(writes) => watch_over(&mut world, &drains, |world| {
                    world.crash_after(*writes);
                }),
                other => happen(&mut world, &mut drains, other),
            }
            check_always(&world);
        }
        calm(&mut world, &mut drains, |world, drains| {
            watch_over(world, drains, |world| drop(world.reconcile()));
            check_always(world);
        });
        let status = world.status();
        let elastic = world.job.spec.elastic.clone().unwrap();
        let replicas = status.replicas.unwrap_or_default();
        if status.phase == Some(JobPhase::Running) {
            let has_succeeded = status.roles.iter().any(|role| role.succeeded > 0);
            prop_assert!(replicas == elastic.replicas || has_succeeded, "{:#?}", status);
            if let Some(row) = world.pods.first() {
                let size = (replicas + 1).to_string();
                prop_assert_eq!(world.variable(&row.name, SIZE), Some(&*size));
            }
        }
    }
}
