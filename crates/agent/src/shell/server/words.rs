//! Words of a command line, as a shell would find them, for images that have no shell.

/// What only a shell can do, where it is not quoted.
const NEEDS_SHELL: &[char] = &[
    ';', '|', '&', '<', '>', '(', ')', '{', '}', '$', '`', '*', '?', '[', '~', '#', '!', '\n',
];

/// Why a command line can't be split.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordsError {
    /// A shell would do something for this character.
    #[error("there is no /bin/sh in this container, and {0:?} in the command needs one")]
    NeedsShell(char),
    /// A quote is not closed.
    #[error("there is no /bin/sh in this container, and a quote in the command is not closed")]
    Unclosed,
    /// There is no word.
    #[error("there is no command")]
    Empty,
    /// It is no text.
    #[error("there is no /bin/sh in this container, and the command is not UTF-8")]
    NoText,
}

/// The variables that are set before the command, and its words.
pub type Words = (Vec<(String, String)>, Vec<String>);

/// Splits a line at blanks, minding quotes and backslashes. Nothing is expanded.
pub fn split(line: &[u8]) -> Result<Words, WordsError> {
    let line = std::str::from_utf8(line).map_err(|_| WordsError::NoText)?;
    let mut words: Vec<(String, bool)> = Vec::new();
    // A word may be empty, if it is quoted.
    let mut word: Option<(String, bool)> = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' | '"' => {
                let (text, is_quoted) = word.get_or_insert_default();
                // What looks like a variable is one only if its name is not quoted.
                *is_quoted |= !text.contains('=');
                quoted(c, &mut rest, text)?;
            }
            '\\' => {
                let (text, _) = word.get_or_insert_default();
                text.push(rest.next().ok_or(WordsError::Unclosed)?);
            }
            c if NEEDS_SHELL.contains(&c) => return Err(WordsError::NeedsShell(c)),
            c => word.get_or_insert_default().0.push(c),
        }
    }
    words.extend(word);
    let is_setting = |(text, is_quoted): &(String, bool)| !is_quoted && setting(text).is_some();
    let first = words
        .iter()
        .position(|word| !is_setting(word))
        .ok_or(WordsError::Empty)?;
    let command = words.split_off(first).into_iter().map(|(text, _)| text).collect();
    let variables = words.iter().filter_map(|(text, _)| setting(text)).collect();
    Ok((variables, command))
}

fn quoted(quote: char, rest: &mut std::str::Chars<'_>, text: &mut String) -> Result<(), WordsError> {
    loop {
        match rest.next().ok_or(WordsError::Unclosed)? {
            c if c == quote => return Ok(()),
            '\\' if quote == '"' => match rest.next().ok_or(WordsError::Unclosed)? {
                c @ ('"' | '\\' | '$' | '`') => text.push(c),
                c => text.extend(['\\', c]),
            },
            c @ ('$' | '`') if quote == '"' => return Err(WordsError::NeedsShell(c)),
            c => text.push(c),
        }
    }
}

/// A variable and its value, if it is that.
fn setting(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| (name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("orted", &["orted"])]
    #[case("  a \t b  ", &["a", "b"])]
    #[case(r#""/usr/bin/hydra_pmi_proxy" --control-port host:1 --usize -2"#, &["/usr/bin/hydra_pmi_proxy", "--control-port", "host:1", "--usize", "-2"])]
    #[case(r#"a 'b c' "d 'e'" f\ g '' x"y"'z'"#, &["a", "b c", "d 'e'", "f g", "", "xyz"])]
    #[case(r#"a '$HOME;' "\$x \q" \$"#, &["a", "$HOME;", r"$x \q", "$"])]
    #[case("a b=c", &["a", "b=c"])]
    #[case("'A'=1 b", &["A=1", "b"])]
    #[case("1=2 b", &["1=2", "b"])]
    fn finds_words(#[case] line: &str, #[case] expected: &[&str]) {
        let (variables, words) = split(line.as_bytes()).unwrap();
        assert_eq!(variables, []);
        assert_eq!(words, expected);
    }

    #[test]
    fn finds_variables_before_the_command() {
        let (variables, words) = split(b"A=1 B_2='x y' prog C=3").unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(variables, [pair("A", "1"), pair("B_2", "x y")]);
        assert_eq!(words, ["prog", "C=3"]);
    }

    #[rstest]
    #[case("a; b", WordsError::NeedsShell(';'))]
    #[case("a $b", WordsError::NeedsShell('$'))]
    #[case("a \"$b\"", WordsError::NeedsShell('$'))]
    #[case("a > b", WordsError::NeedsShell('>'))]
    #[case("a 'b", WordsError::Unclosed)]
    #[case("a \\", WordsError::Unclosed)]
    #[case("  ", WordsError::Empty)]
    #[case("A=1", WordsError::Empty)]
    fn refuses_what_needs_a_shell(#[case] line: &str, #[case] expected: WordsError) {
        assert_eq!(split(line.as_bytes()), Err(expected));
    }

    #[test]
    fn refuses_what_is_no_text() {
        assert_eq!(split(b"a \xff"), Err(WordsError::NoText));
    }
}
