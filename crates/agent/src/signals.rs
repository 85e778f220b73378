//! Signals: those that end this process, and those that are meant for others.

use std::ffi::c_int;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::SigSet;
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGURG, SIGUSR1,
    SIGUSR2, SIGVTALRM, SIGWINCH, SIGXCPU, SIGXFSZ,
};
use signal_hook::flag::{self, register_conditional_shutdown};
use signal_hook::iterator::Signals;
use signal_hook::low_level::pipe;

/// The exit code of a program that a signal has ended is this and the number of the signal, as in a
/// shell.
pub const SIGNAL_EXIT_BASE: i32 = 128;

/// Signals that other processes send on purpose. The others can't be caught, or are how the kernel
/// tells a process about itself (a fault, a closed pipe, a terminal that it may not use), or are
/// SIGCHLD.
const SENT_BY_OTHERS: [c_int; 16] = [
    SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGCONT, SIGTSTP, SIGURG, SIGXCPU, SIGXFSZ,
    SIGVTALRM, SIGPROF, SIGWINCH, SIGIO,
];

/// Makes SIGTERM and SIGINT end the process at once, whatever it does.
///
/// The kernel drops these signals for the first process of a container unless it has handlers. The
/// handler itself ends the process, so that a call that can't be interrupted, such as a DNS lookup,
/// does not delay the exit.
pub fn exit_on_signal() -> io::Result<()> {
    exit_while_set(&[SIGTERM, SIGINT]).map(drop)
}

/// As [`exit_on_signal`], but with exit code 0: for a sidecar, whose end is expected.
pub fn exit_with_success_on_signal() -> io::Result<()> {
    let flag = Arc::new(AtomicBool::new(true));
    for signal in [SIGTERM, SIGINT] {
        register_conditional_shutdown(signal, 0, flag.clone())?;
    }
    Ok(())
}

/// Makes these signals end the process at once while the returned flag is true.
pub fn exit_while_set(signals: &[c_int]) -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(true));
    for &signal in signals {
        register_conditional_shutdown(signal, SIGNAL_EXIT_BASE + signal, flag.clone())?;
    }
    Ok(flag)
}

/// Signals that end the process until somebody listens for them.
pub struct ExitSignals {
    exits: Arc<AtomicBool>,
    signals: &'static [c_int],
}

impl ExitSignals {
    /// Makes these signals end the process.
    pub fn new(signals: &'static [c_int]) -> io::Result<Self> {
        Ok(Self {
            exits: exit_while_set(signals)?,
            signals,
        })
    }

    /// Collects the signals from now on, and writes a byte to `wakeup` for each.
    pub fn collect(self, wakeup: &UnixStream) -> io::Result<PendingSignals> {
        let mut flags = Vec::with_capacity(self.signals.len());
        for &signal in self.signals {
            let flag = Arc::new(AtomicBool::new(false));
            flag::register(signal, flag.clone())?;
            // After the flag: whoever wakes up reads it.
            pipe::register(signal, wakeup.try_clone()?)?;
            flags.push((signal, flag));
        }
        // A signal that came in between has ended the process.
        self.exits.store(false, Ordering::SeqCst);
        Ok(PendingSignals(flags))
    }

    /// Returns the signals from now on.
    pub fn listen(self) -> io::Result<Signals> {
        // A signal that comes in between ends the process.
        let signals = Signals::new(self.signals)?;
        self.exits.store(false, Ordering::SeqCst);
        Ok(signals)
    }
}

/// Signals that have come and were not taken yet.
#[derive(Debug)]
pub struct PendingSignals(Vec<(c_int, Arc<AtomicBool>)>);

impl PendingSignals {
    pub fn take(&self) -> Option<c_int> {
        let mut flags = self.0.iter();
        let pending = flags.find(|(_, flag)| flag.swap(false, Ordering::SeqCst));
        pending.map(|(signal, _)| *signal)
    }
}

/// Catches all signals that other processes send, and SIGCHLD.
///
/// A process that is started later has none of them ignored or blocked, whatever this one was
/// started with: a signal with a handler has its default action there, and a blocked one is
/// unblocked here.
pub fn catch_all() -> io::Result<Signals> {
    let signals = Signals::new(SENT_BY_OTHERS.iter().chain(&[SIGCHLD]))?;
    SigSet::empty().thread_set_mask()?;
    Ok(signals)
}
