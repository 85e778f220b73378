//! The input and the output of this program, for who was started by somebody that carries both to
//! the other side.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::PollFlags;

use super::{MAX_RECEIVE, READ_SIZE, Received, Wire};
use crate::shell::error::LinkError;

/// Two ends of pipes.
#[derive(Debug)]
pub struct Pipes {
    input: File,
    /// Gone when nothing more is to be sent.
    output: Option<File>,
}

impl Pipes {
    /// The standard input and output of this program. Nobody else may use them from now on.
    pub fn standard() -> io::Result<Self> {
        Self::new(
            io::stdin().as_fd().try_clone_to_owned()?.into(),
            io::stdout().as_fd().try_clone_to_owned()?.into(),
        )
    }

    fn new(input: File, output: File) -> io::Result<Self> {
        for end in [&input, &output] {
            rustix::io::ioctl_fionbio(end, true)?;
        }
        Ok(Self {
            input,
            output: Some(output),
        })
    }
}

impl Wire for Pipes {
    fn awaited(&self, has_more: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut awaited = vec![(self.input.as_fd(), PollFlags::IN)];
        let output = self.output.as_ref().filter(|_| has_more);
        awaited.extend(output.map(|output| (output.as_fd(), PollFlags::OUT)));
        awaited
    }

    fn send(&mut self, waiting: &mut Vec<u8>) -> Result<(), LinkError> {
        let output = self.output.as_mut().ok_or(LinkError::Closed)?;
        while !waiting.is_empty() {
            match output.write(waiting) {
                Ok(count) => drop(waiting.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> Result<Received, LinkError> {
        let mut buffer = [0; READ_SIZE];
        let mut received = Received::default();
        let begin = bytes.len();
        while bytes.len() - begin < MAX_RECEIVE {
            match self.input.read(&mut buffer) {
                Ok(0) => {
                    received.is_closed = true;
                    break;
                }
                Ok(count) => {
                    received.heard = true;
                    bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(received)
    }

    fn finish(&mut self) {
        // The other end of the standard output is told by the end of this program, which comes when
        // that of the input has.
        self.output = None;
    }

    fn discard(&mut self) -> io::Result<bool> {
        let mut buffer = [0; READ_SIZE];
        match self.input.read(&mut buffer) {
            Ok(0) => Ok(true),
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Err(error)
            }
            _ => Ok(false),
        }
    }
}
