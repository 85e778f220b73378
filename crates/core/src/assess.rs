//! Every pod a job should have, looked at once: what it counts as, and what should be done about it.

pub(crate) mod incident;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use trainyard_api::{
    JobPhase, Replacement, RestartCause, RestartPolicy, Restarts, RolePhase, TrainingJobStatus,
};
use trainyard_contract::start::WAITED_IN_VAIN;

use crate::agent;
use crate::deduce::Tally;
use crate::depends;
use crate::indices;
use crate::job::{Job, Role};
use crate::model::{Action, Awaited, PodKey};
use crate::replacements;
use crate::restart::{self, End};
use crate::status::{given_up, time};
use crate::view::{NodeState, PodPhase, PodRow, Trouble, View};

/// An end of a pod that stands, or that is to be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    pub key: PodKey,
    /// `None`: the pod was found missing.
    pub row: Option<&'a PodRow>,
    pub end: End,
    /// It is gone; the row, if there is one, is what was last seen of it.
    pub is_gone: bool,
}

impl<'a> Ended<'a> {
    pub(crate) fn missing(key: PodKey) -> Self {
        Self {
            key,
            row: None,
            end: End::Disruption,
            is_gone: true,
        }
    }

    pub(crate) fn present(key: PodKey, row: &'a PodRow, end: End) -> Self {
        Self {
            key,
            row: Some(row),
            end,
            is_gone: false,
        }
    }

    /// When it ended, or was asked to, as far as that is known.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        let end = self.row?.end.as_deref()?;
        match self.end {
            End::Disruption => end.asked_at.or(end.finished_at),
            _ => end.finished_at,
        }
    }

    /// Whether it may still run, though it counts as ended.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.is_gone && self.row.is_some_and(PodRow::may_run)
    }
}

/// An end that is retried and not counted yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRestart<'a> {
    pub ended: Ended<'a>,
    /// What it is counted as.
    pub cause: RestartCause,
    /// The pod whose end it came of, if it did: it costs nothing more.
    pub follows: Option<PodKey>,
}

/// One role, looked at.
#[derive(Debug, Default)]
pub(crate) struct RoleAssessment<'a> {
    pub tally: Tally,
    /// It had ended before, and what becomes of its pods means nothing.
    pub has_ended: bool,
    /// Indices whose work is done.
    pub done: BTreeSet<i32>,
    /// Indices of pods of which it has been told that they failed for good.
    pub told_failed: BTreeSet<i32>,
    /// How often each pod was replaced since the job was last calm.
    pub replaced: BTreeMap<i32, u32>,
    /// Indices of pods that ran and are gone, and will not be replaced.
    pub lost: BTreeSet<i32>,
    /// Ends whose replacement does not exist yet: the first, when it is due, and how many there are.
    pub retried: Option<(Ended<'a>, Option<Timestamp>, usize)>,
    /// How many pods are to be made now.
    pub wanted: usize,
    /// How many pods exist and wait for other roles.
    pub held: usize,
    /// Pods that run, or are about to, and were made from another template.
    pub outdated: Vec<(PodKey, &'a PodRow)>,
    /// Ends that stand.
    pub final_ends: Vec<Ended<'a>>,
    /// What keeps a pod from running: the first such pod, and how many there are.
    pub trouble: Option<(&'a PodRow, &'a Trouble, usize)>,
    /// A running pod whose node is down.
    pub on_down_node: Option<&'a PodRow>,
}

/// A whole job, looked at.
#[derive(Debug, Default)]
pub(crate) struct Assessment<'a> {
    pub roles: Vec<RoleAssessment<'a>>,
    /// Ends that are retried and not counted yet.
    pub new_restarts: Vec<NewRestart<'a>>,
    /// Replacements that are still awaited; the others exist.
    pub replacing: Vec<Replacement>,
    /// What can be done now.
    pub actions: Vec<Action>,
    /// Pods that go because all are given up.
    pub given_up: Vec<Action>,
    /// When the next replacement is due.
    pub next: Option<Timestamp>,
    /// Pods whose end is final but was caused by another: that pod, and why it ended.
    pub followers: BTreeMap<PodKey, (PodKey, RestartCause)>,
}

/// Whether the job goes on, or its pods are given up because a name it needs is taken, or because those that would be made now
/// could not talk to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// It goes on.
    GoesOn,
    /// Its start is given up: pods that have not ended go, and how they end means nothing.
    GivenUp,
    /// The same of a job that has run. What has begun and must not be tried again has ended, then.
    StartsAnew,
}

pub(crate) fn assess<'a>(
    job: &Job<'a>,
    view: &View<'a>,
    prior: &TrainingJobStatus,
    attempt: Attempt,
) -> Assessment<'a> {
    let rows: HashMap<PodKey, &'a PodRow> = view
        .pods
        .iter()
        .filter_map(|row| job.key(&row.name).map(|key| (key, row)))
        .collect();
    // What a former run did, or a start that was given up, does not count for this one.
    let afresh =
        view.job.status.as_ref().is_some_and(|status| {
            status.phase.is_some_and(JobPhase::is_suspended) || given_up(status).is_some()
        });
    let departed: HashMap<&str, &'a PodRow> = view
        .departed
        .iter()
        .filter(|_| !afresh)
        .map(|row| (&*row.name, row))
        .collect();
    let none = Restarts::default();
    let restarts = prior.restarts.as_ref().unwrap_or(&none);
    let counted: HashMap<&str, &Replacement> = restarts
        .replacing
        .iter()
        .map(|entry| (entry.pod.as_str(), entry))
        .collect();
    let start = prior.start_time.as_ref().map(|start| start.0);
    let recent = restart::recent(&restarts.history, start, view.now);
    let mut all = Assessment::default();
    for (position, role) in job.roles.iter().enumerate() {
        let before = prior.roles.iter().find(|status| status.name == role.name);
        let written = |role: &str| prior.roles.iter().find(|status| status.name == role);
        // By the phases that are written, which are final where this matters.
        let failed = |awaited: &&Awaited| {
            let other = job.roles.get(awaited.role).and_then(|other| written(other.name));
            other.is_some_and(|other| depends::is_in_vain(other.phase))
        };
        let never = role.depends_on.iter().find(failed).map(|awaited| awaited.role);
        let mut look = Look {
            job,
            view,
            role,
            attempt,
            never,
            was: before.map(|status| status.phase).unwrap_or_default(),
            size: size_before(view, role),
            counted: &counted,
            departed: &departed,
            all: &mut all,
            this: RoleAssessment::default(),
        };
        look.this.tally.replicas = role.replicas;
        look.this.has_ended = look.was.is_terminal();
        look.this.replaced = replacements::of_role(job, position, before, recent);
        let written = |indices: Option<&String>| {
            indices::parse(indices.map(String::as_str).unwrap_or_default(), role.replicas)
        };
        look.this.told_failed = written(before.and_then(|status| status.failed_indices.as_ref()));
        if role.restart_policy != RestartPolicy::Always {
            look.this.done = written(before.and_then(|status| status.succeeded_indices.as_ref()));
        }
        for index in 0..role.replicas {
            let key = PodKey {
                role: position,
                index,
            };
            match rows.get(&key) {
                Some(row) => look.present(key, row),
                None => look.absent(key),
            }
        }
        let this = look.this;
        all.roles.push(this);
    }
    incident::trace(job, restarts, view.now, &mut all);
    if attempt != Attempt::GoesOn {
        // Also those that are too many, or whose end is counted: as long as one is there, none is made.
        let runs = view.pods.iter().filter(|row| row.may_run());
        all.given_up = runs.filter_map(|row| removal(row, view.node(row))).collect();
    }
    all
}

struct Look<'a, 'b> {
    job: &'b Job<'a>,
    view: &'b View<'a>,
    role: &'b Role<'a>,
    attempt: Attempt,
    /// The position of a role that the role waits for and that can't come to what it should any more.
    never: Option<usize>,
    was: RolePhase,
    /// How many pods the role had when the job's spec was last accepted: those from here on have not been counted on yet.
    size: i32,
    counted: &'b HashMap<&'b str, &'b Replacement>,
    departed: &'b HashMap<&'b str, &'a PodRow>,
    all: &'b mut Assessment<'a>,
    this: RoleAssessment<'a>,
}

impl<'a> Look<'a, '_> {
    fn was_running(&self) -> bool {
        self.was == RolePhase::Running
    }

    /// A pod that is gone and was seen to end, which is not counted yet.
    fn departed(&self, key: PodKey) -> Option<Ended<'a>> {
        let name = self.job.pod_name(key);
        let row = *self.departed.get(&*name)?;
        let is_counted = self
            .counted
            .get(&*name)
            .is_some_and(|entry| *entry.uid == *row.uid);
        let end = restart::end(row, NodeState::Up, self.role.node_down_policy).filter(|_| !is_counted)?;
        Some(Ended {
            is_gone: true,
            ..Ended::present(key, row, end)
        })
    }

    fn absent(&mut self, key: PodKey) {
        let departed = (!self.departed.is_empty()).then(|| self.departed(key)).flatten();
        let succeeded = departed.is_some_and(|ended| ended.end == End::Success);
        if succeeded && self.role.restart_policy != RestartPolicy::Always {
            self.this.done.insert(key.index);
        }
        if self.this.done.contains(&key.index) {
            self.this.tally.succeeded += 1;
        } else if self.was.is_terminal() {
            self.this.tally.missing += 1;
        } else if let Some(awaited) = self.never {
            self.unmet(key, None, awaited);
        } else if let Some(ended) =
            departed.filter(|_| self.attempt == Attempt::GoesOn && key.index < self.size)
        {
            self.ended(ended);
        } else if let Some(entry) = self.counted.get(self.job.pod_name(key).as_str()).copied() {
            self.this.tally.replacing += 1;
            self.all.replacing.push(Replacement {
                leaving: false,
                ..entry.clone()
            });
            self.retry(Ended::missing(key), entry.not_before.as_ref().map(|at| at.0));
            if self.due(entry) {
                self.want(key);
            }
        } else if key.index >= self.size {
            self.this.tally.missing += 1;
            self.want(key);
        } else if self.was_running() && self.role.restart_policy == RestartPolicy::Never {
            self.this.tally.lost += 1;
            self.this.lost.insert(key.index);
        } else if self.was_running() {
            self.this.tally.replacing += 1;
            self.restart(Ended::missing(key), RestartCause::Disruption);
        } else {
            self.this.tally.missing += 1;
            self.want(key);
        }
    }

    /// A pod that can't start any more, made or not.
    fn unmet(&mut self, key: PodKey, row: Option<&'a PodRow>, awaited: usize) {
        self.this.tally.failed += 1;
        self.this.final_ends.push(Ended {
            key,
            row,
            end: End::DependencyFailed(awaited),
            is_gone: row.is_none(),
        });
    }

    fn restart(&mut self, ended: Ended<'a>, cause: RestartCause) {
        let earlier = self.this.replaced.get(&ended.key.index).copied();
        let due = restart::not_before(earlier.unwrap_or_default(), self.view.now);
        self.all.new_restarts.push(NewRestart {
            ended,
            cause,
            follows: None,
        });
        self.retry(ended, due.map(|due| time(due).0));
    }

    fn retry(&mut self, ended: Ended<'a>, due: Option<Timestamp>) {
        let (_, _, pods) = self.this.retried.get_or_insert((ended, due, 0));
        *pods += 1;
    }

    fn want(&mut self, key: PodKey) {
        self.this.wanted += 1;
        self.all.actions.push(Action::CreatePod(key));
    }

    fn present(&mut self, key: PodKey, row: &'a PodRow) {
        let counted = self
            .counted
            .get(&*row.name)
            .copied()
            .filter(|entry| *entry.uid == *row.uid && !self.was.is_terminal());
        let node = self.view.node(row);
        let end = restart::end(row, node, self.role.node_down_policy);
        if let Some(entry) = counted {
            let ended = Ended::present(key, row, end.unwrap_or(End::Disruption));
            replace(&mut self.this.tally, &ended);
            self.all.replacing.push(entry.clone());
            self.retry(ended, entry.not_before.as_ref().map(|at| at.0));
            if self.due(entry) {
                self.remove(row, node);
            }
            return;
        }
        match end {
            // A pod that has done its work and lingers may end in any way.
            _ if self.this.done.contains(&key.index) => self.this.tally.succeeded += 1,
            _ if row.terminating && self.attempt != Attempt::GoesOn => self.this.tally.terminating += 1,
            _ if row.terminating && key.index >= self.size => self.returning(row),
            // Its agent says so: there is no use in another one.
            Some(End::Failure(_)) if let Some(awaited) = self.gave_up_waiting(row) => {
                self.unmet(key, Some(row), awaited);
            }
            Some(end) => self.ended(Ended::present(key, row, end)),
            None if self.attempt == Attempt::StartsAnew
                && self.role.restart_policy == RestartPolicy::Never
                && row.phase != PodPhase::Pending =>
            {
                self.ended(Ended::present(key, row, End::SecretMissing));
            }
            None if self.attempt != Attempt::GoesOn => self.this.tally.terminating += 1,
            None if row.terminating => self.leaving(key, row),
            None => self.live(key, row, node),
        }
    }

    fn ended(&mut self, ended: Ended<'a>) {
        let (key, end) = (ended.key, ended.end);
        let retried = restart::replacement(self.role.restart_policy, end).filter(|_| !self.was.is_terminal());
        match (retried, end) {
            (Some(cause), _) => {
                replace(&mut self.this.tally, &ended);
                self.restart(ended, cause);
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

    /// A pod that goes because the role was made smaller, and is to be made again: how it ends means nothing.
    fn returning(&mut self, row: &'a PodRow) {
        self.this.tally.terminating += 1;
        self.all.replacing.push(Replacement {
            pod: row.name.to_string(),
            uid: row.uid.to_string(),
            not_before: None,
            cause: None,
            leaving: false,
        });
    }

    /// Somebody else removes a pod that has not ended. One that had not started has nothing to lose, and is made again.
    fn leaving(&mut self, key: PodKey, row: &'a PodRow) {
        self.this.tally.terminating += 1;
        let had_started = self.was_running() || row.phase != PodPhase::Pending;
        let retried = restart::replacement(self.role.restart_policy, End::Disruption);
        if let Some(cause) = retried.filter(|_| had_started && !self.was.is_terminal()) {
            self.restart(Ended::present(key, row, End::Disruption), cause);
        }
    }

    fn live(&mut self, key: PodKey, row: &'a PodRow, node: NodeState) {
        if !row.labelled {
            // Without them its Service does not lead to it.
            self.all.actions.push(Action::LabelPod {
                key,
                uid: row.uid.to_string(),
            });
        }
        let waits = !self.role.depends_on.is_empty() && !row.released;
        if matches!(row.phase, PodPhase::Running | PodPhase::Unknown) {
            self.this.tally.active += 1;
            self.this.tally.ready += i32::from(row.ready);
        } else if let Some(awaited) = self.never.filter(|_| waits) {
            return self.unmet(key, Some(row), awaited);
        } else {
            self.this.tally.pending += 1;
            self.this.held += usize::from(waits);
        }
        if let (Some(template), Some(wanted)) = (row.template, self.role.rolls_to)
            && template != wanted
            && !self.was.is_terminal()
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

    /// The role that a pod waited for in vain, if that is how it ended.
    fn gave_up_waiting(&self, row: &PodRow) -> Option<usize> {
        let end = row.end.as_deref()?;
        let gave_up = end.container.as_deref() == Some(agent::WAIT_CONTAINER)
            && end.exit_code == Some(i32::from(WAITED_IN_VAIN));
        let first = self.role.depends_on.first().map(|awaited| awaited.role);
        gave_up.then_some(self.never.or(first)?)
    }

    fn due(&mut self, entry: &Replacement) -> bool {
        match &entry.not_before {
            Some(time) if time.0 > self.view.now => {
                self.all.next = Some(self.all.next.map_or(time.0, |next| next.min(time.0)));
                false
            }
            _ => true,
        }
    }

    fn remove(&mut self, row: &PodRow, node: NodeState) {
        self.all.actions.extend(removal(row, node));
    }
}

/// Counts a pod that has ended and is replaced.
pub(crate) fn replace(tally: &mut Tally, ended: &Ended<'_>) {
    if ended.row.is_some_and(|row| row.terminating && !ended.is_gone) {
        tally.terminating += 1;
    } else {
        tally.replacing += 1;
    }
}

/// How many pods a role had when the job's spec was last accepted.
pub(crate) fn size_before(view: &View<'_>, role: &Role<'_>) -> i32 {
    let accepted = view
        .job
        .status
        .as_ref()
        .and_then(|status| status.accepted_rules.as_ref());
    let mut roles = accepted.into_iter().flat_map(|rules| &rules.roles);
    let before = roles.find(|before| before.name == role.name);
    before.map_or(role.replicas, |before| before.replicas)
}

/// The deletion of a pod, unless it is under way and its node will see to it.
pub(crate) fn removal(row: &PodRow, node: NodeState) -> Option<Action> {
    let force = node == NodeState::Gone;
    (force || !row.terminating).then(|| Action::DeletePod {
        name: row.name.to_string(),
        uid: row.uid.to_string(),
        force,
    })
}
