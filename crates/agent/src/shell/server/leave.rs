//! Ends the server of a pod that is to leave a job that goes on, when nothing runs in it for other
//! pods any more.
//!
//! The server is the program of such a pod. So it is the one that says that it knows, and that ends
//! when the launcher has taken its processes away.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use trainyard_contract::directories::drain::names::{ACKNOWLEDGED, LEAVE};

use super::commands::Commands;
use super::log;

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// For how long nothing may have run. A launcher that has not heard of it yet may start one more
/// command, and takes a host that does not answer for broken.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How a pod is told to leave, and who says that it knows.
#[derive(Debug)]
pub struct Leave {
    /// The directory with the files by which it is told.
    pub directory: PathBuf,
    /// The programs that are started in it say themselves that they know.
    pub is_silent: bool,
}

/// Waits until the pod is told to leave by a file, then until no command has run for a while, and
/// calls `end`.
pub fn end_when_left(leave: &Leave, idle_timeout: Duration, commands: &Commands, end: impl FnOnce()) {
    let Leave { directory, is_silent } = leave;
    while !directory.join(LEAVE).exists() {
        thread::sleep(POLL_INTERVAL);
    }
    log("this pod is to leave the job, and ends when no command runs in it");
    if !is_silent && let Err(error) = fs::write(directory.join(ACKNOWLEDGED), "") {
        // The operator takes it for a program that knows nothing of this, and deletes the pod.
        log(&format!("can't acknowledge it: {error}"));
    }
    let mut idle_since = Instant::now();
    while idle_since.elapsed() < idle_timeout {
        thread::sleep(POLL_INTERVAL.min(idle_timeout));
        if commands.are_running() {
            idle_since = Instant::now();
        }
    }
    end();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{TryRecvError, channel};

    use super::super::commands::tests::CHILDREN;
    use super::*;

    #[test]
    fn a_server_ends_when_it_was_told_and_its_commands_have_ended() {
        let directory = tempfile::tempdir().unwrap();
        let commands = Arc::new(Commands::new(CHILDREN.clone()));
        let started = commands.request_start(b"sleep 600".to_vec(), false).unwrap();
        let (group, _started) = started.end(true).unwrap().unwrap();
        let (ended, end) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let idle = Duration::from_millis(1);
                let leave = Leave {
                    directory: directory.path().to_owned(),
                    is_silent: false,
                };
                end_when_left(&leave, idle, &commands, || ended.send(()).unwrap());
            });
            assert_eq!(end.try_recv(), Err(TryRecvError::Empty), "nobody has told it");
            fs::write(directory.path().join(LEAVE), "").unwrap();
            while !directory.path().join(ACKNOWLEDGED).exists() {
                thread::yield_now();
            }
            assert_eq!(end.try_recv(), Err(TryRecvError::Empty), "a command runs");
            group.signal(rustix::process::Signal::KILL);
            drop(group);
            end.recv().unwrap();
        });
        CHILDREN.reap();
    }

    #[test]
    fn a_server_says_nothing_for_programs_that_speak_for_themselves() {
        let directory = tempfile::tempdir().unwrap();
        let commands = Commands::new(CHILDREN.clone());
        fs::write(directory.path().join(LEAVE), "").unwrap();
        let leave = Leave {
            directory: directory.path().to_owned(),
            is_silent: true,
        };
        let mut has_ended = false;
        end_when_left(&leave, Duration::from_millis(1), &commands, || has_ended = true);
        assert!(has_ended && !directory.path().join(ACKNOWLEDGED).exists());
    }
}
