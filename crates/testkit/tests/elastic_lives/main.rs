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

use draw::Life;
use world::{Counts, live};

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
                all.succeeded += counts.succeeded;
                all.failed += counts.failed;
                all.removals += counts.removals;
                all.kills += counts.kills;
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
}
