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

/// What a shell adds to the number of the signal that ended a program.
pub const ENDED_BY_SIGNAL: i32 = 128;

/// Signals that somebody else sends to say something. The others are those that can't be caught, those by which the
/// system tells a process about itself (a fault, a pipe that is closed, a terminal that it may not use), and SIGCHLD.
const MESSAGES: [c_int; 16] = [
    SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGCONT, SIGTSTP, SIGURG, SIGXCPU, SIGXFSZ,
    SIGVTALRM, SIGPROF, SIGWINCH, SIGIO,
];

/// SIGTERM and SIGINT end the process at once, whatever it is doing.
///
/// The first process of a container has no handlers, and without one the kernel drops these signals. The handler itself
/// ends the process, so that a call that can't be interrupted, such as a lookup of a name, does not delay the end.
pub fn end_when_told() -> io::Result<()> {
    end_while_told(&[SIGTERM, SIGINT]).map(drop)
}

/// The same, with success: for what has nothing to finish, and whose end is expected.
pub fn end_well_when_told() -> io::Result<()> {
    let flag = Arc::new(AtomicBool::new(true));
    for signal in [SIGTERM, SIGINT] {
        register_conditional_shutdown(signal, 0, flag.clone())?;
    }
    Ok(())
}

/// These signals end the process at once, as long as the flag that is returned is true.
pub fn end_while_told(signals: &[c_int]) -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(true));
    for &signal in signals {
        register_conditional_shutdown(signal, ENDED_BY_SIGNAL + signal, flag.clone())?;
    }
    Ok(flag)
}

/// Signals that end the process as long as nobody listens for them, and after that are told to who does.
pub struct Ending {
    ends: Arc<AtomicBool>,
    signals: &'static [c_int],
}

impl Ending {
    /// From now on these signals end the process.
    pub fn new(signals: &'static [c_int]) -> io::Result<Self> {
        Ok(Self {
            ends: end_while_told(signals)?,
            signals,
        })
    }

    /// From now on they do not, but ring a bell.
    pub fn ring(self, bell: &UnixStream) -> io::Result<Told> {
        let mut flags = Vec::with_capacity(self.signals.len());
        for &signal in self.signals {
            let flag = Arc::new(AtomicBool::new(false));
            flag::register(signal, flag.clone())?;
            // After the flag: whoever hears it looks at that.
            pipe::register(signal, bell.try_clone()?)?;
            flags.push((signal, flag));
        }
        // A signal that came in between has ended the process, as one a moment before would have done.
        self.ends.store(false, Ordering::SeqCst);
        Ok(Told(flags))
    }

    /// From now on they do not.
    pub fn listen(self) -> io::Result<Signals> {
        // A signal that comes in between ends the process, as one a moment ago would have done.
        let signals = Signals::new(self.signals)?;
        self.ends.store(false, Ordering::SeqCst);
        Ok(signals)
    }
}

/// Signals that have come and were not looked at.
#[derive(Debug)]
pub struct Told(Vec<(c_int, Arc<AtomicBool>)>);

impl Told {
    /// One of them, if there is any.
    pub fn take(&self) -> Option<c_int> {
        let mut flags = self.0.iter();
        let told = flags.find(|(_, flag)| flag.swap(false, Ordering::SeqCst));
        told.map(|(signal, _)| *signal)
    }
}

/// All signals by which others say something, and the one by which children tell of their end.
///
/// A process that is started from now on has none of them ignored or blocked, whatever this one was started with: what has
/// a handler here is as by default there, and nothing blocked is passed on.
pub fn all() -> io::Result<Signals> {
    let signals = Signals::new(MESSAGES.iter().chain(&[SIGCHLD]))?;
    SigSet::empty().thread_set_mask()?;
    Ok(signals)
}
