//! What becomes of processes, by their numbers.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use trainyard_eventually::eventually;

use crate::job::{Job, Lines, Process};

/// A process that somebody else has started.
pub struct Other(i32);

impl Other {
    /// The process whose number is in this line.
    pub fn from_line(lines: &Lines) -> Self {
        Self(lines.next().trim().parse().unwrap())
    }

    /// A process of this test, looked at from outside.
    pub fn of(process: &Process) -> Self {
        Self(process.pid().as_raw_nonzero().get())
    }

    pub fn field(&self, name: &str) -> Option<String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches(':').trim().to_owned())
    }

    pub fn exists(&self) -> bool {
        self.field("State").is_some()
    }

    pub fn parent(&self) -> Option<i32> {
        self.field("PPid")?.parse().ok()
    }

    pub fn kill(&self) {
        kill_process(Pid::from_raw(self.0).unwrap(), Signal::KILL).unwrap();
    }

    /// Waits until it has gone, also as a zombie.
    pub fn goes(&self) {
        self.waits_until("is there", |other| !other.exists());
    }

    pub fn waits_until(&self, problem: &str, is_so: impl Fn(&Self) -> bool) {
        eventually(&format!("{} no longer {problem}", self.0), || {
            if is_so(self) {
                Ok(())
            } else {
                Err(format!("{:?}", self.field("State")))
            }
        });
    }
}

#[test]
fn what_others_leave_is_taken_note_of() {
    let job = Job::new();
    let server = job.serve();
    let client = job.sh(&server, "sleep 1000 >/dev/null 2>&1 & echo $!");
    let orphan = Other::from_line(&client.out);
    assert_eq!(client.ends().0, Some(0));
    let server_pid = server.process.pid().as_raw_nonzero().get();
    orphan.waits_until("has another parent", |orphan| orphan.parent() == Some(server_pid));
    orphan.kill();
    orphan.goes();
}

#[test]
fn a_command_has_ended_although_it_leaves_somebody_with_its_output() {
    let job = Job::new();
    let server = job.serve();
    let line = "(while read x; do echo still here; done </dev/zero >/dev/null; sleep 1000) & echo $!; exit 3";
    let client = job.sh(&server, line);
    let daemon = Other::from_line(&client.out);
    assert_eq!(client.ends().0, Some(3));
    assert!(daemon.exists());
    daemon.kill();
    daemon.goes();
}

#[test]
fn somebody_who_writes_later_is_not_ended_for_it() {
    let job = Job::new();
    let server = job.serve();
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let done = directory.path().join("done");
    let line = format!(
        "(until [ -e {go} ]; do sleep 0.05; done; echo late && touch {done}) & exit 0",
        go = go.display(),
        done = done.display()
    );
    assert_eq!(job.sh(&server, &line).ends().0, Some(0));
    fs::write(go, "").unwrap();
    eventually("it goes on", || {
        done.exists().then_some(()).ok_or_else(String::new)
    });
}

#[test]
fn what_the_last_process_of_a_command_passes_on_is_not_lost() {
    let job = Job::new();
    let server = job.serve();
    let line = "{ sleep 0.3; echo late; } & echo early";
    let (code, out, _) = job.sh(&server, line).ends();
    assert_eq!(
        (code, &*out),
        (Some(0), &["early".to_owned(), "late".to_owned()][..])
    );
}

#[test]
fn an_idle_server_is_small() {
    let job = Job::new();
    let server = job.serve();
    assert_eq!(job.sh(&server, "exit 0").ends().0, Some(0));
    let pid = server.process.pid().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kib: u32 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    // This program is neither optimised nor static; the one in the image needs less than 3 MiB.
    assert!(kib < 20 * 1024, "{kib} KiB");
}
