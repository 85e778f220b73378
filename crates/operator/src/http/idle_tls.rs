//! TLS for connections that last and say little: while nothing is on its way, no buffer is kept.
//!
//! Thousands of agents are connected to the observer and hear a few bytes in minutes. The usual stream keeps a buffer for
//! what comes next, which is more than all the rest of a connection; this one drives rustls with buffers of its own, and
//! gives them back.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How much is read at once.
const PIECE: usize = 4 * 1024;
/// How much is encrypted at once: what fits into a record.
const RECORD: usize = 16 * 1024;
/// How much may have come of a message that is not complete; rustls has the same limit for streams of its own.
const MAX_BUFFERED: usize = 64 * 1024;

/// The server's end of a connection with TLS.
pub(crate) struct IdleTls {
    tcp: TcpStream,
    records: Records,
    outgoing: Pile,
    incoming: Pile,
    /// The other side has said that it will say no more.
    is_over: bool,
    /// This side has.
    said_goodbye: bool,
    /// Something came that TLS does not allow. rustls must not be asked again.
    is_broken: bool,
}

/// Bytes on their way, which take no local when there are none.
#[derive(Default)]
struct Pile {
    bytes: Vec<u8>,
    taken: usize,
}

impl Pile {
    fn left(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    fn take(&mut self, count: usize) {
        self.taken += count;
        if self.taken >= self.bytes.len() {
            *self = Self::default();
        }
    }
}

/// The protocol, and what has come and was not understood yet.
struct Records {
    tls: UnbufferedServerConnection,
    encrypted: Vec<u8>,
}

/// What is done once the protocol has nothing else to do.
enum Then<'a> {
    /// Nothing.
    Wait,
    /// This is said.
    Say(&'a [u8]),
    /// Goodbye is said.
    Leave,
}

impl Records {
    /// Understands what has come, and then does what was wanted. What is to be sent and what was heard is put on piles; says
    /// whether the other side has said goodbye.
    fn process(&mut self, then: &Then<'_>, outgoing: &mut Vec<u8>, heard: &mut Vec<u8>) -> io::Result<bool> {
        let mut is_over = false;
        loop {
            let UnbufferedStatus { discard, state } = self.tls.process_tls_records(&mut self.encrypted);
            let mut is_done = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        heard.extend_from_slice(record.map_err(invalid)?.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(outgoing, |space| match data.encode(space) {
                        Err(EncodeError::InsufficientSize(more)) => Err(Some(more)),
                        encoded => encoded.map_err(|_| None),
                    })?;
                }
                // It is on the pile, and the pile is sent before anything is waited for.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => is_over = true,
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let encrypt = |encrypted| match encrypted {
                        Err(EncryptError::InsufficientSize(more)) => Err(Some(more)),
                        Err(EncryptError::EncryptExhausted) => Err(None),
                        Ok(length) => Ok(length),
                    };
                    match then {
                        Then::Wait => {}
                        Then::Say(words) => append(outgoing, |space| encrypt(traffic.encrypt(words, space)))?,
                        Then::Leave => append(outgoing, |space| encrypt(traffic.queue_close_notify(space)))?,
                    }
                    is_done = true;
                }
                Ok(ConnectionState::BlockedHandshake | ConnectionState::Closed) => is_done = true,
                // Nobody is let in early.
                Ok(_) => return Err(invalid("data before the handshake")),
                // The other side is not told why: rustls would have to be asked again, which it may not be after some errors.
                Err(error) => return Err(invalid(error)),
            }
            self.encrypted.drain(..discard);
            if is_done {
                break;
            }
        }
        if self.encrypted.is_empty() {
            self.encrypted = Vec::new();
        }
        if self.encrypted.len() > MAX_BUFFERED {
            return Err(invalid("a message that does not end"));
        }
        Ok(is_over)
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Adds what is written into a space, which is made as large as is asked for.
fn append(
    pile: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<InsufficientSizeError>>,
) -> io::Result<()> {
    let before = pile.len();
    let mut written = write(&mut []);
    if let Err(Some(InsufficientSizeError { required_size })) = written {
        pile.resize(before + required_size, 0);
        written = write(pile.get_mut(before..).unwrap_or_default());
    }
    pile.truncate(before + written.as_ref().map_or(0, |length| *length));
    written.map(drop).map_err(|_| invalid("it can't be encrypted"))
}

impl IdleTls {
    /// Agrees with a client.
    pub(crate) async fn accept(config: Arc<ServerConfig>, tcp: TcpStream) -> io::Result<Self> {
        let tls = UnbufferedServerConnection::new(config).map_err(invalid)?;
        let mut quiet = Self {
            tcp,
            records: Records {
                tls,
                encrypted: Vec::new(),
            },
            outgoing: Pile::default(),
            incoming: Pile::default(),
            is_over: false,
            said_goodbye: false,
            is_broken: false,
        };
        std::future::poll_fn(|context| quiet.poll_agreement(context)).await?;
        Ok(quiet)
    }

    fn poll_agreement(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(context))?;
            if !self.records.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if self.is_over {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            ready!(self.poll_hear(context))?;
        }
    }

    /// Understands what has come, and does what was wanted.
    fn process(&mut self, then: &Then<'_>) -> io::Result<()> {
        if self.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let (outgoing, heard) = (&mut self.outgoing.bytes, &mut self.incoming.bytes);
        let is_over = self.records.process(then, outgoing, heard);
        self.is_broken = is_over.is_err();
        self.is_over |= is_over?;
        Ok(())
    }

    /// Sends all that is to be sent.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.left().is_empty() {
            let sent = ready!(Pin::new(&mut self.tcp).poll_write(context, self.outgoing.left()))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.outgoing.take(sent);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once, and understands it. Whatever is to be answered is sent as far as it can be.
    fn poll_hear(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut piece = [0; PIECE];
        let mut piece = ReadBuf::new(&mut piece);
        ready!(Pin::new(&mut self.tcp).poll_read(context, &mut piece))?;
        if piece.filled().is_empty() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.records.encrypted.extend_from_slice(piece.filled());
        let understood = self.process(&Then::Wait);
        match self.poll_send(context) {
            Poll::Ready(Err(error)) => Poll::Ready(understood.and(Err(error))),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(understood),
        }
    }
}

impl AsyncRead for IdleTls {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.incoming.left().is_empty() && !self.is_over {
            ready!(self.poll_hear(context))?;
        }
        let count = buffer.remaining().min(self.incoming.left().len());
        buffer.put_slice(self.incoming.left().get(..count).unwrap_or_default());
        self.incoming.take(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for IdleTls {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        words: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(context))?;
        if self.said_goodbye {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let words = words.get(..RECORD).unwrap_or(words);
        self.process(&Then::Say(words))?;
        // What could not be sent at once is sent before more is taken.
        match self.poll_send(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(words.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.said_goodbye {
            self.process(&Then::Leave)?;
            self.said_goodbye = true;
        }
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
