//! Supervises a child: forwards signals, reaps processes, and exits like the child.

use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::keyboard::Keyboard;
use super::{Error, is_ignored};

/// Signals that are forwarded to the worker.
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

/// Sent to background processes that write to a terminal, which all of a yard are. It is blocked to
/// allow that.
pub(super) const WRITES: Signal = Signal::SIGTTOU;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The user's own process. When it is stopped, the whole yard stops.
    Outer,
    Door,
    /// Process 1 of the yard, which can stop all others.
    Init,
}

/// Runs a command and forwards signals until it ends, and keys if there is a keyboard. Orphans are
/// reaped.
pub(super) fn supervise(
    part: Part,
    what: &'static str,
    command: &mut Command,
    mut keyboard: Option<Keyboard>,
) -> Result<ExitCode, Error> {
    let quiet: SigSet = [WRITES].into_iter().collect();
    quiet.thread_block().map_err(Error::system("block signals"))?;
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    // A blocked signal arrives even if it is ignored.
    for signal in PASSED_ON.into_iter().filter(|signal| !is_ignored(*signal as i32)) {
        mask.add(signal);
    }
    mask.thread_block().map_err(Error::system("block signals"))?;
    let signals =
        SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC).map_err(Error::system("wait for signals"))?;
    let child = command.spawn().map_err(|source| Error::Start { what, source })?;
    let child = Pid::from_raw(child.id().cast_signed());
    loop {
        if let Some(keyboard) = &mut keyboard {
            keyboard.run_until(&signals);
        }
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
            Ok(signal) => {
                if let Some(keyboard) = keyboard.as_mut().filter(|_| signal == Signal::SIGTSTP) {
                    keyboard.leave();
                }
                pass_on(part, child, signal)?;
            }
            Err(_) => {}
        }
    }
}

/// The child may have ended; SIGCHLD follows then.
fn pass_on(part: Part, child: Pid, signal: Signal) -> Result<(), Error> {
    let everyone = Pid::from_raw(-1);
    match (part, signal) {
        (Part::Init, Signal::SIGTSTP) => drop(kill(everyone, Signal::SIGSTOP)),
        (Part::Init, Signal::SIGCONT) => drop(kill(everyone, Signal::SIGCONT)),
        (Part::Outer, Signal::SIGTSTP) => {
            let _ = kill(child, signal);
            stop()?;
            // It was continued, or can't be stopped.
            let _ = kill(child, Signal::SIGCONT);
        }
        _ => drop(kill(child, signal)),
    }
    Ok(())
}

/// Stops this process by the default action of the signal: the kernel does not stop it if there is
/// no shell to continue it.
fn stop() -> Result<(), Error> {
    let failed = Error::system("stop");
    let stop: SigSet = [Signal::SIGTSTP].into_iter().collect();
    kill(Pid::this(), Signal::SIGTSTP).map_err(&failed)?;
    stop.thread_unblock().map_err(&failed)?;
    stop.thread_block().map_err(&failed)
}

/// Reaps all children that have ended. Returns the exit code of `child` if it is among them.
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
