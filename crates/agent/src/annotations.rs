//! The annotations of the pod, as the kubelet writes them into a file: one a line, `key="value"`,
//! the value quoted as Go does it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// All annotations of a pod have at most 256 KiB; quoted, no byte takes more than four.
const MAX_FILE: u64 = 1 << 20;

/// The value of an annotation in the file, if it is there.
pub fn read(file: &Path, key: &str) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(find(&String::from_utf8_lossy(&bytes), key))
}

/// The value of an annotation in the text of the file. A line that is not as expected is passed
/// over.
pub fn find(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        if name == key { unquote(value) } else { None }
    })
}

fn unquote(quoted: &str) -> Option<String> {
    let inner = quoted.trim_end().strip_prefix('"')?.strip_suffix('"')?;
    let mut value = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(next) = rest.next() {
        let plain = match next {
            // Inside of the quotes there is none, or it is no line of the kubelet's.
            '"' => return None,
            '\\' => unescape(&mut rest)?,
            other => other,
        };
        value.push(plain);
    }
    Some(value)
}

fn unescape(rest: &mut std::str::Chars<'_>) -> Option<char> {
    let digits = match rest.next()? {
        'a' => return Some('\x07'),
        'b' => return Some('\x08'),
        'f' => return Some('\x0c'),
        'n' => return Some('\n'),
        'r' => return Some('\r'),
        't' => return Some('\t'),
        'v' => return Some('\x0b'),
        same @ ('\\' | '"' | '\'') => return Some(same),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => return None,
    };
    let mut code = 0;
    for _ in 0..digits {
        code = code * 16 + rest.next()?.to_digit(16)?;
    }
    // `\x80` and above is how Go writes a byte that is no UTF-8.
    let is_lone_byte = digits == 2 && code > 0x7f;
    if is_lone_byte {
        Some(char::REPLACEMENT_CHARACTER)
    } else {
        char::from_u32(code)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::alone("key=\"now\"\n", Some("now"))]
    #[case::without_an_end("key=\"now\"", Some("now"))]
    #[case::among_others("a.b/key=\"x\"\nkey=\"now\"\nkeys=\"y\"\n", Some("now"))]
    #[case::empty_value("key=\"\"\n", Some(""))]
    #[case::equals_in_the_value("key=\"a=b\"\n", Some("a=b"))]
    #[case::simple_escapes(r#"key="\"a\"\\\n\t\r\a\b\f\v""#, Some("\"a\"\\\n\t\r\x07\x08\x0c\x0b"))]
    #[case::numbers(r#"key="\x01\u00e4\U0001f682\u200b""#, Some("\x01ä🚂\u{200b}"))]
    #[case::beyond_ascii("key=\"Zürich\"", Some("Zürich"))]
    #[case::a_byte_that_is_no_text(r#"key="\xff""#, Some("\u{fffd}"))]
    #[case::windows_ends("key=\"now\"\r\n", Some("now"))]
    #[case::nothing("", None)]
    #[case::other_keys("keys=\"now\"\nmykey=\"now\"\n", None)]
    #[case::in_a_value(r#"a="\nkey=\"now\"""#, None)]
    #[case::no_quotes("key=now\n", None)]
    #[case::one_quote("key=\"\n", None)]
    #[case::quote_inside("key=\"a\"b\"\n", None)]
    #[case::cut_off("key=\"no", None)]
    #[case::escape_cut_off(r#"key="\u12""#, None)]
    #[case::escaped_end(r#"key="\""#, None)]
    #[case::unknown_escape(r#"key="\q""#, None)]
    #[case::no_character(r#"key="\ud800""#, None)]
    #[case::too_large_a_number(r#"key="\Uffffffff""#, None)]
    fn finds(#[case] text: &str, #[case] expected: Option<&str>) {
        assert_eq!(find(text, "key").as_deref(), expected);
    }

    #[test]
    fn a_file_is_read_anew_and_may_be_missing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("annotations");
        assert_eq!(read(&file, "key").unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&file, b"bad=\"\xff\"\nkey=\"now\"\n").unwrap();
        assert_eq!(read(&file, "key").unwrap().as_deref(), Some("now"));
        assert_eq!(read(&file, "bad").unwrap().as_deref(), Some("\u{fffd}"));
    }
}
