//! What the system allows this process.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Lets this process have as many connections as the system allows at all.
///
/// Container runtimes give programs 1,024 open files at first, for the sake of those that can't do with more; every agent that
/// waits is one.
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
