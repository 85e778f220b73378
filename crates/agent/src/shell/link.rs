//! One connection: something that carries bytes and never blocks, with frames on top.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::HEARTBEAT_INTERVAL;
use super::error::LinkError;
use super::frame::{Decoder, Frame};
use super::poll::wait;
use super::wire::Wire;

/// No more is read from pipes while more than this waits to be sent.
pub const MAX_BACKLOG: usize = 64 * 1024;

/// A connection that both sides have agreed on.
#[derive(Debug)]
pub struct Link {
    wire: Box<dyn Wire>,
    incoming: Decoder,
    outgoing: Vec<u8>,
    /// How long the other side may send nothing.
    idle_timeout: Duration,
    heard: Instant,
    heartbeat: Instant,
    is_closed: bool,
}

impl Link {
    /// Speaks in frames over a wire that is open. The link fails if the other side sends nothing
    /// for `idle_timeout`.
    pub fn new(wire: impl Wire + 'static, idle_timeout: Duration) -> Result<Self, LinkError> {
        let now = Instant::now();
        let mut link = Self {
            wire: Box::new(wire),
            incoming: Decoder::default(),
            outgoing: Vec::new(),
            idle_timeout,
            heard: now,
            heartbeat: now,
            is_closed: false,
        };
        // What came with the agreement would not be waited for.
        link.receive()?;
        Ok(link)
    }

    /// Has a frame sent as soon as there is room.
    pub fn queue(&mut self, frame: &Frame) {
        frame.encode(&mut self.outgoing);
    }

    /// How many bytes wait to be sent.
    pub fn backlog(&self) -> usize {
        self.outgoing.len()
    }

    /// Whether nothing waits to be sent.
    pub fn is_flushed(&self) -> bool {
        self.outgoing.is_empty() && self.wire.is_flushed()
    }

    /// The next frame that has come.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, LinkError> {
        Ok(self.incoming.next_frame()?)
    }

    /// Sends and receives what can be without blocking; before that, waits until something can be,
    /// one of the others is ready, or it is time.
    ///
    /// Frames that have come must be fetched before: it does not look at them.
    pub fn turn(
        &mut self,
        others: &[(BorrowedFd<'_>, PollFlags)],
        until: Option<Instant>,
    ) -> Result<(), LinkError> {
        if self.is_closed {
            return Err(LinkError::Closed);
        }
        if self.heartbeat.elapsed() >= HEARTBEAT_INTERVAL {
            self.queue(&Frame::Heartbeat);
            self.heartbeat = Instant::now();
        }
        if let Err(error) = self.send() {
            // The other side may have said why it does not listen any more.
            self.receive()?;
            self.is_closed = true;
            return if self.incoming.has_more() {
                Ok(())
            } else {
                Err(error)
            };
        }
        // Silence is noticed when it is due, and not only at the heartbeat after that.
        let due = [
            self.heartbeat + HEARTBEAT_INTERVAL,
            self.heard + self.idle_timeout,
        ];
        let due = due.into_iter().chain(until).min();
        let left = due.map_or(HEARTBEAT_INTERVAL, |due| {
            due.saturating_duration_since(Instant::now())
        });
        if self.poll(others, left)? {
            self.receive()
        } else if self.heard.elapsed() >= self.idle_timeout {
            // Only when there was nothing to read: it may be this side that was stopped for a
            // while.
            Err(LinkError::Silent(self.idle_timeout))
        } else {
            Ok(())
        }
    }

    /// Sends what waits, tells the other side that it is over, and waits until it has gone.
    ///
    /// If a socket is closed while something is unread in it, the other side may lose what was sent
    /// last.
    pub fn leave(&mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        while !self.is_closed && Instant::now() < deadline {
            if self.outgoing.is_empty() {
                self.wire.finish();
            } else if self.send().is_err() {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.poll(&[], left) {
                Ok(true) => match self.wire.discard() {
                    Ok(is_closed) => self.is_closed = is_closed,
                    Err(_) => return,
                },
                Ok(false) => {}
                Err(_) => return,
            }
        }
    }

    /// Waits for the other side and the others. Returns whether it can be read.
    fn poll(&self, others: &[(BorrowedFd<'_>, PollFlags)], time: Duration) -> io::Result<bool> {
        let own = self.wire.awaited(!self.outgoing.is_empty());
        let mut all: Vec<_> = own
            .iter()
            .chain(others)
            .map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags))
            .collect();
        wait(&mut all, Some(time))?;
        let is_ready = |fd: &PollFd<'_>| {
            fd.revents()
                .intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
        };
        Ok(all.first().is_some_and(is_ready))
    }

    fn send(&mut self) -> Result<(), LinkError> {
        self.wire.send(&mut self.outgoing)
    }

    fn receive(&mut self) -> Result<(), LinkError> {
        let mut bytes = Vec::new();
        let received = self.wire.receive(&mut bytes);
        self.incoming.push(&bytes);
        match received {
            Ok(received) => {
                self.is_closed |= received.is_closed;
                if received.heard {
                    self.heard = Instant::now();
                }
                Ok(())
            }
            // What came before counts.
            Err(LinkError::Io(_) | LinkError::Ended(_)) if self.incoming.has_more() => {
                self.is_closed = true;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
