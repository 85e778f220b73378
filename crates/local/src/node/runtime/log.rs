//! Logs of containers, in the format of container runtimes: `2026-01-31T12:00:00.000000000Z stdout
//! F text`, with `P` for a part of a line.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::Stream;
use futures::stream;
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::Error;

/// Longer lines are split.
const MAX_PIECE_BYTES: usize = 16 * 1024;
/// How long to wait for the end of the output after the end of a container: processes that it left
/// may hold it open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// The pipes of a container: the ends for [`Log::collect`], then those for the container.
pub(crate) fn pipes() -> io::Result<((pipe::Receiver, pipe::Receiver), io::PipeWriter, io::PipeWriter)> {
    let (read_stdout, stdout) = io::pipe()?;
    let (read_stderr, stderr) = io::pipe()?;
    let receiver = |end: io::PipeReader| pipe::Receiver::from_owned_fd(OwnedFd::from(end));
    Ok(((receiver(read_stdout)?, receiver(read_stderr)?), stdout, stderr))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LogState {
    bytes: u64,
    ended: bool,
    /// Why output was lost.
    lost: Option<io::ErrorKind>,
}

/// The output of one run of a container.
#[derive(Clone, Debug)]
pub struct Log {
    path: PathBuf,
    progress: watch::Receiver<LogState>,
}

/// Options for reading a log.
#[derive(Clone, Debug, Default)]
pub struct LogRange {
    /// Only so many of the last lines.
    pub tail_lines: Option<usize>,
    /// Only lines from then on.
    pub since: Option<Timestamp>,
    /// Whether lines have times.
    pub timestamps: bool,
    /// No more bytes than this.
    pub limit_bytes: Option<usize>,
    /// Whether to follow until the container ends.
    pub follow: bool,
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

impl Log {
    /// Writes both streams to a file until they end.
    pub(crate) fn collect(
        path: &Path,
        (stdout, stderr): (pipe::Receiver, pipe::Receiver),
    ) -> Result<Self, Error> {
        let file = open(path).map_err(Error::system(format!("write the log {}", path.display())))?;
        let (send, progress) = watch::channel(LogState::default());
        tokio::spawn(async move {
            let writer = parking_lot::Mutex::new((file, send));
            tokio::join!(copy(stdout, "stdout", &writer), copy(stderr, "stderr", &writer));
            let (_, send) = writer.into_inner();
            send.send_modify(|progress| progress.ended = true);
        });
        Ok(Self {
            path: path.to_owned(),
            progress,
        })
    }

    /// Waits until all is written, after the container's end.
    pub async fn finished(&self) {
        let mut progress = self.progress.clone();
        drop(tokio::time::timeout(OUTPUT_TIMEOUT, progress.wait_for(|progress| progress.ended)).await);
    }

    /// The end of the log, up to so many lines and bytes.
    pub fn tail(&self, lines: usize, bytes: usize) -> String {
        let part = LogRange {
            tail_lines: Some(lines),
            ..LogRange::default()
        };
        let text = read_file(&self.path, &part).unwrap_or_default();
        let mut from = text.len().saturating_sub(bytes);
        while from < text.len() && text[from] & 0xC0 == 0x80 {
            from += 1;
        }
        String::from_utf8_lossy(&text[from..]).into_owned()
    }

    /// A part of the output.
    pub fn stream(&self, part: LogRange) -> impl Stream<Item = io::Result<Vec<u8>>> + Send + use<> {
        let state = Following {
            log: self.clone(),
            file: None,
            part,
            at: 0,
            sent: 0,
            first: true,
            told: false,
        };
        stream::try_unfold(state, Following::next)
    }
}

struct Following {
    log: Log,
    /// Kept open, because a slow reader may be behind when the files are removed.
    file: Option<File>,
    part: LogRange,
    at: u64,
    sent: usize,
    first: bool,
    told: bool,
}

impl Following {
    async fn next(mut self) -> io::Result<Option<(Vec<u8>, Self)>> {
        loop {
            let seen = *self.log.progress.borrow_and_update();
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(File::open(&self.log.path)?),
            };
            let mut text = read(file, &self.part, &mut self.at)?;
            // tail_lines applies to the first read only.
            self.part.tail_lines = None;
            if let Some(limit) = self.part.limit_bytes {
                text.truncate(limit.saturating_sub(self.sent));
                if text.is_empty() && self.sent >= limit {
                    return Ok(None);
                }
            }
            self.sent += text.len();
            if !text.is_empty() {
                self.first = false;
                return Ok(Some((text, self)));
            }
            if seen.ended || !self.part.follow || self.log.progress.changed().await.is_err() {
                let Some(reason) = seen.lost.filter(|_| !self.told) else {
                    return Ok(None);
                };
                self.told = true;
                let line = format!("trainyard: output of this container was lost: {reason}\n");
                return Ok(Some((line.into_bytes(), self)));
            }
        }
    }
}

/// Reads a complete log.
pub fn read_file(path: &Path, part: &LogRange) -> io::Result<Vec<u8>> {
    let mut text = read(&mut File::open(path)?, part, &mut 0)?;
    if let Some(limit) = part.limit_bytes {
        text.truncate(limit);
    }
    Ok(text)
}

/// Reads whole lines from a position, and advances it.
fn read(file: &mut File, part: &LogRange, at: &mut u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(*at))?;
    let mut reader = BufReader::new(file);
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line)?;
        if length == 0 || line.last() != Some(&b'\n') {
            break;
        }
        *at += length as u64;
        if let Some(text) = shown(&line, part) {
            kept.push(text);
        }
    }
    if let Some(lines) = part.tail_lines {
        let mut ends = kept
            .iter()
            .rposition(|text| text.last() == Some(&b'\n'))
            .map_or(0, |_| lines);
        // Partial lines belong to the next line.
        let mut from = kept.len();
        while from > 0 {
            if kept[from - 1].last() == Some(&b'\n') {
                if ends == 0 {
                    break;
                }
                ends -= 1;
            }
            from -= 1;
        }
        kept.drain(..from);
    }
    Ok(kept.concat())
}

fn shown(line: &[u8], part: &LogRange) -> Option<Vec<u8>> {
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let (time, _, whole, text) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    if let Some(since) = part.since {
        let time: Timestamp = std::str::from_utf8(time).ok()?.parse().ok()?;
        if time < since {
            return None;
        }
    }
    let text = if whole == b"P" {
        text.strip_suffix(b"\n")?
    } else {
        text
    };
    if !part.timestamps {
        return Some(text.to_vec());
    }
    Some([time, b" ", text].concat())
}

type Writer = parking_lot::Mutex<(File, watch::Sender<LogState>)>;

async fn copy(mut from: impl AsyncRead + Unpin, name: &str, writer: &Writer) {
    let mut buffer = vec![0; MAX_PIECE_BYTES];
    let mut held = 0;
    loop {
        let read = from.read(&mut buffer[held..]).await.unwrap_or(0);
        if read == 0 {
            write(&buffer[..held], name, writer);
            return;
        }
        held += read;
        let whole = buffer[..held]
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map(|at| at + 1);
        let done = match whole {
            Some(end) => end,
            None if held == buffer.len() => held,
            None => continue,
        };
        write(&buffer[..done], name, writer);
        buffer.copy_within(done..held, 0);
        held -= done;
    }
}

/// Writes lines; one without an end of line is partial.
fn write(text: &[u8], name: &str, writer: &Writer) {
    if text.is_empty() {
        return;
    }
    let time = Timestamp::now();
    let mut lines = Vec::with_capacity(text.len() + 64);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let (line, tag) = match line.strip_suffix(b"\n") {
            Some(line) => (line, 'F'),
            None => (line, 'P'),
        };
        drop(write!(lines, "{time:.9} {name} {tag} "));
        lines.extend_from_slice(line);
        lines.push(b'\n');
    }
    let mut writer = writer.lock();
    let written = writer.0.write_all(&lines);
    writer.1.send_modify(|progress| match written {
        Ok(()) => progress.bytes += lines.len() as u64,
        // If the disk is full, output is lost and the container keeps running.
        Err(error) => progress.lost = Some(error.kind()),
    });
}
