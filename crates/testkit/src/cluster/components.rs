//! The components of a cluster as child processes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, kill_process};

use super::control::{ComponentStatus, Phase, Signal, Status};
use crate::command::tail;

/// How a component is started.
#[derive(Debug, Clone)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Variables besides those of this process.
    pub environment: Vec<(String, String)>,
    /// Where its output goes.
    pub log: PathBuf,
}

struct RunningComponent {
    component: Component,
    child: Option<Child>,
    ended: Option<String>,
    /// Its end is expected.
    is_stop_requested: bool,
}

struct Inner {
    phase: Phase,
    steps: Vec<String>,
    members: BTreeMap<String, RunningComponent>,
}

/// All components. They are child processes, so that a process id is not reused before its exit
/// code was read: a signal can't reach another process.
pub struct Components {
    start: Instant,
    inner: Mutex<Inner>,
}

impl Default for Components {
    fn default() -> Self {
        let inner = Inner {
            phase: Phase::Waiting,
            steps: Vec::new(),
            members: BTreeMap::new(),
        };
        Self {
            start: Instant::now(),
            inner: Mutex::new(inner),
        }
    }
}

impl Components {
    /// Records a step of the start.
    pub fn step(&self, what: &str) {
        let line = format!("{:5.1} s  {what}", self.start.elapsed().as_secs_f64());
        println!("{line}");
        self.inner.lock().steps.push(line);
    }

    /// Records that the start has begun. Returns false if it had begun before.
    pub fn begin(&self) -> bool {
        let mut inner = self.inner.lock();
        let first = inner.phase == Phase::Waiting;
        if first {
            inner.phase = Phase::Booting;
        }
        first
    }

    /// Records how the start ended.
    pub fn finish(&self, result: &Result<()>) {
        self.inner.lock().phase = match result {
            Ok(()) => Phase::Ready,
            Err(error) => Phase::Failed(format!("{error:#}")),
        };
    }

    /// Starts a component that is new.
    pub fn add(&self, component: Component) -> Result<()> {
        let name = component.name.clone();
        let member = RunningComponent {
            component,
            child: None,
            ended: None,
            is_stop_requested: false,
        };
        self.inner.lock().members.insert(name.clone(), member);
        self.start(&name)
    }

    /// Starts a component unless it runs.
    pub fn ensure_started(&self, name: &str) -> Result<()> {
        let is_running = {
            let mut inner = self.inner.lock();
            let member = member(&mut inner, name)?;
            member.update();
            member.child.is_some()
        };
        if is_running { Ok(()) } else { self.start(name) }
    }

    /// Starts a component again that does not run.
    pub fn start(&self, name: &str) -> Result<()> {
        let mut inner = self.inner.lock();
        let member = member(&mut inner, name)?;
        member.update();
        if member.child.is_some() {
            bail!("{name} is running already");
        }
        let component = &member.component;
        let log = File::options()
            .create(true)
            .append(true)
            .open(&component.log)
            .with_context(|| format!("cannot write the log {}", component.log.display()))?;
        let (program, arguments) = component
            .argv
            .split_first()
            .context("a component without a program")?;
        let child = Command::new(program)
            .args(arguments)
            .envs(component.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        member.child = Some(child);
        member.ended = None;
        member.is_stop_requested = false;
        Ok(())
    }

    /// Sends a component a signal.
    pub fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let mut inner = self.inner.lock();
        let member = member(&mut inner, name)?;
        member.update();
        let Some(child) = &mut member.child else {
            bail!("{name} is not running")
        };
        if signal == Signal::Kill {
            member.is_stop_requested = true;
            child.kill()?;
            let status = child.wait()?;
            member.child = None;
            member.ended = Some(status.to_string());
            return Ok(());
        }
        let pid = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("no such process")?;
        let number = match signal {
            Signal::Stop => rustix::process::Signal::STOP,
            _ => rustix::process::Signal::CONT,
        };
        kill_process(pid, number).with_context(|| format!("cannot signal {name}"))
    }

    /// An error if a component has ended unexpectedly.
    pub fn check(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        for (name, member) in &mut inner.members {
            member.update();
            if let Some(ended) = member.ended.as_ref().filter(|_| !member.is_stop_requested) {
                let log = fs::read(&member.component.log).unwrap_or_default();
                let log = tail(&String::from_utf8_lossy(&log), 15);
                bail!(
                    "{name} ended ({ended}); the end of {}:\n{log}",
                    member.component.log.display()
                );
            }
        }
        Ok(())
    }

    /// The status of all components.
    pub fn status(&self) -> Status {
        let mut inner = self.inner.lock();
        let components = inner.members.iter_mut().map(|(name, member)| {
            member.update();
            ComponentStatus {
                name: name.clone(),
                pid: member.child.as_ref().map(Child::id),
                ended: member.ended.clone(),
            }
        });
        let components = components.collect();
        Status {
            phase: inner.phase.clone(),
            steps: inner.steps.clone(),
            components,
        }
    }
}

fn member<'a>(inner: &'a mut Inner, name: &str) -> Result<&'a mut RunningComponent> {
    let known: Vec<_> = inner.members.keys().cloned().collect();
    let unknown = || anyhow!("there is no component {name}; there are {}", known.join(", "));
    inner.members.get_mut(name).ok_or_else(unknown)
}

impl RunningComponent {
    fn update(&mut self) {
        let Some(child) = &mut self.child else { return };
        if let Ok(Some(status)) = child.try_wait() {
            self.ended = Some(status.to_string());
            self.child = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(dir: &std::path::Path, script: &str) -> Component {
        Component {
            name: "part".into(),
            argv: vec!["sh".into(), "-c".into(), script.into()],
            environment: Vec::new(),
            log: dir.join("log"),
        }
    }

    #[test]
    fn a_killed_component_is_no_fault_and_starts_again() {
        let dir = tempfile::tempdir().unwrap();
        let components = Components::default();
        components.add(component(dir.path(), "sleep 60")).unwrap();
        assert!(components.start("part").is_err(), "it runs already");
        components.signal("part", Signal::Kill).unwrap();
        components.check().unwrap();
        assert_eq!(components.status().components[0].pid, None);
        components.start("part").unwrap();
        assert!(components.status().components[0].pid.is_some());
        components.signal("part", Signal::Kill).unwrap();
        assert!(
            components
                .signal("other", Signal::Kill)
                .unwrap_err()
                .to_string()
                .contains("there are part")
        );
    }

    #[test]
    fn a_component_that_ends_by_itself_is_reported_with_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let components = Components::default();
        components
            .add(component(dir.path(), "echo no such flag; exit 1"))
            .unwrap();
        let error = loop {
            if let Err(error) = components.check() {
                break error.to_string();
            }
        };
        assert!(error.contains("no such flag"), "{error}");
    }
}
