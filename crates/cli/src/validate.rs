//! `trainyard validate`: checks jobs before they are applied.

#[cfg(test)]
mod agreement;
pub mod checker;
mod readable;
mod report;
pub mod schema;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Read;
use std::process::ExitCode;
use std::{fs, io};

use anyhow::{Context, Result};
use serde_json::Value;
use serde_saphyr::{MessageFormatter, UserMessageFormatter};
use trainyard_api::{FieldError, GROUP, VERSION};

use self::checker::Checker;
use self::report::{Document, Format, Report};
use crate::output;

/// The exit code if at least one job is invalid.
const EXIT_INVALID: u8 = 1;

/// What is wrong with another object in a file of Frameworks.
pub const NO_FRAMEWORK: &str = "is no Framework, which has apiVersion trainyard.dev/v1alpha1 and kind Framework: give other \
                                objects in the job's file";
/// What is wrong with a file of Frameworks that has none.
pub const NO_FRAMEWORKS: &str =
    "has no Framework: it needs one, with apiVersion trainyard.dev/v1alpha1 and kind Framework";

/// Check training jobs without a cluster.
///
/// Applies what the API server and the operator's webhooks apply: every field must exist and have
/// the right type, and every rule of the job and of its framework must hold. All that is wrong is
/// reported at once, each with the path of its field. Jobs of other operators are held to what
/// `trainyard convert` makes of them. Frameworks are checked as the operator does. Objects of other
/// kinds in the same files are not checked.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  there is at least one TrainingJob or Framework and all are valid
  1  something is invalid, or there is neither
  2  a file could not be read, or the command line is wrong

Examples:
  trainyard validate job.yaml
  trainyard validate train.yaml eval.yaml -o json
  trainyard validate --framework-file my-framework.yaml job.yaml
  kustomize build . | trainyard validate -")]
pub struct Args {
    #[command(flatten)]
    files: Files,

    /// A file with Frameworks that the jobs name. Those in the files of the jobs are known, too.
    /// May be given several times.
    #[arg(long, value_name = "FILE")]
    framework_file: Vec<String>,

    /// How to report.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

/// The files that a command reads, of which there must be one.
#[derive(clap::Args)]
#[group(id = "what", required = true, multiple = true)]
pub struct Files {
    /// Files with YAML or JSON, each with any number of documents; `-` is the standard input.
    #[arg(value_name = "FILE")]
    files: Vec<String>,

    /// The same, as kubectl has it.
    #[arg(short = 'f', long, value_name = "FILE", num_args = 1..)]
    filename: Vec<String>,
}

impl Files {
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.files.iter().chain(&self.filename)
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut checker = Checker::new()?;
    let mut texts = Vec::new();
    let of_frameworks = args.framework_file.iter().map(|file| (file, true));
    let of_jobs = args.files.all().map(|file| (file, false));
    for (file, is_of_frameworks) in of_frameworks.chain(of_jobs) {
        let text = read(file)?;
        // What can't be read is reported below.
        for (_, value) in parse(&text).unwrap_or_default() {
            checker.declare(&value);
        }
        texts.push((file, is_of_frameworks, text));
    }
    let mut frameworks = BTreeMap::new();
    let mut documents = Vec::new();
    for (file, is_of_frameworks, text) in &texts {
        let mut found = check_file(&checker, file, text, &mut frameworks);
        if *is_of_frameworks {
            refuse_others(file, &mut found);
        }
        documents.extend(found);
    }
    let report = Report::new(documents);
    let rendered = report.render(args.output)?;
    match args.output {
        Format::Text => output::say(&rendered)?,
        _ => output::print(&rendered)?,
    }
    Ok(if report.valid {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_INVALID)
    })
}

/// The text of a file; `-` is the standard input.
pub fn read(file: &str) -> Result<String> {
    if file == "-" {
        let mut text = String::new();
        io::stdin()
            .read_to_string(&mut text)
            .context("cannot read the standard input")?;
        return Ok(text);
    }
    fs::read_to_string(file).with_context(|| format!("cannot read {file}"))
}

/// Refuses what is no Framework in a file that is given for its Frameworks.
fn refuse_others(file: &str, documents: &mut Vec<Document>) {
    for document in documents.iter_mut() {
        let is_framework = document.kind.as_deref() == Some("Framework") && !document.skipped;
        if document.errors.is_empty() && !is_framework {
            document.skipped = false;
            document
                .errors
                .push(FieldError::new("", format!("this {NO_FRAMEWORK}")).into());
        }
    }
    if documents.is_empty() {
        let error = FieldError::new("", format!("this file {NO_FRAMEWORKS}"));
        documents.push(Document {
            file: file.to_owned(),
            errors: vec![error.into()],
            ..Document::default()
        });
    }
}

/// Checks the documents of a file. `frameworks` are those of all files so far, each with where it
/// is.
fn check_file(
    checker: &Checker,
    file: &str,
    text: &str,
    frameworks: &mut BTreeMap<String, String>,
) -> Vec<Document> {
    let values = match parse(text) {
        Ok(values) => values,
        Err(error) => {
            let error = FieldError::new("", error);
            return vec![Document {
                file: file.to_owned(),
                errors: vec![error.into()],
                ..Document::default()
            }];
        }
    };
    let mut seen = BTreeMap::new();
    let mut documents = Vec::new();
    for (number, value) in values {
        let mut document = Document {
            file: file.to_owned(),
            number,
            ..check(checker, &value)
        };
        let framework = document
            .name
            .as_ref()
            .filter(|_| matches!(recognize(&value), Recognized::Framework));
        if let Some(name) = framework {
            // Those of one file are known to the jobs of all, and belong to no namespace.
            let place = format!("document {number} of {file}");
            if let Some(before) = frameworks.insert(name.clone(), place) {
                let message = format!("{before} has a Framework of this name already: remove one");
                document
                    .errors
                    .push(FieldError::new("metadata.name", message).into());
            }
        // `kubectl apply` would silently replace the first with the second.
        } else if let Some(id) = identity(&value).filter(|_| !document.skipped) {
            match seen.entry(id) {
                Entry::Vacant(entry) => _ = entry.insert(number),
                Entry::Occupied(entry) => {
                    let message = format!(
                        "document {} has a job of this name already: give each its own",
                        entry.get()
                    );
                    document
                        .errors
                        .push(FieldError::new("metadata.name", message).into());
                }
            }
        }
        documents.push(document);
    }
    documents
}

/// The kind, the namespace and the name of an object that has a name of its own.
fn identity(value: &Value) -> Option<(String, String, String)> {
    let namespace = text(value, "/metadata/namespace").unwrap_or_default();
    let name = text(value, "/metadata/name")?;
    let kind = text(value, "/kind").unwrap_or_default();
    Some((kind.to_owned(), namespace.to_owned(), name.to_owned()))
}

/// The objects in a text, each with the number of its document; empty documents do not count, and
/// lists are unpacked.
pub fn parse(text: &str) -> Result<Vec<(usize, Value)>, String> {
    // kubectl reads a mode of 0644 as octal.
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    let values: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        format!(
            "this is no valid YAML: {}",
            error.render_with_formatter(&YamlMessages)
        )
    })?;
    let objects = values.into_iter().filter(|value| !value.is_null()).enumerate();
    let lists = objects.flat_map(|(i, value)| unpack(value).into_iter().map(move |value| (i + 1, value)));
    Ok(lists.collect())
}

/// Messages about invalid YAML for its author, not for a user of the parser.
struct YamlMessages;

impl MessageFormatter for YamlMessages {
    fn format_message<'a>(&self, error: &'a serde_saphyr::Error) -> Cow<'a, str> {
        match error {
            serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
                format!("the field {key:?} is there twice: remove one,").into()
            }
            serde_saphyr::Error::DuplicateMappingKey { .. } => "a field is there twice: remove one,".into(),
            serde_saphyr::Error::Budget { .. } => {
                "it is too large to be read: split it into several files; the limit is reached".into()
            }
            error => UserMessageFormatter.format_message(error),
        }
    }
}

/// The items of a `List`; any other object is itself.
fn unpack(mut value: Value) -> Vec<Value> {
    let is_list = text(&value, "/kind") == Some("List") && text(&value, "/apiVersion") == Some("v1");
    match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => items,
        Some(items) => {
            value["items"] = items;
            vec![value]
        }
        None => vec![value],
    }
}

fn check(checker: &Checker, value: &Value) -> Document {
    let kind = text(value, "/kind").map(ToOwned::to_owned);
    let name = text(value, "/metadata/name")
        .or_else(|| text(value, "/metadata/generateName"))
        .map(ToOwned::to_owned);
    let mut converted = false;
    let mut notes = Vec::new();
    let (skipped, errors) = match recognize(value) {
        Recognized::Job => (false, checker.check(value)),
        Recognized::Framework => (false, checker.check_framework(value)),
        Recognized::Foreign if trainyard_compat::recognize(value) == trainyard_compat::Recognized::Known => {
            converted = true;
            let errors = match checker.convert(value) {
                Ok(converted) => {
                    notes = converted.notes;
                    Vec::new()
                }
                Err(errors) => errors,
            };
            (false, errors)
        }
        Recognized::Foreign
            if trainyard_compat::recognize(value) == trainyard_compat::Recognized::Request =>
        {
            converted = true;
            let errors = match checker::too_large(value) {
                Some(error) => vec![error],
                None => match trainyard_compat::convert_request(value) {
                    Ok(request) => {
                        notes = request.notes;
                        Vec::new()
                    }
                    Err(error) => error.into_errors(),
                },
            };
            (false, errors)
        }
        Recognized::Foreign => (true, Vec::new()),
        Recognized::Mistake(error) => (false, vec![error]),
    };
    Document {
        kind,
        name,
        converted,
        skipped,
        errors: errors.into_iter().map(Into::into).collect(),
        notes,
        ..Document::default()
    }
}

/// What an object is by its apiVersion and kind.
pub enum Recognized {
    /// A TrainingJob of the current version.
    Job,
    /// A Framework of the current version.
    Framework,
    /// An object of another group.
    Foreign,
    /// An object with a wrong kind or version.
    Mistake(FieldError),
}

pub fn recognize(value: &Value) -> Recognized {
    let ours = format!("{GROUP}/{VERSION}");
    let (Some(api), Some(kind)) = (text(value, "/apiVersion"), text(value, "/kind")) else {
        let message = format!(
            "this is no Kubernetes object: it needs apiVersion and kind, as in {ours} and TrainingJob"
        );
        return Recognized::Mistake(FieldError::new("", message));
    };
    let in_group = api.split_once('/').is_some_and(|(group, _)| group == GROUP);
    match (kind == "TrainingJob", api == ours, in_group) {
        (true, true, _) => Recognized::Job,
        (false, true, _) if kind == "Framework" => Recognized::Framework,
        (false, _, true) => {
            let message = format!("there is no kind {kind:?} in {GROUP}: write TrainingJob");
            Recognized::Mistake(FieldError::new("kind", message))
        }
        // A TrainingJob of another group is another project's kind. Without a group, ours is meant.
        (true, false, _) if in_group || !api.contains('/') => {
            let message = format!("a TrainingJob has no version {api:?}: write {ours}");
            Recognized::Mistake(FieldError::new("apiVersion", message))
        }
        _ => Recognized::Foreign,
    }
}

/// The string at a JSON pointer.
pub fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}
