//! Delays connections between addresses of this machine. Not every kernel can delay packets.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

const BUFFER_BYTES: usize = 16 * 1024;

/// Forwards connections from one address to another until it is dropped.
pub struct Delayed(JoinHandle<()>);

impl Delayed {
    /// Delays every byte, in both directions.
    pub async fn new(from: SocketAddr, to: SocketAddr, delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind(from).await?;
        let forward = async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                connections.spawn(async move {
                    // The client sees a closed connection.
                    let Ok(far) = TcpStream::connect(to).await else {
                        return;
                    };
                    // The only delay should be ours.
                    if near.set_nodelay(true).and(far.set_nodelay(true)).is_err() {
                        return;
                    }
                    let (near_in, near_out) = near.into_split();
                    let (far_in, far_out) = far.into_split();
                    tokio::join!(forward(near_in, far_out, delay), forward(far_in, near_out, delay));
                });
                while connections.try_join_next().is_some() {}
            }
        };
        Ok(Self(tokio::spawn(forward)))
    }
}

impl Drop for Delayed {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Forwards bytes and their end in one direction. The delay does not limit the throughput.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (sender, mut pieces) = unbounded_channel();
    let read = async move {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let piece = buffer.get(..count).unwrap_or_default().to_vec();
            if sender.send((Instant::now() + delay, piece)).is_err() {
                return;
            }
        }
        // The end is delayed like everything else.
        drop(sender.send((Instant::now() + delay, Vec::new())));
    };
    let write = async move {
        while let Some((due, piece)) = pieces.recv().await {
            sleep_until(due).await;
            if piece.is_empty() || to.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_said_is_heard_later() {
        let delay = Duration::from_millis(200);
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap();
        let _network = Delayed::new(near, server.local_addr().unwrap(), delay)
            .await
            .unwrap();
        let mut client = TcpStream::connect(near).await.unwrap();
        let (mut far, _) = server.accept().await.unwrap();
        let begun = Instant::now();
        client.write_all(b"there?").await.unwrap();
        client.shutdown().await.unwrap();
        let mut heard = String::new();
        far.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "there?");
        assert!(begun.elapsed() >= delay, "{:?}", begun.elapsed());
        far.write_all(b"here").await.unwrap();
        drop(far);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "here");
        assert!(begun.elapsed() >= 2 * delay, "{:?}", begun.elapsed());
    }
}
