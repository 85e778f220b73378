//! Why an evaluation has no result.

use std::fmt;

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(String);

impl Fault {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
