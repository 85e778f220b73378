//! The keys that a user presses while a run goes on.
//!
//! Only the process that the user started may read from the terminal: all others of a yard are in
//! the background of it. So it passes the keys on, through a socket in the place of the worker's
//! standard input, as soon as the worker has asked for them. Until then, and where the standard
//! input is no terminal, nothing is changed. Where there is no yard, a thread reads the keys.
//!
//! While keys are read, the terminal gives out each one at once and does not show it. Signals such
//! as that of Ctrl-C stay as they are.

use std::io::{self, IsTerminal, Read, Stdin, Write, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, read, tcgetpgrp};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Isolation, Yard};

/// How often to look whether a run has come to the foreground: no signal tells it.
const FOREGROUND_INTERVAL_MS: u16 = 500;
/// What the worker sends to ask for keys.
const REQUEST: u8 = b'k';

/// A terminal that gives out each key at once, until this is dropped.
struct Terminal {
    input: Stdin,
    /// The settings to go back to; None while they are as they were.
    saved: Option<Termios>,
}

impl Terminal {
    fn new() -> Self {
        Self {
            input: stdin(),
            saved: None,
        }
    }

    /// Changes the settings, unless this process is in the background: it would be stopped, and
    /// others use the terminal. Returns whether there can be keys.
    fn enter(&mut self) -> bool {
        let is_ours = tcgetpgrp(&self.input).is_ok_and(|group| group == getpgrp());
        if !is_ours {
            return false;
        }
        if self.saved.is_none()
            && let Ok(settings) = tcgetattr(&self.input).map(repaired)
        {
            let mut each_key = settings.clone();
            each_key.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
            each_key.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
            each_key.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
            if tcsetattr(&self.input, SetArg::TCSANOW, &each_key).is_ok() {
                self.saved = Some(settings);
            }
        }
        self.saved.is_some()
    }

    fn leave(&mut self) {
        if let Some(settings) = self.saved.take() {
            // A terminal that is gone needs no settings.
            let _ = tcsetattr(&self.input, SetArg::TCSANOW, &settings);
        }
    }

    /// Reads the keys that are there. Returns nothing at the end of the input.
    fn keys(&self) -> Vec<u8> {
        let mut keys = [0; 64];
        let count = read(&self.input, &mut keys).unwrap_or_default();
        keys[..count].to_vec()
    }
}

/// The settings that a terminal should have when no keys are read. A run that was killed could not
/// restore them, and few shells do so for it: a shell starts no program on a terminal that neither
/// waits for whole lines nor shows what is typed.
fn repaired(mut settings: Termios) -> Termios {
    let usual = LocalFlags::ICANON | LocalFlags::ECHO;
    if !settings.local_flags.intersects(usual) {
        settings.local_flags.insert(usual);
    }
    settings
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Passes keys on to the worker of a yard.
pub(super) struct Keyboard {
    worker: UnixStream,
    terminal: Option<Terminal>,
}

impl Keyboard {
    /// A keyboard, and the standard input of the worker.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let (worker, input) = UnixStream::pair()?;
        worker.set_nonblocking(true)?;
        let keyboard = Self {
            worker,
            terminal: None,
        };
        Ok((keyboard, input.into()))
    }

    /// Passes keys on until there is something to read from `other`.
    pub(super) fn run_until(&mut self, other: &impl AsFd) {
        loop {
            let has_keys = self.terminal.as_mut().is_some_and(Terminal::enter);
            let mut ready = vec![PollFd::new(other.as_fd(), PollFlags::POLLIN)];
            let timeout = match &self.terminal {
                None => {
                    ready.push(PollFd::new(self.worker.as_fd(), PollFlags::POLLIN));
                    PollTimeout::NONE
                }
                Some(terminal) if has_keys => {
                    ready.push(PollFd::new(terminal.input.as_fd(), PollFlags::POLLIN));
                    PollTimeout::NONE
                }
                Some(_) => PollTimeout::from(FOREGROUND_INTERVAL_MS),
            };
            let polled = poll(&mut ready, timeout);
            let has_other = polled.is_err() || is_ready(&ready, 0);
            let has_more = !is_ready(&ready, 1) || self.advance();
            if has_other || !has_more {
                return;
            }
        }
    }

    /// Hears what the worker wants, or passes keys on. Returns whether there can be more.
    fn advance(&mut self) -> bool {
        let Some(terminal) = &self.terminal else {
            let mut request = [0];
            let has_asked = matches!((&self.worker).read(&mut request), Ok(1));
            self.terminal = has_asked.then(Terminal::new);
            return has_asked;
        };
        let keys = terminal.keys();
        // Nobody needs keys that a busy worker has no room for.
        let _ = self.worker.write(&keys);
        !keys.is_empty()
    }

    /// Gives the terminal back, for as long as this process is stopped.
    pub(super) fn leave(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.leave();
        }
    }
}

/// Whether a user can press keys.
pub(super) fn is_there() -> bool {
    stdin().is_terminal()
}

/// The keys that a user presses. The terminal is as it was when this is dropped.
#[derive(Debug)]
pub struct Keys {
    pressed: UnboundedReceiver<u8>,
    /// None where the outer process reads them.
    _reader: Option<Reader>,
}

impl Keys {
    /// Begins to read keys, in a yard or, without one, in this process. Returns None if there is no
    /// terminal.
    pub fn read(yard: Option<&Yard>) -> io::Result<Option<Self>> {
        let (sender, pressed) = unbounded_channel();
        let reader = match yard.filter(|yard| yard.isolation != Isolation::Plain) {
            Some(yard) if yard.has_keys => {
                hear_outer(sender)?;
                None
            }
            None if is_there() => Some(Reader::start(sender)?),
            _ => return Ok(None),
        };
        Ok(Some(Self {
            pressed,
            _reader: reader,
        }))
    }

    /// The next key; None when there are no more.
    pub async fn next(&mut self) -> Option<u8> {
        self.pressed.recv().await
    }
}

/// Has the outer process pass keys on. The thread that hears it ends with this process.
fn hear_outer(sender: UnboundedSender<u8>) -> io::Result<()> {
    let mut outer = UnixStream::from(stdin().as_fd().try_clone_to_owned()?);
    outer.write_all(&[REQUEST])?;
    std::thread::spawn(move || {
        let mut keys = [0; 64];
        while let Ok(count @ 1..) = outer.read(&mut keys) {
            if keys[..count].iter().any(|key| sender.send(*key).is_err()) {
                return;
            }
        }
    });
    Ok(())
}

/// A thread that reads keys until this is dropped.
#[derive(Debug)]
struct Reader {
    /// Its other end hears when this is dropped.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn start(sender: UnboundedSender<u8>) -> io::Result<Self> {
        let (alive, over) = UnixStream::pair()?;
        let thread = std::thread::spawn(move || read_until(&over, &sender));
        Ok(Self {
            alive: Some(alive),
            thread: Some(thread),
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.alive.take());
        // It has nothing to report.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn read_until(over: &UnixStream, sender: &UnboundedSender<u8>) {
    let mut terminal = Terminal::new();
    loop {
        let has_keys = terminal.enter();
        let mut ready = vec![PollFd::new(over.as_fd(), PollFlags::POLLIN)];
        if has_keys {
            ready.push(PollFd::new(terminal.input.as_fd(), PollFlags::POLLIN));
        }
        let polled = poll(&mut ready, PollTimeout::from(FOREGROUND_INTERVAL_MS));
        if polled.is_err_and(|error| error != Errno::EINTR) || is_ready(&ready, 0) {
            return;
        }
        if is_ready(&ready, 1) {
            let keys = terminal.keys();
            let is_over = keys.is_empty();
            if is_over || keys.into_iter().any(|key| sender.send(key).is_err()) {
                return;
            }
        }
    }
}

fn is_ready(polled: &[PollFd<'_>], at: usize) -> bool {
    polled.get(at).and_then(PollFd::any).unwrap_or_default()
}
