//! The program as a pod runs it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use trainyard_eventually::receive;

/// The files of a pod.
pub struct Pod {
    directory: TempDir,
}

impl Pod {
    pub fn new() -> Self {
        let pod = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        pod.write("token", "first-token\n");
        pod
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces a file at once, as the kubelet does.
    pub fn write(&self, name: &str, text: &str) {
        let new = self.file("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.file(name)).unwrap();
    }

    /// Starts the agent in this pod.
    pub fn start(&self, observer: &str, authority: &str) -> Agent {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard-agent"));
        command
            .arg("wait")
            .env_clear()
            .env("TRAINYARD_OBSERVER", observer)
            .env("TRAINYARD_AUTHORITY", authority)
            .env("TRAINYARD_NAMESPACE", "vision")
            .env("TRAINYARD_JOB", "mnist")
            .env("TRAINYARD_ROLE", "worker")
            .env("TRAINYARD_TOKEN_FILE", self.file("token"))
            .env("TRAINYARD_ANNOTATIONS_FILE", self.file("annotations"))
            .env("TRAINYARD_TERMINATION_LOG", self.file("termination-log"));
        Agent::start(command)
    }
}

/// A line that the agent has printed.
#[derive(Debug)]
enum Line {
    Out(String),
    Err(String),
}

pub struct Agent {
    child: Child,
    lines: Receiver<Line>,
    out: Vec<String>,
    err: Vec<String>,
}

/// How an agent has ended, and all that it has printed.
#[derive(Debug)]
pub struct End {
    pub code: Option<i32>,
    pub out: Vec<String>,
    pub err: Vec<String>,
}

impl Agent {
    pub fn start(mut command: Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let read = |source: Box<dyn Read + Send>, wrap: fn(String) -> Line| {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(source).lines() {
                    // After the end of a test nobody wants to know.
                    let _ = sender.send(wrap(line.unwrap()));
                }
            })
        };
        read(Box::new(child.stdout.take().unwrap()), Line::Out);
        read(Box::new(child.stderr.take().unwrap()), Line::Err);
        Self {
            child,
            lines,
            out: Vec::new(),
            err: Vec::new(),
        }
    }

    /// Waits until it has printed a line with this text on its standard output.
    pub fn says(&mut self, text: &str) {
        self.read_until(|agent| agent.out.iter().any(|line| line.contains(text)));
    }

    /// Waits until it has printed a line with this text on its standard error.
    pub fn complains(&mut self, text: &str) {
        self.read_until(|agent| agent.err.iter().any(|line| line.contains(text)));
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it has ended.
    pub fn ends(mut self) -> End {
        self.read_until(|_| false);
        End {
            code: self.child.wait().unwrap().code(),
            out: std::mem::take(&mut self.out),
            err: std::mem::take(&mut self.err),
        }
    }

    /// Reads lines until it is enough. Without an end to that, until the agent closes its outputs.
    fn read_until(&mut self, is_enough: impl Fn(&Self) -> bool) {
        while !is_enough(self) {
            let what = format!("another line after {:?} {:?}", self.out, self.err);
            match receive(&what, &self.lines) {
                Some(Line::Out(line)) => self.out.push(line),
                Some(Line::Err(line)) => self.err.push(line),
                None => break,
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
