//! The little of WebSocket (RFC 6455) that a client of the exec API needs: frames, as bytes, and
//! the proof that the other side speaks it. No input and no output.

use ring::digest;

/// The longest message that is taken: far more than a server sends at once.
const MAX_MESSAGE: usize = 1024 * 1024;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;
/// In the place of a length: it comes in the next 2 bytes, or in the next 8.
const LENGTH_16: u8 = 0x7e;
const LENGTH_64: u8 = 0x7f;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

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
    put(bytes, BINARY, parts);
}

/// Appends the answer to a ping.
pub fn put_pong(bytes: &mut Vec<u8>, payload: &[u8]) {
    put(bytes, PONG, &[payload]);
}

/// Appends the word that this side will say nothing more.
pub fn put_close(bytes: &mut Vec<u8>) {
    put(bytes, CLOSE, &[]);
}

fn put(bytes: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    bytes.push(FINAL | kind);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length @ 0..=125), _) => bytes.push(MASKED | length),
        (_, Ok(length)) => {
            bytes.push(MASKED | LENGTH_16);
            bytes.extend(length.to_be_bytes());
        }
        _ => {
            bytes.push(MASKED | LENGTH_64);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    // It keeps proxies from taking data for requests. None can look into TLS: it need not be hard
    // to guess.
    let mask = fastrand::u32(..).to_be_bytes();
    bytes.extend(mask);
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
        while let Some((kind, is_final, payload)) = self.next_frame()? {
            match (kind, self.begun.take()) {
                (PING, begun) => {
                    self.begun = begun;
                    return Ok(Some(Message::Ping(payload)));
                }
                (PONG, begun) => self.begun = begun,
                (CLOSE, _) => return Ok(Some(Message::Close)),
                (TEXT | BINARY, None) if is_final => return Ok(Some(Message::Data(payload))),
                (TEXT | BINARY, None) => self.begun = Some(payload),
                (CONTINUATION, Some(mut begun)) => {
                    if begun.len() + payload.len() > MAX_MESSAGE {
                        return Err(MessageError::TooLong);
                    }
                    begun.extend(payload);
                    if is_final {
                        return Ok(Some(Message::Data(begun)));
                    }
                    self.begun = Some(begun);
                }
                _ => return Err(MessageError::Senseless),
            }
        }
        Ok(None)
    }

    /// The type of the next frame, whether it is the last of its message, and its payload.
    fn next_frame(&mut self) -> Result<Option<(u8, bool, Vec<u8>)>, MessageError> {
        let Some((&[first, second], rest)) = self.bytes.split_first_chunk() else {
            return Ok(None);
        };
        // A server does not mask, and nothing was agreed on that the reserved bits could mean.
        if first & 0x70 != 0 || second & MASKED != 0 {
            return Err(MessageError::Senseless);
        }
        let (length, head) = match second {
            LENGTH_16 => match rest.split_first_chunk() {
                Some((length, _)) => (usize::from(u16::from_be_bytes(*length)), 4),
                None => return Ok(None),
            },
            LENGTH_64 => match rest.split_first_chunk() {
                Some((length, _)) => (
                    usize::try_from(u64::from_be_bytes(*length)).map_err(|_| MessageError::TooLong)?,
                    10,
                ),
                None => return Ok(None),
            },
            length => (usize::from(length), 2),
        };
        if length > MAX_MESSAGE {
            return Err(MessageError::TooLong);
        }
        let Some(payload) = self.bytes.get(head..head + length) else {
            return Ok(None);
        };
        let frame = (first & 0x0f, first & FINAL != 0, payload.to_vec());
        self.bytes.drain(..head + length);
        Ok(Some(frame))
    }
}

/// A key that a server has to answer.
pub fn key() -> String {
    base64(&std::array::from_fn::<u8, 16, _>(|_| fastrand::u8(..)))
}

/// The answer that a server has for a key, which nobody gives who does not speak WebSocket.
pub fn answer(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    base64(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()).as_ref())
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |index: usize| u32::from(three.get(index).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let letter = LETTERS.get((bits >> (18 - 6 * index) & 63) as usize);
            let is_there = index <= three.len();
            text.push(
                letter
                    .filter(|_| is_there)
                    .map_or('=', |letter| char::from(*letter)),
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_answer_is_that_of_the_standard() {
        assert_eq!(answer("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[rstest]
    #[case("", "")]
    #[case("f", "Zg==")]
    #[case("fo", "Zm8=")]
    #[case("foo", "Zm9v")]
    #[case("foob~?", "Zm9vYn4/")]
    fn bytes_are_written_as_base64(#[case] bytes: &str, #[case] expected: &str) {
        assert_eq!(base64(bytes.as_bytes()), expected);
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
    #[case(&[FINAL | BINARY, MASKED], MessageError::Senseless)]
    #[case(&[FINAL | 3, 0], MessageError::Senseless)]
    #[case(&[FINAL | BINARY, 127, 0, 0, 0, 0, 0, 16, 0, 1], MessageError::TooLong)]
    #[case(&[FINAL | BINARY, 127, 255, 255, 255, 255, 255, 255, 255, 255], MessageError::TooLong)]
    fn nonsense_is_refused(#[case] bytes: &[u8], #[case] expected: MessageError) {
        let mut decoder = Decoder::default();
        decoder.push(bytes);
        assert_eq!(decoder.next_message(), Err(expected));
    }
}
