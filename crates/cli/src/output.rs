//! Writing to the standard output and the standard error, and YAML.
//!
//! Names and messages come from manifests, clusters and programs of others. What is printed here
//! moves no cursor, changes no title and hides nothing.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Result};
use serde::Serialize;

/// Prints a document. Programs get it as it is, terminals without control characters.
pub fn print(text: &str) -> Result<()> {
    if io::stdout().is_terminal() {
        return say(text);
    }
    write(text)
}

/// Prints sentences for people.
pub fn say(text: &str) -> Result<()> {
    write(&harmless(text))
}

fn write(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to the standard output")
}

/// Prints a message on the standard error. A failure to write is ignored.
pub fn warn(message: impl Display) {
    let message = format!("trainyard: {message}\n");
    let _ = io::stderr().lock().write_all(harmless(&message).as_bytes());
}

/// Returns true for characters that a terminal does not print but obeys, and for those that turn
/// the order of what is printed, so that it reads as something else.
pub fn is_obeyed(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control() && !matches!(c, '\t' | '\n')
}

/// The text, with characters that a terminal obeys written as in source code: `\u{1b}`.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_obeyed(c) {
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Whether the reader of our output has closed it, as `head` does.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// An error with its causes. A cause that an error already quotes is left out.
pub fn explain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

pub fn yaml<T: Serialize>(value: &T) -> Result<String> {
    // Strings are quoted for YAML 1.1, which kubectl reads: `yes` and `on` are booleans there.
    let options = serde_saphyr::ser_options! { compact_list_indent: true, prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(value, options).context("cannot write YAML")
}

/// YAML documents, each after a line of dashes.
pub fn yaml_documents<T: Serialize>(values: &[T]) -> Result<String> {
    values
        .iter()
        .map(|value| Ok(format!("---\n{}", yaml(value)?)))
        .collect()
}

/// The format of a document for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON object.
    Json,
    /// The same object as YAML.
    Yaml,
}

pub fn print_document<T: Serialize>(format: Format, value: &T) -> Result<()> {
    match format {
        Format::Json => print(&format!("{}\n", serde_json::to_string_pretty(value)?)),
        Format::Yaml => print(&yaml(value)?),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_shown() {
        assert_eq!(harmless("two\nlines\tand é"), "two\nlines\tand é");
        assert_eq!(harmless("\u{1b}]0;mine\u{7}"), "\\u{1b}]0;mine\\u{7}");
        assert_eq!(harmless("a\rb\u{9b}c\u{7f}"), "a\\u{d}b\\u{9b}c\\u{7f}");
        assert_eq!(harmless("exe\u{202e}gpj"), "exe\\u{202e}gpj");
    }

    /// Those that write for themselves: this module, the view of a run, and the logs of the
    /// operator, whose library escapes what terminals obey.
    const WRITERS: [&str; 4] = ["output.rs", "run/show.rs", "run/show/live.rs", "operator.rs"];

    /// All that is printed goes through this module, or through the view of a run.
    #[test]
    fn nothing_is_printed_anywhere_else() {
        let mut waiting = vec![std::path::PathBuf::from(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src"
        ))];
        while let Some(path) = waiting.pop() {
            if path.is_dir() {
                waiting.extend(
                    std::fs::read_dir(path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let prints = ["print", "eprint"].map(|name| [format!("{name}!("), format!("{name}ln!(")]);
            let found = prints
                .as_flattened()
                .iter()
                .find(|call| text.contains(call.as_str()));
            assert_eq!(found, None, "{}: use output::say or output::warn", path.display());
            if WRITERS.iter().any(|writer| path.ends_with(writer)) {
                continue;
            }
            let streams = ["io::stdout", "io::stderr", "stdout()", "stderr()"];
            let is_named = |stream: &&&str| {
                let mut places = text.match_indices(**stream);
                places.any(|(at, _)| !text[..at].ends_with('_'))
            };
            let found = streams.iter().find(is_named);
            assert_eq!(found, None, "{}: use output::say or output::warn", path.display());
        }
    }

    #[test]
    fn a_cause_is_said_once() {
        let quoted = anyhow!("no such file")
            .context("can't read a: no such file")
            .context("no cluster");
        assert_eq!(explain(&quoted), "no cluster: can't read a: no such file");
        let plain = anyhow!("no such file").context("can't read a");
        assert_eq!(explain(&plain), "can't read a: no such file");
    }
}
