//! One client and its command.

use std::sync::Arc;
use std::time::Duration;

use crate::shell::frame::{Frame, FrameError, PROTOCOL, Stream};
use crate::shell::link::{Link, LinkError};

use super::commands::Commands;
use super::running::Running;

/// How long a client may take to go when all is said.
const GOODBYE: Duration = Duration::from_secs(5);

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
            link.leave(GOODBYE);
            return Err(error);
        }
    };
    let started = commands.start(&command, has_input);
    let running = started.and_then(|(group, started)| {
        Running::new(group, started).map_err(|error| super::commands::StartError {
            problem: format!("can't use the pipes of the command: {error}"),
            code: u8::MAX,
        })
    });
    let mut running = match running {
        Ok(running) => running,
        Err(error) => {
            let sentence = format!("{}: {}\n", crate::modes::PROGRAM, error.problem);
            link.queue(&Frame::Data(Stream::Err, sentence.into_bytes()));
            link.queue(&Frame::Exit(error.code));
            link.leave(GOODBYE);
            return Ok(());
        }
    };
    match attend(&mut link, &mut running) {
        Ok(()) => {
            link.leave(GOODBYE);
            drop(link);
            running.drain();
            Ok(())
        }
        Err(error) => {
            drop(link);
            running.abandon();
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

/// Carries everything to and fro until the client has all of it.
fn attend(link: &mut Link, running: &mut Running) -> Result<(), SessionError> {
    loop {
        while let Some(frame) = link.next_frame()? {
            running.hear(frame)?;
        }
        running.carry(link);
        if let Some(code) = running.code() {
            link.queue(&Frame::Exit(code));
            while !link.is_flushed() {
                // What it still says does not matter any more.
                while link.next_frame()?.is_some() {}
                link.turn(&[], None)?;
            }
            return Ok(());
        }
        link.turn(&running.awaited(link.backlog()), running.look_again())?;
    }
}
