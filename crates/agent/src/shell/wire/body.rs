//! The body of an answer of HTTP, as far as it has come.

use httparse::Status;

/// What says where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// It has as many bytes.
    Length(usize),
    /// It comes in pieces, each of which says how long it is.
    Chunks,
    /// It ends with the connection.
    Connection,
}

impl Extent {
    /// What the headers of an answer say.
    pub fn of(headers: &[httparse::Header<'_>]) -> Self {
        let header = |name: &str| {
            let named = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
            let found = headers.iter().find(named);
            found.and_then(|header| std::str::from_utf8(header.value).ok())
        };
        // What is sent in pieces has no other length.
        let is_chunked = |coding: &str| {
            let last = coding.rsplit(',').next().unwrap_or_default();
            last.trim().eq_ignore_ascii_case("chunked")
        };
        if header("transfer-encoding").is_some_and(is_chunked) {
            return Self::Chunks;
        }
        let length = header("content-length").and_then(|length| length.trim().parse().ok());
        length.map_or(Self::Connection, Self::Length)
    }

    /// What of a body has come, and whether that is all.
    pub fn read(self, bytes: &[u8]) -> (Vec<u8>, bool) {
        match self {
            Self::Length(length) => {
                let body = bytes.get(..length);
                (body.unwrap_or(bytes).to_vec(), body.is_some())
            }
            Self::Chunks => joined(bytes),
            Self::Connection => (bytes.to_vec(), false),
        }
    }
}

/// What is in the pieces that have come. Behind what is no piece nothing more can be found.
fn joined(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let (begin, length) = match httparse::parse_chunk_size(bytes) {
            Ok(Status::Complete((_, 0))) | Err(_) => return (body, true),
            Ok(Status::Complete(size)) => size,
            Ok(Status::Partial) => return (body, false),
        };
        let data = bytes.get(begin..).unwrap_or_default();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        body.extend_from_slice(data.get(..length).unwrap_or(data));
        // A line ends behind it.
        match data.get(length.saturating_add(2)..) {
            Some(rest) => bytes = rest,
            None => return (body, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(&[("Content-Length", "12")], Extent::Length(12))]
    #[case(&[("content-length", "12"), ("TRANSFER-ENCODING", "gzip, Chunked")], Extent::Chunks)]
    #[case(&[("Transfer-Encoding", "chunked, gzip")], Extent::Connection)]
    #[case(&[("Content-Length", "many")], Extent::Connection)]
    #[case(&[], Extent::Connection)]
    fn headers_say_where_it_ends(#[case] headers: &[(&str, &str)], #[case] expected: Extent) {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| httparse::Header {
                name,
                value: value.as_bytes(),
            })
            .collect();
        assert_eq!(Extent::of(&headers), expected);
    }

    #[rstest]
    #[case(Extent::Length(5), "hell", "hell", false)]
    #[case(Extent::Length(5), "hello!", "hello", true)]
    #[case(Extent::Connection, "hello", "hello", false)]
    #[case(Extent::Chunks, "", "", false)]
    #[case(Extent::Chunks, "3\r\nhe", "he", false)]
    #[case(Extent::Chunks, "3\r\nhel\r", "hel", false)]
    #[case(Extent::Chunks, "3\r\nhel\r\n2;why=so\r\nlo\r\n", "hello", false)]
    #[case(Extent::Chunks, "3\r\nhel\r\n2\r\nlo\r\n0\r\n", "hello", true)]
    #[case(Extent::Chunks, "3\r\nhel\r\nnonsense", "hel", true)]
    #[case(Extent::Chunks, "ffffffffffffffff\r\nhel", "hel", false)]
    fn what_has_come_is_read(
        #[case] extent: Extent,
        #[case] bytes: &str,
        #[case] body: &str,
        #[case] is_all: bool,
    ) {
        assert_eq!(extent.read(bytes.as_bytes()), (body.as_bytes().to_vec(), is_all));
    }
}
