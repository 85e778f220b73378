//! How many pods every role of a job has, and which: the one place that decides it.
//!
//! A change is recorded in the status before anything is done. Pods that join are created then.
//! Pods that leave an elastic role are told, and stay members of the role until they have left or
//! their time is over; only then are they deleted. While one change is under way no other begins.
//!
//! Where the framework is rigid, all pods of the job leave and start anew: see `rigid`. Of roles
//! that are not elastic, see `roles`.

mod evade;
mod leave;
mod rigid;
mod roles;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::{
    AcceptedRole, JobPhase, Refill, ScaleRequestRef, Scaling, ScalingStep, StartAt, TrainingJobStatus,
};

pub(crate) use evade::{Evaded, still_leaving};
use leave::Leave;

use crate::disruption_budget::EVICTION_INTERVAL;
use crate::indices;
use crate::job::{ElasticRole, Job, Role, members_of, retired_indices};
use crate::members::Members;
use crate::model::{ForcedRemoval, PodKey};
use crate::requested_size::RequestedSize;
use crate::restart;
use crate::status::time;
use crate::view::{NodeState, PodPhase, PodRow, View};

/// The time between two changes of size, so that changes of the target that come fast are one
/// change: every change makes most trainings begin a new round.
const COOL_DOWN: SignedDuration = SignedDuration::from_secs(2);

/// The pods that the roles of a job have from now on.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// Those of each role, by its position.
    pub members: Vec<Members>,
    /// The change of the elastic role, and pods that leave nodes which are about to go. `None` if
    /// the job is not elastic and has none of these.
    pub resize: Option<Resize>,
    /// What keeps a role from having as many pods as its spec says.
    pub waits_for: Option<String>,
}

/// The pods that the elastic role of a job has from now on, and the change that is under way.
#[derive(Debug)]
pub(crate) struct Resize {
    pub members: Members,
    pub scaling: Option<Scaling>,
    /// The target to which the size is fitted; `None` if the target is to be seen to later.
    pub target: Option<i32>,
    /// The change that is done with this plan.
    pub finished: Option<Scaling>,
    /// The change of whose pods all have left with this plan, or are not waited for any more, and
    /// how far those came that were there until now.
    pub drained: Option<Scaling>,
    /// Why the size stays as it is although the target has changed.
    pub refused: Option<String>,
    /// The request that is carried out with this plan.
    pub fulfilled: Option<ScaleRequestRef>,
    /// The pods that were told to leave, still run, and are not waited for any more.
    pub forced: BTreeMap<PodKey, ForcedRemoval>,
    /// Since when this process waits for pods to say that they know that they should leave.
    pub unacknowledged_since: Option<Instant>,
    /// Since when pods should leave their nodes and are not told yet.
    pub put_off_since: Option<Instant>,
    /// The pods that have left nodes which are about to go, and start anew with this plan.
    pub evaded: Option<Evaded>,
    /// When to decide again even if nothing changes.
    pub wake_at: Option<Timestamp>,
}

impl Resize {
    /// Nothing is done.
    fn unchanged(job: &Job<'_>) -> Self {
        let role = job.elastic.and_then(|elastic| job.roles.get(elastic.role));
        Self {
            members: role.map_or_else(|| Members::first(0), |role| role.members.clone()),
            scaling: None,
            target: None,
            finished: None,
            drained: None,
            refused: None,
            fulfilled: None,
            forced: BTreeMap::new(),
            unacknowledged_since: None,
            put_off_since: None,
            evaded: None,
            wake_at: None,
        }
    }
}

/// The indices of the pods that leave by a change of size.
pub(crate) fn leaving(scaling: &Scaling) -> BTreeSet<i32> {
    parse(scaling.victims.as_deref())
}

/// All pods of a job that were told to leave by a change of size.
pub(crate) fn leaving_pods(job: &Job<'_>, scaling: &Scaling) -> HashSet<PodKey> {
    let elastic = job.elastic.map(|elastic| (elastic.role, leaving(scaling)));
    let restarted = scaling.roles.iter().filter_map(|role| {
        let (position, _) = job.role(&role.name)?;
        Some((position, parse(role.victims.as_deref())))
    });
    let all = elastic.into_iter().chain(restarted);
    all.flat_map(|(role, set)| set.into_iter().map(move |index| PodKey { role, index }))
        .collect()
}

/// The indices of the pods that join by a change of size.
pub(crate) fn joining(scaling: &Scaling) -> BTreeSet<i32> {
    parse(scaling.joining.as_deref())
}

fn parse(text: Option<&str>) -> BTreeSet<i32> {
    indices::parse(text.unwrap_or_default(), i32::MAX)
}

/// Decides which pods every role of a job has, and about pods on nodes that are about to go.
pub(crate) fn decide(job: &Job<'_>, view: &View<'_>) -> Sizes {
    let resize = resize(job, view);
    let mut waits_for = None;
    let of_role = |(position, role): (usize, &Role<'_>)| match &resize {
        Some(resize) if job.elastic.is_some_and(|elastic| elastic.role == position) => resize.members.clone(),
        _ => {
            let size = roles::decide(job, view, (position, role));
            waits_for = waits_for
                .take()
                .or_else(|| Some(describe_wait(role, size.waits_for?)));
            size.members
        }
    };
    let members = job.roles.iter().enumerate().map(of_role).collect();
    Sizes {
        members,
        resize,
        waits_for,
    }
}

fn describe_wait(role: &Role<'_>, pod: &PodRow) -> String {
    format!(
        "The role {} gets {} pods when {} is deleted.",
        role.name, role.target, pod.name
    )
}

/// The pods that a role had when the job's spec was last accepted.
pub(crate) fn accepted_members(view: &View<'_>, role: &Role<'_>) -> Members {
    let accepted = view
        .job
        .status
        .as_ref()
        .and_then(|status| status.accepted.rules.as_ref());
    let mut roles = accepted.into_iter().flat_map(|rules| &rules.roles);
    let before = roles.find(|before| before.name == role.name);
    before.map_or_else(
        || role.members.clone(),
        |before| members_of(before.replicas, before.members.as_deref()),
    )
}

/// Returns true if a role has other pods than the status says.
pub(crate) fn is_resized(job: &Job<'_>, view: &View<'_>) -> bool {
    job.roles
        .iter()
        .any(|role| accepted_members(view, role) != role.members)
}

/// Returns true if a role has pods in a status that it did not have in the one before.
pub(crate) fn adds_members(before: &TrainingJobStatus, now: &TrainingJobStatus) -> bool {
    let of = |role: &AcceptedRole| members_of(role.replicas, role.members.as_deref());
    let roles = |status: &TrainingJobStatus| -> Vec<(String, Members)> {
        let accepted = status.accepted.rules.iter().flat_map(|rules| &rules.roles);
        accepted.map(|role| (role.name.clone(), of(role))).collect()
    };
    let former: HashMap<String, Members> = roles(before).into_iter().collect();
    let is_new = |(name, members): (String, Members)| {
        let former = former.get(&name);
        former.is_some_and(|former| members.iter().any(|index| !former.contains(index)))
    };
    roles(now).into_iter().any(is_new)
}

/// Decides about the size of an elastic job, and about pods on nodes that are about to go.
fn resize(job: &Job<'_>, view: &View<'_>) -> Option<Resize> {
    if let Some(resize) = evade::decide(job, view) {
        return Some(resize);
    }
    let decision = Decision::new(job, view)?;
    let status = view.job.status.as_ref();
    Some(match status.and_then(|status| status.scaling.as_deref()) {
        Some(scaling) if scaling.restarts_all() => decision.go_on_restarting(scaling),
        Some(scaling) if scaling.victims.is_some() => decision.drain(scaling),
        Some(scaling) => decision.join(scaling),
        None => decision.begin(),
    })
}

/// Chooses so many pods that leave, those that are asked for first, and says why these. `None` if
/// the job is not elastic.
pub(crate) fn choose_victims(
    job: &Job<'_>,
    view: &View<'_>,
    count: usize,
    asked_for: &BTreeSet<i32>,
) -> Option<(BTreeSet<i32>, String)> {
    Some(Decision::new(job, view)?.choose_victims(count, asked_for))
}

/// Chooses the indices of so many pods that join. `None` if the job is not elastic.
pub(crate) fn choose_joining(job: &Job<'_>, view: &View<'_>, count: usize) -> Option<BTreeSet<i32>> {
    Some(Decision::new(job, view)?.choose_joining(count, &BTreeSet::new()))
}

/// Why a job that runs keeps its size, whatever its target. `None` if it can change it.
pub(crate) fn refusal(job: &Job<'_>, view: &View<'_>) -> Option<String> {
    Decision::new(job, view)?.refusal()
}

/// Has all pods of a job leave in order before it is suspended, if they were made to. `None` if
/// nobody is waited for; without `scaling` if that is over with this plan.
pub(crate) fn leave_all(job: &Job<'_>, view: &View<'_>) -> Option<Resize> {
    if job.elastic.is_none() && job.drain_timeout_seconds.is_none() {
        return None;
    }
    let leave = Leave { job, view };
    let status = view.job.status.as_ref()?;
    let unchanged = Resize::unchanged(job);
    match status.scaling.as_deref() {
        _ if status.phase.is_some_and(has_started) => Some(Resize {
            scaling: Some(leave.begin("the job is suspended")?),
            ..unchanged
        }),
        Some(scaling) if RestartStage::of(scaling) == Some(RestartStage::Leaving) => {
            let state = leave.watch(scaling);
            let drained = state.drained();
            Some(Resize {
                scaling: (!state.is_over).then_some(state.scaling),
                drained,
                forced: state.forced,
                unacknowledged_since: state.unacknowledged_since,
                wake_at: state.wake_at,
                ..unchanged
            })
        }
        _ => None,
    }
}

/// Has all pods of a rigid job leave in order because one of them is taken away and still runs:
/// they may save their work together. `None` if they were not made to.
pub(crate) fn leave_with(job: &Job<'_>, view: &View<'_>, pod: &str) -> Option<Scaling> {
    let leave = Leave { job, view };
    leave
        .begin(&format!("{pod} is taken away"))
        .filter(|_| job.is_rigid())
}

/// What is under way for a job whose pods all start anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestartStage {
    /// All pods are told to leave, and none is replaced.
    Leaving,
    /// All pods are deleted, and none is created.
    Deleting,
    /// All pods are created.
    Joining,
}

impl RestartStage {
    /// The stage of the change that a status has. `None` if there is none, or not all pods start
    /// anew.
    pub(crate) fn of_job(job: &Job<'_>, status: &TrainingJobStatus) -> Option<Self> {
        let scaling = status.scaling.as_deref()?;
        Self::of(scaling).filter(|_| job.elastic.is_some() || scaling.evades())
    }

    /// The stage of a change. `None` if not all pods start anew.
    pub(crate) fn of(scaling: &Scaling) -> Option<Self> {
        scaling.restarts_all().then_some(match scaling.step {
            // They start anew by the count of their disruption.
            _ if scaling.evades() => Self::Leaving,
            ScalingStep::Restarting => Self::Deleting,
            ScalingStep::Joining => Self::Joining,
            ScalingStep::Requested | ScalingStep::Acknowledged | ScalingStep::CheckpointDone => Self::Leaving,
        })
    }
}

pub(crate) fn has_started(phase: JobPhase) -> bool {
    phase != JobPhase::Pending && !phase.is_suspended() && !phase.is_terminal()
}

struct Decision<'a, 'b> {
    job: &'b Job<'a>,
    view: &'b View<'a>,
    leave: Leave<'a, 'b>,
    elastic: ElasticRole<'a>,
    members: &'b Members,
    rows: HashMap<i32, &'b PodRow>,
}

impl<'a, 'b> Decision<'a, 'b> {
    fn new(job: &'b Job<'a>, view: &'b View<'a>) -> Option<Self> {
        let elastic = job.elastic?;
        let role = job.roles.get(elastic.role)?;
        let rows = view.pods.iter();
        Some(Self {
            job,
            view,
            leave: Leave { job, view },
            elastic,
            members: &role.members,
            rows: rows
                .filter_map(|row| Some((job.key(&row.name)?, row)))
                .filter(|(key, _)| key.role == elastic.role)
                .map(|(key, row)| (key.index, row))
                .collect(),
        })
    }

    fn row(&self, index: i32) -> Option<&PodRow> {
        self.rows.get(&index).copied()
    }

    fn unchanged(&self) -> Resize {
        Resize::unchanged(self.job)
    }

    /// Nothing is done but that a change is begun.
    fn unchanged_but(&self, scaling: Scaling) -> Resize {
        Resize {
            scaling: Some(scaling),
            target: Some(self.elastic.spec.replicas),
            ..self.unchanged()
        }
    }

    /// Begins a change of size if the target has changed.
    fn begin(&self) -> Resize {
        let (elastic, count) = (self.elastic.spec, self.members.count());
        let Some(target) = elastic.largest_size_within(elastic.replicas.max(elastic.min())) else {
            return self.unchanged();
        };
        let status = self.view.job.status.as_ref();
        let phase = status.and_then(|status| status.phase);
        let waits = elastic.start_at == Some(StartAt::Min) && phase == Some(JobPhase::Starting);
        let requested = RequestedSize::pending(self.view.job);
        let was_fitted =
            status.and_then(|status| status.target_replicas) == Some(elastic.replicas) && requested.is_none();
        if target == count || elastic.refill == Some(Refill::Never) && was_fitted && target > count {
            let has_begun = phase.is_some_and(has_started);
            return Resize {
                target: Some(elastic.replicas),
                fulfilled: requested.filter(|_| has_begun).map(|size| size.request),
                ..self.unchanged()
            };
        }
        if target > count && waits || !phase.is_some_and(has_started) {
            return self.unchanged();
        }
        if let Some(refusal) = self.refusal() {
            let message =
                format!("spec.elastic.replicas is {target}, and the job keeps its {count} pods: {refusal}");
            return Resize {
                refused: Some(message),
                ..self.unchanged()
            };
        }
        let last = status.and_then(|status| status.last_scale_time.as_ref());
        let refills = target > count && was_fitted;
        // The place may be that of a pod that has left a node which is drained.
        let pause = match self.job.drain_timeout_seconds {
            Some(_) if refills => EVICTION_INTERVAL,
            _ => COOL_DOWN,
        };
        let due = self
            .cool_until(last, pause)
            .max(self.refill_due(target).filter(|_| refills));
        if let Some(due) = due {
            return Resize {
                wake_at: Some(due),
                ..self.unchanged()
            };
        }
        if self.job.is_rigid() {
            self.begin_restart(target, requested)
        } else if target > count {
            self.begin_joining(target, requested)
        } else {
            self.begin_draining(target, requested)
        }
    }

    /// Until when no other change begins, after one at a time.
    fn cool_until(&self, last: Option<&Time>, pause: SignedDuration) -> Option<Timestamp> {
        // The clock may have gone back since.
        let last = last.filter(|last| last.0 <= self.view.now);
        let due = last.and_then(|last| last.0.checked_add(pause).ok());
        due.filter(|due| *due > self.view.now)
    }

    /// When the places of lost pods are taken by others, where losing them costs nothing that would
    /// end: the more often all have been lost, the later. `None`: at once.
    fn refill_due(&self, target: i32) -> Option<Timestamp> {
        if !self.job.forgives_failures(self.elastic.role) {
            return None;
        }
        let status = self.view.job.status.as_ref()?;
        let restarts = status.restarts.as_ref()?;
        let start = status.start_time.as_ref().map(|start| start.0);
        let losses = restart::recent(&restarts.history, start, self.view.now);
        let last = losses.last()?.time.0;
        let target = usize::try_from(target).unwrap_or_default().max(1);
        let rounds = retired_indices(status).len() / target;
        // Losses that are long ago, or came at once, are no pattern.
        let earlier = rounds.min(losses.len().saturating_sub(1));
        let due = restart::not_before(u32::try_from(earlier).unwrap_or(u32::MAX), last);
        due.filter(|due| !restart::is_due(*due, self.view.now))
    }

    fn begin_joining(&self, target: i32, requested: Option<RequestedSize>) -> Resize {
        let count = usize::try_from(target - self.members.count()).unwrap_or_default();
        let requested = requested.unwrap_or_default();
        let joining = self.choose_joining(count, &requested.joining());
        Resize {
            members: self.members.with(joining.iter().copied()),
            scaling: Some(Scaling {
                from: self.members.count(),
                to: target,
                step: ScalingStep::Joining,
                since: Some(time(self.view.now)),
                joining: indices::format(&joining),
                request: requested.into_request(),
                ..Scaling::default()
            }),
            target: Some(self.elastic.spec.replicas),
            ..self.unchanged()
        }
    }

    /// Chooses the indices of so many pods that join: those that are asked for, then the lowest.
    fn choose_joining(&self, count: usize, asked_for: &BTreeSet<i32>) -> BTreeSet<i32> {
        // A pod that has left may still exist, and its end is none of the new one's.
        let names: HashSet<&str> = self.view.pods.iter().map(|row| &*row.name).collect();
        let role = self.elastic.role;
        let is_taken = |index: i32| names.contains(&*self.job.pod_name(PodKey { role, index }));
        let status = self.view.job.status.as_ref();
        let retired = status.map(retired_indices).unwrap_or_default();
        // One that has left is told to leave as long as others do.
        let scaling = status.and_then(|status| status.scaling.as_deref());
        let leaving = scaling.map(leaving).unwrap_or_default();
        let is_free = |index: &i32| {
            let is_known = self.members.contains(*index) || retired.contains(index);
            !is_known && !leaving.contains(index) && !is_taken(*index)
        };
        let asked: BTreeSet<i32> = asked_for.iter().copied().filter(is_free).collect();
        let others = (0..).filter(|index| is_free(index) && !asked.contains(index));
        asked.iter().copied().chain(others).take(count).collect()
    }

    fn begin_draining(&self, target: i32, requested: Option<RequestedSize>) -> Resize {
        let count = usize::try_from(self.members.count() - target).unwrap_or_default();
        let requested = requested.unwrap_or_default();
        let asked_for = requested.leaving();
        let (victims, message) = self.choose_victims(count, &asked_for);
        self.unchanged_but(Scaling {
            from: self.members.count(),
            to: target,
            step: ScalingStep::Requested,
            since: Some(time(self.view.now)),
            deadline: self.leave.deadline(requested.drain_timeout_seconds),
            victims: indices::format(&victims),
            message: Some(message),
            request: requested.into_request(),
            ..Scaling::default()
        })
    }

    /// Chooses the pods that leave, and says why these.
    fn choose_victims(&self, count: usize, asked_for: &BTreeSet<i32>) -> (BTreeSet<i32>, String) {
        if self.job.is_rigid() {
            let indices: Vec<i32> = self.members.iter().collect();
            let last = indices.into_iter().rev().take(count).collect();
            return (last, "all pods start anew".to_owned());
        }
        let role = self.elastic.role;
        let may_leave = |index: &i32| {
            let index = *index;
            self.job.why_it_stays(PodKey { role, index }).is_none()
        };
        let mut candidates: Vec<(Preference, i32)> = self
            .members
            .iter()
            .filter(may_leave)
            .map(|index| {
                let is_asked_for = asked_for.contains(&index).then_some(Preference::AskedFor);
                (is_asked_for.unwrap_or_else(|| self.preference(index)), index)
            })
            .collect();
        candidates.sort_by_key(|(preference, index)| (*preference, std::cmp::Reverse(*index)));
        candidates.truncate(count);
        let mut reasons: Vec<String> = Vec::new();
        for preference in Preference::ALL {
            let chosen = candidates.iter().filter(|(why, _)| *why == preference);
            let set: BTreeSet<i32> = chosen.map(|(_, index)| *index).collect();
            if let Some(pods) = indices::format(&set) {
                reasons.push(format!("{}: {pods}", preference.describe()));
            }
        }
        let victims = candidates.into_iter().map(|(_, index)| index).collect();
        (victims, reasons.join("; "))
    }

    fn preference(&self, index: i32) -> Preference {
        match self.row(index) {
            None => Preference::NotRunning,
            Some(row) if row.phase == PodPhase::Pending => Preference::NotRunning,
            Some(row) if self.view.node(row) != NodeState::Up => Preference::OnDownNode,
            Some(row) if !row.ready => Preference::NotReady,
            Some(row) if self.view.notice(row).is_some() => Preference::OnLeavingNode,
            Some(_) => Preference::Last,
        }
    }

    /// Goes on with pods that join: it is done when all of them run.
    fn join(&self, scaling: &Scaling) -> Resize {
        let joining = joining(scaling);
        let done = self.done();
        let runs = |index: &i32| self.has_joined(*index, &done);
        let target = self.elastic.spec.replicas;
        if joining.iter().all(runs) {
            return Resize {
                finished: Some(scaling.clone()),
                fulfilled: scaling.request.clone(),
                ..self.unchanged()
            };
        }
        if target < self.members.count() {
            // The target has changed again. Pods that do not run yet leave without a word.
            let surplus = usize::try_from(self.members.count() - target).unwrap_or_default();
            let waiting = joining.iter().rev().filter(|index| !runs(index)).take(surplus);
            let dropped: BTreeSet<i32> = waiting.copied().collect();
            let joining: BTreeSet<i32> = joining.difference(&dropped).copied().collect();
            let members = self.members.without(|index| dropped.contains(&index));
            let to = members.count();
            // It is not what a request has asked for any more.
            let scaling = Scaling {
                to,
                joining: indices::format(&joining),
                request: None,
                ..scaling.clone()
            };
            let is_done = joining.iter().all(runs);
            return Resize {
                members,
                finished: is_done.then(|| scaling.clone()),
                scaling: (!is_done).then_some(scaling),
                target: Some(target),
                ..self.unchanged()
            };
        }
        Resize {
            scaling: Some(scaling.clone()),
            ..self.unchanged()
        }
    }

    /// Returns true if a pod that joins has started, or is not waited for.
    fn has_joined(&self, index: i32, done: &BTreeSet<i32>) -> bool {
        let row = self.row(index);
        // One that was lost and is not replaced is no member any more.
        let has_started = row.is_some_and(|row| row.phase != PodPhase::Pending);
        has_started || done.contains(&index) || !self.members.contains(index)
    }

    /// Returns true if all pods that join have.
    fn have_joined(&self, scaling: &Scaling) -> bool {
        let done = self.done();
        joining(scaling)
            .iter()
            .all(|index| self.has_joined(*index, &done))
    }

    /// The indices of pods that have succeeded: they may not exist any more.
    fn done(&self) -> BTreeSet<i32> {
        let name = self.job.roles.get(self.elastic.role).map(|role| role.name);
        let status = self.view.job.status.as_ref();
        let mut roles = status.into_iter().flat_map(|status| &status.roles);
        let role = roles.find(|role| Some(&*role.name) == name);
        parse(role.and_then(|role| role.succeeded_indices.as_deref()))
    }

    /// Goes on with pods that leave: each is a member until it has left, or its time is over.
    fn drain(&self, scaling: &Scaling) -> Resize {
        let victims = leaving(scaling);
        let rows = victims
            .iter()
            .filter_map(|index| Some((*index, self.row(*index)?)));
        let written = (scaling.acknowledged.as_deref(), scaling.checkpointed.as_deref());
        let (acknowledged, checkpointed) = self.leave.reports(rows, written);
        let over = self.leave.no_later(scaling);
        let deadline = over.as_ref().map(|deadline| deadline.0);
        let waits_since = self.view.local.waits.unacknowledged_since;
        let waits_since = waits_since.unwrap_or(self.view.instant);
        let silent_until = self.leave.silent_until(waits_since, deadline);
        let until = |index: i32| {
            if acknowledged.contains(&index) {
                deadline
            } else {
                Some(silent_until)
            }
        };
        let has_left = |index: i32| {
            let row = self.row(index);
            row.is_none_or(|row| self.leave.has_left(self.elastic.role, row))
        };
        let is_over = |index: i32| until(index).is_none_or(|until| until <= self.view.now);
        let members = self
            .members
            .without(|index| victims.contains(&index) && (has_left(index) || is_over(index)));
        let is_forced =
            |index: &i32| self.members.contains(*index) && !members.contains(*index) && !has_left(*index);
        let forced = victims.iter().copied().filter(is_forced).map(|index| {
            let role = self.elastic.role;
            let why = if acknowledged.contains(&index) {
                ForcedRemoval::TimedOut
            } else {
                ForcedRemoval::Silent
            };
            (PodKey { role, index }, why)
        });
        let forced = forced.collect();
        let staying = || victims.iter().filter(|index| members.contains(**index));
        let is_done = staying().next().is_none();
        // At the end, how far those came that leave last.
        let last = || victims.iter().filter(|index| self.members.contains(**index));
        let all_in = |set: &BTreeSet<i32>| {
            if is_done {
                last().all(|index| set.contains(index))
            } else {
                staying().all(|index| set.contains(index))
            }
        };
        let step = if all_in(&checkpointed) {
            ScalingStep::CheckpointDone
        } else if all_in(&acknowledged) {
            ScalingStep::Acknowledged
        } else {
            ScalingStep::Requested
        };
        let wake_at = staying().filter_map(|index| until(*index)).min();
        let is_silent = staying().any(|index| !acknowledged.contains(index));
        let scaling = Scaling {
            step,
            acknowledged: indices::format(&acknowledged),
            checkpointed: indices::format(&checkpointed),
            deadline: over,
            ..scaling.clone()
        };
        let drained = is_done.then(|| scaling.clone());
        if is_done && !self.have_joined(&scaling) {
            // The places of those that have left are still to be taken.
            return Resize {
                members,
                scaling: Some(Scaling {
                    step: ScalingStep::Joining,
                    deadline: None,
                    victims: None,
                    acknowledged: None,
                    checkpointed: None,
                    ..scaling
                }),
                drained,
                forced,
                ..self.unchanged()
            };
        }
        Resize {
            members,
            finished: drained.clone(),
            drained,
            fulfilled: scaling.request.clone().filter(|_| is_done),
            scaling: (!is_done).then_some(scaling),
            forced,
            unacknowledged_since: is_silent.then_some(waits_since),
            wake_at,
            ..self.unchanged()
        }
    }
}

/// Why a pod is chosen to leave: those that are lost least by come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Preference {
    AskedFor,
    NotRunning,
    OnDownNode,
    NotReady,
    OnLeavingNode,
    Last,
}

impl Preference {
    const ALL: [Self; 6] = [
        Self::AskedFor,
        Self::NotRunning,
        Self::OnDownNode,
        Self::NotReady,
        Self::OnLeavingNode,
        Self::Last,
    ];

    fn describe(self) -> &'static str {
        match self {
            Self::AskedFor => "asked for",
            Self::NotRunning => "do not run yet",
            Self::OnDownNode => "on a node that is down",
            Self::NotReady => "not ready",
            Self::OnLeavingNode => "on a node that is about to go",
            Self::Last => "the last ones",
        }
    }
}
