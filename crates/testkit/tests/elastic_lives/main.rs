//! Random lives of elastic jobs, in embedded clusters with played kubelets: sizes change by every
//! handle, pods are killed, jobs are suspended, the operator dies at any write.
//!
//! What holds is checked event by event, by watches of jobs, pods and requests: never fewer pods
//! than `minReplicas` without `Paused`, never more than `maxReplicas`, no worker removed before it
//! has left or its time is over, and every request ends.
//!
//! The runtime of each life has one thread and paused time, so that hours take a moment.
//!
//! `TRAINYARD_LIVES_SEED` is the seed of the first life, `TRAINYARD_LIVES` their number: `make
//! explore` sets both.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

mod clock;
mod draw;
mod ledger;
mod operators;
mod programs;
mod record;
mod world;

use std::time::Duration;

use draw::{ClusterPlan, Farewell, Happening, JobPlan, Life, RequestPlan};
use trainyard_testkit::faults::CrashPoint;
use world::{Counts, HANDLES, live};

/// The lives that `make test` sees.
const FIRST_SEED: u64 = 1;
const LIVES: u64 = 200;

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is no number")),
        Err(_) => default,
    }
}

/// Leaves out what happens for nothing: as long as the life goes wrong without it.
fn smallest(mut life: Life, mut problem: String) -> (Life, String) {
    let mut position = life.happenings.len();
    while position > 0 {
        position -= 1;
        let mut smaller = life.clone();
        let (pause, _) = smaller.happenings.remove(position);
        // What comes next comes when it came.
        if let Some((next, _)) = smaller.happenings.get_mut(position) {
            *next += pause;
        }
        if let Err(still) = live(&smaller) {
            (life, problem) = (smaller, still);
        }
    }
    (life, problem)
}

/// A job of three workers that leave in order, and a request while the operator dies at its n-th
/// next write.
fn dies_at_write(number: u64, when: CrashPoint, request: Happening) -> Life {
    Life {
        job: JobPlan {
            replicas: 3,
            min: 1,
            max: 6,
            starts_at_min: false,
            refills: true,
            drain_seconds: 40,
            backoff_limit: 2,
        },
        cluster: ClusterPlan {
            has_agents: true,
            request_time: Duration::from_millis(3),
            watch_lag: Duration::ZERO,
            start_time: Duration::from_millis(1500),
            farewells: vec![Farewell::Orderly(Duration::from_millis(1200))],
        },
        happenings: vec![
            (Duration::from_secs(30), Happening::KillAtWrite(number, when)),
            (Duration::ZERO, request),
        ],
    }
}

/// Returns at how many writes the operator has died.
fn dies_at_every_write(request: &Happening) -> u64 {
    for when in [CrashPoint::Before, CrashPoint::After] {
        for number in 1.. {
            let life = dies_at_write(number, when, request.clone());
            let counts = live(&life).unwrap_or_else(|problem| panic!("{life:#?}\n{problem}"));
            assert_eq!(
                (counts.succeeded, counts.failed, counts.removals),
                (1, 0, 0),
                "at write {number}, {when:?}: {counts:?}"
            );
            if counts.deaths == 0 && when == CrashPoint::After {
                return number - 1;
            } else if counts.deaths == 0 {
                break;
            }
        }
    }
    0
}

const REQUEST: RequestPlan = RequestPlan {
    clamps: false,
    timeout_seconds: 60,
    drain_seconds: None,
};

#[test]
fn workers_leave_in_order_whichever_write_the_operator_dies_at() {
    let writes = dies_at_every_write(&Happening::ScaleInCount(REQUEST, 2));
    // Owner, decision, target, end; begin, one step at least, end; two deletions.
    assert!((9..=12).contains(&writes), "{writes} writes");
}

#[test]
fn workers_join_once_whichever_write_the_operator_dies_at() {
    let writes = dies_at_every_write(&Happening::ScaleOut(REQUEST, 2));
    // Owner, decision, target, end; begin, end; two pods.
    assert!((8..=10).contains(&writes), "{writes} writes");
}

#[test]
fn elastic_jobs_keep_their_promises_whatever_happens() {
    let first = number("TRAINYARD_LIVES_SEED", FIRST_SEED);
    let lives = number("TRAINYARD_LIVES", LIVES);
    println!("the seeds {first} to {}", first + lives.saturating_sub(1));
    let (mut all, mut wrong) = (Counts::default(), Vec::new());
    for seed in first..first + lives {
        match live(&Life::draw(seed)) {
            Ok(counts) => {
                println!("seed {seed}: {counts:?}");
                for (handle, times) in counts.handles {
                    *all.handles.entry(handle).or_default() += times;
                }
                all.succeeded += counts.succeeded;
                all.failed += counts.failed;
                all.removals += counts.removals;
                all.kills += counts.kills;
                all.deaths += counts.deaths;
            }
            Err(problem) => {
                println!("seed {seed}: {}", problem.lines().next().unwrap_or_default());
                wrong.push((seed, problem));
            }
        }
    }
    println!("{lives} lives: {all:?}");
    if let Some((seed, problem)) = wrong.first().cloned() {
        let seeds: Vec<u64> = wrong.iter().map(|(seed, _)| *seed).collect();
        let (life, problem) = smallest(Life::draw(seed), problem);
        panic!(
            "{} of {lives} lives went wrong, by their seeds: {seeds:?}. Of seed {seed}, made small:\n{life:#?}\n{problem}\n\
             the same again: TRAINYARD_LIVES_SEED={seed} TRAINYARD_LIVES=1 cargo test -p trainyard-testkit --test \
             elastic_lives",
            wrong.len()
        );
    }
    // A few lives need not have everything in them.
    if lives >= LIVES {
        let unused: Vec<&str> = HANDLES
            .into_iter()
            .filter(|handle| all.handles.get(handle).copied().unwrap_or_default() == 0)
            .collect();
        assert_eq!(unused, [""; 0], "nothing has changed in all lives by these");
    }
}
