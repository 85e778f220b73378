use rstest::rstest;

use super::*;

/// Gives what it has in pieces of one size, then ends as told.
#[derive(Debug)]
struct Pieces<'a> {
    rest: &'a [u8],
    size: usize,
    end: Option<ErrorKind>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.size.min(self.rest.len()).min(buffer.len());
        let (piece, rest) = self.rest.split_at(count);
        buffer[..count].copy_from_slice(piece);
        self.rest = rest;
        match self.end {
            Some(kind) if count == 0 => Err(kind.into()),
            _ => Ok(count),
        }
    }
}

fn pieces(text: &str, size: usize) -> Pieces<'_> {
    Pieces {
        rest: text.as_bytes(),
        size,
        end: None,
    }
}

fn problem(answer: &str) -> String {
    let mut lines = match Lines::begin(pieces(answer, 1000)) {
        Ok(lines) => lines,
        Err(error) => return error.to_string(),
    };
    loop {
        if let Err(error) = lines.next_line() {
            return error.to_string();
        }
    }
}

#[rstest]
fn lines_come_whole_however_they_are_cut(
    #[values(1, 2, 7, 4096)] size: usize,
    #[values(
        "HTTP/1.0 200 OK\r\nServer: x",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x"
    )]
    head: &str,
) {
    let answer = format!("{head}\r\n\r\nfirst\n\nthird ä\r\ncut off");
    let mut lines = Lines::begin(pieces(&answer, size)).unwrap();
    let mut next = || String::from_utf8(lines.next_line().unwrap()).unwrap();
    assert_eq!([next(), next(), next()], ["first", "", "third ä\r"]);
    assert!(matches!(lines.next_line(), Err(AnswerError::Ended)));
}

#[rstest]
#[case::nothing("", "has closed the connection")]
#[case::half_a_head("HTTP/1.1 200 OK\r\nA: b", "has closed the connection")]
#[case::only_a_head("HTTP/1.1 200 OK\r\n\r\n", "has closed the connection")]
#[case::no_http("SSH-2.0-OpenSSH_9.2\r\n", "does not answer in HTTP: invalid HTTP version")]
#[case::chunks(
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
    "answers with a transfer encoding instead of lines alone; reach it without a proxy in between"
)]
#[case::refusal("HTTP/1.1 403 Forbidden\r\n\r\nnot\nyours\n", "answers 403: not yours")]
#[case::refusal_without_words(
    "HTTP/1.1 503 Service Unavailable\r\n\r\n",
    "answers 503: Service Unavailable"
)]
#[case::refusal_of_a_length("HTTP/1.0 404 Gone\r\nContent-Length: 2\r\n\r\nno more", "answers 404: no")]
#[case::redirect("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "answers 302: Found")]
#[case::other_success("HTTP/1.1 204 No Content\r\n\r\n", "answers 204: No Content")]
fn problems_are_told(#[case] answer: &str, #[case] expected: &str) {
    assert_eq!(problem(answer), expected);
}

#[test]
fn nothing_is_read_without_end() {
    let long_head = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(MAX_HEAD));
    assert_eq!(
        problem(&long_head),
        "answers with a head of more than 16384 bytes"
    );
    let refusal = format!("HTTP/1.1 500 Oh\r\n\r\n{}", "ä".repeat(MAX_REFUSAL));
    assert!(problem(&refusal).len() < MAX_REFUSAL + 100);
}

#[rstest]
#[case::just_fits(MAX_LINE, None)]
#[case::too_long(MAX_LINE + 1, Some("sends a line of more than 65536 bytes"))]
#[case::much_too_long(3 * MAX_LINE, Some("sends a line of more than 65536 bytes"))]
fn a_line_has_a_longest_length(#[case] length: usize, #[case] expected: Option<&str>) {
    let answer = format!("HTTP/1.1 200 OK\r\n\r\n{}\n", "x".repeat(length));
    for size in [1000, 4096] {
        let next = Lines::begin(pieces(&answer, size)).unwrap().next_line();
        match expected {
            Some(expected) => assert_eq!(next.unwrap_err().to_string(), expected),
            None => assert_eq!(next.unwrap().len(), length),
        }
    }
}

#[rstest]
#[case(ErrorKind::TimedOut, "has been silent for too long")]
#[case(ErrorKind::UnexpectedEof, "has closed the connection")]
#[case(ErrorKind::ConnectionReset, "has broken the connection: connection reset")]
fn a_connection_ends_in_one_of_three_ways(#[case] kind: ErrorKind, #[case] expected: &str) {
    let source = Pieces {
        end: Some(kind),
        ..pieces("HTTP/1.1 200 OK\r\n\r\n{}", 1000)
    };
    let error = Lines::begin(source).unwrap().next_line().unwrap_err();
    assert_eq!(error.to_string(), expected);

    let source = Pieces {
        end: Some(kind),
        ..pieces("HTTP/1.1 403 No\r\n\r\nwhat came so far", 1000)
    };
    let error = Lines::begin(source).unwrap_err();
    assert_eq!(error.to_string(), "answers 403: what came so far");
}
