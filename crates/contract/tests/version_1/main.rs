//! Version 1: what was recorded in `tests/v1` is still read, and what is written today is
//! understood by who knows version 1 alone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail tests")]

/// A file that was recorded.
macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("../v1/", $name))
    };
}

mod readers;
mod recordings;
mod values;
