//! Writing to the standard output, and YAML.

use std::io::{self, Write};

use anyhow::{Context, Result};
use serde::Serialize;

pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to the standard output")
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
    fn a_cause_is_said_once() {
        let quoted = anyhow!("no such file")
            .context("can't read a: no such file")
            .context("no cluster");
        assert_eq!(explain(&quoted), "no cluster: can't read a: no such file");
        let plain = anyhow!("no such file").context("can't read a");
        assert_eq!(explain(&plain), "can't read a: no such file");
    }
}
