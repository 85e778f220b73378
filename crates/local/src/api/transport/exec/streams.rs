//! The streams of a command: each message of the WebSocket begins with the number of its stream.

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails, StatusSummary};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_util::io::ReaderStream;

use crate::api::access::{Process, Resize, Start};
use crate::api::status;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
/// A Status at the end of the command.
const END: u8 = 3;
const RESIZE: u8 = 4;
/// The stream whose number follows is closed.
const CLOSE: u8 = 255;

const MAX_MESSAGE_BYTES: usize = 32 * 1024;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    width: u16,
    height: u16,
}

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(super) struct StreamOptions {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    /// A terminal has one output only.
    pub(super) terminal: bool,
    /// Whether the client supports [`CLOSE`].
    pub(super) ends_streams: bool,
}

/// Starts a command and connects it with a client until one of them ends. The command is killed if
/// the client disconnects.
pub(super) async fn serve<S>(socket: WebSocketStream<S>, wanted: StreamOptions, start: Start)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut send, mut receive) = socket.split();
    let end = match start.await {
        Err(why) => not_started(&why),
        Ok(process) => {
            let Process {
                stdin,
                stdout,
                stderr,
                resize,
                exit,
            } = process;
            let stdin = wanted.stdin.then_some(stdin);
            let run = async {
                output(&mut send, wanted, stdout, stderr).await?;
                Ok::<_, Error>(exit.await)
            };
            let ended = tokio::select! {
                ended = run => ended,
                () = input(&mut receive, wanted, stdin, resize) => return,
            };
            match ended {
                Ok(code) => exited(code),
                Err(_) => return,
            }
        }
    };
    let message = [&[END], status::to_json(&end).to_string().as_bytes()].concat();
    let told = async {
        send.send(Message::binary(message)).await?;
        send.close().await
    };
    // Reads to the end: closing a socket with unread data may discard what was sent.
    if told.await.is_ok() {
        while let Some(Ok(_)) = receive.next().await {}
    }
}

/// Forwards the input of the client until it disconnects.
async fn input<S>(
    receive: &mut SplitStream<WebSocketStream<S>>,
    wanted: StreamOptions,
    mut stdin: Option<impl AsyncWrite + Unpin>,
    resize: Option<Resize>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = receive.next().await {
        let Message::Binary(message) = message else {
            continue;
        };
        match &*message {
            [STDIN, bytes @ ..] => {
                let Some(open) = &mut stdin else { continue };
                let written = async {
                    open.write_all(bytes).await?;
                    open.flush().await
                };
                if written.await.is_err() {
                    stdin = None;
                }
            }
            [CLOSE, STDIN] if wanted.ends_streams => stdin = None,
            [RESIZE, size @ ..] => {
                if let (Some(resize), Ok(size)) = (&resize, serde_json::from_slice::<Size>(size)) {
                    resize(size.width, size.height);
                }
            }
            _ => {}
        }
    }
}

/// Forwards the output of the command.
async fn output<S>(
    send: &mut SplitSink<WebSocketStream<S>, Message>,
    wanted: StreamOptions,
    stdout: impl AsyncRead,
    stderr: impl AsyncRead,
) -> Result<(), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let stdout = ReaderStream::with_capacity(stdout, MAX_MESSAGE_BYTES).map(|piece| (STDOUT, piece));
    let stderr = ReaderStream::with_capacity(stderr, MAX_MESSAGE_BYTES).map(|piece| (STDERR, piece));
    let mut both = std::pin::pin!(futures::stream::select(stdout, stderr));
    while let Some((stream, piece)) = both.next().await {
        let stream = if wanted.terminal { STDOUT } else { stream };
        let is_wanted = if stream == STDOUT {
            wanted.stdout
        } else {
            wanted.stderr
        };
        // Unwanted output is read, too, so that the command does not block.
        if let (true, Ok(bytes)) = (is_wanted, piece) {
            send.send(Message::binary([&[stream], &*bytes].concat())).await?;
        }
    }
    Ok(())
}

fn not_started(why: &str) -> Status {
    let why = format!("error executing command in container: {why}");
    let mut end = *status::internal(format!("Internal error occurred: {why}"));
    end.details = Some(details(StatusCause {
        reason: String::new(),
        message: why,
        field: String::new(),
    }));
    end
}

fn exited(code: i32) -> Status {
    if code == 0 {
        return *status::success(0, None);
    }
    Status {
        status: Some(StatusSummary::Failure),
        message: format!("command terminated with non-zero exit code: exit code {code}"),
        reason: "NonZeroExitCode".to_owned(),
        details: Some(details(StatusCause {
            reason: "ExitCode".to_owned(),
            message: code.to_string(),
            field: String::new(),
        })),
        ..Status::default()
    }
}

fn details(cause: StatusCause) -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: vec![cause],
        retry_after_seconds: 0,
    }
}
