//! Lines of many hosts in one output.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::IpAddr;

/// A line that is longer is written in parts, so that memory does not depend on what a program
/// writes.
const MAX_LINE: u64 = 64 * 1024;

/// What lines of a host begin with: its name without the domain.
pub fn label(host: &str) -> String {
    let is_address = host.parse::<IpAddr>().is_ok();
    let name = host.split('.').next().filter(|_| !is_address).unwrap_or(host);
    format!("{name}: ")
}

/// Writes each line with its label in one write. If writing fails, the input is still read, so that
/// the other side does not block.
pub fn copy(from: impl Read, label: &str, mut to: impl Write) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut can_write = true;
    loop {
        let mut line = label.as_bytes().to_vec();
        let begin = line.len();
        from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
        if line.len() == begin {
            return Ok(());
        }
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        can_write = can_write && to.write_all(&line).and_then(|()| to.flush()).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("w-0.train.ns.svc.cluster.local", "w-0: ")]
    #[case("w-0", "w-0: ")]
    #[case("10.0.0.1", "10.0.0.1: ")]
    fn hosts_are_told_by_their_names(#[case] host: &str, #[case] expected: &str) {
        assert_eq!(label(host), expected);
    }

    #[rstest]
    #[case("", "")]
    #[case("a\n\nb", "w: a\nw: \nw: b\n")]
    fn lines_are_whole(#[case] written: &str, #[case] expected: &str) {
        let mut out = Vec::new();
        copy(written.as_bytes(), "w: ", &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_line_without_an_end_is_written_in_parts() {
        let mut out = Vec::new();
        copy(io::repeat(b'x').take(2 * MAX_LINE), "", &mut out).unwrap();
        assert_eq!(out.split(|byte| *byte == b'\n').count(), 3);
    }

    #[test]
    fn who_can_not_write_reads_on() {
        let (read, write) = io::pipe().unwrap();
        drop(read);
        copy(&b"a\nb\n"[..], "w: ", write).unwrap();
    }
}
