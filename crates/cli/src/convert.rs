//! `trainyard convert`: jobs of other operators, as TrainingJobs.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};
use trainyard_api::{FieldError, TrainingJob};
use trainyard_compat::{Converted, Recognized};

use crate::output::{self, Format};
use crate::validate::job::Checker;
use crate::validate::{self, Files, text};

/// The exit code for "at least one can't be converted".
const REFUSED: u8 = 1;

/// Convert jobs of other operators to TrainingJobs.
///
/// Reads MPIJobs of kubeflow.org/v2beta1 and of batch.test.bdap.com/v1, and prints TrainingJobs that do the same. What is
/// different then is said in comments above each, or with `-o json` on the standard error. Objects of other kinds, and
/// TrainingJobs, are printed as they are. If something can't be converted, nothing is printed.
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

/// What is printed of one document.
enum Printed {
    Converted {
        origin: String,
        converted: Box<Converted>,
    },
    AsItWas(Value),
}

/// An object in the order of its fields.
#[derive(Serialize)]
#[serde(untagged)]
enum Object<'a> {
    Job(&'a TrainingJob),
    Other(&'a Value),
}

impl Printed {
    fn object(&self) -> Object<'_> {
        match self {
            Self::Converted { converted, .. } => Object::Job(&converted.job),
            Self::AsItWas(value) => Object::Other(value),
        }
    }

    fn notes(&self) -> &[String] {
        match self {
            Self::Converted { converted, .. } => &converted.notes,
            Self::AsItWas(_) => &[],
        }
    }
}

/// Converts all files and prints the result.
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
                            let told = found.iter().map(|error| problem(file, number, error));
                            problems.extend(told);
                        }
                    }
                }
            }
            Err(error) => problems.push(format!("{file}: {error}")),
        }
    }
    let any = printed
        .iter()
        .any(|document| matches!(document, Printed::Converted { .. }));
    if problems.is_empty() && !any {
        problems.push(format!(
            "there is nothing to convert: what can be is {}",
            trainyard_compat::known().join(", ")
        ));
    }
    if !problems.is_empty() {
        for problem in problems {
            eprintln!("trainyard: {problem}");
        }
        return Ok(ExitCode::from(REFUSED));
    }
    match args.output {
        Format::Yaml => output::print(&yaml(&printed)?)?,
        Format::Json => {
            output::print(&json(&printed)?)?;
            for note in printed.iter().flat_map(Printed::notes) {
                eprintln!("trainyard: {note}");
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

/// The TrainingJob of an object, or the object itself if it is none of another operator's.
fn convert(checker: &Checker, object: Value) -> Result<Printed, Vec<FieldError>> {
    if trainyard_compat::recognize(&object) == Recognized::Other {
        return match validate::recognize(&object) {
            validate::Recognized::Mistake(error) => Err(vec![error]),
            validate::Recognized::Job | validate::Recognized::Foreign => Ok(Printed::AsItWas(object)),
        };
    }
    let converted = Box::new(checker.convert(&object)?);
    Ok(Printed::Converted {
        origin: origin(&object),
        converted,
    })
}

/// What an object was, in words.
pub fn origin(object: &Value) -> String {
    let kind = text(object, "/kind").unwrap_or_default();
    let api = text(object, "/apiVersion").unwrap_or_default();
    format!("{kind} of {api}")
}

fn yaml(printed: &[Printed]) -> Result<String> {
    let mut all = String::new();
    for document in printed {
        all.push_str("---\n");
        if let Printed::Converted { origin, converted } = document {
            // Writing to a String can't fail.
            let _ = writeln!(all, "# Converted from {origin}:");
            for note in &converted.notes {
                // A note may quote what a user wrote, and one line is a comment.
                let _ = writeln!(all, "# - {}", note.replace(['\n', '\r'], " "));
            }
        }
        all.push_str(&output::yaml(&document.object())?);
    }
    Ok(all)
}

fn json(printed: &[Printed]) -> Result<String> {
    let text = match printed {
        [one] => serde_json::to_string_pretty(&one.object())?,
        many => {
            let items: Vec<Object<'_>> = many.iter().map(Printed::object).collect();
            serde_json::to_string_pretty(&json!({"apiVersion": "v1", "kind": "List", "items": items}))?
        }
    };
    Ok(format!("{text}\n"))
}
