//! TLS on a socket that never blocks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustls::Connection;

use super::{MAX_RECEIVE, READ_SIZE, Received, Wire};
use crate::shell::error::LinkError;
use crate::shell::poll::wait;

/// How long a side that is refused may take to receive the reason.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A socket with TLS that both sides have agreed on.
#[derive(Debug)]
pub struct Tls {
    session: Connection,
    tcp: TcpStream,
    /// What the other side has said while the two agreed.
    early: Vec<u8>,
    is_closed: bool,
    has_said_goodbye: bool,
}

impl Tls {
    /// Makes sure who the other side is, before the deadline.
    pub fn open(session: Connection, tcp: TcpStream, deadline: Instant) -> Result<Self, LinkError> {
        tcp.set_nonblocking(true)?;
        // Keys that are typed and signals must not wait for more.
        tcp.set_nodelay(true)?;
        let mut wire = Self {
            session,
            tcp,
            early: Vec::new(),
            is_closed: false,
            has_said_goodbye: false,
        };
        match wire.shake_hands(deadline) {
            Ok(()) => Ok(wire),
            Err(error) => {
                if matches!(error, LinkError::Tls(_)) {
                    wire.leave(Instant::now() + CLOSE_TIMEOUT);
                }
                Err(error)
            }
        }
    }

    fn shake_hands(&mut self, deadline: Instant) -> Result<(), LinkError> {
        let mut early = Vec::new();
        loop {
            self.send(&mut Vec::new())?;
            if !self.session.is_handshaking() && !self.session.wants_write() {
                self.early = early;
                return Ok(());
            }
            if self.is_closed {
                return Err(LinkError::Closed);
            }
            if self.wait(deadline)? {
                self.receive(&mut early)?;
            }
        }
    }

    /// Waits until there is something to do. Returns whether it is to read; fails when it is too
    /// late.
    pub fn wait(&self, deadline: Instant) -> Result<bool, LinkError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let problem = io::Error::new(ErrorKind::TimedOut, "the handshake took too long");
            return Err(LinkError::Io(problem));
        }
        let awaited = self.awaited(false);
        let mut fds: Vec<_> = awaited
            .iter()
            .map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags))
            .collect();
        wait(&mut fds, Some(left))?;
        Ok(fds.first().is_some_and(|fd| {
            fd.revents()
                .intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
        }))
    }

    /// Tells the other side why it is over, if that can be.
    fn leave(&mut self, deadline: Instant) {
        while !self.is_closed {
            self.finish();
            match self.wait(deadline) {
                Ok(true) if self.discard().is_err() => return,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}

impl Wire for Tls {
    fn awaited(&self, has_more: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut flags = PollFlags::IN;
        if self.session.wants_write() || has_more {
            flags |= PollFlags::OUT;
        }
        vec![(self.tcp.as_fd(), flags)]
    }

    fn send(&mut self, waiting: &mut Vec<u8>) -> Result<(), LinkError> {
        loop {
            let taken = if self.session.is_handshaking() {
                0
            } else {
                self.session.writer().write(waiting)?
            };
            waiting.drain(..taken);
            if !self.session.wants_write() {
                return Ok(());
            }
            match self.session.write_tls(&mut self.tcp) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn is_flushed(&self) -> bool {
        !self.session.wants_write()
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> Result<Received, LinkError> {
        bytes.append(&mut self.early);
        let mut buffer = [0; READ_SIZE];
        let mut total = 0;
        while total < MAX_RECEIVE && !self.is_closed {
            match self.session.read_tls(&mut self.tcp) {
                Ok(0) => self.is_closed = true,
                Ok(count) => total += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            if let Err(error) = self.session.process_new_packets() {
                // The other side is told why, if it can be at once.
                let _ = self.session.write_tls(&mut self.tcp);
                return Err(LinkError::Tls(error));
            }
            loop {
                match self.session.reader().read(&mut buffer) {
                    Ok(0) => {
                        self.is_closed = true;
                        break;
                    }
                    Ok(count) => bytes.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => {
                        self.is_closed = true;
                        break;
                    }
                }
            }
        }
        Ok(Received {
            heard: total > 0,
            is_closed: self.is_closed,
        })
    }

    fn finish(&mut self) {
        if !self.has_said_goodbye {
            self.session.send_close_notify();
            self.has_said_goodbye = true;
        }
        // Whoever waits for the end of the other side sees it fail.
        if self.send(&mut Vec::new()).is_ok() && !self.session.wants_write() {
            let _ = self.tcp.shutdown(Shutdown::Write);
        }
    }

    fn discard(&mut self) -> io::Result<bool> {
        let mut buffer = [0; READ_SIZE];
        match self.tcp.read(&mut buffer) {
            Ok(0) => self.is_closed = true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        Ok(self.is_closed)
    }
}
