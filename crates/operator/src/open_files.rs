//! The limit of open files.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit of open files to what the system allows.
///
/// Container runtimes set 1,024, because some programs can't handle more. Every agent that waits
/// for the observer needs one.
pub fn allow_many_connections() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let before = limit.current;
    limit.current = limit.maximum;
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => tracing::debug!(?before, now = ?limit.current, "more open files"),
        Err(error) => tracing::warn!(%error, ?before, "the limit of open files can't be raised"),
    }
}
