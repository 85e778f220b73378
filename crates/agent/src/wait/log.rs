//! The log of a wait: every change, and no sentence again and again.

use std::io::Write;

use crate::mode::PROGRAM;

/// Writes the log of a wait. A failure to write is ignored.
pub struct WaitLog<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    reason: Option<String>,
    failure: Option<String>,
    /// Whether the last line is about a failure.
    has_failed: bool,
}

impl<'a> WaitLog<'a> {
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Self {
            out,
            err,
            reason: None,
            failure: None,
            has_failed: false,
        }
    }

    /// What the pod waits for. It is logged again after a failure, so that the log does not end
    /// with one that is over.
    pub fn waiting(&mut self, reason: &str) {
        if self.has_failed || self.reason.as_deref() != Some(reason) {
            let _ = writeln!(self.out, "{reason}");
            self.reason = Some(reason.to_owned());
            self.has_failed = false;
        }
    }

    /// Why the observer can't be heard now. A failure that equals the last one is not logged again,
    /// even if it was over in between.
    pub fn failure(&mut self, failure: &str) {
        if self.failure.as_deref() != Some(failure) {
            let _ = writeln!(self.err, "{PROGRAM}: {failure}; trying again");
            self.failure = Some(failure.to_owned());
            self.has_failed = true;
        }
    }

    /// A person has ended the wait.
    pub fn overridden(&mut self, by: &str) {
        let _ = writeln!(self.out, "told to start now, by {by}");
    }

    /// Why the wait is in vain. The line has nothing else in it: the kubelet takes the end of the
    /// log as the reason.
    pub fn never(&mut self, reason: &str) {
        let _ = writeln!(self.err, "{reason}");
    }
}
