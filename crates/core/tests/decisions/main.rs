//! What is decided about one job at one moment: which children it has, what is in them, and what is
//! refused.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail tests")]

mod agent;
mod ares;
mod children;
mod contract;
mod declared;
mod dialect;
mod echo;
mod elastic;
mod environments;
mod frameworks;
#[path = "../common/jobs.rs"]
#[allow(dead_code, reason = "each suite uses its own part of it")]
mod jobs;
mod launchers;
mod mpi;
mod spot;
mod tables;
mod walk_through;

// The framework of the walk-through is written as if it were in core.
use trainyard_core::job;
