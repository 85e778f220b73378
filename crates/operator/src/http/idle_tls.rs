//! TLS for connections that are idle most of the time: an idle one has no buffer.
//!
//! Thousands of agents are connected to the observer and receive a few bytes in minutes. The usual
//! stream keeps a buffer, which is larger than all the rest of a connection. This one drives rustls
//! with buffers of its own, and frees them.

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

const READ_SIZE: usize = 4 * 1024;
/// What fits into a record of TLS.
const RECORD_SIZE: usize = 16 * 1024;
/// The limit of an incomplete record: 16 KiB, and at most 2 KiB more when it is encrypted. Anybody
/// may send one, so it is not larger.
const MAX_BUFFERED: usize = 20 * 1024;

/// The server's side of a connection with TLS.
pub(crate) struct IdleTls {
    tcp: TcpStream,
    records: Records,
    outgoing: Buffer,
    incoming: Buffer,
    peer_closed: bool,
    close_sent: bool,
    /// TLS has failed. rustls must not be called again.
    is_broken: bool,
}

/// A buffer that takes no memory while it is empty.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    taken: usize,
}

impl Buffer {
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

/// The TLS state, and what was received and not processed yet.
struct Records {
    tls: UnbufferedServerConnection,
    encrypted: Vec<u8>,
}

/// What is sent when TLS itself has nothing to send.
enum Output<'a> {
    None,
    Encrypt(&'a [u8]),
    Close,
}

impl Records {
    /// Processes what was received, and then produces the output. Appends what is to be sent and
    /// what was decrypted. Returns whether the peer has closed its side.
    fn process(
        &mut self,
        output: &Output<'_>,
        outgoing: &mut Vec<u8>,
        decrypted: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let mut peer_closed = false;
        loop {
            let UnbufferedStatus { discard, state } = self.tls.process_tls_records(&mut self.encrypted);
            let mut is_done = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        decrypted.extend_from_slice(record.map_err(invalid)?.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(outgoing, |space| match data.encode(space) {
                        Err(EncodeError::InsufficientSize(more)) => Err(Some(more)),
                        encoded => encoded.map_err(|_| None),
                    })?;
                }
                // It is in the buffer, which is sent before anything is waited for.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => peer_closed = true,
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let encrypt = |encrypted| match encrypted {
                        Err(EncryptError::InsufficientSize(more)) => Err(Some(more)),
                        Err(EncryptError::EncryptExhausted) => Err(None),
                        Ok(length) => Ok(length),
                    };
                    match output {
                        Output::None => {}
                        Output::Encrypt(words) => {
                            append(outgoing, |space| encrypt(traffic.encrypt(words, space)))?;
                        }
                        Output::Close => {
                            append(outgoing, |space| encrypt(traffic.queue_close_notify(space)))?;
                        }
                    }
                    is_done = true;
                }
                Ok(ConnectionState::BlockedHandshake | ConnectionState::Closed) => is_done = true,
                // Early data is not accepted.
                Ok(_) => return Err(invalid("data before the handshake")),
                // The peer gets no alert: rustls must not be called again after some errors.
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
        Ok(peer_closed)
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Appends what `write` writes, into as much space as it asks for.
fn append(
    buffer: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<InsufficientSizeError>>,
) -> io::Result<()> {
    let before = buffer.len();
    let mut written = write(&mut []);
    if let Err(Some(InsufficientSizeError { required_size })) = written {
        buffer.resize(before + required_size, 0);
        written = write(buffer.get_mut(before..).unwrap_or_default());
    }
    buffer.truncate(before + written.as_ref().map_or(0, |length| *length));
    written.map(drop).map_err(|_| invalid("it can't be encrypted"))
}

impl IdleTls {
    /// Makes the handshake with a client.
    pub(crate) async fn accept(config: Arc<ServerConfig>, tcp: TcpStream) -> io::Result<Self> {
        let tls = UnbufferedServerConnection::new(config).map_err(invalid)?;
        let mut stream = Self {
            tcp,
            records: Records {
                tls,
                encrypted: Vec::new(),
            },
            outgoing: Buffer::default(),
            incoming: Buffer::default(),
            peer_closed: false,
            close_sent: false,
            is_broken: false,
        };
        std::future::poll_fn(|context| stream.poll_handshake(context)).await?;
        Ok(stream)
    }

    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(context))?;
            if !self.records.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if self.peer_closed {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            ready!(self.poll_receive(context))?;
        }
    }

    fn process(&mut self, output: &Output<'_>) -> io::Result<()> {
        if self.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let (outgoing, decrypted) = (&mut self.outgoing.bytes, &mut self.incoming.bytes);
        let peer_closed = self.records.process(output, outgoing, decrypted);
        self.is_broken = peer_closed.is_err();
        self.peer_closed |= peer_closed?;
        Ok(())
    }

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

    /// Reads once and processes it. Sends what TLS answers, as far as possible without waiting.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut buffer = [0; READ_SIZE];
        let mut buffer = ReadBuf::new(&mut buffer);
        ready!(Pin::new(&mut self.tcp).poll_read(context, &mut buffer))?;
        if buffer.filled().is_empty() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        // Not twice as much: anybody may send a record that does not end.
        self.records.encrypted.reserve_exact(buffer.filled().len());
        self.records.encrypted.extend_from_slice(buffer.filled());
        let understood = self.process(&Output::None);
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
        while self.incoming.left().is_empty() && !self.peer_closed {
            ready!(self.poll_receive(context))?;
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
        if self.close_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let words = words.get(..RECORD_SIZE).unwrap_or(words);
        self.process(&Output::Encrypt(words))?;
        // The rest is sent before more is encrypted.
        match self.poll_send(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(words.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.close_sent {
            self.process(&Output::Close)?;
            self.close_sent = true;
        }
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
