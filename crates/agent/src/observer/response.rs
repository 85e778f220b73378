//! What a server answers: a head, and lines until it closes the connection. Reads from anything.

use std::io::{self, ErrorKind, Read};

use crate::text::one_line;

const MAX_HEAD: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// The longest line that is taken.
pub const MAX_LINE: usize = 64 * 1024;
/// How much of a refusal is shown.
const MAX_REFUSAL: usize = 4 * 1024;
const CHUNK: usize = 4 * 1024;

/// What is wrong with an answer: a sentence whose subject is the server.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// It is over.
    #[error("has closed the connection")]
    Ended,
    /// Nothing came for too long.
    #[error("has been silent for too long")]
    Silent,
    /// The connection is of no use any more.
    #[error("has broken the connection: {0}")]
    Broken(io::Error),
    /// It is no HTTP.
    #[error("does not answer in HTTP: {0}")]
    Head(httparse::Error),
    /// The head does not end.
    #[error("answers with a head of more than {MAX_HEAD} bytes")]
    LongHead,
    /// The answer is wrapped in a way that was not asked for.
    #[error("answers with a transfer encoding instead of lines alone; reach it without a proxy in between")]
    Encoded,
    /// It does not do what it was asked to.
    #[error("answers {status}: {sentence}")]
    Refused {
        /// The status of HTTP.
        status: u16,
        /// Why.
        sentence: String,
    },
    /// A line does not end.
    #[error("sends a line of more than {MAX_LINE} bytes")]
    LongLine,
}

impl From<io::Error> for AnswerError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // Not every server sends a close_notify.
            ErrorKind::UnexpectedEof => Self::Ended,
            ErrorKind::TimedOut => Self::Silent,
            _ => Self::Broken(error),
        }
    }
}

/// The lines of an answer.
#[derive(Debug)]
pub struct Lines<R> {
    source: R,
    buffer: Vec<u8>,
    /// How much of the buffer is known to have no end of a line.
    searched: usize,
}

impl<R: Read> Lines<R> {
    /// Reads the head of the answer. Anything but 200 or an upgrade is an error that says what the
    /// server says.
    pub fn begin(source: R) -> Result<Self, AnswerError> {
        let mut lines = Self {
            source,
            buffer: Vec::new(),
            searched: 0,
        };
        let head = loop {
            lines.fill()?;
            if let Some((head, length)) = parse_head(&lines.buffer)? {
                lines.buffer.drain(..length);
                break head;
            }
            if lines.buffer.len() > MAX_HEAD {
                return Err(AnswerError::LongHead);
            }
        };
        if head.encoded {
            return Err(AnswerError::Encoded);
        }
        if matches!(head.status, 101 | 200) {
            Ok(lines)
        } else {
            Err(lines.refusal(head))
        }
    }

    /// The next line, without its end. What comes after the last end of a line is cut off, and no
    /// line.
    pub fn next_line(&mut self) -> Result<Vec<u8>, AnswerError> {
        loop {
            let unsearched = self.buffer.iter().skip(self.searched);
            let end = unsearched
                .take(MAX_LINE + 1 - self.searched)
                .position(|byte| *byte == b'\n');
            if let Some(end) = end {
                let mut line: Vec<u8> = self.buffer.drain(..=self.searched + end).collect();
                line.pop();
                self.searched = 0;
                return Ok(line);
            }
            if self.buffer.len() > MAX_LINE {
                return Err(AnswerError::LongLine);
            }
            self.searched = self.buffer.len();
            self.fill()?;
        }
    }

    /// What is read from.
    pub fn source_mut(&mut self) -> &mut R {
        &mut self.source
    }

    fn refusal(mut self, head: Head) -> AnswerError {
        let wanted = head.length.unwrap_or(MAX_REFUSAL).min(MAX_REFUSAL);
        // An incomplete message is better than none.
        while self.buffer.len() < wanted && self.fill().is_ok() {}
        self.buffer.truncate(wanted);
        let said = one_line(&String::from_utf8_lossy(&self.buffer));
        let sentence = if said.is_empty() { head.reason } else { said };
        AnswerError::Refused {
            status: head.status,
            sentence,
        }
    }

    fn fill(&mut self) -> Result<(), AnswerError> {
        let mut chunk = [0; CHUNK];
        let count = loop {
            match self.source.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
        if count == 0 {
            return Err(AnswerError::Ended);
        }
        self.buffer.extend(chunk.iter().take(count));
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    reason: String,
    length: Option<usize>,
    encoded: bool,
}

/// The head of an answer and its length; `None` if more is to come.
fn parse_head(bytes: &[u8]) -> Result<Option<(Head, usize)>, AnswerError> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = response.parse(bytes).map_err(AnswerError::Head)? else {
        return Ok(None);
    };
    let header = |name: &str| {
        response
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))
    };
    let content_length = header("content-length").and_then(|header| std::str::from_utf8(header.value).ok());
    let head = Head {
        status: response.code.unwrap_or_default(),
        reason: one_line(response.reason.unwrap_or_default()),
        length: content_length.and_then(|length| length.trim().parse().ok()),
        encoded: header("transfer-encoding").is_some(),
    };
    Ok(Some((head, length)))
}

#[cfg(test)]
mod tests;
