//! Runs a command with a cluster, and forwards signals to it.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use trainyard_testkit::cluster::Cluster;

/// Between SIGTERM and SIGKILL.
const GRACE_PERIOD: Duration = Duration::from_secs(20);

/// Signals that end this process.
pub struct Signals(Receiver<i32>);

impl Signals {
    /// Handles these signals from now on.
    pub fn take() -> Result<Self> {
        let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])
            .context("signals can't be handled")?;
        let (sender, receiver) = channel();
        thread::spawn(move || {
            for signal in signals.forever() {
                // Fails when the command has ended.
                let _ = sender.send(signal);
            }
        });
        Ok(Self(receiver))
    }
}

/// Runs a command with a cluster; a signal is forwarded to the command and everything it started.
pub fn run(command: &[String], cluster: &Cluster, signals: Signals) -> Result<ExitCode> {
    let Signals(signals) = signals;
    if let Ok(signal) = signals.try_recv() {
        return Ok(code(128 + signal));
    }
    let (program, arguments) = command.split_first().context("there is no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .envs(cluster.environment())
        // Its own group, so that a signal reaches all of its processes.
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let group = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .context("no such process")?;
    let mut asked: Option<Instant> = None;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        match signals.recv_timeout(Duration::from_millis(50)) {
            Ok(signal) => {
                asked.get_or_insert_with(Instant::now);
                let signal = if signal == SIGINT {
                    Signal::INT
                } else {
                    Signal::TERM
                };
                let _ = kill_process_group(group, signal);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        if asked.is_some_and(|since| since.elapsed() > GRACE_PERIOD) {
            eprintln!("the command did not end when asked; it is killed");
            let _ = kill_process_group(group, Signal::KILL);
        }
    };
    // Processes that it left behind would use a cluster that is gone.
    let _ = kill_process_group(group, Signal::KILL);
    Ok(exit_code(status))
}

/// The exit code that a shell reports.
fn exit_code(status: ExitStatus) -> ExitCode {
    code(
        status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(1)),
    )
}

fn code(number: i32) -> ExitCode {
    ExitCode::from(u8::try_from(number).unwrap_or(1))
}
