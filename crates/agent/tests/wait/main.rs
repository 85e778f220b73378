//! `trainyard-agent wait`, as a pod runs it, and an observer on this machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

mod agent;
mod ends;
mod library;
mod server;
mod troubles;

use std::time::Duration;

/// Longer than anything here takes, also on a busy machine.
const LONG: Duration = Duration::from_mins(1);
