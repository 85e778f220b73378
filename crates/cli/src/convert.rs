//! `trainyard convert`: jobs of other operators, as TrainingJobs.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_api::{FieldError, ScaleIn, ScaleOut, TrainingJob};
use trainyard_compat::{ConvertError, Converted, ConvertedRequest, Recognized};
use trainyard_core::foreign::NewRequest;

use crate::output::{self, Format};
use crate::validate::checker::Checker;
use crate::validate::{self, Files, text};

/// The exit code if at least one job can't be converted.
const EXIT_REFUSED: u8 = 1;

/// Convert jobs of other operators to TrainingJobs.
///
/// Reads MPIJobs of kubeflow.org/v2beta1 and of batch.test.bdap.com/v1, MXJobs and TFJobs of
/// mpba.fbk.eu/v1, AresJobs of ares.io/v1, and TrainingJobs of kai.alibabacloud.com/v1alpha1, and
/// prints TrainingJobs that do the same; ScaleIns and ScaleOuts of the last become those of
/// Trainyard. What is different then is said in comments above each, or with `-o json` on the
/// standard error. Objects of other kinds, and Trainyard's own, are printed as they are. If
/// something can't be converted, nothing is printed.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  there is at least one job of another operator and all are converted
  1  one can't be converted, or there is none
  2  a file could not be read, or the command line is wrong

Examples:
  trainyard convert mpijob.yaml > job.yaml
  trainyard convert -f mpijob.yaml | kubectl apply -f -
  kubectl get mpijob pi -o yaml | trainyard convert -")]
pub struct Args {
    #[command(flatten)]
    files: Files,

    /// How to print.
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: Format,
}

/// A document of the output.
enum Document {
    Converted {
        origin: String,
        converted: Box<Converted>,
    },
    Request {
        origin: String,
        converted: Box<ConvertedRequest>,
    },
    Unchanged(Value),
}

/// A TrainingJob is serialized in the order of its fields, and not of their names.
#[derive(Serialize)]
#[serde(untagged)]
enum Object<'a> {
    Job(&'a TrainingJob),
    ScaleIn(&'a ScaleIn),
    ScaleOut(&'a ScaleOut),
    Other(&'a Value),
}

impl Document {
    fn object(&self) -> Object<'_> {
        match self {
            Self::Converted { converted, .. } => Object::Job(&converted.job),
            Self::Request { converted, .. } => match &converted.request {
                NewRequest::ScaleIn(request) => Object::ScaleIn(request),
                NewRequest::ScaleOut(request) => Object::ScaleOut(request),
            },
            Self::Unchanged(value) => Object::Other(value),
        }
    }

    fn notes(&self) -> &[String] {
        match self {
            Self::Converted { converted, .. } => &converted.notes,
            Self::Request { converted, .. } => &converted.notes,
            Self::Unchanged(_) => &[],
        }
    }

    /// What it was; `None` if it is what it was.
    fn origin(&self) -> Option<&str> {
        match self {
            Self::Converted { origin, .. } | Self::Request { origin, .. } => Some(origin),
            Self::Unchanged(_) => None,
        }
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let checker = Checker::new()?;
    let mut printed = Vec::new();
    let mut problems = Vec::new();
    for file in args.files.all() {
        match validate::parse(&validate::read(file)?) {
            Ok(objects) => {
                for (number, object) in objects {
                    match convert(&checker, object) {
                        Ok(document) => printed.push(document),
                        Err(found) => {
                            problems.extend(found.iter().map(|error| problem(file, number, error)));
                        }
                    }
                }
            }
            Err(error) => problems.push(format!("{file}: {error}")),
        }
    }
    let any = printed.iter().any(|document| document.origin().is_some());
    if problems.is_empty() && !any {
        problems.push(format!(
            "there is nothing to convert: what can be is {}",
            trainyard_compat::known().join(", ")
        ));
    }
    if !problems.is_empty() {
        for problem in problems {
            output::warn(problem);
        }
        return Ok(ExitCode::from(EXIT_REFUSED));
    }
    match args.output {
        Format::Yaml => output::print(&yaml(&printed)?)?,
        Format::Json => {
            output::print(&json(&printed)?)?;
            for note in printed.iter().flat_map(Document::notes) {
                output::warn(note);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn problem(file: &str, number: usize, error: &FieldError) -> String {
    let field = if error.path.is_empty() { "" } else { ": " };
    format!(
        "{file}: document {number}: {}{field}{}",
        error.path, error.message
    )
}

/// Converts a job of another operator; other objects are returned as they are.
fn convert(checker: &Checker, object: Value) -> Result<Document, Vec<FieldError>> {
    if trainyard_compat::recognize(&object) == Recognized::Other {
        return match validate::recognize(&object) {
            validate::Recognized::Mistake(error) => Err(vec![error]),
            validate::Recognized::Job | validate::Recognized::Framework | validate::Recognized::Foreign => {
                Ok(Document::Unchanged(object))
            }
        };
    }
    let origin = origin(&object);
    if trainyard_compat::recognize(&object) == Recognized::Request {
        let converted = trainyard_compat::convert_request(&object).map_err(ConvertError::into_errors)?;
        return Ok(Document::Request {
            origin,
            converted: Box::new(converted),
        });
    }
    let converted = Box::new(checker.convert(&object)?);
    Ok(Document::Converted { origin, converted })
}

/// Names the kind of an object in a sentence.
pub fn origin(object: &Value) -> String {
    let kind = text(object, "/kind").unwrap_or_default();
    let api = text(object, "/apiVersion").unwrap_or_default();
    format!("{kind} of {api}")
}

fn yaml(printed: &[Document]) -> Result<String> {
    let mut all = String::new();
    for document in printed {
        all.push_str("---\n");
        if let Some(origin) = document.origin() {
            // Writing to a String can't fail.
            let end = if document.notes().is_empty() { "" } else { ":" };
            let _ = writeln!(all, "# Converted from {origin}{end}");
            for note in document.notes() {
                // A note may quote a text of several lines, and a comment has one.
                let _ = writeln!(all, "# - {}", note.replace(['\n', '\r'], " "));
            }
        }
        all.push_str(&output::yaml(&document.object())?);
    }
    Ok(all)
}

fn json(printed: &[Document]) -> Result<String> {
    let text = match printed {
        [one] => serde_json::to_string_pretty(&one.object())?,
        many => {
            let items: Vec<Object<'_>> = many.iter().map(Document::object).collect();
            serde_json::to_string_pretty(&json!({"apiVersion": "v1", "kind": "List", "items": items}))?
        }
    };
    Ok(format!("{text}\n"))
}
