//! What connections of strangers take.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use super::lines::Served;
use crate::budget::UNAUTHENTICATED_CONNECTION;
use crate::budget::tests::{all_is_read, peak_growth};

/// So many are opened from so many addresses that nobody has to make room.
const ADDRESSES: u8 = 12;
const EACH: usize = 50;

/// The beginning of a record of TLS of the largest size.
fn incomplete_record(kind: u8, bytes: usize) -> Vec<u8> {
    let mut record = vec![kind, 3, 3, 0x47, 0xff];
    record.resize(bytes, 0);
    record
}

/// Sends the beginning of a greeting that is as long as it may be, in two records.
async fn greets(served: &Served, host: [u8; 4]) -> TcpStream {
    let mut tcp = served.dial_from(host).await;
    let mut first = vec![22, 3, 1, 0x3e, 0x80, 1, 0, 0xff, 0xff];
    first.resize(5 + 0x3e80, 0);
    tcp.write_all(&first).await.unwrap();
    tcp.write_all(&incomplete_record(22, 4400)).await.unwrap();
    tcp
}

/// Agrees on TLS, and sends most of the head of a request and the beginning of a record.
async fn asks(served: &Served, host: [u8; 4]) -> TcpStream {
    let tcp = served.dial_from(host).await;
    let mut stream = served.agree(tcp).await;
    let head = format!("GET / HTTP/1.1\r\nhost: observer\r\nx: {}", "y".repeat(8000));
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let (mut tcp, _) = stream.into_inner();
    tcp.write_all(&incomplete_record(23, 18_400)).await.unwrap();
    tcp
}

/// Has strangers connect, and waits until all that they have sent is read.
async fn come(
    served: &Served,
    each: usize,
    comes: impl AsyncFn(&Served, [u8; 4]) -> TcpStream,
) -> Vec<TcpStream> {
    let mut strangers = Vec::new();
    for address in 1..=ADDRESSES {
        for _ in 0..each {
            strangers.push(comes(served, [127, 0, 1, address]).await);
        }
    }
    all_is_read(served.port()).await;
    strangers
}

fn measure(comes: &impl AsyncFn(&Served, [u8; 4]) -> TcpStream) -> usize {
    crate::open_files::allow_many_connections();
    let runtime: Runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let served = runtime.block_on(Served::new());
    // What is made once is not of a connection.
    let first = runtime.block_on(come(&served, 1, comes));
    let (growth, strangers) = peak_growth(|| runtime.block_on(come(&served, EACH, comes)));
    let open = strangers.iter().filter(|tcp| {
        let read = tcp.try_read(&mut [0; 1]);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    });
    assert_eq!(open.count(), strangers.len(), "nobody has made room");
    drop(first);
    growth / strangers.len()
}

#[test]
fn a_stranger_takes_no_more_than_is_counted_who_does_not_end_a_greeting() {
    let each = measure(&greets);
    assert!(each <= UNAUTHENTICATED_CONNECTION, "{each} bytes");
}

#[test]
fn a_stranger_takes_no_more_than_is_counted_who_does_not_end_a_request() {
    let each = measure(&asks);
    assert!(each <= UNAUTHENTICATED_CONNECTION, "{each} bytes");
}
