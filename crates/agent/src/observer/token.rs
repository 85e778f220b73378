//! The token by which the observer knows this pod.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Larger ones do not fit into the head of a request.
const MAX_TOKEN: u64 = 16 * 1024;

/// Why there is no token. None of these shows it.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file can't be read.
    #[error("{0}")]
    File(#[from] io::Error),
    /// There is nothing in the file.
    #[error("it is empty")]
    Empty,
    /// There is something else in the file.
    #[error("it must be one word of visible ASCII characters, at most {MAX_TOKEN} bytes long")]
    Senseless,
}

/// The token in a file, as it is now.
pub fn read(file: &Path) -> Result<String, TokenError> {
    let mut text = Vec::new();
    File::open(file)?.take(MAX_TOKEN + 1).read_to_end(&mut text)?;
    let token = text.trim_ascii();
    if token.is_empty() {
        return Err(TokenError::Empty);
    }
    // Anything else could end the header and begin another one.
    let is_word = token.iter().all(u8::is_ascii_graphic) && text.len() as u64 <= MAX_TOKEN;
    let token = std::str::from_utf8(token).ok().filter(|_| is_word);
    token.map(str::to_owned).ok_or(TokenError::Senseless)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("eyJh.eyJp.c2ln", Ok("eyJh.eyJp.c2ln"))]
    #[case("  eyJh\n", Ok("eyJh"))]
    #[case("", Err("it is empty"))]
    #[case("\n", Err("it is empty"))]
    #[case("a\r\nX-Evil: b", Err("visible ASCII"))]
    #[case("two words", Err("visible ASCII"))]
    #[case("ä", Err("visible ASCII"))]
    #[case(&"x".repeat(20_000), Err("at most 16384 bytes"))]
    fn is_one_word(#[case] text: &str, #[case] expected: Result<&str, &str>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        match (read(file.path()), expected) {
            (Ok(token), Ok(expected)) => assert_eq!(token, expected),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (got, _) => panic!("{got:?}"),
        }
    }

    #[test]
    fn a_missing_file_is_told() {
        let error = read(Path::new("/nowhere/token")).unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
    }
}
