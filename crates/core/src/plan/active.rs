//! A job that should run: its children are made, its ends are counted, its state is deduced.

use jiff::Timestamp;
use trainyard_api::{
    CleanPodPolicy, ConditionType, JobPhase, Reason, Replacement, RestartCause, RestartRecord, Restarts,
    RolePhase, RoleStatus, TrainingJobStatus,
};

use super::{Action, Note, Plan, after, earliest, finished, note};
use crate::assess::{Assessment, Ended, RoleAssessment, assess, removal};
use crate::build;
use crate::deduce::{self, RoleFacts, RoleWhy};
use crate::indices;
use crate::job::{Job, Role};
use crate::restart::{self, End};
use crate::status::{describe, fingerprints, root_cause, set_condition, time, truncate, write};
use crate::view::{NodeState, View};

/// How many replacements may be under way at once: the length of the list in status that keeps them.
const MAX_REPLACING: usize = 256;
const MAX_HISTORY: usize = 20;

pub(super) fn plan(job: &Job<'_>, view: &View<'_>) -> Plan {
    let old = view.job.status.as_ref();
    let mut status = started(job, view);
    let before = status.phase;
    let mut seen = assess(job, view, &status);
    let ends = deduce_roles(job, &seen, &mut status);
    let phase = deduce::job(
        status.phase,
        &phases(&status),
        &job.failed_when,
        &job.succeeded_when,
    );
    let deadline = deadline(job, &status);
    let verdict = verdict(job, view, &seen, &status, phase, deadline, &ends);

    let mut plan = Plan {
        wake_at: earliest([deadline, seen.next]),
        ..Plan::default()
    };
    if old.is_some_and(|old| old.phase == Some(JobPhase::Suspended)) {
        plan.events.push(note(
            false,
            Reason::Resumed,
            "The job was resumed and starts afresh.",
        ));
    }
    if let Some(verdict) = verdict {
        finish(job, view, &mut status, verdict, &mut plan);
    } else {
        go_on(job, view, &mut seen, &mut status, phase, &mut plan);
        if before != Some(JobPhase::Running) && phase == JobPhase::Running {
            let pods = job.total();
            plan.events.push(note(
                false,
                Reason::AllRolesRunning,
                format!("All roles run ({pods} pods)."),
            ));
        }
    }
    plan.status = write(old, status);
    plan
}

/// The status to start from: that of a job which has just been started or resumed, or the one there is.
fn started(job: &Job<'_>, view: &View<'_>) -> TrainingJobStatus {
    let mut status = view.job.status.clone().unwrap_or_default();
    let settled =
        status.observed_generation == view.job.metadata.generation && !status.accepted_spec.is_empty();
    status.observed_generation = view.job.metadata.generation;
    if status.phase == Some(JobPhase::Suspended) {
        let message = "The job was resumed.";
        set_condition(
            &mut status,
            ConditionType::Suspended,
            false,
            Reason::Resumed,
            message,
            view.now,
        );
        status.roles.clear();
        status.phase = None;
    }
    if status.start_time.is_none() {
        status.start_time = Some(time(view.now));
    }
    if !settled {
        status.accepted_spec = fingerprints(job.object);
    }
    set_condition(
        &mut status,
        ConditionType::Accepted,
        true,
        Reason::Valid,
        "The job is valid.",
        view.now,
    );
    status
}

fn deadline(job: &Job<'_>, status: &TrainingJobStatus) -> Option<Timestamp> {
    after(status.start_time.as_ref()?.0, job.active_deadline_seconds?)
}

fn phases(status: &TrainingJobStatus) -> Vec<RolePhase> {
    status.roles.iter().map(|role| role.phase).collect()
}

/// Writes the state of every role; returns the ends that made roles fail.
fn deduce_roles<'a>(job: &Job<'a>, seen: &Assessment<'a>, status: &mut TrainingJobStatus) -> Vec<Ended<'a>> {
    let mut roles = Vec::with_capacity(job.roles.len());
    let mut ends = Vec::new();
    for (role, this) in job.roles.iter().zip(&seen.roles) {
        let was = status
            .roles
            .iter()
            .find(|r| r.name == role.name)
            .map(|r| r.phase)
            .unwrap_or_default();
        let facts = RoleFacts {
            tally: this.tally,
            succeeded_when: role.succeeded_when,
            failed_when: role.failed_when,
            restart_policy: role.restart_policy,
            was,
        };
        let (phase, why) = deduce::role(&facts);
        if phase == RolePhase::Failed {
            ends.extend(this.final_ends.iter().copied());
        }
        let (reason, message) = explain(job, role, this, phase, why);
        let tally = this.tally;
        roles.push(RoleStatus {
            name: role.name.to_owned(),
            phase,
            reason,
            message,
            active: tally.active,
            ready: tally.ready,
            succeeded: tally.succeeded,
            failed: tally.failed,
            pending: tally.pending + tally.replacing + tally.missing,
            terminating: tally.terminating,
            succeeded_indices: indices::format(&this.done),
        });
    }
    let ready: i32 = roles.iter().map(|role| role.ready).sum();
    status.ready = Some(format!("{ready}/{}", job.total()));
    status.roles = roles;
    ends
}

fn explain(
    job: &Job<'_>,
    role: &Role<'_>,
    this: &RoleAssessment<'_>,
    phase: RolePhase,
    why: RoleWhy,
) -> (Option<String>, Option<String>) {
    let said = |reason: &str, message: String| {
        let mut message = message;
        truncate(&mut message, 2000);
        (Some(reason.to_owned()), Some(message))
    };
    let others = |pods: usize| {
        if pods > 1 {
            format!(" (and {} more pods)", pods - 1)
        } else {
            String::new()
        }
    };
    if why == RoleWhy::PodMissing {
        let missing = this.tally.missing;
        return said(
            Reason::PodMissing.as_str(),
            format!(
                "{missing} of {} pods that had been running are gone",
                role.replicas
            ),
        );
    }
    if let (RolePhase::Failed, Some(first)) = (phase, first(&this.final_ends)) {
        let reason = match first.end {
            End::NodeDown => Reason::PossibleNodeDown,
            End::Disruption => Reason::PodDisrupted,
            _ => Reason::PodFailed,
        };
        return said(
            reason.as_str(),
            format!("{}{}", describe(job, &first), others(this.final_ends.len())),
        );
    }
    if let (RolePhase::Pending | RolePhase::Starting, Some((row, trouble, pods))) = (phase, this.trouble) {
        return said(
            &trouble.reason,
            format!("{}: {}{}", row.name, trouble.message, others(pods)),
        );
    }
    if let (RolePhase::Running | RolePhase::Starting, Some(row)) = (phase, this.on_down_node) {
        let node = row.node.as_deref().unwrap_or("?");
        return said(
            Reason::PossibleNodeDown.as_str(),
            format!("{} is on {node}, which is down", row.name),
        );
    }
    (None, None)
}

/// The end that came first; where times are not known, the one of the first pod.
fn first<'a>(ends: &[Ended<'a>]) -> Option<Ended<'a>> {
    let time = |ended: &&Ended<'_>| {
        let at = ended
            .row
            .and_then(|row| row.end.as_ref())
            .and_then(|end| end.finished_at);
        (at.is_none(), at)
    };
    ends.iter().min_by_key(time).copied()
}

/// How a job ends.
struct Verdict<'a> {
    phase: JobPhase,
    reason: Reason,
    message: String,
    cause: Option<Ended<'a>>,
}

fn verdict<'a>(
    job: &Job<'a>,
    view: &View<'_>,
    seen: &Assessment<'a>,
    status: &TrainingJobStatus,
    phase: JobPhase,
    deadline: Option<Timestamp>,
    ends: &[Ended<'a>],
) -> Option<Verdict<'a>> {
    if phase == JobPhase::Succeeded {
        let message = "The job's rule for success holds.".to_owned();
        return Some(Verdict {
            phase,
            reason: Reason::RolesSucceeded,
            message,
            cause: None,
        });
    }
    if phase == JobPhase::Failed {
        let cause = first(ends);
        let roles = status.roles.iter().filter(|role| role.phase == RolePhase::Failed);
        let why = roles.map(|role| format!("{}: {}", role.name, role.message.as_deref().unwrap_or("failed")));
        let message = why.collect::<Vec<_>>().join("; ");
        return Some(Verdict {
            phase,
            reason: Reason::RolesFailed,
            message,
            cause,
        });
    }
    let failed = |reason, message, cause| {
        Some(Verdict {
            phase: JobPhase::Failed,
            reason,
            message,
            cause,
        })
    };
    if deadline.is_some_and(|deadline| deadline <= view.now) {
        let seconds = job.active_deadline_seconds.unwrap_or_default();
        return failed(
            Reason::DeadlineExceeded,
            format!("The job has not ended within {seconds} seconds (spec.runPolicy.activeDeadlineSeconds)."),
            None,
        );
    }
    let failures: Vec<Ended<'a>> = seen
        .uncounted
        .iter()
        .filter(|(_, cause)| *cause == RestartCause::Failure)
        .map(|(end, _)| *end)
        .collect();
    let spent = status.restarts.as_ref().map_or(0, |restarts| restarts.failures);
    let new = i32::try_from(failures.len()).unwrap_or(i32::MAX);
    if let Some(cause) = first(&failures).filter(|_| spent.saturating_add(new) > job.backoff_limit) {
        let message = format!(
            "{}; {spent} pods were replaced before, and spec.runPolicy.backoffLimit is {}.",
            describe(job, &cause),
            job.backoff_limit
        );
        return failed(Reason::BackoffLimitExceeded, message, Some(cause));
    }
    None
}

fn finish(
    job: &Job<'_>,
    view: &View<'_>,
    status: &mut TrainingJobStatus,
    verdict: Verdict<'_>,
    plan: &mut Plan,
) {
    let Verdict {
        phase,
        reason,
        message,
        cause,
    } = verdict;
    let failed = phase == JobPhase::Failed;
    status.phase = Some(phase);
    status.completion_time = Some(time(view.now));
    status.root_cause = cause.map(|cause| root_cause(job, &cause));
    if let Some(restarts) = &mut status.restarts {
        restarts.replacing.clear();
    }
    if job.clean_pod_policy != CleanPodPolicy::None {
        // These pods are removed next, and the status of a finished job is not written again.
        for role in &mut status.roles {
            (role.active, role.ready, role.pending, role.terminating) = (0, 0, 0, 0);
        }
        status.ready = Some(format!("0/{}", job.total()));
    }
    set_condition(
        status,
        ConditionType::Running,
        false,
        Reason::Finished,
        "The job has ended.",
        view.now,
    );
    let kind = if failed {
        ConditionType::Failed
    } else {
        ConditionType::Succeeded
    };
    set_condition(status, kind, true, reason, &*message, view.now);
    plan.events.push(note(failed, reason, message));
    plan.after = finished::clean(view, job.clean_pod_policy);
    plan.wake_at = None;
}

fn go_on(
    job: &Job<'_>,
    view: &View<'_>,
    seen: &mut Assessment<'_>,
    status: &mut TrainingJobStatus,
    phase: JobPhase,
    plan: &mut Plan,
) {
    status.phase = Some(phase);
    let (running, reason, message) = match phase {
        JobPhase::Running => (true, Reason::AllRolesRunning, "All roles run."),
        JobPhase::Restarting => (false, Reason::Restarting, "Pods that ended are being replaced."),
        _ => (false, Reason::Starting, "Not all pods run yet."),
    };
    set_condition(status, ConditionType::Running, running, reason, message, view.now);

    plan.actions = missing_services(job, view);
    plan.actions.append(&mut seen.actions);
    // A role that was made smaller while the job was suspended may have left pods behind.
    let foreign = view.pods.iter().filter(|row| job.key(&row.name).is_none());
    plan.actions
        .extend(foreign.filter_map(|row| removal(row, NodeState::Up)));
    count(job, view, seen, status, plan);
}

fn missing_services(job: &Job<'_>, view: &View<'_>) -> Vec<Action> {
    let exists = |name: &str| view.services.iter().any(|service| *service.name == *name);
    let keys = build::service_keys(job).into_iter();
    keys.filter(|key| !exists(&build::service_name(job.name, *key)))
        .map(Action::CreateService)
        .collect()
}

/// Counts the ends that are forgiven. The count is in status before a pod is touched, so that none counts twice.
fn count(
    job: &Job<'_>,
    view: &View<'_>,
    seen: &mut Assessment<'_>,
    status: &mut TrainingJobStatus,
    plan: &mut Plan,
) {
    let mut replacing = std::mem::take(&mut seen.replacing);
    let batch = MAX_REPLACING.saturating_sub(replacing.len());
    seen.uncounted.truncate(batch);
    if seen.uncounted.is_empty() && replacing.is_empty() && status.restarts.is_none() {
        return;
    }
    let mut restarts = status.restarts.take().unwrap_or_default();
    for (ended, cause) in &seen.uncounted {
        let pod = job.pod_name(ended.key);
        match cause {
            RestartCause::Failure => restarts.failures = restarts.failures.saturating_add(1),
            RestartCause::Disruption => restarts.disruptions = restarts.disruptions.saturating_add(1),
            RestartCause::Completion => {}
        }
        let not_before = restart::not_before(&restarts.history, &pod, view.now);
        if not_before.is_none() {
            plan.after.extend(match ended.row {
                Some(row) => {
                    let node = row
                        .node
                        .as_deref()
                        .map_or(NodeState::Up, |node| view.nodes.state(node));
                    removal(row, node)
                }
                None => Some(Action::CreatePod(ended.key)),
            });
        }
        plan.wake_at = earliest([plan.wake_at, not_before]);
        let cause_of_it = root_cause(job, ended);
        let mut reason = cause_of_it
            .reason
            .clone()
            .unwrap_or_else(|| Reason::PodDisrupted.as_str().to_owned());
        truncate(&mut reason, 128);
        restarts.history.push(RestartRecord {
            time: time(view.now),
            pod: pod.clone(),
            cause: *cause,
            exit_code: cause_of_it.exit_code,
            reason,
        });
        let uid = ended.row.map(|row| row.uid.to_string()).unwrap_or_default();
        replacing.push(Replacement {
            pod,
            uid,
            not_before: not_before.map(time),
        });
    }
    let surplus = restarts.history.len().saturating_sub(MAX_HISTORY);
    restarts.history.drain(..surplus);
    let ends: Vec<Ended<'_>> = seen.uncounted.iter().map(|(ended, _)| *ended).collect();
    if let Some(first) = first(&ends) {
        status.root_cause = Some(root_cause(job, &first));
        plan.events.push(replaced(job, &restarts, &first, ends.len()));
    }
    restarts.replacing = replacing;
    status.restarts = Some(Restarts { ..restarts });
}

fn replaced(job: &Job<'_>, restarts: &Restarts, first: &Ended<'_>, pods: usize) -> Note {
    let others = if pods > 1 {
        format!(" (and {} more pods)", pods - 1)
    } else {
        String::new()
    };
    let message = format!(
        "{}{others}: replaced. Failures so far: {} of {} allowed; disruptions: {}.",
        describe(job, first),
        restarts.failures,
        job.backoff_limit,
        restarts.disruptions
    );
    note(true, Reason::PodReplaced, message)
}
