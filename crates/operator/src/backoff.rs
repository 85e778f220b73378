//! The delay before the next attempt, which grows with every failure in a row.

use std::hash::{BuildHasher, RandomState};

pub(crate) use trainyard_core::backoff::Backoff;

/// Returns a random number from 0 to 1.
#[expect(
    clippy::cast_precision_loss,
    reason = "a random number has no precision to lose"
)]
pub(crate) fn jitter() -> f64 {
    // The standard library seeds every such hasher differently. No other randomness is needed here.
    let random = RandomState::new().hash_one(0_u8);
    random as f64 / u64::MAX as f64
}
