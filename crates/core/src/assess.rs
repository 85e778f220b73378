//! Assesses every pod that a job should have: what it counts as, and what to do about it.

pub(crate) mod incident;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use trainyard_api::{
    JobPhase, PendingReplacement, RestartCause, RestartPolicy, Restarts, RolePhase, RoleStatus,
    TrainingJobStatus,
};
use trainyard_contract::start::WAITED_IN_VAIN;

use crate::agent;
use crate::deduce::Tally;
use crate::depends;
use crate::group_restart::{Beginning, Underway};
use crate::indices;
use crate::job::{Job, Role};
use crate::members::Members;
use crate::model::{Action, Awaited, PodKey};
use crate::replacements;
use crate::restart::{self, End};
use crate::scaling::{self, Evaded, RestartStage, accepted_members};
use crate::status::{given_up, time};
use crate::view::{NodeState, PodPhase, PodRow, Trouble, View};

/// A pod that has ended, finally or to be replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    pub key: PodKey,
    /// `None` if the pod was found missing.
    pub row: Option<&'a PodRow>,
    pub end: End,
    /// The pod is deleted. `row`, if there is one, is the pod as it was last seen.
    pub is_deleted: bool,
}

impl<'a> Ended<'a> {
    pub(crate) fn absent(key: PodKey) -> Self {
        Self {
            key,
            row: None,
            end: End::Disruption,
            is_deleted: true,
        }
    }

    pub(crate) fn present(key: PodKey, row: &'a PodRow, end: End) -> Self {
        Self {
            key,
            row: Some(row),
            end,
            is_deleted: false,
        }
    }

    /// When the pod ended or was asked to terminate; `None` if that is not known.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        let end = self.row?.end.as_deref()?;
        match self.end {
            End::Disruption => end.asked_at.or(end.finished_at),
            _ => end.finished_at,
        }
    }

    /// Returns true if the pod failed and that costs nothing.
    pub(crate) fn is_forgiven(&self, job: &Job<'_>) -> bool {
        matches!(self.end, End::Failure(_)) && job.forgives_failures(self.key.role)
    }

    /// Returns true if the pod counts as ended but its containers may still run.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.is_deleted && self.row.is_some_and(PodRow::may_run)
    }
}

/// An end that is retried, and is not counted in the status yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRestart<'a> {
    pub ended: Ended<'a>,
    /// The cause under which it is counted.
    pub cause: RestartCause,
    /// If this end is a consequence: the first pod of its incident. It then costs nothing more.
    pub consequence_of: Option<PodKey>,
}

/// What the pods of one role count as.
#[derive(Debug, Default)]
pub(crate) struct RoleAssessment<'a> {
    pub tally: Tally,
    /// The role had ended before, so its pods have no more effect on the job.
    pub has_ended: bool,
    /// Indices of pods that have succeeded.
    pub done: BTreeSet<i32>,
    /// Indices of pods that the status already lists as failed for good.
    pub recorded_failed: BTreeSet<i32>,
    /// How often each pod was replaced since the job was last calm.
    pub replaced: BTreeMap<i32, u32>,
    /// Indices of pods that ran, do not exist any more and will not be replaced.
    pub lost: BTreeSet<i32>,
    /// Ends whose replacement does not exist yet: the first one, when its replacement is due, and
    /// how many there are.
    pub retried: Option<(Ended<'a>, Option<Timestamp>, usize)>,
    /// How many pods are to be created now.
    pub to_create: usize,
    /// How many pods exist and wait for other roles.
    pub waiting: usize,
    /// Pods that run, or may start to, and were created from another template.
    pub outdated: Vec<(PodKey, &'a PodRow)>,
    /// Ends that are not retried.
    pub final_ends: Vec<Ended<'a>>,
    /// What keeps pods from running: the first such pod, its trouble, and how many such pods there
    /// are.
    pub trouble: Option<(&'a PodRow, &'a Trouble, usize)>,
    /// A running pod whose node is down.
    pub on_down_node: Option<&'a PodRow>,
}

/// What all pods of a job count as.
#[derive(Debug, Default)]
pub(crate) struct Assessment<'a> {
    pub roles: Vec<RoleAssessment<'a>>,
    /// Ends that are retried, and are not counted in the status yet.
    pub new_restarts: Vec<NewRestart<'a>>,
    /// Replacements that do not exist yet.
    pub replacing: Vec<PendingReplacement>,
    /// What can be done now.
    pub actions: Vec<Action>,
    /// Deletions of all pods, because the attempt is given up.
    pub given_up: Vec<Action>,
    /// When the next replacement is due.
    pub next_due: Option<Timestamp>,
    /// Pods whose end is final but is a consequence: the first pod of the incident, and its cause.
    pub final_consequences: BTreeMap<PodKey, (PodKey, RestartCause)>,
    /// The pods that start anew together because of an end that is counted now.
    pub group: Option<Beginning>,
    /// The pods that have left nodes which are about to go.
    pub evaded: Option<Evaded>,
}

impl Assessment<'_> {
    /// What is known of a pod that has left a node which is about to go. `None` for all others.
    pub(crate) fn evaded_of(&self, key: PodKey) -> Option<&Evaded> {
        self.evaded.as_ref().filter(|evaded| evaded.pods.contains(&key))
    }
}

/// Whether a job goes on, or all its pods are given up: because a name that the job needs is taken,
/// or because pods that would be created now could not talk to those that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The job goes on.
    GoesOn,
    /// The job has not run yet and its start is given up: pods that have not ended are deleted, and
    /// how they end does not count.
    GivenUp,
    /// All pods are given up, and the job starts again with new ones. Pods that had started and
    /// must not be restarted count as ended.
    StartsAnew,
}

pub(crate) fn assess<'a>(
    job: &Job<'a>,
    view: &View<'a>,
    prior: &TrainingJobStatus,
    attempt: Attempt,
    evaded: Option<&Evaded>,
) -> Assessment<'a> {
    let rows: HashMap<PodKey, &'a PodRow> = view
        .pods
        .iter()
        .filter_map(|row| job.key(&row.name).map(|key| (key, row)))
        .collect();
    // What happened in a former run, or in a start that was given up, does not count for this run.
    let starts_afresh =
        view.job.status.as_ref().is_some_and(|status| {
            status.phase.is_some_and(JobPhase::is_suspended) || given_up(status).is_some()
        });
    let departed: HashMap<&str, &'a PodRow> = view
        .departed
        .iter()
        .filter(|_| !starts_afresh)
        .map(|row| (&*row.name, row))
        .collect();
    let none = Restarts::default();
    let restarts = prior.restarts.as_ref().unwrap_or(&none);
    let counted: HashMap<&str, &PendingReplacement> = restarts
        .replacing
        .iter()
        .map(|entry| (entry.pod.as_str(), entry))
        .collect();
    let start = prior.start_time.as_ref().map(|start| start.0);
    let recent = restart::recent(&restarts.history, start, view.now);
    let stage = RestartStage::of_job(job, prior);
    let group = Underway::of(job, view, prior);
    let told = prior.scaling.as_deref();
    let told = told.filter(|_| stage == Some(RestartStage::Leaving));
    let told = told.map(|scaling| scaling::leaving_pods(job, scaling));
    let is_told = |key: &PodKey| told.as_ref().is_some_and(|told| told.contains(key));
    let mut assessment = Assessment {
        evaded: evaded.cloned(),
        next_due: group.as_ref().and_then(|group| group.due(view.now)),
        ..Assessment::default()
    };
    for (position, role) in job.roles.iter().enumerate() {
        let before = status_of(prior, role.name);
        let is_elastic = job.elastic.is_some_and(|elastic| elastic.role == position);
        let scaling = prior.scaling.as_deref().filter(|_| is_elastic);
        let joining = match stage {
            Some(RestartStage::Deleting | RestartStage::Joining) => role.members.iter().collect(),
            Some(RestartStage::Leaving) | None => scaling.map(scaling::joining).unwrap_or_default(),
        };
        let mut assessor = RoleAssessor {
            leaving: scaling.map(scaling::leaving).unwrap_or_default(),
            joining,
            job,
            view,
            role,
            attempt,
            failed_dependency: failed_dependency(job, role, prior),
            phase_before: before.map(|status| status.phase).unwrap_or_default(),
            accepted_members: accepted_members(view, role),
            group: group.as_ref().filter(|group| group.covers(position)),
            counted: &counted,
            departed: &departed,
            assessment: &mut assessment,
            this: RoleAssessment {
                replaced: replacements::of_role(job, position, before, recent),
                ..RoleAssessment::recorded(role, before)
            },
        };
        assessor.this.tally.needed = needed(job, position, role);
        for key in job.keys_of(position) {
            match (stage, rows.get(&key)) {
                (_, Some(row)) if role.is_former(row.attempt) => assessor.assess_deleted(Some(row)),
                (_, row) if is_told(&key) => assessor.assess_leaving(key, row.copied()),
                (Some(RestartStage::Deleting), row) => assessor.assess_deleted(row.copied()),
                (_, row) if evaded.is_some_and(|evaded| evaded.pods.contains(&key)) => {
                    assessor.assess_evaded(key, row.copied());
                }
                (_, Some(row)) => assessor.assess_existing(key, row),
                (_, None) => assessor.assess_missing(key),
            }
        }
        let this = assessor.this;
        assessment.roles.push(this);
    }
    incident::find_consequences(job, restarts, view.now, &mut assessment);
    if attempt != Attempt::GoesOn {
        // This includes surplus pods and pods whose end is counted: nothing is created while one
        // exists.
        let runs = view.pods.iter().filter(|row| row.may_run());
        assessment.given_up = runs.filter_map(|row| pod_deletion(row, view.node(row))).collect();
    }
    assessment
}

fn status_of<'s>(status: &'s TrainingJobStatus, role: &str) -> Option<&'s RoleStatus> {
    status.roles.iter().find(|status| status.name == role)
}

/// The position of a role that this role waits for and that can't reach the awaited state any more.
fn failed_dependency(job: &Job<'_>, role: &Role<'_>, prior: &TrainingJobStatus) -> Option<usize> {
    // The phases in the status are enough here: only final ones matter, and those do not change.
    let has_failed = |awaited: &&Awaited| {
        let other = job.roles.get(awaited.role);
        let other = other.and_then(|other| status_of(prior, other.name));
        other.is_some_and(|other| depends::is_waited_for_in_vain(other.phase))
    };
    let mut awaited = role.depends_on.iter();
    awaited.find(has_failed).map(|awaited| awaited.role)
}

impl RoleAssessment<'_> {
    /// What the status says about a role.
    fn recorded(role: &Role<'_>, status: Option<&RoleStatus>) -> Self {
        let parse = |indices: Option<&String>| {
            indices::parse(
                indices.map(String::as_str).unwrap_or_default(),
                role.members.end(),
            )
        };
        let mut recorded = Self {
            has_ended: status.is_some_and(|status| status.phase.is_terminal()),
            recorded_failed: parse(status.and_then(|status| status.failed_indices.as_ref())),
            ..Self::default()
        };
        recorded.tally.replicas = role.replicas();
        if role.restart_policy != RestartPolicy::Always {
            recorded.done = parse(status.and_then(|status| status.succeeded_indices.as_ref()));
        }
        recorded
    }
}

/// Assesses the pods of one role.
struct RoleAssessor<'a, 'b> {
    job: &'b Job<'a>,
    view: &'b View<'a>,
    role: &'b Role<'a>,
    attempt: Attempt,
    /// The position of a role that this role waits for and that can't reach the awaited state any
    /// more.
    failed_dependency: Option<usize>,
    phase_before: RolePhase,
    /// The pods that the role had when the job's spec was last accepted. Others are new to it.
    accepted_members: Members,
    /// The pods that were told to leave. How they end does not count.
    leaving: BTreeSet<i32>,
    /// The pods that join a role that runs. They may not exist yet.
    joining: BTreeSet<i32>,
    /// The restart of all its pods that is under way.
    group: Option<&'b Underway>,
    counted: &'b HashMap<&'b str, &'b PendingReplacement>,
    departed: &'b HashMap<&'b str, &'a PodRow>,
    assessment: &'b mut Assessment<'a>,
    this: RoleAssessment<'a>,
}

impl<'a> RoleAssessor<'a, '_> {
    fn was_running(&self) -> bool {
        self.phase_before == RolePhase::Running
    }

    /// Returns true if the end of a pod counts: it belongs to the role, and is neither new to it
    /// nor told to leave.
    fn is_counted_member(&self, index: i32) -> bool {
        self.accepted_members.contains(index)
            && !self.joining.contains(&index)
            && !self.leaving.contains(&index)
    }

    /// A deleted pod that was seen to end, unless that end is counted already.
    fn departed_pod(&self, key: PodKey) -> Option<Ended<'a>> {
        let name = self.job.pod_name(key);
        let row = *self
            .departed
            .get(&*name)
            .filter(|row| !self.role.is_former(row.attempt))?;
        let is_counted = self
            .counted
            .get(&*name)
            .is_some_and(|entry| *entry.uid == *row.uid);
        let end = restart::end(row, NodeState::Up, self.role.node_down_policy).filter(|_| !is_counted)?;
        Some(Ended {
            is_deleted: true,
            ..Ended::present(key, row, end)
        })
    }

    fn assess_missing(&mut self, key: PodKey) {
        let departed = (!self.departed.is_empty())
            .then(|| self.departed_pod(key))
            .flatten()
            // A pod of that index that left before is none of the role's.
            .filter(|_| self.is_counted_member(key.index));
        let succeeded = departed.is_some_and(|ended| ended.end == End::Success);
        if succeeded && self.role.restart_policy != RestartPolicy::Always {
            self.this.done.insert(key.index);
        }
        if self.this.done.contains(&key.index) {
            self.this.tally.succeeded += 1;
        } else if self.phase_before.is_terminal() {
            self.this.tally.to_create += 1;
        } else if let Some(awaited) = self.failed_dependency {
            self.add_dependency_failed(key, None, awaited);
        } else if let Some(ended) = departed.filter(|_| self.attempt == Attempt::GoesOn) {
            self.add_end(ended);
        } else if let Some(entry) = self.counted.get(self.job.pod_name(key).as_str()).copied() {
            self.this.tally.replacing += 1;
            self.assessment.replacing.push(PendingReplacement {
                leaving: false,
                ..entry.clone()
            });
            self.count_retried(Ended::absent(key), entry.not_before.as_ref().map(|at| at.0));
            if self.is_due(entry) {
                self.create(key);
            }
        } else if let Some(group) = self.group {
            self.this.tally.to_create += 1;
            if group.may_create(self.view.now) {
                self.assessment.actions.push(Action::CreatePod(key));
            }
        } else if !self.accepted_members.contains(key.index) || self.joining.contains(&key.index) {
            self.this.tally.to_create += 1;
            self.create(key);
        } else if self.was_running() && self.role.restart_policy == RestartPolicy::Never {
            self.this.tally.lost += 1;
            self.this.lost.insert(key.index);
        } else if self.was_running() {
            self.this.tally.replacing += 1;
            self.add_restart(Ended::absent(key), RestartCause::Disruption);
        } else {
            self.this.tally.to_create += 1;
            self.create(key);
        }
    }

    /// Counts a pod that can't start any more, whether it exists or not.
    fn add_dependency_failed(&mut self, key: PodKey, row: Option<&'a PodRow>, awaited: usize) {
        self.this.tally.failed += 1;
        self.this.final_ends.push(Ended {
            key,
            row,
            end: End::DependencyFailed(awaited),
            is_deleted: row.is_none(),
        });
    }

    fn add_restart(&mut self, ended: Ended<'a>, cause: RestartCause) {
        let earlier = self.this.replaced.get(&ended.key.index).copied();
        let due = restart::not_before(earlier.unwrap_or_default(), self.view.now);
        self.assessment.new_restarts.push(NewRestart {
            ended,
            cause,
            consequence_of: None,
        });
        self.count_retried(ended, due.map(|due| time(due).0));
    }

    fn count_retried(&mut self, ended: Ended<'a>, due: Option<Timestamp>) {
        let (_, _, pods) = self.this.retried.get_or_insert((ended, due, 0));
        *pods += 1;
    }

    fn create(&mut self, key: PodKey) {
        self.this.to_create += 1;
        self.assessment.actions.push(Action::CreatePod(key));
    }

    /// Counts a pod of a job whose pods all leave. How it ends does not count, and it is not
    /// replaced before all have left.
    fn assess_leaving(&mut self, key: PodKey, row: Option<&'a PodRow>) {
        let Some(row) = row else {
            self.this.tally.to_create += 1;
            return;
        };
        let node = self.view.node(row);
        if row.terminating {
            self.this.tally.terminating += 1;
        } else if restart::end(row, node, self.role.node_down_policy).is_some() {
            self.this.tally.replacing += 1;
        } else {
            self.assess_live(key, row, node);
            self.this.outdated.clear();
        }
    }

    /// Counts a pod that has left its node, or whose time is over. However it ended, it was taken
    /// away.
    fn assess_evaded(&mut self, key: PodKey, row: Option<&'a PodRow>) {
        self.add_end(match row {
            Some(row) => Ended::present(key, row, End::Disruption),
            None => Ended::absent(key),
        });
    }

    /// Deletes a pod that starts anew with others. None is created as long as one of them exists.
    fn assess_deleted(&mut self, row: Option<&'a PodRow>) {
        match row {
            None => self.this.tally.to_create += 1,
            Some(row) => {
                self.this.tally.terminating += 1;
                self.delete(row, self.view.node(row));
            }
        }
    }

    fn assess_existing(&mut self, key: PodKey, row: &'a PodRow) {
        let counted = self
            .counted
            .get(&*row.name)
            .copied()
            .filter(|entry| *entry.uid == *row.uid && !self.phase_before.is_terminal());
        let node = self.view.node(row);
        let end = restart::end(row, node, self.role.node_down_policy);
        if let Some(entry) = counted {
            let ended = Ended::present(key, row, end.unwrap_or(End::Disruption));
            count_replaced(&mut self.this.tally, &ended);
            self.assessment.replacing.push(entry.clone());
            self.count_retried(ended, entry.not_before.as_ref().map(|at| at.0));
            if self.is_due(entry) {
                self.delete(row, node);
            }
            return;
        }
        match end {
            // A pod that has succeeded and still exists may end in any way.
            _ if self.this.done.contains(&key.index) => self.this.tally.succeeded += 1,
            _ if row.terminating && self.attempt != Attempt::GoesOn => self.this.tally.terminating += 1,
            _ if row.terminating && self.leaving.contains(&key.index) => self.this.tally.terminating += 1,
            // The agent in the pod has said that the dependency failed, so a replacement would not
            // help.
            Some(End::Failure(_)) if let Some(awaited) = self.awaited_in_vain(row) => {
                self.add_dependency_failed(key, Some(row), awaited);
            }
            Some(end) => self.add_end(Ended::present(key, row, end)),
            None if self.attempt == Attempt::StartsAnew
                && self.role.restart_policy == RestartPolicy::Never
                && row.phase != PodPhase::Pending =>
            {
                self.add_end(Ended::present(key, row, End::SecretMissing));
            }
            None if self.attempt != Attempt::GoesOn => self.this.tally.terminating += 1,
            None if row.terminating => self.assess_terminating(key, row),
            None => self.assess_live(key, row, node),
        }
    }

    fn add_end(&mut self, ended: Ended<'a>) {
        let (key, end) = (ended.key, ended.end);
        let retried =
            restart::replacement(self.role.restart_policy, end).filter(|_| !self.phase_before.is_terminal());
        match (retried, end) {
            (Some(_), _) if ended.is_forgiven(self.job) => {
                count_replaced(&mut self.this.tally, &ended);
                self.add_restart(ended, RestartCause::Disruption);
            }
            (Some(cause), _) => {
                count_replaced(&mut self.this.tally, &ended);
                self.add_restart(ended, cause);
            }
            (None, End::Success) => {
                self.this.done.insert(key.index);
                self.this.tally.succeeded += 1;
            }
            (None, _) => {
                self.this.tally.failed += 1;
                self.this.final_ends.push(ended);
            }
        }
    }

    /// Counts a pod that somebody else deletes before it has ended. A pod that had not started
    /// loses nothing, and is created again without counting a restart.
    fn assess_terminating(&mut self, key: PodKey, row: &'a PodRow) {
        self.this.tally.terminating += 1;
        let had_started = self.was_running() || row.phase != PodPhase::Pending;
        let retried = restart::replacement(self.role.restart_policy, End::Disruption);
        if let Some(cause) = retried.filter(|_| had_started && !self.phase_before.is_terminal()) {
            self.add_restart(Ended::present(key, row, End::Disruption), cause);
        }
    }

    fn assess_live(&mut self, key: PodKey, row: &'a PodRow, node: NodeState) {
        let is_outdated = |passed_on: u64| passed_on != row.passed_on;
        if !row.labelled || self.job.passed_on.is_some_and(is_outdated) {
            // Without its labels, its Service does not select the pod.
            self.assessment.actions.push(Action::LabelPod {
                key,
                uid: row.uid.to_string(),
            });
        }
        let waits = !self.role.depends_on.is_empty() && !row.released;
        if matches!(row.phase, PodPhase::Running | PodPhase::Unknown) {
            self.this.tally.active += 1;
            self.this.tally.ready += i32::from(row.ready);
        } else if let Some(awaited) = self.failed_dependency.filter(|_| waits) {
            return self.add_dependency_failed(key, Some(row), awaited);
        } else {
            self.this.tally.pending += 1;
            self.this.waiting += usize::from(waits);
        }
        if let (Some(template), Some(wanted)) = (row.template, self.role.rolls_to)
            && template != wanted
            && !self.phase_before.is_terminal()
        {
            self.this.outdated.push((key, row));
        }
        if node != NodeState::Up {
            self.this.on_down_node.get_or_insert(row);
        }
        if let Some(trouble) = row.trouble.as_deref() {
            let (_, _, pods) = self.this.trouble.get_or_insert((row, trouble, 0));
            *pods += 1;
        }
    }

    /// If a pod ended because its agent gave up waiting: the position of the role that it waited
    /// for.
    fn awaited_in_vain(&self, row: &PodRow) -> Option<usize> {
        let end = row.end.as_deref()?;
        let gave_up = end.container.as_deref() == Some(agent::WAIT_CONTAINER)
            && end.exit_code == Some(i32::from(WAITED_IN_VAIN));
        let first = self.role.depends_on.first().map(|awaited| awaited.role);
        gave_up.then_some(self.failed_dependency.or(first)?)
    }

    fn is_due(&mut self, entry: &PendingReplacement) -> bool {
        match &entry.not_before {
            Some(time) if !restart::is_due(time.0, self.view.now) => {
                self.assessment.next_due =
                    Some(self.assessment.next_due.map_or(time.0, |next| next.min(time.0)));
                false
            }
            _ => true,
        }
    }

    fn delete(&mut self, row: &PodRow, node: NodeState) {
        self.assessment.actions.extend(pod_deletion(row, node));
    }
}

/// How many pods of a role must run for the role to run.
fn needed(job: &Job<'_>, position: usize, role: &Role<'_>) -> i32 {
    let elastic = job
        .elastic
        .filter(|elastic| elastic.role == position && !job.is_rigid());
    elastic.map_or(role.replicas(), |elastic| elastic.spec.min().min(role.replicas()))
}

/// Counts a pod that has ended and is replaced.
pub(crate) fn count_replaced(tally: &mut Tally, ended: &Ended<'_>) {
    if ended.row.is_some_and(|row| row.terminating && !ended.is_deleted) {
        tally.terminating += 1;
    } else {
        tally.replacing += 1;
    }
}

/// The deletion of a pod. `None` if the pod is terminating already and its node can finish that.
pub(crate) fn pod_deletion(row: &PodRow, node: NodeState) -> Option<Action> {
    let force = node == NodeState::Gone;
    (force || !row.terminating).then(|| Action::DeletePod {
        name: row.name.to_string(),
        uid: row.uid.to_string(),
        force,
    })
}
