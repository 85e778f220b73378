//! Why an evaluation has no result.

use std::fmt;

/// How many characters of a text are in a message.
const MAX_QUOTED: usize = 64;

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(String);

impl Fault {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// A text for a message: in quotes, and if it is long, its beginning.
    pub(super) fn quote(text: &str) -> String {
        match text.char_indices().nth(MAX_QUOTED) {
            Some((end, _)) => format!("{:?}...", text.get(..end).unwrap_or_default()),
            None => format!("{text:?}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
