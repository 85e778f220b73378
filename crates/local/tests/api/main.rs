//! The embedded API server, asked as clients of Kubernetes ask.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

mod custom;
mod events;
mod exec;
mod kinds;
mod objects;
mod operator;
mod pod_listener;
mod pods;
mod removal;
mod support;
mod tokens;
mod watch;
