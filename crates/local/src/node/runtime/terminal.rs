//! Terminals of commands.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use pty_process::blocking::Pty;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

/// Our end of a terminal.
#[derive(Debug)]
pub struct Terminal {
    /// What is typed.
    pub input: pipe::Sender,
    /// What is shown.
    pub output: Output,
    /// Sets its size.
    pub size: Size,
}

impl Terminal {
    /// Must be called within a tokio runtime.
    pub(super) fn new(end: Pty) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(fcntl(end.as_fd(), FcntlArg::F_GETFL)?);
        fcntl(end.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        let again = || end.as_fd().try_clone_to_owned();
        // It is no pipe, but can be polled, read and written like one.
        Ok(Self {
            input: pipe::Sender::from_owned_fd_unchecked(again()?)?,
            output: Output(pipe::Receiver::from_owned_fd_unchecked(again()?)?),
            size: Size(end),
        })
    }
}

#[derive(Debug)]
pub struct Output(pipe::Receiver);

impl AsyncRead for Output {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.0).poll_read(context, buffer) {
            // EIO means that the last process has closed it.
            Poll::Ready(Err(error)) if error.raw_os_error() == Some(Errno::EIO as i32) => Poll::Ready(Ok(())),
            other => other,
        }
    }
}

pub struct Size(Pty);

impl std::fmt::Debug for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Size").finish_non_exhaustive()
    }
}

impl Size {
    pub fn set(&self, columns: u16, rows: u16) {
        // Fails if the terminal is closed.
        let _ = self.0.resize(pty_process::Size::new(rows, columns));
    }
}
