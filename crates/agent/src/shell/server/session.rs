//! One client and its command.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::mode::PROGRAM;
use crate::shell::error::LinkError;
use crate::shell::frame::{Frame, FrameError, PROTOCOL, Stream};
use crate::shell::link::Link;

use super::commands::{Commands, StartError};
use super::running::Running;

/// How long a client may take to close the connection at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a session is over before its command was.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The connection is over.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The other side is of another release.
    #[error(
        "it is of the release {release}, which speaks the protocol {protocol} and not {PROTOCOL}; all pods of a job must \
         have the same agent"
    )]
    Version {
        /// What it speaks.
        protocol: u32,
        /// What it is.
        release: String,
    },
}

impl From<FrameError> for SessionError {
    fn from(error: FrameError) -> Self {
        Self::Link(error.into())
    }
}

/// Serves one client until all is said. Fails if it has gone before.
pub fn serve(mut link: Link, commands: &Arc<Commands>) -> Result<(), SessionError> {
    link.queue(&Frame::hello());
    let (command, has_input) = match greet(&mut link) {
        Ok(asked) => asked,
        Err(error) => {
            link.queue(&Frame::Refused(error.to_string()));
            link.leave(CLOSE_TIMEOUT);
            return Err(error);
        }
    };
    let (started, result) = start(&mut link, commands, command, has_input);
    let mut running = match started {
        Ok(running) => running,
        Err(error) => {
            let sentence = format!("{PROGRAM}: {}\n", error.problem);
            link.queue(&Frame::Data(Stream::Err, sentence.into_bytes()));
            link.queue(&Frame::Exit(error.code));
            link.leave(CLOSE_TIMEOUT);
            return Ok(());
        }
    };
    match result.and_then(|()| relay(&mut link, &mut running)) {
        Ok(()) => {
            link.leave(CLOSE_TIMEOUT);
            drop(link);
            running.drain();
            Ok(())
        }
        Err(error) => {
            drop(link);
            running.terminate();
            Err(error)
        }
    }
}

/// Hears who it is and what to run.
fn greet(link: &mut Link) -> Result<(Vec<u8>, bool), SessionError> {
    let mut is_known = false;
    loop {
        while let Some(frame) = link.next_frame()? {
            match frame {
                Frame::Hello {
                    protocol: PROTOCOL, ..
                } => is_known = true,
                Frame::Hello { protocol, release } => {
                    return Err(SessionError::Version { protocol, release });
                }
                Frame::Command { has_input, line } if is_known => return Ok((line, has_input)),
                Frame::Heartbeat if is_known => {}
                _ => return Err(FrameError::OutOfTurn("a frame before any greeting").into()),
            }
        }
        link.turn(&[], None)?;
    }
}

/// Starts the command. A program whose image is fetched while it starts takes its time, in which
/// the client must hear something; if it has gone meanwhile, that is told, too.
fn start(
    link: &mut Link,
    commands: &Arc<Commands>,
    command: Vec<u8>,
    has_input: bool,
) -> (Result<Running, StartError>, Result<(), SessionError>) {
    let system = |error: io::Error| StartError {
        problem: format!("can't start the command: {error}"),
        code: u8::MAX,
    };
    let starting = match commands.request_start(command, has_input) {
        Ok(starting) => starting,
        Err(error) => return (Err(system(error)), Ok(())),
    };
    let mut result = Ok(());
    let started = loop {
        // Who has gone is not waited for, but what was started must be ended.
        if let Some(started) = starting.end(result.is_err()) {
            break started;
        }
        result = link.turn(&[(starting.as_fd(), PollFlags::IN)], None);
    };
    let running = started.and_then(|(group, started)| Running::new(group, started).map_err(system));
    (running, result.map_err(SessionError::from))
}

/// Relays everything between the client and the command until the client has all of it.
fn relay(link: &mut Link, running: &mut Running) -> Result<(), SessionError> {
    loop {
        while let Some(frame) = link.next_frame()? {
            running.handle(frame)?;
        }
        running.transfer(link);
        if let Some(code) = running.code() {
            link.queue(&Frame::Exit(code));
            while !link.is_flushed() {
                // What it still says does not matter any more.
                while link.next_frame()?.is_some() {}
                link.turn(&[], None)?;
            }
            return Ok(());
        }
        link.turn(&running.awaited(link.backlog()), running.next_check())?;
    }
}
