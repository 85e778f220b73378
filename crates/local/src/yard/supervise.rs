//! A process that has one child to look after: passes signals on, reaps, and ends as the child
//! ends.

use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{Error, is_ignored};

/// Signals that people and terminals send and that the worker may want to know of.
const PASSED_ON: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// What a terminal sends to those who write to it from the background, as all in the yard does. Who
/// blocks it may write.
pub(super) const WRITES: Signal = Signal::SIGTTOU;

/// What a process is to the yard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The user's own: it stops when they want it to, and all of the yard with it.
    Outer,
    /// On the way in.
    Door,
    /// Process 1 of the yard, which can stop all others there.
    Init,
}

/// Runs a command as [`PASSED_ON`] says, until it ends. Children that are not ours but were left to
/// us are reaped.
pub(super) fn supervise(part: Part, what: &'static str, command: &mut Command) -> Result<ExitCode, Error> {
    let quiet: SigSet = [WRITES].into_iter().collect();
    quiet.thread_block().map_err(Error::system("block signals"))?;
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
            Ok(signal) => pass_on(part, child, signal)?,
            Err(_) => {}
        }
    }
}

/// Whom it is for may have ended a moment ago; then the next signal says so.
fn pass_on(part: Part, child: Pid, signal: Signal) -> Result<(), Error> {
    let everyone = Pid::from_raw(-1);
    match (part, signal) {
        (Part::Init, Signal::SIGTSTP) => drop(kill(everyone, Signal::SIGSTOP)),
        (Part::Init, Signal::SIGCONT) => drop(kill(everyone, Signal::SIGCONT)),
        (Part::Outer, Signal::SIGTSTP) => {
            let _ = kill(child, signal);
            stop()?;
            // Somebody wants it to go on, or there is nobody who could.
            let _ = kill(child, Signal::SIGCONT);
        }
        _ => drop(kill(child, signal)),
    }
    Ok(())
}

/// Stops this process as if it had not waited for the signal: the kernel knows whether there is a
/// shell that can have it go on, and does not stop it if there is none.
fn stop() -> Result<(), Error> {
    let failed = Error::system("stop");
    let stop: SigSet = [Signal::SIGTSTP].into_iter().collect();
    kill(Pid::this(), Signal::SIGTSTP).map_err(&failed)?;
    stop.thread_unblock().map_err(&failed)?;
    stop.thread_block().map_err(&failed)
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
