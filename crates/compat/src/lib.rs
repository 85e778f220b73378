//! Kinds of other operators, as TrainingJobs.
//!
//! [`convert`] reads a manifest of another operator and returns the TrainingJob that does the same,
//! with notes on what differs. It is a pure function: no client, no clock, no file. Nothing is
//! dropped silently: each [`Converted`] has notes, and what can't be converted is a
//! [`ConvertError`] with the paths of the fields as the user wrote them.
//!
//! The operator serves these kinds in a cluster too: each is a [`ForeignKind`], see [`served`]. An
//! object then owns a TrainingJob, and gets a status of its own kind.
//!
//! One file for each kind, and one line in the table `KINDS`.

mod ares_v1;
mod bdap_mpi_v1;
mod child;
mod conditions;
mod deadline;
mod definition;
mod dl;
mod dl_mxnet_v1;
mod dl_tensorflow_v1;
mod et_v1alpha1;
mod kubeflow_mpi_v2beta1;
mod mpi;
mod notes;
mod paths;
mod read;
mod report;
mod serve;
mod templates;
mod unreadable;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;
use trainyard_api::names::MANAGED_BY;
use trainyard_api::{Dialect, FieldError, TrainingJob};
use trainyard_core::foreign::ForeignKind;
use trainyard_core::job::Job;
use trainyard_core::view::Settings;

use child::KindId;
pub use et_v1alpha1::requests::ConvertedRequest;
use et_v1alpha1::requests::{RequestKind, SCALE_IN, SCALE_OUT};
use notes::{Condition, Tone};
use report::Report;

/// Translates an object as far as it can be read, and adds what is wrong with it. The job is valid
/// only if nothing is. An error: there is nothing to translate.
type Translate = fn(&Value, Purpose, &mut Vec<FieldError>) -> Result<Converted, Vec<FieldError>>;

/// A kind of another operator.
struct Kind {
    group: &'static str,
    version: &'static str,
    name: &'static str,
    plural: &'static str,
    /// The word by which users ask for it to be served. Kinds of one operator may share it.
    flag: &'static str,
    /// Whose names its pods carry where it is served.
    dialect: Dialect,
    translate: Translate,
    /// Where users wrote what is somewhere else in a TrainingJob: ours, and theirs. The first that
    /// fits counts. See [`paths::translate`].
    paths: &'static [(&'static str, &'static str)],
    /// The status of an object.
    status: fn(&Report<'_>) -> Value,
    /// The tone and the reason of the event that reports a condition. `None` if no event does.
    event: for<'a> fn(&Condition<'a>) -> Option<(Tone, &'a str)>,
    /// Its definition, for clusters that have none.
    definition: fn(&Kind) -> Value,
    extras: Extras,
}

/// What only some kinds have.
struct Extras {
    /// The name under which its users know who reports events.
    component: &'static str,
    /// Where its objects name the operator that runs them, as a JSON pointer.
    managed_by: Option<&'static str>,
    /// The name that its own operator has there.
    their_operator: Option<&'static str>,
    /// The ConfigMap that its users know, made for a child.
    config: Option<fn(&Job<'_>, &Settings) -> Option<ConfigMap>>,
    /// The path of the field that suspends an object.
    suspend: Option<&'static str>,
    /// Where its objects have a deadline that begins when the launcher is created, as a JSON
    /// pointer.
    launcher_deadline: Option<&'static str>,
    /// Corrects a new translation, the second, by the child as it is, the first: what a former
    /// version translated otherwise can't change while the child has pods. It is noted.
    keep: Option<fn(&TrainingJob, &mut TrainingJob, &mut Vec<String>)>,
    /// The path of a field whose parts follow from each other, so that what is wrong with one says
    /// nothing of the others.
    entangled: Option<&'static str>,
    /// Annotations of its objects that their children have too, also when they change.
    passed_on: &'static [&'static str],
    /// The annotation that suspends an object while it is `true`.
    suspend_annotation: Option<&'static str>,
}

impl Extras {
    const NONE: Self = Self {
        component: MANAGED_BY,
        managed_by: None,
        their_operator: None,
        config: None,
        suspend: None,
        launcher_deadline: None,
        keep: None,
        entangled: None,
        passed_on: &[],
        suspend_annotation: None,
    };
}

/// How often errors of the translation are compared with those of our rules.
const MAX_COMPARISONS: usize = 100_000;

impl Kind {
    const fn id(&self) -> KindId {
        KindId {
            group: self.group,
            version: self.version,
            name: self.name,
            plural: self.plural,
        }
    }

    /// The TrainingJob that does what an object does. All that is wrong is told at once: where
    /// something is, also what our own rules find in the rest.
    fn convert(&self, object: &Value, purpose: Purpose) -> Result<Converted, Vec<FieldError>> {
        let mut errors = Vec::new();
        let converted = match (self.translate)(object, purpose, &mut errors) {
            Ok(converted) => converted,
            Err(others) => {
                errors.extend(others);
                return Err(errors);
            }
        };
        if errors.is_empty() {
            return Ok(converted);
        }
        let (found, translated) = (review(&converted.job), errors.len());
        // Each is compared with all others. Nobody reads more than these.
        if translated.saturating_mul(found.len()) > MAX_COMPARISONS {
            return Err(errors);
        }
        for error in found {
            let told = self.theirs(object, &error);
            let role = nameless(&converted.job, &error).map(|role| self.their_path(object, role));
            let is_told = |known: &FieldError| {
                self.concern_the_same(known, &told)
                    || role.as_ref().is_some_and(|role| is_within(&known.path, role))
            };
            if !errors.iter().any(is_told) {
                errors.push(told);
            }
        }
        Err(errors)
    }

    /// All that our rules find, where users wrote it.
    fn problems(&self, object: &Value, job: &TrainingJob) -> Vec<FieldError> {
        let errors = review(job);
        errors.iter().map(|error| self.theirs(object, error)).collect()
    }

    /// Whether one of two errors is about the field of the other, or a part of it.
    fn concern_the_same(&self, one: &FieldError, other: &FieldError) -> bool {
        let both_are_within = |whole: &str| is_within(&one.path, whole) && is_within(&other.path, whole);
        is_within(&one.path, &other.path)
            || is_within(&other.path, &one.path)
            || self.extras.entangled.is_some_and(both_are_within)
    }

    fn their_path(&self, object: &Value, ours: &str) -> String {
        let mut rules = self.paths.iter();
        let fitting = rules.find_map(|(from, to)| paths::translate(object, ours, from, to));
        fitting.unwrap_or_else(|| ours.to_owned())
    }
}

/// All that our rules find.
fn review(job: &TrainingJob) -> Vec<FieldError> {
    trainyard_core::admission::review(None, &mut job.clone())
}

/// The role, as a path, of an error that says that it has no name: it could not be translated.
fn nameless<'a>(job: &TrainingJob, error: &'a FieldError) -> Option<&'a str> {
    let role = error.path.strip_suffix(".name")?;
    let position = role.strip_prefix("spec.roles[")?.strip_suffix(']')?;
    let known = job.spec.roles.get(position.parse::<usize>().ok()?)?;
    known.name.is_empty().then_some(role)
}

fn is_within(path: &str, whole: &str) -> bool {
    let rest = path.strip_prefix(whole);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// What an object is translated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To stand in the object's place, wherever that may be: a laptop has no SSH server. What is
    /// different then is noted, also where it is so for every object of the kind.
    Replace,
    /// To be the child of the object, which stays, in a cluster whose users know the other
    /// operator. What is so for every object of the kind is not noted: docs/compat.md says it.
    Serve,
}

/// The kinds that can be converted.
const KINDS: &[Kind] = &[
    kubeflow_mpi_v2beta1::KIND,
    bdap_mpi_v1::KIND,
    dl_mxnet_v1::KIND,
    dl_tensorflow_v1::KIND,
    ares_v1::KIND,
    et_v1alpha1::KIND,
];

/// The kinds of requests that the operator can serve.
const REQUESTS: [&RequestKind; 2] = [&SCALE_IN, &SCALE_OUT];

/// The kinds that the operator can serve, each by its flag.
pub fn served() -> Vec<&'static dyn ForeignKind> {
    let jobs = KINDS.iter().map(|kind| kind as &dyn ForeignKind);
    let requests = REQUESTS.iter().map(|kind| *kind as &dyn ForeignKind);
    jobs.chain(requests).collect()
}

/// A job of another operator, as one of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// The job. It is valid.
    pub job: TrainingJob,
    /// What is different from what the other operator does: the path of a field, and a sentence.
    pub notes: Vec<String>,
}

/// Why an object is not converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// It is of a kind that is not known.
    #[error("{kind} of {api_version} can't be converted: what can is {}", known().join(", "))]
    Unknown {
        /// Its `kind`.
        kind: String,
        /// Its `apiVersion`.
        api_version: String,
    },
    /// It can't be read, or no TrainingJob does the same. All that is wrong, with the paths of
    /// their fields.
    #[error("{}", lines(.0))]
    Invalid(Vec<FieldError>),
}

impl ConvertError {
    /// All that is wrong, each with its field.
    pub fn into_errors(self) -> Vec<FieldError> {
        match self {
            Self::Unknown { .. } => vec![FieldError::new("apiVersion", self.to_string())],
            Self::Invalid(errors) => errors,
        }
    }
}

fn lines(errors: &[FieldError]) -> String {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// The kinds that can be converted, in words.
pub fn known() -> Vec<String> {
    let ids = KINDS.iter().map(Kind::id);
    let ids = ids.chain(REQUESTS.iter().map(|kind| kind.id()));
    ids.map(|id| format!("{} of {}/{}", id.name, id.group, id.version))
        .collect()
}

/// What an object is to this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognized {
    /// It is a job that can be converted.
    Known,
    /// It is a request to change the size of a job, and can be converted to one of ours.
    Request,
    /// It is a job of an operator some of whose kinds can be converted, but not this one.
    Related,
    /// Anything else.
    Other,
}

/// What an object is to this crate.
pub fn recognize(object: &Value) -> Recognized {
    let (api_version, kind) = names(object);
    let group = api_version.split_once('/').map(|(group, _)| group);
    let is_related = || KINDS.iter().any(|known| Some(known.group) == group) && kind.ends_with("Job");
    match find(api_version, kind) {
        Some(_) => Recognized::Known,
        None if find_request(api_version, kind).is_some() => Recognized::Request,
        None if is_related() => Recognized::Related,
        None => Recognized::Other,
    }
}

/// The TrainingJob that does what a job of another operator does.
pub fn convert(object: &Value) -> Result<Converted, ConvertError> {
    let (api_version, kind) = names(object);
    let Some(kind) = find(api_version, kind) else {
        return Err(ConvertError::Unknown {
            kind: kind.to_owned(),
            api_version: api_version.to_owned(),
        });
    };
    let converted = kind.convert(object, Purpose::Replace);
    let converted = converted.map_err(ConvertError::Invalid)?;
    let errors = kind.problems(object, &converted.job);
    if errors.is_empty() {
        Ok(converted)
    } else {
        Err(ConvertError::Invalid(errors))
    }
}

/// The request of ours that does what one of another operator does.
pub fn convert_request(object: &Value) -> Result<ConvertedRequest, ConvertError> {
    let (api_version, kind) = names(object);
    let Some(kind) = find_request(api_version, kind) else {
        return Err(ConvertError::Unknown {
            kind: kind.to_owned(),
            api_version: api_version.to_owned(),
        });
    };
    kind.convert(object, Purpose::Replace)
        .map_err(ConvertError::Invalid)
}

fn names(object: &Value) -> (&str, &str) {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

fn find(api_version: &str, kind: &str) -> Option<&'static Kind> {
    let (group, version) = api_version.split_once('/')?;
    let mut kinds = KINDS.iter();
    kinds.find(|known| (known.group, known.version, known.name) == (group, version, kind))
}

fn find_request(api_version: &str, kind: &str) -> Option<&'static RequestKind> {
    let (group, version) = api_version.split_once('/')?;
    let mut kinds = REQUESTS.into_iter();
    kinds.find(|known| {
        let known = known.id();
        (known.group, known.version, known.name) == (group, version, kind)
    })
}

/// Where the user of an object wrote what is at a path of its TrainingJob.
pub fn their_path(object: &Value, ours: &str) -> String {
    let (api_version, kind) = names(object);
    find(api_version, kind).map_or_else(|| ours.to_owned(), |kind| kind.their_path(object, ours))
}
