//! What a reader of the log is told: every change, and no sentence again and again.

use std::io::Write;

use crate::mode::PROGRAM;

/// Tells how the wait goes. A reader that has gone is no reason to stop.
pub struct Story<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    reason: Option<String>,
    trouble: Option<String>,
    /// The last line is about a trouble.
    is_in_trouble: bool,
}

impl<'a> Story<'a> {
    /// A story that has not begun.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Self {
            out,
            err,
            reason: None,
            trouble: None,
            is_in_trouble: false,
        }
    }

    /// What is waited for. It is told again after a trouble: otherwise the log would end with a trouble that is over.
    pub fn waits(&mut self, reason: &str) {
        if self.is_in_trouble || self.reason.as_deref() != Some(reason) {
            let _ = writeln!(self.out, "{reason}");
            self.reason = Some(reason.to_owned());
            self.is_in_trouble = false;
        }
    }

    /// Why nothing is known at the moment. The same trouble is not told again, also if it was over in between.
    pub fn trouble(&mut self, trouble: &str) {
        if self.trouble.as_deref() != Some(trouble) {
            let _ = writeln!(self.err, "{PROGRAM}: {trouble}; trying again");
            self.trouble = Some(trouble.to_owned());
            self.is_in_trouble = true;
        }
    }

    /// Why the wait is over although nobody said so.
    pub fn overridden(&mut self, by: &str) {
        let _ = writeln!(self.out, "told to start now, by {by}");
    }

    /// Why the wait is in vain. The sentence stands alone: the kubelet takes the end of the log as the reason.
    pub fn never(&mut self, reason: &str) {
        let _ = writeln!(self.err, "{reason}");
    }
}
