//! The modes that ask the observer, most of all `wait`, as a pod runs them, and an observer on this
//! machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

mod agent;
mod contract;
mod ends;
mod library;
mod server;
mod troubles;

use trainyard_eventually::HANG_LIMIT as LONG;
