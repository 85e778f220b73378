//! A process that has one child to look after: passes signals on, reaps, and ends as the child ends.

use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{Error, is_ignored};

/// Signals that people and terminals send and that the worker may want to know of.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// Runs a command as [`PASSED_ON`] says, until it ends. Children that are not ours but were left to us are reaped.
pub(super) fn supervise(what: &'static str, command: &mut Command) -> Result<ExitCode, Error> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    // One that is blocked arrives even if it is ignored.
    for signal in PASSED_ON.into_iter().filter(|signal| !is_ignored(*signal as i32)) {
        mask.add(signal);
    }
    mask.thread_block().map_err(Error::system("block signals"))?;
    let signals =
        SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC).map_err(Error::system("wait for signals"))?;
    let child = command.spawn().map_err(|source| Error::Start { what, source })?;
    let child = Pid::from_raw(child.id().cast_signed());
    loop {
        let signal = match signals.read_signal() {
            Ok(Some(signal)) => signal,
            Ok(None) | Err(Errno::EINTR) => continue,
            Err(error) => return Err(Error::system("wait for signals")(error)),
        };
        let signal = Signal::try_from(signal.ssi_signo.cast_signed());
        match signal {
            Ok(Signal::SIGCHLD) => {
                if let Some(code) = reap(child) {
                    return Ok(code);
                }
            }
            // It may have ended a moment ago; then the next signal says so.
            Ok(signal) => {
                let _ = kill(child, signal);
            }
            Err(_) => {}
        }
    }
}

/// Collects every child that has ended. How the one of interest ended, if it did.
fn reap(child: Pid) -> Option<ExitCode> {
    let mut code = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, status)) if pid == child => {
                code = Some(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                code = Some(ExitCode::from(
                    u8::try_from(128 + signal as i32).unwrap_or(u8::MAX),
                ));
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return code,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return code,
        }
    }
}
