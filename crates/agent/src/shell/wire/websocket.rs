//! The little of WebSocket (RFC 6455) that a client of the exec API needs: frames, as bytes, and
//! the proof that the other side speaks it. No input and no output.

use std::io::Cursor;

use tungstenite::handshake;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// The longest message that is taken: far more than a server sends at once.
const MAX_MESSAGE: usize = 1024 * 1024;

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Bytes.
    Data(Vec<u8>),
    /// It wants to hear the same from this side.
    Ping(Vec<u8>),
    /// It will say nothing more.
    Close,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It is longer than any message is.
    #[error("a message longer than {MAX_MESSAGE} bytes")]
    TooLong,
    /// No frame looks like this.
    #[error("a frame that makes no sense")]
    Senseless,
}

/// Appends a frame with some parts of data.
pub fn put_data(bytes: &mut Vec<u8>, parts: &[&[u8]]) {
    put(bytes, OpCode::Data(Data::Binary), parts);
}

/// Appends the answer to a ping.
pub fn put_pong(bytes: &mut Vec<u8>, payload: &[u8]) {
    put(bytes, OpCode::Control(Control::Pong), &[payload]);
}

/// Appends the word that this side will say nothing more.
pub fn put_close(bytes: &mut Vec<u8>) {
    put(bytes, OpCode::Control(Control::Close), &[]);
}

fn put(bytes: &mut Vec<u8>, opcode: OpCode, parts: &[&[u8]]) {
    // It keeps proxies from taking data for requests. None can look into TLS: it need not be hard
    // to guess.
    let mask = fastrand::u32(..).to_be_bytes();
    let header = FrameHeader {
        opcode,
        mask: Some(mask),
        ..FrameHeader::default()
    };
    let length: usize = parts.iter().map(|part| part.len()).sum();
    // A list takes all bytes.
    let _ = header.format(length as u64, bytes);
    let payload = parts.iter().flat_map(|part| part.iter());
    bytes.extend(payload.zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

/// Makes messages of bytes as they come.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// The beginning of a message that came in several frames.
    begun: Option<Vec<u8>>,
}

impl Decoder {
    /// More bytes have come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if all of it has come.
    pub fn next_message(&mut self) -> Result<Option<Message>, MessageError> {
        while let Some((header, payload)) = self.next_frame()? {
            match (header.opcode, self.begun.take()) {
                (OpCode::Control(Control::Ping), begun) => {
                    self.begun = begun;
                    return Ok(Some(Message::Ping(payload)));
                }
                (OpCode::Control(Control::Pong), begun) => self.begun = begun,
                (OpCode::Control(Control::Close), _) => return Ok(Some(Message::Close)),
                (OpCode::Data(Data::Text | Data::Binary), None) => self.begun = Some(payload),
                (OpCode::Data(Data::Continue), Some(mut begun)) => {
                    if begun.len() + payload.len() > MAX_MESSAGE {
                        return Err(MessageError::TooLong);
                    }
                    begun.extend(payload);
                    self.begun = Some(begun);
                }
                _ => return Err(MessageError::Senseless),
            }
            let is_data = matches!(header.opcode, OpCode::Data(_));
            if let Some(message) = self.begun.take_if(|_| is_data && header.is_final) {
                return Ok(Some(Message::Data(message)));
            }
        }
        Ok(None)
    }

    fn next_frame(&mut self) -> Result<Option<(FrameHeader, Vec<u8>)>, MessageError> {
        let mut cursor = Cursor::new(&self.bytes);
        let Some((header, length)) = FrameHeader::parse(&mut cursor).map_err(|_| MessageError::Senseless)?
        else {
            return Ok(None);
        };
        // A server does not mask, and nothing was agreed on that the reserved bits could mean.
        if header.mask.is_some() || header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(MessageError::Senseless);
        }
        let too_long = |_| MessageError::TooLong;
        let (head, length) = (cursor.position(), usize::try_from(length).map_err(too_long)?);
        if length > MAX_MESSAGE {
            return Err(MessageError::TooLong);
        }
        let head = usize::try_from(head).map_err(too_long)?;
        let Some(payload) = self.bytes.get(head..head + length) else {
            return Ok(None);
        };
        let payload = payload.to_vec();
        self.bytes.drain(..head + length);
        Ok(Some((header, payload)))
    }
}

/// A key that a server has to answer.
pub fn key() -> String {
    handshake::client::generate_key()
}

/// The answer that a server has for a key, which nobody gives who does not speak WebSocket.
pub fn answer(key: &str) -> String {
    handshake::derive_accept_key(key.as_bytes())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const FINAL: u8 = 0x80;
    const MASKED: u8 = 0x80;
    const LENGTH_16: u8 = 0x7e;
    const LENGTH_64: u8 = 0x7f;

    const CONTINUATION: u8 = 0;
    const BINARY: u8 = 2;
    const CLOSE: u8 = 8;
    const PING: u8 = 9;
    const PONG: u8 = 10;

    #[test]
    fn the_answer_is_that_of_the_standard() {
        assert_eq!(answer("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    /// What a server would send: the same without a mask.
    fn from_server(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![first];
        let length = payload.len();
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(length @ 0..=125), _) => bytes.push(length),
            (_, Ok(length)) => {
                bytes.push(LENGTH_16);
                bytes.extend(length.to_be_bytes());
            }
            _ => {
                bytes.push(LENGTH_64);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend(payload);
        bytes
    }

    #[rstest]
    #[case(0)]
    #[case(125)]
    #[case(126)]
    #[case(65_535)]
    #[case(65_536)]
    fn data_of_any_length_is_read_byte_by_byte(#[case] length: usize) {
        let payload: Vec<u8> = (0..=255).cycle().take(length).collect();
        let bytes = from_server(FINAL | BINARY, &payload);
        let mut decoder = Decoder::default();
        let (last, first) = bytes.split_last().unwrap();
        for byte in first {
            decoder.push(&[*byte]);
            if length < 1000 {
                assert_eq!(decoder.next_message(), Ok(None));
            }
        }
        decoder.push(&[*last]);
        assert_eq!(decoder.next_message(), Ok(Some(Message::Data(payload))));
        assert_eq!(decoder.next_message(), Ok(None));
    }

    #[rstest]
    #[case(5)]
    #[case(126)]
    #[case(70_000)]
    fn what_this_side_sends_is_masked(#[case] length: usize) {
        let payload = vec![7; length];
        let mut bytes = Vec::new();
        put_data(&mut bytes, &[&[1], &payload]);
        assert_eq!(bytes[0], FINAL | BINARY);
        let (told, head) = match bytes[1] & !MASKED {
            LENGTH_16 => (usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), 4),
            LENGTH_64 => (usize::from_be_bytes(bytes[2..10].try_into().unwrap()), 10),
            short => (usize::from(short), 2),
        };
        assert_eq!((told, bytes[1] & MASKED), (length + 1, MASKED));
        let mask = &bytes[head..head + 4];
        let said: Vec<u8> = bytes[head + 4..]
            .iter()
            .zip(mask.iter().cycle())
            .map(|(a, b)| a ^ b)
            .collect();
        assert_eq!((said[0], &said[1..]), (1, &*payload));
    }

    #[test]
    fn a_ping_may_come_between_the_parts_of_a_message() {
        let mut decoder = Decoder::default();
        decoder.push(&from_server(BINARY, b"ab"));
        decoder.push(&from_server(FINAL | PING, b"there?"));
        decoder.push(&from_server(CONTINUATION, b"cd"));
        decoder.push(&from_server(FINAL | PONG, b""));
        decoder.push(&from_server(FINAL | CONTINUATION, b"ef"));
        decoder.push(&from_server(FINAL | CLOSE, b""));
        let mut messages = Vec::new();
        while let Some(message) = decoder.next_message().unwrap() {
            messages.push(message);
        }
        let expected = [
            Message::Ping(b"there?".to_vec()),
            Message::Data(b"abcdef".to_vec()),
            Message::Close,
        ];
        assert_eq!(messages, expected);
    }

    #[rstest]
    #[case(&[FINAL | CONTINUATION, 0], MessageError::Senseless)]
    #[case(&[FINAL | 0x40 | BINARY, 0], MessageError::Senseless)]
    #[case(&[FINAL | BINARY, MASKED, 0, 0, 0, 0], MessageError::Senseless)]
    #[case(&[FINAL | 3, 0], MessageError::Senseless)]
    #[case(&[FINAL | BINARY, 127, 0, 0, 0, 0, 0, 16, 0, 1], MessageError::TooLong)]
    #[case(&[FINAL | BINARY, 127, 255, 255, 255, 255, 255, 255, 255, 255], MessageError::TooLong)]
    fn nonsense_is_refused(#[case] bytes: &[u8], #[case] expected: MessageError) {
        let mut decoder = Decoder::default();
        decoder.push(bytes);
        assert_eq!(decoder.next_message(), Err(expected));
    }
}
