//! What holds for every job, whatever happens to it and wherever the operator dies.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail tests"
)]

#[path = "../common/mod.rs"]
mod common;

mod lives;
mod total;

/// That many cases, always the same, so that a change passes or fails whoever runs it; or as many as `PROPTEST_CASES` says, of which
/// nobody has seen the last.
fn cases(cases: u32) -> proptest::test_runner::Config {
    let default = proptest::test_runner::Config::default();
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => default,
        None => proptest::test_runner::Config {
            cases,
            rng_seed: proptest::test_runner::RngSeed::Fixed(20),
            ..default
        },
    }
}
