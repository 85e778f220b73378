//! The remote shell, both sides, as pods run them, on this machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

mod commands;
mod ends;
mod exec;
mod job;
mod pdsh;
mod processes;
mod ssh;
mod strangers;

use trainyard_eventually::HANG_LIMIT as LONG;
