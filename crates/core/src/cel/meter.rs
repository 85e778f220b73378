//! What limits an evaluation.

use super::fault::Fault;

/// How much may yet be done.
///
/// Whatever grows with the job is paid for before it is done. What was paid for limits the memory
/// that values take, too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    pub(super) left: u64,
    is_exhausted: bool,
}

impl Meter {
    /// Allows so many steps. Eight bytes of text that is made count as one.
    pub(crate) fn new(steps: u64) -> Self {
        Self {
            left: steps,
            is_exhausted: false,
        }
    }

    /// Returns true if a step was refused. Every further one is refused, too.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), Fault> {
        let left = self.left.checked_sub(u64::try_from(steps).unwrap_or(u64::MAX));
        self.left = left.unwrap_or(0);
        self.is_exhausted |= left.is_none();
        if self.is_exhausted {
            return Err(Fault::new(
                "it takes too long for a job of this size: simplify it, or use fewer pods",
            ));
        }
        Ok(())
    }

    /// Pays for a text that is made or read, character by character.
    pub(super) fn spend_text(&mut self, bytes: usize) -> Result<(), Fault> {
        self.spend(1 + bytes / 8)
    }

    /// Pays for a comparison of two texts.
    pub(super) fn spend_comparison(&mut self, one: &str, other: &str) -> Result<(), Fault> {
        self.spend(one.len().min(other.len()) / 64)
    }
}
