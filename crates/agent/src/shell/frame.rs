//! What the two sides of the remote shell say to each other: frames of a type, a length and a
//! payload.
//!
//! The first frame of each side is its [`Frame::Hello`], whose form is the same in all versions of
//! the protocol, so that two sides that do not understand each other can say so.

/// The version of everything but the first frame.
pub const PROTOCOL: u32 = 1;

/// How much of a stream may be under way before the other side has said that it took it.
pub const WINDOW: usize = 256 * 1024;

/// The longest payload: the longest command line that Linux takes, twice.
const MAX_PAYLOAD: usize = 256 * 1024;
const HEADER_SIZE: usize = 5;

/// A stream of bytes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard input.
    In,
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// One thing that a side says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Which protocol a side speaks, and which release of the program it is.
    Hello {
        /// The version of the protocol.
        protocol: u32,
        /// The release, for people.
        release: String,
    },
    /// What to run.
    Command {
        /// Whether it has an input.
        has_input: bool,
        /// A line for a shell.
        line: Vec<u8>,
    },
    /// Bytes of a stream.
    Data(Stream, Vec<u8>),
    /// There are no more bytes in this stream.
    End(Stream),
    /// So many bytes of a stream have gone on their way: there is room for as many more.
    Taken(Stream, u32),
    /// A signal for the command.
    Signal(u8),
    /// The command has ended with this code. Nothing comes after it.
    Exit(u8),
    /// Nothing was run, and why.
    Refused(String),
    /// A side is there.
    Heartbeat,
}

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It is longer than any frame is.
    #[error("a frame of {0} bytes, longer than any is")]
    TooLong(usize),
    /// No frame looks like this.
    #[error("a frame of the type {0} that makes no sense")]
    Senseless(u8),
    /// A frame that has no place here.
    #[error("{0} out of turn")]
    OutOfTurn(&'static str),
}

mod kind {
    pub const HELLO: u8 = 1;
    pub const COMMAND: u8 = 2;
    pub const DATA: u8 = 3;
    pub const END: u8 = 4;
    pub const TAKEN: u8 = 5;
    pub const SIGNAL: u8 = 6;
    pub const EXIT: u8 = 7;
    pub const REFUSED: u8 = 8;
    pub const HEARTBEAT: u8 = 9;
}

impl Stream {
    fn number(self) -> u8 {
        match self {
            Self::In => 0,
            Self::Out => 1,
            Self::Err => 2,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::In),
            1 => Some(Self::Out),
            2 => Some(Self::Err),
            _ => None,
        }
    }
}

impl Frame {
    /// The first frame of this program.
    pub fn hello() -> Self {
        Self::Hello {
            protocol: PROTOCOL,
            release: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Appends it as bytes.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Hello { protocol, release } => {
                put(bytes, kind::HELLO, &[&protocol.to_be_bytes(), release.as_bytes()]);
            }
            Self::Command { has_input, line } => put(bytes, kind::COMMAND, &[&[u8::from(*has_input)], line]),
            Self::Data(stream, data) => put(bytes, kind::DATA, &[&[stream.number()], data]),
            Self::End(stream) => put(bytes, kind::END, &[&[stream.number()]]),
            Self::Taken(stream, count) => {
                put(bytes, kind::TAKEN, &[&[stream.number()], &count.to_be_bytes()]);
            }
            Self::Signal(number) => put(bytes, kind::SIGNAL, &[&[*number]]),
            Self::Exit(code) => put(bytes, kind::EXIT, &[&[*code]]),
            Self::Refused(reason) => put(bytes, kind::REFUSED, &[reason.as_bytes()]),
            Self::Heartbeat => put(bytes, kind::HEARTBEAT, &[]),
        }
    }

    fn decode(kind: u8, payload: &[u8]) -> Option<Self> {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Some(match (kind, payload) {
            (kind::HELLO, _) => {
                let (protocol, release) = payload.split_first_chunk()?;
                Self::Hello {
                    protocol: u32::from_be_bytes(*protocol),
                    release: text(release),
                }
            }
            (kind::COMMAND, [has_input @ (0 | 1), line @ ..]) => Self::Command {
                has_input: *has_input == 1,
                line: line.to_vec(),
            },
            (kind::DATA, [stream, data @ ..]) => Self::Data(Stream::from_number(*stream)?, data.to_vec()),
            (kind::END, [stream]) => Self::End(Stream::from_number(*stream)?),
            (kind::TAKEN, [stream, count @ ..]) => {
                let count = u32::from_be_bytes(count.try_into().ok()?);
                Self::Taken(Stream::from_number(*stream)?, count)
            }
            (kind::SIGNAL, [number]) => Self::Signal(*number),
            (kind::EXIT, [code]) => Self::Exit(*code),
            (kind::REFUSED, reason) => Self::Refused(text(reason)),
            (kind::HEARTBEAT, []) => Self::Heartbeat,
            _ => return None,
        })
    }
}

fn put(bytes: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    bytes.push(kind);
    // What is longer is refused by whoever reads it, which a command line of gigabytes deserves.
    bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    for part in parts {
        bytes.extend_from_slice(part);
    }
}

/// Makes frames of bytes as they come.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// How many of them are done with.
    done: usize,
}

impl Decoder {
    /// More bytes have come.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.done > 0 {
            self.bytes.drain(..self.done);
            self.done = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether there is a frame, or something that is none.
    pub fn has_more(&self) -> bool {
        let rest = self.bytes.get(self.done..).unwrap_or_default();
        let Some((&[_, a, b, c, d], rest)) = rest.split_first_chunk::<HEADER_SIZE>() else {
            return false;
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        length > MAX_PAYLOAD || rest.len() >= length
    }

    /// The next frame, if all of it has come.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = self.bytes.get(self.done..).unwrap_or_default();
        let Some((&[kind, a, b, c, d], rest)) = rest.split_first_chunk::<HEADER_SIZE>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > MAX_PAYLOAD {
            return Err(FrameError::TooLong(length));
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = Frame::decode(kind, payload).ok_or(FrameError::Senseless(kind))?;
        self.done += HEADER_SIZE + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Frame> {
        vec![
            Frame::hello(),
            Frame::Command {
                has_input: true,
                line: b"a b".to_vec(),
            },
            Frame::Data(Stream::In, vec![0, 255]),
            Frame::Data(Stream::Out, vec![]),
            Frame::Data(Stream::Err, vec![7; 70_000]),
            Frame::End(Stream::In),
            Frame::Taken(Stream::Out, 70_000),
            Frame::Signal(15),
            Frame::Exit(255),
            Frame::Refused("no".to_owned()),
            Frame::Heartbeat,
        ]
    }

    #[test]
    fn frames_are_read_as_they_were_written_however_they_come() {
        let mut bytes = Vec::new();
        for frame in all() {
            frame.encode(&mut bytes);
        }
        for size in [1, 2, 7, 1000, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut frames = Vec::new();
            for part in bytes.chunks(size) {
                decoder.push(part);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames, all());
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let read = |bytes: &[u8]| {
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            decoder.next_frame()
        };
        assert_eq!(read(&[3, 0xff, 0, 0, 0]), Err(FrameError::TooLong(0xff00_0000)));
        assert_eq!(read(&[0, 0, 0, 0, 0]), Err(FrameError::Senseless(0)));
        assert_eq!(read(&[10, 0, 0, 0, 0]), Err(FrameError::Senseless(10)));
        // A stream that does not exist, a count that is cut off, a heartbeat that says something.
        assert_eq!(read(&[3, 0, 0, 0, 1, 3]), Err(FrameError::Senseless(3)));
        assert_eq!(read(&[5, 0, 0, 0, 2, 1, 1]), Err(FrameError::Senseless(5)));
        assert_eq!(read(&[9, 0, 0, 0, 1, 1]), Err(FrameError::Senseless(9)));
        assert_eq!(read(&[1, 0, 0, 0, 3, 0, 0, 1]), Err(FrameError::Senseless(1)));
    }
}
