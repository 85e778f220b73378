//! What is done about an object of another operator that is served in the cluster: which
//! TrainingJob it owns, how changes of it become changes of that, and when it is deleted. Pure.
//!
//! The child is made once and then follows the object's spec by its generation, so that a newer
//! version of this crate, which might translate in another way, leaves jobs alone that run. It has
//! no time to live of its own: it would be made anew. The object is deleted when its time is over,
//! and everything goes with it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use trainyard_api::{ConditionType, FieldError, JobPhase, TrainingJob, TrainingJobStatus};
use trainyard_core::admission;
use trainyard_core::foreign::{
    Child, ChildAction, ChildKind, ForeignKind, ForeignNote, ForeignPlan, ForeignView,
};
use trainyard_core::job::Job;
use trainyard_core::remote_shell::HOST_FILE;
use trainyard_core::view::{PodRow, Settings};

use crate::child::{
    Kinship, adopted, generation_of, keep_size, kinship, note_asked_for, note_generation, owner,
};
use crate::report::{Problem, Report, is_invalid, is_true};
use crate::{Converted, Kind, Purpose, lines, notes, read};

/// How many bytes the server takes as the data of a ConfigMap.
const MAX_CONFIG: usize = 1 << 20;

/// What our sentences offer, and users of these kinds can't have.
const OR_ROLL: &str = ", or create the job with spec.runPolicy.updatePolicy: Roll";

/// What our sentences say of suspension, and what is meant by it where there is none.
const NO_SUSPENSION: [(&str, &str); 2] = [
    (
        "can be changed only while the job is suspended: set spec.suspend to true first",
        "can't be changed while the job runs: create the job anew",
    ),
    ("to stop a job, set spec.suspend", "to stop a job, delete it"),
];

/// The child that an object should have.
struct Desired {
    job: TrainingJob,
    /// How long the object stays after its end, in seconds.
    ttl: Option<i64>,
    /// What is different from what the other operator would do.
    notes: Vec<String>,
}

/// The child that an object should have since it was changed.
struct Changed {
    job: TrainingJob,
    config: Option<Box<ConfigMap>>,
    /// What its users are told once that has been written.
    notes: Vec<ForeignNote>,
}

impl ForeignKind for Kind {
    fn flag(&self) -> &'static str {
        self.flag
    }

    fn group(&self) -> &'static str {
        self.group
    }

    fn version(&self) -> &'static str {
        self.version
    }

    fn kind(&self) -> &'static str {
        self.name
    }

    fn plural(&self) -> &'static str {
        self.plural
    }

    fn component(&self) -> &'static str {
        self.extras.component
    }

    fn definition(&self) -> Value {
        (self.definition)(self)
    }

    fn child_kind(&self) -> ChildKind {
        ChildKind::Job
    }

    fn has_config(&self) -> bool {
        self.extras.config.is_some()
    }

    fn plan(&self, view: &ForeignView<'_>) -> ForeignPlan {
        let metadata = read::identity(view.object);
        if metadata.deletion_timestamp.is_some() || !self.is_ours(view.object) {
            return ForeignPlan::default();
        }
        let child = match view.child {
            Child::Job { job, .. } => Some(&job.metadata),
            Child::Malformed(metadata, _) => Some(metadata),
            Child::None | Child::Request { .. } => None,
        };
        match (kinship(self.id(), &metadata, child), view.child) {
            (Kinship::None, _) => self.childless(view, &metadata),
            (Kinship::Ours, Child::Job { job, pods }) => self.with_child(view, &metadata, job, pods),
            (Kinship::Ours, Child::Malformed(_, error)) => self.with_problem(
                view,
                &Problem::new("Invalid", format!("its TrainingJob can't be read: {error}: delete it")),
            ),
            (Kinship::Former | Kinship::Ours, _) => ForeignPlan::default(),
            (Kinship::Stranger, _) => self.with_problem(
                view,
                &Problem::new(
                    "OwnershipConflict",
                    "there is a TrainingJob of this name that is somebody else's, and it is not touched: rename this job, \
                     or delete that one",
                ),
            ),
        }
    }

    fn refuse(&self, view: &ForeignView<'_>, why: &str) -> ForeignPlan {
        let goes = read::identity(view.object).deletion_timestamp.is_some();
        if goes || !self.is_ours(view.object) || ended(view.object).is_some() {
            return ForeignPlan::default();
        }
        self.with_problem(view, &Problem::new("Invalid", why))
    }

    fn notes(&self, before: Option<&Value>, after: &Value) -> Vec<ForeignNote> {
        notes::notes(before, after, self.event)
    }

    fn review(&self, old: Option<&Value>, new: &Value) -> Vec<FieldError> {
        if !self.is_ours(new) {
            return Vec::new();
        }
        let desired = match self.desired(new) {
            Ok(desired) => desired.job,
            Err(errors) => return errors,
        };
        let before = old.and_then(|old| Some((self.desired(old).ok()?.job, ended(old))));
        let Some((mut before, ended)) = before else {
            return Vec::new();
        };
        before.status = ended.map(|phase| TrainingJobStatus {
            phase: Some(phase),
            ..TrainingJobStatus::default()
        });
        self.changes(new, &before, &desired)
    }
}

impl Kind {
    /// Whether it is for this operator to run an object.
    fn is_ours(&self, object: &Value) -> bool {
        let by = self
            .extras
            .managed_by
            .and_then(|path| object.pointer(path)?.as_str());
        by.is_none_or(|by| {
            by == trainyard_api::MANAGED_BY_TRAINYARD || Some(by) == self.extras.their_operator
        })
    }

    /// There is no child: it is made, unless the object has ended already.
    fn childless(&self, view: &ForeignView<'_>, metadata: &ObjectMeta) -> ForeignPlan {
        let desired = self.desired(view.object);
        if ended(view.object).is_some() {
            let end = view
                .object
                .pointer("/status/completionTime")
                .and_then(Value::as_str);
            let end = end.and_then(|end| end.parse().ok());
            let ttl = desired.ok().and_then(|desired| desired.ttl);
            return leave_at(end, ttl, view.now, ForeignPlan::default());
        }
        if let Some(writer) = view.other_writer {
            let sentence = format!(
                "its status is written by {writer}: another operator runs it. Stop that operator, and create this job anew"
            );
            return self.with_problem(view, &Problem::new("ServedByAnother", sentence));
        }
        match desired {
            Err(errors) => self.with_problem(view, &Problem::new("Invalid", lines(&errors))),
            Ok(mut desired) => {
                let problem = view
                    .obstacle
                    .map(|obstacle| Problem::blocked(obstacle, "its TrainingJob", ""));
                let config = self.config(&mut desired, metadata, view.settings);
                let mut job = adopted(self.id(), desired.job, metadata);
                ForeignPlan {
                    notes: notes::differences(&mut job, &desired.notes),
                    config,
                    child: ChildAction::Create(Box::new(job)),
                    ..problem.map_or_else(ForeignPlan::default, |problem| self.with_problem(view, &problem))
                }
            }
        }
    }

    fn with_child(
        &self,
        view: &ForeignView<'_>,
        metadata: &ObjectMeta,
        child: &TrainingJob,
        pods: &[PodRow],
    ) -> ForeignPlan {
        let phase = child.status.as_ref().and_then(|status| status.phase);
        let has_ended = phase.is_some_and(JobPhase::is_terminal);
        let mut problem = None;
        let mut action = ChildAction::Leave;
        let (mut config, mut notes) = (None, Vec::new());
        let follows = generation_of(child) == metadata.generation;
        if !follows && !has_ended && child.metadata.deletion_timestamp.is_none() {
            match self.changed(view, metadata, child) {
                Ok(changed) => {
                    let goes_on = ", and the job goes on as it was";
                    problem = view
                        .obstacle
                        .map(|obstacle| Problem::blocked(obstacle, "this change", goes_on));
                    config = changed.config;
                    action = ChildAction::Replace(Box::new(changed.job));
                    notes = changed.notes;
                }
                Err(errors) => {
                    let sentence = format!("{}\nThe job goes on as it was.", lines(&errors));
                    problem = Some(Problem::new("ChangeRefused", sentence));
                }
            }
        } else if !has_ended
            && child.metadata.deletion_timestamp.is_none()
            && let Some(job) = self
                .with_deadline(view.object, child, view.now)
                .or_else(|| self.with_suspension(view.object, child))
                .or_else(|| self.with_annotations(view.object, child))
        {
            action = ChildAction::Replace(Box::new(job));
        }
        let status = self.status(view, Some((child, pods)), problem.as_ref());
        let plan = ForeignPlan {
            child: action,
            config,
            notes,
            status_can_wait: status.as_ref().is_some_and(|status| {
                problem.is_none() && can_wait(view.object.get("status"), status, child.status.as_ref())
            }),
            status,
            ..ForeignPlan::default()
        };
        if !has_ended {
            return plan;
        }
        let end = child
            .status
            .as_ref()
            .and_then(|status| status.completion_time.as_ref());
        let ttl = self.desired(view.object).ok().and_then(|desired| desired.ttl);
        leave_at(end.map(|end| end.0), ttl, view.now, plan)
    }

    /// The child as it should be now that the object was changed.
    fn changed(
        &self,
        view: &ForeignView<'_>,
        metadata: &ObjectMeta,
        child: &TrainingJob,
    ) -> Result<Changed, Vec<FieldError>> {
        let mut desired = self.desired(view.object)?;
        let phase = child.status.as_ref().and_then(|status| status.phase);
        if let Some(keep) = self.extras.keep.filter(|_| phase != Some(JobPhase::Suspended)) {
            keep(child, &mut desired.job, &mut desired.notes);
        }
        let errors = self.changes(view.object, child, &desired.job);
        if !errors.is_empty() {
            return Err(errors);
        }
        let config = self.config(&mut desired, metadata, view.settings);
        let asked_for = desired.job.clone();
        keep_size(child, &mut desired.job);
        let mut job = TrainingJob {
            metadata: child.metadata.clone(),
            spec: desired.job.spec,
            status: None,
        };
        note_generation(&mut job, metadata.generation);
        note_asked_for(&mut job, &asked_for.spec);
        self.pass_on(view.object, &mut job);
        self.renew_deadline(view.object, child, &mut job);
        let notes = notes::differences(&mut job, &desired.notes);
        Ok(Changed { job, config, notes })
    }

    /// What is wrong with a change from one child to another.
    fn changes(&self, object: &Value, before: &TrainingJob, after: &TrainingJob) -> Vec<FieldError> {
        let errors = admission::review(Some(before.clone()), &mut after.clone());
        let theirs = errors.iter().map(|error| self.theirs(object, error));
        theirs.collect()
    }

    /// The child suspended or resumed, if the object says so in an annotation, which is no part of
    /// its spec.
    fn with_suspension(&self, object: &Value, child: &TrainingJob) -> Option<TrainingJob> {
        let suspend = is_suspended(object, self.extras.suspend_annotation?);
        if suspend == child.is_suspended() {
            return None;
        }
        let mut job = TrainingJob {
            status: None,
            ..child.clone()
        };
        job.spec.suspend = suspend.then_some(true);
        Some(job)
    }

    /// The child with the annotations that it should have of its object, if it has others.
    fn with_annotations(&self, object: &Value, child: &TrainingJob) -> Option<TrainingJob> {
        let has = |key: &str| child.metadata.annotations.as_ref()?.get(key).map(String::as_str);
        let mut keys = self.extras.passed_on.iter();
        if keys.all(|key| annotation(object, key) == has(key)) {
            return None;
        }
        let mut job = TrainingJob {
            status: None,
            ..child.clone()
        };
        self.pass_on(object, &mut job);
        Some(job)
    }

    /// Gives a child the annotations that it should have of its object.
    fn pass_on(&self, object: &Value, job: &mut TrainingJob) {
        for key in self.extras.passed_on {
            let annotations = &mut job.metadata.annotations;
            if let Some(value) = annotation(object, key) {
                let annotations = annotations.get_or_insert_default();
                annotations.insert((*key).to_owned(), value.to_owned());
            } else if let Some(annotations) = annotations {
                annotations.remove(*key);
            }
        }
    }

    /// The child that an object should have, without what makes it that object's.
    fn desired(&self, object: &Value) -> Result<Desired, Vec<FieldError>> {
        let Converted { mut job, notes } = self.convert(object, Purpose::Serve)?;
        job.metadata = ObjectMeta {
            name: job.metadata.name,
            generate_name: job.metadata.generate_name,
            namespace: job.metadata.namespace,
            ..ObjectMeta::default()
        };
        self.pass_on(object, &mut job);
        if let Some(key) = self.extras.suspend_annotation {
            job.spec.suspend = is_suspended(object, key).then_some(true);
        }
        job.spec.dialect = Some(self.dialect);
        job.spec.managed_by = None;
        let run = job.spec.run_policy.as_mut();
        let ttl = run.and_then(|run| run.ttl_seconds_after_finished.take());
        admission::default(&mut job);
        let errors = self.problems(object, &job);
        self.postpone_deadline(&mut job);
        if errors.is_empty() {
            Ok(Desired { job, ttl, notes })
        } else {
            Err(errors)
        }
    }

    /// The ConfigMap of an object, for its child. It is for users to look at, and no pod needs it:
    /// what the server would not take is left out, and told.
    fn config(
        &self,
        desired: &mut Desired,
        object: &ObjectMeta,
        settings: &Settings,
    ) -> Option<Box<ConfigMap>> {
        let job = Job::parse(&desired.job).ok()?;
        let mut config = (self.extras.config?)(&job, settings)?;
        config.metadata.owner_references = Some(vec![owner(self.id(), object)]);
        let size: usize = config.data.iter().flatten().map(|(_, text)| text.len()).sum();
        if size > MAX_CONFIG {
            config.data = None;
            let name = config.metadata.name.as_deref().unwrap_or_default();
            desired.notes.push(format!(
                "ConfigMap {name}: is empty, because the list of hosts has {size} bytes, and a ConfigMap holds {MAX_CONFIG}; the \
                 launcher has the list in {HOST_FILE} all the same"
            ));
        }
        Some(Box::new(config))
    }

    /// An error as users of this kind read it.
    pub(crate) fn theirs(&self, object: &Value, error: &FieldError) -> FieldError {
        // Sentences name one field of ours, which is somewhere else there, if anywhere.
        let mut message = error.message.replace(OR_ROLL, "");
        match self.extras.suspend {
            Some(theirs) => message = message.replace("spec.suspend", theirs),
            None => {
                for (ours, theirs) in NO_SUSPENSION {
                    message = message.replace(ours, theirs);
                }
            }
        }
        FieldError::new(self.their_path(object, &error.path), message)
    }

    /// A plan that writes what is wrong into the status, and does nothing else.
    fn with_problem(&self, view: &ForeignView<'_>, problem: &Problem) -> ForeignPlan {
        ForeignPlan {
            status: self.status(view, None, Some(problem)),
            ..ForeignPlan::default()
        }
    }

    /// The object's status, if that is not what it should be.
    fn status(
        &self,
        view: &ForeignView<'_>,
        child: Option<(&TrainingJob, &[PodRow])>,
        problem: Option<&Problem>,
    ) -> Option<Value> {
        let status = (self.status)(&Report {
            kind: self,
            object: view.object,
            child: child.map(|(job, _)| job),
            pods: child.map_or(&[], |(_, pods)| pods),
            problem,
            now: view.now,
        });
        let before = view.object.get("status").filter(|status| !status.is_null());
        (before != Some(&status)).then_some(status)
    }
}

/// Whether the status of an object says nothing that users wait for: that its child was created and
/// is on its way, or other numbers of pods.
fn can_wait(before: Option<&Value>, after: &Value, child: Option<&TrainingJobStatus>) -> bool {
    let Some(before) = before.filter(|before| before.is_object()) else {
        let phase = child.and_then(|child| child.phase);
        let conditions = child.into_iter().flat_map(|child| &child.conditions);
        let mut accepted = conditions.filter(|condition| condition.type_ == ConditionType::Accepted.as_str());
        return accepted.all(|condition| condition.status == "True")
            && matches!(phase, None | Some(JobPhase::Pending | JobPhase::Starting));
    };
    let has = |status: &Value, member: &str| status.get(member).cloned();
    let conditions = |status: &Value| -> Vec<[Option<Value>; 3]> {
        let all = status.get("conditions").and_then(Value::as_array);
        let all = all.into_iter().flatten();
        all.map(|condition| ["type", "status", "reason"].map(|member| has(condition, member)))
            .collect()
    };
    has(before, "phase") == has(after, "phase") && conditions(before) == conditions(after)
}

/// Returns true if an annotation suspends an object.
fn is_suspended(object: &Value, key: &str) -> bool {
    annotation(object, key) == Some("true")
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// How an object has ended, as its status says.
fn ended(object: &Value) -> Option<JobPhase> {
    [JobPhase::Succeeded, JobPhase::Failed]
        .into_iter()
        .find(|phase| is_true(object, phase.as_str()) && !is_invalid(object, phase.as_str()))
}

/// Has an object deleted when its time after its end is over.
fn leave_at(end: Option<Timestamp>, ttl: Option<i64>, now: Timestamp, plan: ForeignPlan) -> ForeignPlan {
    let (Some(end), Some(ttl)) = (end, ttl) else {
        return plan;
    };
    match end.checked_add(SignedDuration::from_secs(ttl)) {
        Ok(due) if due <= now => ForeignPlan { delete: true, ..plan },
        Ok(due) => ForeignPlan {
            wake_at: Some(due),
            ..plan
        },
        Err(_) => plan,
    }
}
