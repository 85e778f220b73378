//! The rules one job must obey whatever its framework. All that is wrong is reported at once, each
//! with its field.

mod at;
mod change;
mod container;
mod depends;
mod dns;
mod elastic;
mod metadata;
mod pod;
mod request;
mod reserved;
mod resources;
mod spec;
mod volume;

use std::fmt;

use crate::job::TrainingJob;
pub use change::{ELASTIC, PROGRESS, Section, SectionContent, UPDATE_POLICY, sections};
pub use dns::{
    dns_label_problem, domain_name_problem, label_key_problem, label_value_problem, object_name_problem,
};
pub use request::{validate_scale_in, validate_scale_out};

/// What is wrong with one field, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldError {
    /// The path of the field, such as `spec.roles[0].replicas`.
    pub path: String,
    /// A sentence that says what is wrong and what to do.
    pub message: String,
}

impl FieldError {
    /// An error at a field. Of what quotes a manifest at great length, the middle is left out.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: shortened(path.into(), MAX_PATH),
            message: shortened(message.into(), MAX_MESSAGE),
        }
    }
}

/// The most characters of a path; those of the fields of a job are much shorter.
const MAX_PATH: usize = 400;

/// The most characters of a message; it goes into a condition, an event or a terminal.
const MAX_MESSAGE: usize = 2000;

/// A text whose middle is left out if it has too many characters.
fn shortened(text: String, most: usize) -> String {
    if text.len() <= most || text.chars().count() <= most {
        return text;
    }
    let half = most / 2;
    let start: String = text.chars().take(half).collect();
    let end: String = text.chars().rev().take(half).collect();
    let end: String = end.chars().rev().collect();
    format!("{start} ... {end}")
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for FieldError {}

/// All that is wrong with a job, and with the way it was changed where `old` is given.
///
/// Expects a job whose defaults are written, and of `old` also the phase: a job that has ended
/// can't be changed. Rules of the framework come from `trainyard-core`.
pub fn validate(old: Option<&TrainingJob>, new: &TrainingJob) -> Vec<FieldError> {
    let mut errors = spec::check(new);
    if let Some(old) = old {
        errors.extend(change::check(old, &new.spec));
    }
    errors
}
