//! What must be true of every status that is written, given all that were written before.

use std::collections::HashSet;

use trainyard_api::{AcceptedRole, JobPhase, NodeDownPolicy, ScalingStep, TrainingJob, TrainingJobStatus};
use trainyard_core::job::Job;
use trainyard_core::members::Members;
use trainyard_core::restart::{self, End};
use trainyard_core::view::{NodeState, PodRow};

/// Ends that were counted, by the pod's UID.
#[derive(Default)]
pub(super) struct Ledger {
    counted: HashSet<String>,
    failures: i32,
}

impl Ledger {
    pub(super) fn failures(&self) -> i32 {
        self.failures
    }

    pub(super) fn check(
        &mut self,
        old: &TrainingJobStatus,
        new: &TrainingJobStatus,
        pods: &[PodRow],
        departed: &[PodRow],
        job: &TrainingJob,
    ) {
        final_states(old, new);
        assert_eq!(
            new.observed_generation, job.metadata.generation,
            "answers another generation"
        );
        let restarts = |status: &TrainingJobStatus| status.restarts.clone().unwrap_or_default();
        let (before, after) = (restarts(old), restarts(new));
        let known: HashSet<_> = before
            .replacing
            .iter()
            .map(|entry| (&entry.pod, &entry.uid))
            .collect();
        let mut failures = 0;
        for entry in &after.replacing {
            if known.contains(&(&entry.pod, &entry.uid)) || entry.uid.is_empty() {
                continue;
            }
            let row = pods
                .iter()
                .chain(departed)
                .find(|row| *row.uid == *entry.uid)
                .expect("counts a pod that is not there");
            // How a pod ends that went because its role was made smaller means nothing.
            if row.terminating && !had(old, job, &row.name) {
                self.counted.insert(entry.uid.clone());
                continue;
            }
            assert!(
                self.counted.insert(entry.uid.clone()),
                "{} is counted twice",
                entry.pod
            );
            let end = restart::end(row, NodeState::Up, NodeDownPolicy::Wait);
            if matches!(end, Some(End::Failure(_))) {
                failures += 1;
            }
        }
        let counted = after.failures - before.failures;
        self.failures += counted;
        assert!(
            counted == failures
                || follows_others(job) && (0..failures).contains(&counted)
                // All pods start anew, and only the first end counts.
                || after.attempts != before.attempts && (0..=failures + 1).contains(&counted)
                // Pods that are not replaced are counted all the same.
                || stays_empty(job) && counted > failures,
            "{counted} failures counted, and {failures} pods that failed to be replaced"
        );
        assert!(after.disruptions >= before.disruptions);
    }

    /// A pod of a job that goes on is deleted only once its end is counted, or if the job has no
    /// such pod.
    pub(super) fn deletes(&self, job: &TrainingJob, name: &str, uid: &str, attempt: i32) {
        let phase = job.status.as_ref().and_then(|status| status.phase);
        let holds_none = [JobPhase::Suspending, JobPhase::Suspended, JobPhase::Pending];
        let goes_on = phase.is_none_or(|phase| !phase.is_terminal() && !holds_none.contains(&phase));
        let status = job.status.as_ref();
        let scaling = status.and_then(|status| status.scaling.as_deref());
        // All pods have left, and all start anew.
        let restarts =
            scaling.is_some_and(|scaling| scaling.restarts_all() && scaling.step == ScalingStep::Restarting);
        let restarts = restarts || is_former(job, name, attempt);
        let its_own = Job::parse(job).is_ok_and(|job| job.key(name).is_some());
        // They were created from another spec, and nothing is recorded yet.
        let starts_over = status.is_none() && job.metadata.generation > Some(1);
        assert!(
            !goes_on || restarts || starts_over || !its_own || self.counted.contains(uid),
            "{name} is deleted and its end not counted"
        );
    }
}

/// Whether a pod is of an attempt before the last of its role.
pub(super) fn is_former(job: &TrainingJob, pod: &str, attempt: i32) -> bool {
    let latest = |parsed: Job<'_>| Some(parsed.roles[parsed.key(pod)?.role].attempt);
    let latest = Job::parse(job).ok().and_then(latest);
    latest.is_some_and(|latest| attempt < latest)
}

fn stays_empty(job: &TrainingJob) -> bool {
    let elastic = job.spec.elastic.as_ref();
    let is_renamed = || Job::parse(job).is_ok_and(|job| job.framework.renames_lost_pods);
    elastic.is_some_and(|elastic| elastic.refill == Some(trainyard_api::Refill::Never) || is_renamed())
}

/// Whether pods of a job may fail because others ended, which is not counted again.
fn follows_others(job: &TrainingJob) -> bool {
    let waits = |role: &trainyard_api::RoleSpec| role.depends_on.as_ref().is_some_and(|on| !on.is_empty());
    let as_one = Job::parse(job).is_ok_and(|job| job.framework.trains_as_one);
    as_one || job.spec.roles.iter().any(waits)
}

/// Whether a job had such a pod when its spec was last accepted.
fn had(status: &TrainingJobStatus, job: &TrainingJob, pod: &str) -> bool {
    let (Some(accepted), Ok(job)) = (&status.accepted.rules, Job::parse(job)) else {
        return true;
    };
    let Some(key) = job.key(pod) else { return true };
    let before = accepted
        .roles
        .iter()
        .find(|role| role.name == job.roles[key.role].name);
    let members = |before: &AcceptedRole| match &before.members {
        Some(listed) => Members::parse(listed, 1_000_000),
        None => Members::first(before.replicas),
    };
    before.is_none_or(|before| members(before).contains(key.index))
}

fn final_states(old: &TrainingJobStatus, new: &TrainingJobStatus) {
    let holds = |status: &TrainingJobStatus, kind: &str| {
        status
            .conditions
            .iter()
            .any(|c| c.type_ == kind && c.status == "True")
    };
    if old.phase.is_some_and(JobPhase::is_terminal) {
        assert_eq!(old.phase, new.phase, "a final state was left");
        assert_eq!(
            old.conditions, new.conditions,
            "a finished job's conditions moved"
        );
    }
    let (succeeded, failed) = (holds(new, "Succeeded"), holds(new, "Failed"));
    assert!(!(succeeded && failed), "both Succeeded and Failed");
    assert_eq!(succeeded, new.phase == Some(JobPhase::Succeeded));
    assert_eq!(failed, new.phase == Some(JobPhase::Failed));
    assert_eq!(holds(new, "Suspended"), new.phase == Some(JobPhase::Suspended));
    assert_eq!(new.completion_time.is_some(), succeeded || failed);
}
