//! The report of `trainyard validate`.

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;
use trainyard_api::FieldError;

use crate::output;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object.
    Json,
    /// The same object as YAML.
    Yaml,
}

#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether there is at least one job and nothing is wrong.
    pub valid: bool,
    pub documents: Vec<Document>,
}

#[derive(Debug, Default, Serialize)]
pub struct Document {
    /// The file, `-` for the standard input.
    pub file: String,
    /// The number of the document in its file, from 1; empty documents do not count.
    #[serde(rename = "document")]
    pub number: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// True: the object is a job of another operator, and was checked as the TrainingJob that it is
    /// converted to.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub converted: bool,
    /// True: the object is of a kind that is not checked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    pub errors: Vec<Error>,
    /// What is different in the TrainingJob that a valid job of another operator is converted to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Error {
    /// The path of the field; empty for the document as a whole.
    pub path: String,
    /// A sentence that says what is wrong and what to do.
    pub message: String,
}

impl From<FieldError> for Error {
    fn from(error: FieldError) -> Self {
        Self {
            path: error.path,
            message: error.message,
        }
    }
}

impl Report {
    pub fn new(documents: Vec<Document>) -> Self {
        let checked = documents.iter().any(|document| !document.skipped);
        let valid = checked && documents.iter().all(|document| document.errors.is_empty());
        Self { valid, documents }
    }

    pub fn render(&self, format: Format) -> Result<String> {
        match format {
            Format::Text => Ok(self.text()),
            Format::Json => Ok(format!("{}\n", serde_json::to_string_pretty(self)?)),
            Format::Yaml => output::yaml(self),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for document in &self.documents {
            let summary = match (document.skipped, document.errors.len()) {
                (true, _) => "not checked: no kind of Trainyard's".to_owned(),
                (_, 0) if document.converted => "valid, converted to a TrainingJob".to_owned(),
                (_, 0) => "valid".to_owned(),
                (_, 1) => "1 error".to_owned(),
                (_, n) => format!("{n} errors"),
            };
            // Writing to a String can't fail.
            let _ = writeln!(text, "{}: {summary}", document.title());
            for Error { path, message } in &document.errors {
                let path = if path.is_empty() {
                    String::new()
                } else {
                    format!("{path}: ")
                };
                let _ = writeln!(text, "  {path}{}", message.replace('\n', "\n  "));
            }
            for note in &document.notes {
                let _ = writeln!(text, "  note: {note}");
            }
        }
        if self.documents.iter().all(|document| document.skipped) {
            text.push_str("there is no TrainingJob or Framework to check\n");
        }
        text
    }
}

impl Document {
    fn title(&self) -> String {
        match (&self.kind, &self.name) {
            (Some(kind), Some(name)) => format!("{}: {kind} {name}", self.file),
            (Some(kind), None) => format!("{}: {kind}, document {}", self.file, self.number),
            _ if self.number > 0 => format!("{}: document {}", self.file, self.number),
            _ => self.file.clone(),
        }
    }
}
