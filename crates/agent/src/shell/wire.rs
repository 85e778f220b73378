//! What carries the bytes of a connection: TLS on a socket, two pipes, or a stream of the
//! Kubernetes exec API.

mod body;
mod exec;
mod pipes;
mod tls;
mod websocket;

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;

use super::error::LinkError;

pub use exec::{Exec, Request};
pub use pipes::Pipes;
pub use tls::Tls;

/// Bytes that one call of [`Wire::receive`] reads at most: then the other direction has its turn.
const MAX_RECEIVE: usize = 256 * 1024;
/// The size of the buffer of one read.
const READ_SIZE: usize = 16 * 1024;

/// What was noticed while receiving.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// The other side is there.
    pub heard: bool,
    /// Nothing more will come.
    pub is_closed: bool,
}

/// A carrier of bytes that never blocks.
pub trait Wire: Debug + Send {
    /// What to wait for: first what is read, then anything else. `has_more`: there is more to send.
    fn awaited(&self, has_more: bool) -> Vec<(BorrowedFd<'_>, PollFlags)>;

    /// Sends what can be sent, and takes it away from what waits.
    fn send(&mut self, waiting: &mut Vec<u8>) -> Result<(), LinkError>;

    /// Whether all that it took is sent.
    fn is_flushed(&self) -> bool;

    /// Appends what has come. What came before a failure is there, too.
    fn receive(&mut self, bytes: &mut Vec<u8>) -> Result<Received, LinkError>;

    /// Tells the other side that nothing more will come, once all is sent. May be called again.
    fn finish(&mut self);

    /// Reads what nobody wants to know any more. Returns whether the other side has gone.
    fn discard(&mut self) -> io::Result<bool>;
}
