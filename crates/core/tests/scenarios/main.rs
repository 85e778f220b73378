//! Scripted lives of jobs: what the operator does, step by step, when things happen to a job.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail tests"
)]

#[path = "../common/mod.rs"]
mod common;

mod backoff;
mod budgets;
mod bugs_of_others;
mod causes;
mod cleanup;
mod completion;
mod crashes;
mod declared;
mod depends;
mod disruptions;
mod drains;
mod elastic;
mod failures;
mod group_restart;
mod horovod;
mod incidents;
mod life;
mod mpi;
mod nodes;
mod pacing;
mod progress;
mod refused;
mod requests;
mod resuming;
mod rigid;
mod rolling;
mod scaling;
mod secrets;
mod suspension;
mod taken;
mod tensorflow;
mod told_to_go;
mod torchrun;
mod upgrades;
