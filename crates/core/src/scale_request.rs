//! Requests to change the size of a job, `ScaleIn` and `ScaleOut`: who has their turn, what becomes
//! of the job's target, who leaves, and how each request ends.
//!
//! For example, a ScaleIn of two pods:
//!
//! ```text
//! owner reference ── status: Scaling, from 4 to 2, victims ── job: target 2 and the annotation
//!                                                                        │
//!           status: ScaleSucceeded ── job's status: lastScaleRequest ── `scaling` drains the pods
//! ```
//!
//! Every step is one write, and the next one is decided from what is stored. The status of the
//! request comes first, so that the victims are fixed before anything is done. The target of the
//! job is written with the version that was seen, and with an annotation that names the request:
//! so it is never applied twice. How pods join and leave is decided by `scaling` alone. A script
//! comes before the target is written, or after those who join run.

mod begin;
mod parse;
mod progress;
mod script;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference};
use trainyard_api::names::ANNOTATION_CREATED;
use trainyard_api::{GROUP, ScalePhase, ScaleReason, ScaleRequestRef, ScaleRequestStatus, VERSION};

pub use parse::{Change, Removal, RequestSpec, ScaleRequest, Script};

use crate::job::Job;
use crate::local_state::ScriptTask;
use crate::model::PodKey;
use crate::requested_size::RequestedSize;
use crate::status::{time, truncate};
use crate::view::View;

/// The longest message that the schema allows, with room for the end of a sentence.
const MAX_MESSAGE: usize = 4000;

/// The job that requests are about.
#[derive(Clone, Copy)]
pub enum RequestedJob<'a> {
    /// There is none.
    Missing,
    /// A job that can't be parsed, and why.
    Malformed(&'a str),
    /// A job.
    Found(&'a View<'a>),
}

/// What should be done about the requests of one job.
#[derive(Debug, Default)]
pub struct RequestsPlan {
    /// What to do next for each request that needs something, by its position. After all were
    /// carried out, plan again.
    pub steps: Vec<(usize, RequestStep)>,
    /// When to plan again even if nothing changes.
    pub wake_at: Option<Timestamp>,
    /// The script that a launcher is to run from now on; it is to stop any other. The status of the
    /// request tells of it already.
    pub script: Option<ScriptTask>,
}

/// The next write for a request.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestStep {
    /// Set these owners of the request, if it still has the version that was seen.
    SetOwners(Vec<OwnerReference>),
    /// Write its status.
    WriteStatus(Box<ScaleRequestStatus>),
    /// Write the target of the job, if the job still has the version that was seen.
    Resize(JobResize),
    /// Delete the request: its time after the end is over.
    Delete,
}

/// A new target of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobResize {
    /// The value of `spec.elastic.replicas`.
    pub replicas: i32,
    /// The value of the annotation that names the request.
    pub annotation: String,
}

/// Plans what should be done about all requests of one job, in any order.
///
/// A request that is under way goes on; of the others the oldest has its turn.
pub fn plan(requests: &[&ScaleRequest], job: RequestedJob<'_>, now: Timestamp) -> RequestsPlan {
    let mut order: Vec<(usize, &ScaleRequest)> = requests.iter().copied().enumerate().collect();
    order.sort_by_key(|(_, request)| {
        (
            request.status.phase != Some(ScalePhase::Scaling),
            created_at(&request.metadata),
            request.metadata.uid.clone(),
        )
    });
    let mut plan = RequestsPlan::default();
    let mut is_turn = true;
    for (position, request) in order {
        if request.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let next = Case { request, job, now }.decide(is_turn);
        if !request.status.has_ended() && !next.ends() {
            is_turn = false;
        }
        plan.wake_at = [plan.wake_at, next.wake_at].into_iter().flatten().min();
        plan.script = plan.script.or(next.script);
        plan.steps.extend(next.step.map(|step| (position, step)));
    }
    plan
}

/// What follows for one request.
#[derive(Debug, Default)]
struct Next {
    step: Option<RequestStep>,
    wake_at: Option<Timestamp>,
    script: Option<ScriptTask>,
}

impl Next {
    fn step(step: RequestStep) -> Self {
        Self {
            step: Some(step),
            ..Self::default()
        }
    }

    /// Returns true if the request ends with this step.
    fn ends(&self) -> bool {
        matches!(&self.step, Some(RequestStep::WriteStatus(status)) if status.has_ended())
    }
}

/// One request, and what it is about.
#[derive(Clone, Copy)]
struct Case<'a> {
    request: &'a ScaleRequest,
    job: RequestedJob<'a>,
    now: Timestamp,
}

impl Case<'_> {
    fn decide(&self, is_turn: bool) -> Next {
        if self.request.status.has_ended() {
            return self.clean_up();
        }
        let spec = match &self.request.spec {
            Ok(spec) => spec,
            Err(errors) => return self.fail(ScaleReason::Invalid, crate::status::sentences(errors)),
        };
        let view = match self.job {
            RequestedJob::Found(view) => view,
            RequestedJob::Missing
                if self.job_owner().is_some() || self.request.status.phase == Some(ScalePhase::Scaling) =>
            {
                return self.fail(
                    ScaleReason::JobDeleted,
                    format!("The job {} was deleted.", spec.job),
                );
            }
            RequestedJob::Missing => {
                let what = format!("There is no TrainingJob {} in this namespace", spec.job);
                return self.wait_for_job(spec, ScaleReason::JobNotFound, &what);
            }
            RequestedJob::Malformed(error) => {
                let what = format!("The TrainingJob {} can't be read ({error})", spec.job);
                return self.wait_for_job(spec, ScaleReason::JobNotFound, &what);
            }
        };
        if let Some((reason, message)) = self.obstacle(spec, view) {
            return self.fail(reason, message);
        }
        if let Some(owners) = self.missing_owners(&view.job.metadata) {
            return Next::step(RequestStep::SetOwners(owners));
        }
        match self.request.status.phase {
            Some(ScalePhase::Scaling) => self.go_on(spec, view),
            _ if !is_turn => self.wait("It waits until the requests before it have ended.", None),
            _ => {
                if let Ok(job) = Job::parse_with(view.job, view.frameworks) {
                    return self.begin(spec, view, &job);
                }
                let what = format!("The TrainingJob {} is not valid", spec.job);
                self.wait_for_job(spec, ScaleReason::NotElastic, &what)
            }
        }
    }

    /// Deletes a request that has ended when its time is over.
    fn clean_up(&self) -> Next {
        let ttl = self.request.spec.as_ref().ok().and_then(|spec| spec.ttl_seconds);
        let ended = self.request.status.completion_time.as_ref();
        match ttl.zip(ended).and_then(|(ttl, ended)| after(ended.0, ttl)) {
            Some(due) if due <= self.now => Next::step(RequestStep::Delete),
            due => Next {
                wake_at: due,
                ..Next::default()
            },
        }
    }

    /// Why the size of a job that exists can't be changed by this request, now or later.
    fn obstacle(&self, spec: &RequestSpec, view: &View<'_>) -> Option<(ScaleReason, String)> {
        let (job, name) = (view.job, &spec.job);
        let phase = job.status.as_ref().and_then(|status| status.phase);
        let is_former = self
            .job_owner()
            .is_some_and(|owner| Some(&owner.uid) != job.metadata.uid.as_ref());
        let is_under_way = self.request.status.phase == Some(ScalePhase::Scaling);
        Some(match phase {
            _ if is_former || job.metadata.deletion_timestamp.is_some() => {
                (ScaleReason::JobDeleted, format!("The job {name} was deleted."))
            }
            _ if !job.is_ours() => {
                let message =
                    format!("The job {name} has another controller, in spec.managedBy: ask that one.");
                (ScaleReason::NotElastic, message)
            }
            Some(phase) if phase.is_terminal() => {
                let message = format!("The job {name} has ended ({phase}).");
                (ScaleReason::JobEnded, message)
            }
            _ if job.spec.elastic.is_none() => {
                let message = format!("The job {name} can't change its size: it has no spec.elastic.");
                (ScaleReason::NotElastic, message)
            }
            _ if job.is_suspended() && is_under_way => {
                let replicas = job.spec.elastic.as_ref().map_or(0, |elastic| elastic.replicas);
                let message = format!(
                    "The job {name} was suspended meanwhile: it starts with {replicas} pods when it is resumed."
                );
                (ScaleReason::JobSuspended, message)
            }
            _ if job.is_suspended() => {
                let message = format!(
                    "The job {name} is suspended: resume it first, or set its spec.elastic.replicas."
                );
                (ScaleReason::JobSuspended, message)
            }
            _ => return None,
        })
    }

    /// The owner reference that names the job; the operator has written it.
    fn job_owner(&self) -> Option<&OwnerReference> {
        let name = &self.request.spec.as_ref().ok()?.job;
        let mut owners = self.request.metadata.owner_references.iter().flatten();
        owners.find(|owner| is_job(owner) && owner.name == *name)
    }

    /// The owners of the request, if the job is not yet one of them: the request is deleted with
    /// the job. A request that has a controller, which is a request of another operator's kind, is
    /// deleted with that one.
    fn missing_owners(&self, job: &ObjectMeta) -> Option<Vec<OwnerReference>> {
        let mut owners = self.request.metadata.owner_references.iter().flatten();
        if self.job_owner().is_some() || owners.any(|owner| owner.controller == Some(true)) {
            return None;
        }
        let mut owners = self.request.metadata.owner_references.clone().unwrap_or_default();
        owners.push(OwnerReference {
            api_version: format!("{GROUP}/{VERSION}"),
            kind: "TrainingJob".to_owned(),
            name: job.name.clone()?,
            uid: job.uid.clone()?,
            ..OwnerReference::default()
        });
        Some(owners)
    }

    /// Waits for a job that is not there or not valid, until the time is over.
    fn wait_for_job(&self, spec: &RequestSpec, reason: ScaleReason, what: &str) -> Next {
        let created = self.request.metadata.creation_timestamp.as_ref();
        let begun = self.request.status.start_time.as_ref().or(created);
        let due = begun.and_then(|begun| after(begun.0, spec.timeout_seconds));
        match due.filter(|due| *due > self.now) {
            None => self.fail(reason, format!("{what}, for {} seconds.", spec.timeout_seconds)),
            due => self.wait(&format!("{what}."), due),
        }
    }

    /// The request waits. Its status says for what.
    fn wait(&self, message: &str, wake_at: Option<Timestamp>) -> Next {
        let mut status = self.request.status.clone();
        if status.phase.is_none() {
            status.phase = Some(ScalePhase::Created);
        }
        status.message = Some(message.to_owned());
        self.set_condition(
            &mut status,
            ScalePhase::Created,
            true,
            ScaleReason::Waiting,
            message,
        );
        Next {
            step: (status != self.request.status).then(|| RequestStep::WriteStatus(Box::new(status))),
            wake_at,
            script: None,
        }
    }

    fn fail(&self, reason: ScaleReason, message: impl Into<String>) -> Next {
        self.end(ScalePhase::ScaleFailed, reason, message)
    }

    /// The request ends.
    fn end(&self, phase: ScalePhase, reason: ScaleReason, message: impl Into<String>) -> Next {
        self.end_with(self.request.status.clone(), phase, reason, message.into())
    }

    /// The request ends, and its status also says something else that is new.
    fn end_with(
        &self,
        mut status: ScaleRequestStatus,
        phase: ScalePhase,
        reason: ScaleReason,
        mut message: String,
    ) -> Next {
        truncate(&mut message, MAX_MESSAGE);
        self.acknowledge(&mut status);
        if status.start_time.is_some() {
            self.set_condition(
                &mut status,
                ScalePhase::Scaling,
                false,
                reason,
                "The change is over.",
            );
        }
        self.set_condition(&mut status, phase, true, reason, &message);
        status.phase = Some(phase);
        status.completion_time = Some(time(self.now));
        status.message = Some(message);
        Next::step(RequestStep::WriteStatus(Box::new(status)))
    }

    /// Sets the condition Created, unless it is there.
    fn acknowledge(&self, status: &mut ScaleRequestStatus) {
        let created = ScalePhase::Created;
        if !status
            .conditions
            .iter()
            .any(|known| known.type_ == created.as_str())
        {
            let message = "The operator has seen the request.";
            self.set_condition(status, created, true, ScaleReason::Waiting, message);
        }
    }

    /// Sets the condition of a phase.
    fn set_condition(
        &self,
        status: &mut ScaleRequestStatus,
        phase: ScalePhase,
        holds: bool,
        reason: ScaleReason,
        message: &str,
    ) {
        self.set_condition_of(status, phase.as_str(), holds, reason, message);
    }

    /// Sets the condition of a type. Its transition time changes only if its status does.
    fn set_condition_of(
        &self,
        status: &mut ScaleRequestStatus,
        type_: &str,
        holds: bool,
        reason: ScaleReason,
        message: &str,
    ) {
        let new = Condition {
            type_: type_.to_owned(),
            status: if holds { "True" } else { "False" }.to_owned(),
            reason: reason.as_str().to_owned(),
            message: message.to_owned(),
            last_transition_time: time(self.now),
            observed_generation: self.request.metadata.generation,
        };
        match status
            .conditions
            .iter_mut()
            .find(|known| known.type_ == new.type_)
        {
            Some(known) if known.status == new.status => {
                let since = known.last_transition_time.clone();
                *known = Condition {
                    last_transition_time: since,
                    ..new
                };
            }
            Some(known) => *known = new,
            None => status.conditions.push(new),
        }
    }

    /// The request as the status of its job names it.
    fn reference(&self, rollback: bool) -> ScaleRequestRef {
        let metadata = &self.request.metadata;
        ScaleRequestRef {
            kind: self.request.kind,
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            rollback,
        }
    }

    /// The write that gives the job its new target.
    fn resize(size: &RequestedSize) -> Next {
        // It consists of texts and numbers, which can be written.
        let annotation = serde_json::to_string(size).unwrap_or_default();
        Next::step(RequestStep::Resize(JobResize {
            replicas: size.to,
            annotation,
        }))
    }
}

/// When a request was created, or the one of another operator that it was made of.
fn created_at(metadata: &ObjectMeta) -> Option<Timestamp> {
    let annotations = metadata.annotations.as_ref();
    let noted = annotations.and_then(|annotations| annotations.get(ANNOTATION_CREATED)?.parse().ok());
    noted.or(metadata.creation_timestamp.as_ref().map(|at| at.0))
}

fn is_job(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/').map(|(group, _)| group);
    (group, &*owner.kind) == (Some(GROUP), "TrainingJob")
}

fn after(time: Timestamp, seconds: i64) -> Option<Timestamp> {
    time.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// The index of a pod of the elastic role that may not exist.
fn index_in(job: &Job<'_>, name: &str) -> Option<i32> {
    let role = job.elastic?.role;
    let index = name.rsplit_once('-')?.1.parse().ok()?;
    (job.pod_name(PodKey { role, index }) == name).then_some(index)
}
