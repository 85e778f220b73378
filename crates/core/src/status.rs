//! How a status is written: conditions that move only when something changed, sentences, fingerprints.

use jiff::{Timestamp, Unit};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use sha2::{Digest, Sha256};
use trainyard_api::validate::{PROGRESS, SectionContent, UPDATE_POLICY, sections};
use trainyard_api::{
    ConditionType, FieldError, Fingerprint, JobPhase, Reason, RoleStatus, RootCause, TrainingJob,
    TrainingJobStatus, names,
};

use crate::admission;
use crate::assess::Ended;
use crate::frameworks::{self, Framework};
use crate::job::Job;
use crate::plan::StatusWrite;
use crate::restart::End;
use crate::view::PodRow;

/// The longest message of a condition that the API server takes; what is longer is cut.
const MAX_MESSAGE: usize = 32_000;
const MAX_CAUSE: usize = 2_000;
/// The longest reason that the schema allows; what kubelets and schedulers say has no limit of its own.
pub(crate) const MAX_REASON: usize = 128;
const MAX_NODE: usize = 253;

/// The time as the API writes it: whole seconds.
pub(crate) fn time(now: Timestamp) -> Time {
    Time(now.round(Unit::Second).unwrap_or(now))
}

/// Sets a condition; its transition time moves only if its status does.
pub(crate) fn set_condition(
    status: &mut TrainingJobStatus,
    kind: ConditionType,
    holds: bool,
    reason: Reason,
    message: impl Into<String>,
    now: Timestamp,
) {
    let word = if holds { "True" } else { "False" };
    let mut message = message.into();
    truncate(&mut message, MAX_MESSAGE);
    let new = Condition {
        type_: kind.as_str().to_owned(),
        status: word.to_owned(),
        reason: reason.as_str().to_owned(),
        message,
        last_transition_time: time(now),
        observed_generation: status.observed_generation,
    };
    match status
        .conditions
        .iter_mut()
        .find(|condition| condition.type_ == new.type_)
    {
        Some(old) => {
            let since = if old.status == word {
                old.last_transition_time.clone()
            } else {
                new.last_transition_time
            };
            *old = Condition {
                last_transition_time: since,
                ..new
            };
        }
        None => status.conditions.push(new),
    }
}

/// A condition's reason, if the condition is there with that status.
pub(crate) fn condition(status: &TrainingJobStatus, kind: ConditionType, holds: bool) -> Option<&Condition> {
    let word = if holds { "True" } else { "False" };
    status
        .conditions
        .iter()
        .find(|c| c.type_ == kind.as_str() && c.status == word)
}

/// Whether a job was accepted as its spec is now.
pub(crate) fn is_settled(job: &TrainingJob) -> bool {
    job.status.as_ref().is_some_and(|status| {
        status.observed_generation == job.metadata.generation
            && condition(status, ConditionType::Accepted, true).is_some()
    })
}

/// Whether a status must be written, and how soon.
pub(crate) fn write(old: Option<&TrainingJobStatus>, new: TrainingJobStatus) -> StatusWrite {
    let empty = TrainingJobStatus::default();
    let old = old.unwrap_or(&empty);
    if *old == new {
        StatusWrite::Unchanged
    } else if weighty(old) != weighty(&new) {
        StatusWrite::Now(Box::new(new))
    } else if has_run(&new) && successes(old) != successes(&new) {
        StatusWrite::Early(Box::new(new))
    } else {
        StatusWrite::Soon(Box::new(new))
    }
}

/// What was said when all pods of a job were given up, because a name that it needs to start was taken, or because they could not
/// talk to others.
pub(crate) fn given_up(status: &TrainingJobStatus) -> Option<(Reason, &Condition)> {
    let said = condition(status, ConditionType::Accepted, false).filter(|_| !has_run(status))?;
    let reason = Reason::parse(&said.reason)?;
    matches!(reason, Reason::OwnershipConflict | Reason::SecretMissing).then_some((reason, said))
}

/// Whether a job that has not ended runs as a whole, or did before. Until then it costs no more writes than it must.
pub(crate) fn has_run(status: &TrainingJobStatus) -> bool {
    matches!(
        status.phase,
        Some(JobPhase::Running | JobPhase::Scaling | JobPhase::Restarting)
    )
}

fn successes(status: &TrainingJobStatus) -> Vec<(&str, Option<&str>)> {
    let roles = status.roles.iter();
    roles
        .map(|role| (&*role.name, role.succeeded_indices.as_deref()))
        .collect()
}

/// The part of a status that users and decisions depend on at once; the rest are counters, and sentences about them.
/// The end of a role is a part of it: its pods may be removed the next moment, and with them the evidence.
fn weighty(status: &TrainingJobStatus) -> TrainingJobStatus {
    let mut status = status.clone();
    status.ready = None;
    status.progress = None;
    let ended = status.roles.iter().filter(|role| role.phase.is_terminal());
    let ended = ended.map(|role| RoleStatus {
        name: role.name.clone(),
        phase: role.phase,
        ..RoleStatus::default()
    });
    status.roles = ended.collect();
    if let Some(restarts) = &mut status.restarts {
        restarts.replacing.clear();
        restarts.incidents.clear();
    }
    status
}

/// All errors as one message, one sentence a line.
pub(crate) fn sentences(errors: &[FieldError]) -> String {
    errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Cuts a text at a character boundary.
pub(crate) fn truncate(text: &mut String, max: usize) {
    if text.len() > max {
        let end = (0..=max)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
    }
}

/// Fingerprints of the parts of a spec that may change only while the job is suspended. They are of the spec with its
/// defaults, so that it is no change when admission writes those down later.
pub(crate) fn fingerprints(job: &TrainingJob) -> Vec<Fingerprint> {
    let mut job = job.clone();
    admission::default(&mut job);
    forget_what_rolls(&mut job);
    let fingerprint = |content: &SectionContent<'_>| {
        let json = match content {
            SectionContent::Role(role) => serde_json::to_vec(role),
            SectionContent::Framework(framework) => serde_json::to_vec(framework),
            SectionContent::Completion(completion) => serde_json::to_vec(completion),
            SectionContent::CleanPodPolicy(policy) => serde_json::to_vec(policy),
            SectionContent::UpdatePolicy(policy) => serde_json::to_vec(policy),
            SectionContent::Progress(policy) => serde_json::to_vec(policy),
        };
        let digest = Sha256::digest(json.unwrap_or_default());
        digest
            .iter()
            .take(8)
            .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
    };
    let all = sections(&job.spec).into_iter();
    all.map(|section| Fingerprint {
        hash: fingerprint(&section.content),
        field: section.key,
    })
    .collect()
}

/// Takes out of a job's roles what may change while it runs.
fn forget_what_rolls(job: &mut TrainingJob) {
    if !job.rolls() {
        return;
    }
    let resizes = frameworks::find(&job.spec.framework.name).is_none_or(Framework::resizes);
    for role in &mut job.spec.roles {
        role.template = PodTemplateSpec::default();
        role.replicas = role.replicas.filter(|_| !resizes);
    }
}

/// What changed in the spec since the running pods were made from it.
pub(crate) fn forbidden_changes(accepted: &[Fingerprint], job: &TrainingJob) -> Vec<FieldError> {
    let now = fingerprints(job);
    let changed = |field: &&str| {
        let policy = |all: &[Fingerprint]| all.iter().find(|part| part.field == **field).cloned();
        !accepted.is_empty() && policy(accepted) != policy(&now)
    };
    if let Some(field) = [UPDATE_POLICY, PROGRESS].into_iter().find(changed) {
        // By another policy the roles have other fingerprints, or there are more, whether they were changed or not.
        return vec![FieldError::new(
            field,
            "was changed while the job runs: change it back, or set spec.suspend to true first",
        )];
    }
    let or_roll = if job.rolls() {
        ""
    } else {
        "; replicas and templates of jobs that were created with spec.runPolicy.updatePolicy: Roll may change"
    };
    let was = |new: &Fingerprint| accepted.iter().find(|old| old.field == new.field);
    let changed = now
        .iter()
        .filter(|new| was(new).is_some_and(|old| old.hash != new.hash));
    let sections = sections(&job.spec);
    let places = changed.filter_map(|new| sections.iter().find(|section| section.key == new.field));
    let mut errors: Vec<FieldError> = places
        .map(|section| {
            let (which, or_roll) = match section.content {
                SectionContent::Role(role) => (format!("role {:?} ", role.name), or_roll),
                _ => (String::new(), ""),
            };
            FieldError::new(
                &*section.path,
                format!(
                    "{which}was changed while the job runs: change it back, or set spec.suspend to true first{or_roll}"
                ),
            )
        })
        .collect();
    let kept = |old: &Fingerprint| now.iter().any(|new| new.field == old.field);
    if !accepted.is_empty() && (accepted.len() != now.len() || !accepted.iter().all(kept)) {
        errors.push(FieldError::new(
            "spec.roles",
            "the set of roles was changed: change it back, or create a new job",
        ));
    }
    errors
}

/// The root cause that the end of a pod is.
pub(crate) fn root_cause(job: &Job<'_>, ended: &Ended<'_>) -> RootCause {
    let end = ended.row.and_then(|row| row.end.as_deref());
    let cut = |text: Option<&str>, max| {
        text.map(|text| {
            let mut text = text.to_owned();
            truncate(&mut text, max);
            text
        })
    };
    let reason = match ended.end {
        End::NodeDown => Some(Reason::PossibleNodeDown.as_str()),
        _ if ended.row.is_none() && !matches!(ended.end, End::Unmet(_)) => Some(Reason::PodMissing.as_str()),
        // As the kubelet says it of the container.
        End::Success => Some("Completed"),
        End::Disruption => {
            let said = end.and_then(|end| end.reason.as_deref());
            Some(said.unwrap_or(Reason::PodDisrupted.as_str()))
        }
        End::Failure(_) => end.and_then(|end| end.reason.as_deref()),
        End::Unmet(_) => Some(Reason::DependencyFailed.as_str()),
        End::Outdated => Some(Reason::TemplateChanged.as_str()),
        End::Estranged => Some(Reason::SecretMissing.as_str()),
    };
    RootCause {
        role: job
            .roles
            .get(ended.key.role)
            .map_or("", |role| role.name)
            .to_owned(),
        pod: job.pod_name(ended.key),
        node: cut(ended.row.and_then(|row| row.node.as_deref()), MAX_NODE),
        container: cut(end.and_then(|end| end.container.as_deref()), names::MAX_NAME),
        exit_code: match ended.end {
            End::Success => Some(0),
            _ => end.and_then(|end| end.exit_code),
        },
        signal: end.and_then(|end| end.signal),
        reason: cut(reason, MAX_REASON),
        message: cut(end.and_then(|end| end.message.as_deref()), MAX_CAUSE),
        time: end.and_then(|end| end.finished_at).map(time),
    }
}

/// Which container ended a pod, where it is not the main one.
fn container(job: &Job<'_>, ended: &Ended<'_>) -> String {
    let main = job.roles.get(ended.key.role).map(|role| &*role.main.name);
    let end = ended.row.and_then(|row| row.end.as_deref());
    let name = end.and_then(|end| end.container.as_deref());
    name.filter(|name| Some(*name) != main)
        .map(|name| format!(" container {name}:"))
        .unwrap_or_default()
}

/// The end of a pod in words: `worker-1 on node-a: exit code 137 (OOMKilled)`.
pub(crate) fn describe(job: &Job<'_>, ended: &Ended<'_>) -> String {
    let pod = job.pod_name(ended.key);
    let place = |row: &PodRow| {
        row.node
            .as_deref()
            .map(|node| format!(" on {node}"))
            .unwrap_or_default()
    };
    if let End::Unmet(awaited) = ended.end {
        let awaited = job.roles.get(awaited).map_or("?", |role| role.name);
        return format!("{pod} can't start: it waits for the role {awaited}, which has ended");
    }
    let Some(row) = ended.row else {
        return format!("{pod} is gone");
    };
    let end = row.end.as_deref();
    let why = end
        .and_then(|end| end.reason.as_deref())
        .map(|reason| format!(" ({reason})"))
        .unwrap_or_default();
    match ended.end {
        End::Success => format!("{pod}{} ended well", place(row)),
        End::Failure(None) => format!("{pod}{} failed{why}", place(row)),
        End::Failure(Some(code)) => format!(
            "{pod}{}:{} exit code {code}{why}",
            place(row),
            container(job, ended)
        ),
        End::NodeDown => format!("{pod}: its node{} is down", place(row).replacen(" on", "", 1)),
        End::Outdated => format!("{pod}{} was made from another template", place(row)),
        End::Estranged => format!(
            "{pod}{} has a Secret that is gone: pods that are made now could not talk to it",
            place(row)
        ),
        End::Disruption if row.terminating => format!("{pod}{} is being removed{why}", place(row)),
        End::Disruption | End::Unmet(_) => format!("{pod}{} was taken away{why}", place(row)),
    }
}
