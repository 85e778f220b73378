//! The vocabulary of jobs: its definition, defaults, rules, and what may change.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail tests")]

mod cel;
mod change;
mod default;
mod definition;
mod elastic;
mod requests;
mod validate;
