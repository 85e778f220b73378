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

use trainyard_eventually::HANG_LIMIT as LONG;
