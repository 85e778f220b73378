//! Answers an `AdmissionReview`, without IO.

pub mod script;

use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use trainyard_api::validate::{validate_scale_in, validate_scale_out};
use trainyard_api::{
    Accepted, DeclaredFramework, FieldError, JobPhase, ScaleKind, TrainingJob, TrainingJobSpec,
    TrainingJobStatus,
};
use trainyard_core::foreign::ForeignKind;
use trainyard_core::registry::Frameworks;
use trainyard_core::{admission, bounds, registry};

use super::fill::fill;
use crate::budget::KIB;
use crate::index::Index;
use crate::metrics;
use crate::options::Scripts;

/// The most bytes of a name in a review. Names are answered as they were asked, and an answer is
/// kept until it is read, which strangers need not do.
const MAX_NAME: usize = 1024;
/// The most bytes of a part with names as JSON, which may have six for a character.
const MAX_PART: usize = 16 * KIB;
/// The most errors in an answer, and the most bytes of all of them, for the same reason.
const MAX_ERRORS: usize = 100;
const MAX_ERROR_BYTES: usize = 32 * KIB;
/// The most bytes of a patch. A larger one is left out: the operator fills in the defaults itself.
const MAX_PATCH: usize = 128 * KIB;
/// The most bytes of a sentence about what is no review.
const MAX_SENTENCE: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    Mutate,
    Validate,
    /// As `Validate`, of requests that have a script. No call of it may be left out.
    Script,
}

impl Hook {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
            Self::Script => "script",
        }
    }
}

/// The request is no review: its sender is no API server.
#[derive(Debug, thiserror::Error)]
pub enum BadReview {
    #[error("this is no AdmissionReview: {0}; only the API server is expected here")]
    Shape(#[from] serde_json::Error),
    #[error("this AdmissionReview has no request; only the API server is expected here")]
    Empty,
    #[error(
        "this AdmissionReview has names of more than {MAX_NAME} bytes; only the API server is expected here"
    )]
    LongNames,
}

impl BadReview {
    /// What is answered. The causes repeat parts of what was sent.
    pub fn sentence(&self) -> String {
        let mut sentence = self.to_string();
        let end = sentence.floor_char_boundary(MAX_SENTENCE);
        sentence.truncate(end);
        sentence
    }
}

/// A review whose request is not read yet.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(deserialize_with = "short")]
    api_version: String,
    #[serde(borrow)]
    request: Option<&'a RawValue>,
}

struct Review<'a> {
    api_version: String,
    request: Request<'a>,
}

impl<'a> Review<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, BadReview> {
        let body = std::str::from_utf8(body).map_err(serde_json::Error::custom)?;
        let Envelope { api_version, request } = bounds::from_object(body)?;
        let request: Request<'_> = bounds::from_object(request.ok_or(BadReview::Empty)?.get())?;
        if api_version.len() > MAX_NAME || request.has_long_names() {
            return Err(BadReview::LongNames);
        }
        Ok(Self { api_version, request })
    }
}

/// A request. Its objects are not decoded before it is known that they are not too large: anybody
/// may send a review.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    #[serde(deserialize_with = "short")]
    uid: String,
    #[serde(deserialize_with = "short")]
    operation: String,
    #[serde(deserialize_with = "short")]
    kind: GroupKind,
    #[serde(default, deserialize_with = "short")]
    sub_resource: Option<String>,
    #[serde(default, deserialize_with = "short")]
    name: String,
    #[serde(default, deserialize_with = "short")]
    namespace: String,
    #[serde(borrow, default)]
    user_info: Option<&'a RawValue>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'a RawValue>,
}

/// The object that is to be stored, and the one that is.
#[derive(Default)]
struct Objects {
    new: Value,
    /// Null if there is none, or it is too large: such a one may be replaced.
    old: Value,
}

impl Request<'_> {
    fn has_long_names(&self) -> bool {
        let names = [
            &self.uid,
            &self.operation,
            &self.kind.group,
            &self.kind.kind,
            &self.name,
            &self.namespace,
        ];
        let mut names = names.into_iter().chain(&self.sub_resource);
        names.any(|name| name.len() > MAX_NAME)
    }

    fn object(&self) -> &str {
        self.object.map_or("null", RawValue::get)
    }

    fn old_object(&self) -> &str {
        self.old_object.map_or("null", RawValue::get)
    }

    fn decode(&self) -> Result<Objects, serde_json::Error> {
        let old = Some(self.old_object()).filter(|old| bounds::excess(old).is_none());
        Ok(Objects {
            new: bounds::decode(self.object())?,
            old: old.map(bounds::decode).transpose()?.unwrap_or_default(),
        })
    }
}

#[derive(Deserialize)]
struct GroupKind {
    #[serde(default)]
    group: String,
    kind: String,
}

/// Reads a name or a kind. One that is long is not decoded: that would take several times as much,
/// and an error would repeat it.
fn short<'de, D: Deserializer<'de>, T: DeserializeOwned>(part: D) -> Result<T, D::Error> {
    let json = <&RawValue>::deserialize(part)?.get();
    if json.len() > MAX_PART {
        return Err(D::Error::custom(format_args!("a name has {} bytes", json.len())));
    }
    serde_json::from_str(json).map_err(D::Error::custom)
}

// kube's types have no causes with fields, which kubectl shows as a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reply<'a> {
    api_version: &'a str,
    kind: &'static str,
    response: Answer<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(rename = "status")]
    outcome: &'static str,
    code: u16,
    reason: &'static str,
    message: String,
    details: Details<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    name: &'a str,
    group: &'a str,
    kind: &'a str,
    causes: Vec<Cause>,
}

#[derive(Serialize)]
struct Cause {
    reason: &'static str,
    field: String,
    message: String,
}

/// The kind of object that is to be reviewed.
enum ReviewTarget {
    None,
    Job,
    Framework,
    ScaleRequest(ScaleKind),
    Foreign(&'static dyn ForeignKind),
}

enum Decision {
    Allow,
    Patch(Vec<u8>),
    Deny(Vec<FieldError>),
}

impl Decision {
    fn of(errors: Vec<FieldError>) -> Self {
        if errors.is_empty() {
            Self::Allow
        } else {
            Self::Deny(errors)
        }
    }
}

#[derive(Clone, Default)]
pub struct Reviewer {
    /// The kinds of other operators that are reviewed.
    kinds: Vec<&'static dyn ForeignKind>,
    /// Knows which frameworks are declared. `None`: none.
    index: Option<Arc<Index>>,
    /// Whether requests may have scripts.
    scripts: Scripts,
}

impl Reviewer {
    pub fn new(kinds: Vec<&'static dyn ForeignKind>) -> Self {
        Self {
            kinds,
            ..Self::default()
        }
    }

    /// The same reviewer, where requests may have scripts, or may not.
    pub fn with_scripts(self, scripts: Scripts) -> Self {
        Self { scripts, ..self }
    }

    /// Whether somebody who asks for a script must have the right to run commands in pods.
    pub fn reviews_scripts(&self) -> bool {
        self.scripts == Scripts::Reviewed
    }

    /// The same reviewer, which knows the declared frameworks of an index.
    pub fn with_declarations(self, index: Arc<Index>) -> Self {
        Self {
            index: Some(index),
            ..self
        }
    }

    /// The frameworks that a job can name, whose status is that of the stored job.
    fn frameworks(&self, job: &TrainingJob, stored: &Value) -> Frameworks {
        let Some(index) = &self.index else {
            return Frameworks::default();
        };
        let job = TrainingJob {
            metadata: ObjectMeta::default(),
            spec: TrainingJobSpec {
                framework: job.spec.framework.clone(),
                ..TrainingJobSpec::default()
            },
            status: Some(status(stored)),
        };
        index.frameworks_for(&job)
    }

    /// Returns the answer to a review, and the result to count.
    pub fn review(&self, hook: Hook, body: &[u8]) -> Result<(metrics::Review, Vec<u8>), BadReview> {
        let Review { api_version, request } = Review::parse(body)?;
        let decision = self.decide(hook, &request)?;
        let mut response = Answer {
            uid: &request.uid,
            allowed: true,
            patch_type: None,
            patch: None,
            status: None,
        };
        let result = match decision {
            Decision::Allow => metrics::Review::Allowed,
            Decision::Patch(patch) => {
                response.patch_type = Some("JSONPatch");
                response.patch = Some(ByteString(patch));
                metrics::Review::Patched
            }
            Decision::Deny(errors) => {
                response.allowed = false;
                response.status = Some(denial(&request, errors));
                metrics::Review::Denied
            }
        };
        let reply = Reply {
            api_version: &api_version,
            kind: "AdmissionReview",
            response,
        };
        Ok((result, serde_json::to_vec(&reply)?))
    }

    fn decide(&self, hook: Hook, request: &Request<'_>) -> Result<Decision, serde_json::Error> {
        let target = self.target(request);
        if matches!(target, ReviewTarget::None) {
            return Ok(Decision::Allow);
        }
        if let Some(excess) = bounds::excess(request.object()) {
            // What is stored may keep its size: labels and finalizers may change.
            let is_unchanged = bounds::have_same_spec(request.old_object(), request.object());
            let error = || vec![FieldError::new(excess.path, excess.message)];
            return Ok(if is_unchanged {
                Decision::Allow
            } else {
                Decision::Deny(error())
            });
        }
        let Objects { new, old } = request.decode()?;
        Ok(match (target, hook) {
            (ReviewTarget::None, _)
            | (
                ReviewTarget::Foreign(_) | ReviewTarget::Framework | ReviewTarget::ScaleRequest(_),
                Hook::Mutate,
            ) => Decision::Allow,
            (ReviewTarget::ScaleRequest(kind), Hook::Validate | Hook::Script) => {
                self.validate_scale_request(kind, &old, &new)
            }
            (ReviewTarget::Foreign(kind), Hook::Validate | Hook::Script) => {
                self.validate_foreign(kind, &old, &new)
            }
            (_, Hook::Script) => Decision::Allow,
            (ReviewTarget::Framework, Hook::Validate) => validate_framework(&new),
            (ReviewTarget::Job, Hook::Mutate) => self.mutate(&new),
            (ReviewTarget::Job, Hook::Validate) => self.validate(&new, &old),
        })
    }

    /// Returns what to review. Only a change of the spec is reviewed, and not of an object that is
    /// being deleted: if it were denied, its finalizers could not be removed.
    fn target(&self, request: &Request<'_>) -> ReviewTarget {
        let changes = matches!(request.operation.as_str(), "CREATE" | "UPDATE")
            && request.sub_resource.as_deref().unwrap_or_default().is_empty();
        if !changes || bounds::is_being_deleted(request.object()) {
            return ReviewTarget::None;
        }
        let named = (request.kind.group.as_str(), request.kind.kind.as_str());
        if named == (trainyard_api::GROUP, "TrainingJob") {
            return ReviewTarget::Job;
        }
        if named == (trainyard_api::GROUP, "Framework") {
            return ReviewTarget::Framework;
        }
        if let (trainyard_api::GROUP, Some(kind)) = (named.0, ScaleKind::parse(named.1)) {
            return ReviewTarget::ScaleRequest(kind);
        }
        let mut kinds = self.kinds.iter();
        let kind = kinds.find(|kind| (kind.group(), kind.kind()) == named);
        kind.map_or(ReviewTarget::None, |kind| ReviewTarget::Foreign(*kind))
    }

    fn mutate(&self, object: &Value) -> Decision {
        let mut job = match decode(object) {
            Ok(job) => job,
            Err(error) => return Decision::Deny(vec![error]),
        };
        let before = serde_json::to_value(&job.spec);
        let frameworks = self.frameworks(&job, object);
        admission::default_with(&mut job, &frameworks);
        let after = serde_json::to_value(&job.spec);
        let (Ok(before), Ok(after)) = (before, after) else {
            // A type that was read can be written. Without defaults nothing is lost: the engine
            // fills them in.
            return Decision::Allow;
        };
        let mut filled = object.clone();
        if let Some(spec) = filled.get_mut("spec") {
            fill(spec, &before, &after);
        }
        let patch = json_patch::diff(object, &filled);
        match serde_json::to_vec(&patch) {
            Ok(bytes) if !patch.is_empty() && bytes.len() <= MAX_PATCH => Decision::Patch(bytes),
            _ => Decision::Allow,
        }
    }

    fn validate(&self, object: &Value, old: &Value) -> Decision {
        let mut new = match decode(object) {
            Ok(job) => job,
            Err(error) => return Decision::Deny(vec![error]),
        };
        let frameworks = self.frameworks(&new, old);
        let status = status(old);
        // A stored job that can't be read may be replaced by one that can.
        let old = decode(old).ok().map(|old| TrainingJob {
            status: Some(status),
            ..old
        });
        Decision::of(admission::review_with(old, &mut new, &frameworks))
    }

    fn validate_scale_request(&self, kind: ScaleKind, old: &Value, new: &Value) -> Decision {
        // A stored request that can't be read may be replaced by one that can.
        let errors = match kind {
            ScaleKind::ScaleIn => {
                part(new, "spec").map(|new| validate_scale_in(part(old, "spec").ok().as_ref(), &new))
            }
            ScaleKind::ScaleOut => {
                part(new, "spec").map(|new| validate_scale_out(part(old, "spec").ok().as_ref(), &new))
            }
        };
        let mut errors = errors.unwrap_or_else(|error| vec![error]);
        errors.extend(self.check_script(new));
        Decision::of(errors)
    }

    fn validate_foreign(&self, kind: &dyn ForeignKind, old: &Value, new: &Value) -> Decision {
        let mut errors = kind.review(Some(old).filter(|old| !old.is_null()), new);
        if script::may_have_script(kind) {
            errors.extend(self.check_script(new));
        }
        Decision::of(errors)
    }

    fn check_script(&self, object: &Value) -> Option<FieldError> {
        let is_refused = self.scripts == Scripts::Off && script::has_script(object);
        is_refused.then(|| FieldError::new("spec.script", SCRIPTS_ARE_OFF))
    }
}

/// What is wrong with a request for a script where there are none.
const SCRIPTS_ARE_OFF: &str =
    "scripts are off in this cluster: install the operator with --scripts, or leave it out";

fn validate_framework(object: &Value) -> Decision {
    let framework = part(object, "metadata").and_then(|metadata| {
        Ok(DeclaredFramework {
            metadata,
            spec: part(object, "spec")?,
            status: None,
        })
    });
    Decision::of(match framework {
        Ok(framework) => registry::check(&framework),
        Err(error) => vec![error],
    })
}

/// Reads of a stored job's status what the rules need: its phase, and what its pods were made from.
/// The rest need not be readable.
fn status(object: &Value) -> TrainingJobStatus {
    let read = |field: &str| object.get("status")?.get(field);
    let phase = read("phase").and_then(|phase| JobPhase::deserialize(phase).ok());
    let framework = read("acceptedFramework");
    let accepted = read("accepted").and_then(|accepted| Accepted::deserialize(accepted).ok());
    // A former version may have written it.
    let spec = read("acceptedSpec").and_then(|spec| Vec::deserialize(spec).ok());
    let former = || Accepted {
        spec: spec.unwrap_or_default(),
        rules: None,
    };
    TrainingJobStatus {
        phase,
        accepted: accepted.unwrap_or_else(former),
        accepted_framework: framework.and_then(|json| Some(json.as_str()?.to_owned())),
        ..TrainingJobStatus::default()
    }
}

/// Reads a job without its status, which is not the user's. An error names the path of the field.
fn decode(object: &Value) -> Result<TrainingJob, FieldError> {
    let metadata: ObjectMeta = part(object, "metadata")?;
    Ok(TrainingJob {
        metadata,
        spec: part(object, "spec")?,
        status: None,
    })
}

fn part<T: DeserializeOwned>(object: &Value, name: &str) -> Result<T, FieldError> {
    let value = object
        .get(name)
        .ok_or_else(|| FieldError::new(name, "this is missing: add it"))?;
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." {
            name.to_owned()
        } else {
            format!("{name}.{path}")
        };
        FieldError::new(path, format!("this can't be read: {}", error.inner()))
    })
}

/// Leaves out the last of many errors, and says how many there are.
fn shorten(errors: &mut Vec<FieldError>) {
    let mut room = MAX_ERROR_BYTES;
    let mut fits = |error: &FieldError| {
        // As it is answered: a character may take six bytes.
        let bytes = serde_json::to_string(&(&error.path, &error.message)).map_or(0, |json| json.len());
        room.checked_sub(bytes).inspect(|left| room = *left).is_some()
    };
    // One fits always.
    let count = errors
        .iter()
        .take(MAX_ERRORS)
        .map_while(|error| fits(error).then_some(()))
        .count();
    if let Some(more) = errors.len().checked_sub(count).filter(|more| *more > 0) {
        errors.truncate(count);
        let sentence = format!("there are {more} more errors: correct these first");
        errors.push(FieldError::new("spec", sentence));
    }
}

fn denial<'a>(request: &'a Request<'_>, mut errors: Vec<FieldError>) -> Status<'a> {
    shorten(&mut errors);
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    let causes = errors.into_iter().map(|error| Cause {
        reason: "FieldValueInvalid",
        field: error.path,
        message: error.message,
    });
    Status {
        outcome: "Failure",
        code: 422,
        reason: "Invalid",
        message: lines.join("\n"),
        details: Details {
            name: &request.name,
            group: &request.kind.group,
            kind: &request.kind.kind,
            causes: causes.collect(),
        },
    }
}

#[cfg(test)]
mod tests;
