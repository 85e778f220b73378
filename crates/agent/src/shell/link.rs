//! One connection: TLS on a socket that never blocks, with frames on top.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;

use super::HEARTBEAT;
use super::frame::{Decoder, Frame, FrameError};
use super::identity::explain;

/// How much waits at most to be sent before no more is fetched.
pub const BACKLOG: usize = 64 * 1024;

/// Bytes that are read before somebody else has a turn.
const AT_ONCE: usize = 256 * 1024;

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// TLS does not allow it to go on.
    #[error("{}", explain(.0))]
    Tls(rustls::Error),
    /// What was said makes no sense.
    #[error("it said what makes no sense: {0}")]
    Frame(#[from] FrameError),
    /// The network has failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The other side has ended it.
    #[error("the connection was closed")]
    Closed,
    /// The other side does not answer.
    #[error("nothing was heard from it for {} s", .0.as_secs())]
    Silent(Duration),
}

/// A connection that both sides have agreed on.
#[derive(Debug)]
pub struct Link {
    tls: Connection,
    tcp: TcpStream,
    incoming: Decoder,
    outgoing: Vec<u8>,
    /// How long the other side may be silent.
    patience: Duration,
    heard: Instant,
    heartbeat: Instant,
    is_closed: bool,
}

impl Link {
    /// Makes sure who the other side is, before the deadline.
    pub fn open(
        tls: Connection,
        tcp: TcpStream,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Self, LinkError> {
        tcp.set_nonblocking(true)?;
        // Keys that are typed and signals must not wait for more.
        tcp.set_nodelay(true)?;
        let now = Instant::now();
        let mut link = Self {
            tls,
            tcp,
            incoming: Decoder::default(),
            outgoing: Vec::new(),
            patience,
            heard: now,
            heartbeat: now,
            is_closed: false,
        };
        let result = link.shake_hands(deadline);
        match result {
            Ok(()) => Ok(link),
            Err(error) => {
                if matches!(error, LinkError::Tls(_)) {
                    link.leave(Duration::from_secs(1));
                }
                Err(error)
            }
        }
    }

    fn shake_hands(&mut self, deadline: Instant) -> Result<(), LinkError> {
        loop {
            self.send()?;
            if !self.tls.is_handshaking() && !self.tls.wants_write() {
                self.heard = Instant::now();
                return Ok(());
            }
            if self.is_closed {
                return Err(LinkError::Closed);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let problem = io::Error::new(ErrorKind::TimedOut, "the handshake took too long");
                return Err(LinkError::Io(problem));
            }
            if self.poll(&[], left)? {
                self.receive()?;
            }
        }
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
        self.outgoing.is_empty() && !self.tls.wants_write()
    }

    /// The next frame that has come.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, LinkError> {
        Ok(self.incoming.next_frame()?)
    }

    /// Sends and receives what can be without blocking; before that, waits until something can be, one of the others is
    /// ready, or it is time.
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
        if self.heartbeat.elapsed() >= HEARTBEAT {
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
        let now = Instant::now();
        let heartbeat = (self.heartbeat + HEARTBEAT).saturating_duration_since(now);
        let until = until.map_or(HEARTBEAT, |until| until.saturating_duration_since(now));
        if self.poll(others, heartbeat.min(until))? {
            self.receive()
        } else if self.heard.elapsed() >= self.patience {
            // Only when there was nothing to read: it may be this side that was stopped for a while.
            Err(LinkError::Silent(self.patience))
        } else {
            Ok(())
        }
    }

    /// Sends what waits, tells the other side that it is over, and waits until it has gone.
    ///
    /// If a socket is closed while something is unread in it, the other side may lose what was sent last.
    pub fn leave(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut has_said_goodbye = false;
        while !self.is_closed && Instant::now() < deadline {
            if !has_said_goodbye && self.outgoing.is_empty() {
                self.tls.send_close_notify();
                has_said_goodbye = true;
            }
            if self.send().is_err() {
                return;
            }
            if has_said_goodbye && !self.tls.wants_write() {
                let _ = self.tcp.shutdown(std::net::Shutdown::Write);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.poll(&[], left) {
                Ok(true) if self.discard().is_err() => return,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Waits for the socket and the others. Returns whether the socket can be read.
    fn poll(&self, others: &[(BorrowedFd<'_>, PollFlags)], time: Duration) -> io::Result<bool> {
        let mut flags = PollFlags::IN;
        if self.tls.wants_write() || !self.outgoing.is_empty() {
            flags |= PollFlags::OUT;
        }
        let mut all = vec![PollFd::from_borrowed_fd(self.tcp.as_fd(), flags)];
        all.extend(
            others
                .iter()
                .map(|&(fd, flags)| PollFd::from_borrowed_fd(fd, flags)),
        );
        wait(&mut all, Some(time))?;
        let is_ready = |fd: &PollFd<'_>| {
            fd.revents()
                .intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
        };
        Ok(all.first().is_some_and(is_ready))
    }

    fn send(&mut self) -> Result<(), LinkError> {
        loop {
            let taken = if self.tls.is_handshaking() {
                0
            } else {
                self.tls.writer().write(&self.outgoing)?
            };
            self.outgoing.drain(..taken);
            if !self.tls.wants_write() {
                return Ok(());
            }
            match self.tls.write_tls(&mut self.tcp) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn receive(&mut self) -> Result<(), LinkError> {
        let mut buffer = [0; 16 * 1024];
        let mut total = 0;
        while total < AT_ONCE && !self.is_closed {
            match self.tls.read_tls(&mut self.tcp) {
                Ok(0) => self.is_closed = true,
                Ok(count) => {
                    total += count;
                    self.heard = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // What came before counts.
                Err(_) if self.incoming.has_more() => self.is_closed = true,
                Err(error) => return Err(error.into()),
            }
            if let Err(error) = self.tls.process_new_packets() {
                // The other side is told why, if it can be at once.
                let _ = self.tls.write_tls(&mut self.tcp);
                return Err(LinkError::Tls(error));
            }
            loop {
                match self.tls.reader().read(&mut buffer) {
                    Ok(0) => {
                        self.is_closed = true;
                        break;
                    }
                    Ok(count) => self.incoming.push(buffer.get(..count).unwrap_or_default()),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => {
                        self.is_closed = true;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads what nobody wants to know any more.
    fn discard(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        match self.tcp.read(&mut buffer) {
            Ok(0) => self.is_closed = true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Waits until one of them is ready, or for some time. Signals that were handled meanwhile may end it early.
pub fn wait(fds: &mut [PollFd<'_>], time: Option<Duration>) -> io::Result<()> {
    // The system counts in milliseconds, and must not wake up before it is time.
    let time = time.map(|time| time + Duration::from_millis(1));
    let time = time.and_then(|time| Timespec::try_from(time).ok());
    match poll(fds, time.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
