//! What users do with jobs, on real nodes and, but for what only these have, on the embedded
//! cluster.
//!
//! Every scenario has its own namespace and its own operator, which watches that namespace only.
//! All are in one program: each further one would take as long to build as all of these.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this is a test, which Clippy can not see without the usual harness"
)]

mod autoscaler;
mod contract;
mod dask;
mod declared;
mod drains;
mod elastic;
mod group_restart;
mod horovod;
mod jobs;
mod kinds;
mod mpi;
mod nodes;
mod order;
mod quota;
mod refusals;
mod requests;
mod secrets;
mod trainings;

use std::process::ExitCode;

use trainyard_testkit::lab;

fn main() -> ExitCode {
    lab::main(&[
        autoscaler::SCENARIOS,
        contract::SCENARIOS,
        dask::TRAININGS,
        declared::SCENARIOS,
        drains::SCENARIOS,
        drains::TRAININGS,
        elastic::SCENARIOS,
        elastic::TRAININGS,
        group_restart::SCENARIOS,
        horovod::SCENARIOS,
        jobs::SCENARIOS,
        kinds::SCENARIOS,
        kinds::TRAININGS,
        mpi::SCENARIOS,
        mpi::STATEFUL,
        nodes::SCENARIOS,
        order::SCENARIOS,
        quota::SCENARIOS,
        refusals::SCENARIOS,
        requests::SCENARIOS,
        secrets::SCENARIOS,
        trainings::SMALL,
        trainings::TORCH,
        trainings::LARGE,
    ])
}
