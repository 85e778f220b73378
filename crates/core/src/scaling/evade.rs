//! Pods that leave nodes which are about to go, before somebody takes them away.
//!
//! Where pods can't go on without one that leaves, all of them are told, save their work together
//! and start anew: one disruption. That is so for pods that start anew together, and for all of an
//! elastic job if one has to leave that the others need, such as rank 0 or a launcher. Other pods
//! of an elastic role leave one by one, and others join in their places: see [`Decision::evade`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::{
    JobPhase, Reason, Refill, RestartScope, RestartedRole, Scaling, ScalingStep, TrainingJobStatus,
};

use super::leave::{ACKNOWLEDGE_TIMEOUT, Leave, stays};
use super::{Decision, Resize, joining, leaving, leaving_pods, parse};
use crate::disruption_budget::EVICTION_INTERVAL;
use crate::indices;
use crate::job::{Job, Role};
use crate::model::PodKey;
use crate::notice::Notice;
use crate::restart::{self, End};
use crate::status::time;
use crate::view::{NodeState, PodRow, View};

/// How many nodes are written down. The others are left all the same.
const MAX_NODES: usize = 64;
/// The longest message.
const MAX_MESSAGE: usize = 1024;

/// Pods that have left nodes which are about to go, and start anew with this plan.
#[derive(Clone, Debug)]
pub(crate) struct Evaded {
    /// All of them.
    pub pods: HashSet<PodKey>,
    /// The roles whose pods all start anew together.
    pub roles: BTreeSet<usize>,
    /// The nodes.
    pub nodes: Vec<String>,
    /// What the nodes said.
    pub why: String,
    /// The pod that others were counted with before.
    pub counted: Option<PodKey>,
}

impl Evaded {
    /// When whoever drains the nodes knows that the pods have left, and others may have their
    /// names.
    pub(crate) fn names_are_free_at(now: Timestamp) -> Option<Timestamp> {
        now.checked_add(EVICTION_INTERVAL).ok()
    }
}

/// What is written down of pods that have left and can't be counted with the others. The next plan
/// counts them.
pub(crate) fn still_leaving(
    job: &Job<'_>,
    view: &View<'_>,
    rest: &HashSet<PodKey>,
    is_none_counted: bool,
) -> Option<Scaling> {
    let before = view.job.status.as_ref()?.scaling.as_deref()?;
    let of_role = |told: &RestartedRole| {
        let (position, _) = job.role(&told.name)?;
        let keys = rest.iter().filter(|key| key.role == position);
        let victims = keys.map(|key| key.index).collect();
        Some(RestartedRole {
            victims: Some(indices::format(&victims)?),
            ..told.clone()
        })
    };
    let now = time(view.now);
    Some(Scaling {
        step: if is_none_counted {
            before.step
        } else {
            ScalingStep::Restarting
        },
        // It is over for the others, too.
        deadline: before.deadline.clone().into_iter().chain([now]).min(),
        roles: before.roles.iter().filter_map(of_role).collect(),
        ..before.clone()
    })
}

/// Decides about pods on nodes that are about to go. `None` if nothing is to be done about them.
pub(super) fn decide(job: &Job<'_>, view: &View<'_>) -> Option<Resize> {
    let status = view.job.status.as_ref()?;
    let evasion = Evasion {
        leave: Leave { job, view },
        job,
        view,
        status,
    };
    match status.scaling.as_deref() {
        Some(scaling) if scaling.evades() && scaling.restarts_all() => Some(evasion.go_on(scaling)),
        scaling => evasion.begin(scaling),
    }
}

struct Evasion<'a, 'b> {
    leave: Leave<'a, 'b>,
    job: &'b Job<'a>,
    view: &'b View<'a>,
    status: &'b TrainingJobStatus,
}

impl<'a> Evasion<'a, '_> {
    fn begin(&self, scaling: Option<&Scaling>) -> Option<Resize> {
        self.job.drain_timeout_seconds?;
        if !self.status.phase.is_some_and(has_run) || self.status.starts_anew() {
            return None;
        }
        if scaling.is_some_and(Scaling::restarts_all) {
            return None;
        }
        let affected = self.affected();
        if affected.is_empty() {
            return None;
        }
        let decision = Decision::new(self.job, self.view).filter(|_| !self.job.is_rigid());
        let Some(decision) = decision else {
            return self.begin_together(&affected);
        };
        let may_go =
            |key: &PodKey| key.role == decision.elastic.role && self.job.why_it_stays(*key).is_none();
        if affected.keys().all(may_go) {
            return decision.evade(scaling, &affected);
        }
        // Pods that leave already have a deadline, and the others are told once that is over, if
        // their nodes are still there then.
        let others = affected.iter().filter(|(key, _)| !may_go(key));
        let mut others = others.map(|(_, row)| *row);
        let leaves = scaling.filter(|scaling| scaling.victims.is_some());
        if leaves.is_some_and(|scaling| !others.any(|row| self.goes_before(scaling, row))) {
            return None;
        }
        self.begin_together(&affected)
    }

    /// The pods that run on nodes that are about to go, and those that somebody takes away though
    /// others can't go on without them.
    fn affected(&self) -> BTreeMap<PodKey, &'a PodRow> {
        let is_affected = |(key, row): &(PodKey, &PodRow)| {
            let Some(role) = self.job.roles.get(key.role) else {
                return false;
            };
            let leaves = self
                .view
                .notice(row)
                .is_some_and(|notice| !notice.spares(role.pod));
            let is_taken = row.terminating && role.restart_scope != RestartScope::Pod;
            stays(row)
                && self.view.node(row) == NodeState::Up
                && (is_taken || leaves && !row.terminating)
                && self.may_start_anew(*key, Some(row))
        };
        self.leave.rows().filter(is_affected).collect()
    }

    /// Returns true if another pod takes the place of one that leaves, and that is not under way.
    fn may_start_anew(&self, key: PodKey, row: Option<&PodRow>) -> bool {
        let Some(role) = self.job.roles.get(key.role) else {
            return false;
        };
        let known = self.status.roles.get(key.role);
        let has_ended = known.is_some_and(|role| role.phase.is_terminal());
        let joins = self.job.elastic.is_some_and(|elastic| elastic.role == key.role) && !self.job.is_rigid();
        let may_go = |row: &PodRow| {
            let restarts = self.status.restarts.iter();
            let mut replacing = restarts.flat_map(|restarts| &restarts.replacing);
            let is_counted = replacing.any(|entry| *entry.uid == *row.uid);
            !row.has_ended() && !role.is_former(row.attempt) && !is_counted
        };
        !has_ended && row.is_none_or(may_go) && (joins || is_replaced(role))
    }

    /// Tells all pods that can't go on without those that have to leave.
    fn begin_together(&self, affected: &BTreeMap<PodKey, &PodRow>) -> Option<Resize> {
        let has_ended = |(key, row): (PodKey, &PodRow)| {
            let role = self.job.roles.get(key.role);
            let is_former = role.is_some_and(|role| role.is_former(row.attempt));
            let is_bad = self.end(key, row).is_some_and(|end| end != End::Success);
            is_bad && !is_former && self.starts_together(key.role)
        };
        let roles = self.tell_too(&[], affected);
        // Where one has ended already, nobody can save anything together with it.
        if roles.is_empty() || self.leave.rows().any(has_ended) {
            return None;
        }
        let scaling = self
            .leave
            .tell(roles, self.why(affected), self.leave.deadline(None));
        Some(Resize {
            scaling: Some(self.on_nodes(scaling, affected)),
            ..Resize::unchanged(self.job)
        })
    }

    /// Goes on with pods that were told, and tells those on other nodes that are about to go, too.
    fn go_on(&self, scaling: &Scaling) -> Resize {
        let known = leaving_pods(self.job, scaling);
        let is_counted = scaling.step == ScalingStep::Restarting;
        let mut affected = self.affected();
        affected.retain(|key, row| known.contains(key) || !is_counted && self.joins_late(scaling, *key, row));
        let scaling = self.on_nodes(scaling.clone(), &affected);
        affected.retain(|key, _| !known.contains(key));
        if !affected.is_empty() {
            let roles = self.tell_too(&scaling.roles, &affected);
            if roles != scaling.roles {
                // Those that are told now may take as long as the others to say that they know.
                return Resize {
                    wake_at: scaling.deadline.as_ref().map(|deadline| deadline.0),
                    scaling: Some(Scaling { roles, ..scaling }),
                    ..Resize::unchanged(self.job)
                };
            }
        }
        let state = self.leave.watch(&scaling);
        // Users and metrics have been told before of those that some were counted without.
        let drained = state.drained().filter(|_| !is_counted);
        Resize {
            evaded: state.is_over.then(|| self.evaded(&scaling)),
            drained,
            scaling: (!state.is_over).then_some(state.scaling),
            forced: if is_counted { BTreeMap::new() } else { state.forced },
            unacknowledged_since: state.unacknowledged_since,
            wake_at: state.wake_at,
            ..Resize::unchanged(self.job)
        }
    }

    /// Returns true if a pod that was not told leaves with those that were.
    ///
    /// One that others go on without waits until those have left: their time is none of its own,
    /// unless it has just begun, or its node goes before it is over.
    fn joins_late(&self, scaling: &Scaling, key: PodKey, row: &PodRow) -> bool {
        let since = scaling.since.as_ref().map(|since| since.0);
        let until = since.and_then(|since| since.checked_add(ACKNOWLEDGE_TIMEOUT).ok());
        let has_begun_now = until.is_some_and(|until| self.view.now < until);
        self.starts_together(key.role) || has_begun_now || self.goes_before(scaling, row)
    }

    /// Returns true if the node of a pod goes before the time of those is over that leave.
    fn goes_before(&self, scaling: &Scaling, row: &PodRow) -> bool {
        let over = scaling.deadline.as_ref().map(|deadline| deadline.0);
        let notice = self.view.notice(row);
        let announced = notice.and_then(|notice| notice.deadline(self.view.now));
        announced
            .zip(over)
            .is_some_and(|(announced, over)| announced < over)
    }

    /// Adds the pods that can't go on without some to those that were told.
    fn tell_too(&self, told: &[RestartedRole], affected: &BTreeMap<PodKey, &PodRow>) -> Vec<RestartedRole> {
        let rows: HashMap<PodKey, &PodRow> = self.leave.rows().collect();
        let leaves = |key: &PodKey| {
            let row = rows.get(key).copied();
            let goes_on = if self.starts_together(key.role) {
                self.may_start_anew(*key, None) && !self.has_succeeded(*key, row)
            } else {
                row.is_some_and(|row| self.may_start_anew(*key, Some(row)))
            };
            let role = self.job.roles.get(key.role);
            goes_on
                && role.is_some_and(is_replaced)
                && affected.keys().any(|other| self.ends_with(*other, *key))
        };
        let mut victims: BTreeMap<usize, BTreeSet<i32>> = BTreeMap::new();
        for key in self.job.keys().filter(leaves) {
            victims.entry(key.role).or_default().insert(key.index);
        }
        let roles = self.job.roles.iter().enumerate();
        roles
            .filter_map(|(position, role)| {
                let known = told.iter().find(|known| known.name == role.name).cloned();
                let mut all = victims.remove(&position).unwrap_or_default();
                all.extend(known.iter().flat_map(|known| parse(known.victims.as_deref())));
                Some(RestartedRole {
                    name: role.name.to_owned(),
                    victims: Some(indices::format(&all)?),
                    ..known.unwrap_or_default()
                })
            })
            .collect()
    }

    /// Returns true if the pods of a role start anew together when this is over.
    fn starts_together(&self, role: usize) -> bool {
        let is_joined = self.job.elastic.is_some() && !self.job.is_rigid();
        let scope = self.job.roles.get(role).map(|role| role.restart_scope);
        is_joined || scope.is_some_and(|scope| scope != RestartScope::Pod)
    }

    /// Returns true if a pod can't go on without one that leaves.
    fn ends_with(&self, leaving: PodKey, other: PodKey) -> bool {
        let is_joined = self.job.elastic.is_some() && !self.job.is_rigid();
        match self.job.roles.get(leaving.role).map(|role| role.restart_scope) {
            _ if is_joined => true,
            Some(RestartScope::Job) => true,
            Some(RestartScope::Role) => leaving.role == other.role,
            Some(RestartScope::Pod) | None => leaving == other,
        }
    }

    /// How a pod has ended. One that was asked to go before has not done its work.
    fn end(&self, key: PodKey, row: &PodRow) -> Option<End> {
        let role = self.job.roles.get(key.role)?;
        restart::end(row, self.view.node(row), role.node_down_policy)
    }

    /// Returns true if a pod has done its work, for good.
    fn has_succeeded(&self, key: PodKey, row: Option<&PodRow>) -> bool {
        let role = self.status.roles.get(key.role);
        let done = role.and_then(|role| role.succeeded_indices.as_deref());
        let end = row.and_then(|row| self.end(key, row));
        let rules = self.job.roles.get(key.role);
        let stays =
            rules.is_some_and(|role| restart::replacement(role.restart_policy, End::Success).is_none());
        stays && (parse(done).contains(&key.index) || end == Some(End::Success))
    }

    /// Adds the nodes of pods that have to leave, and by when.
    fn on_nodes(&self, mut scaling: Scaling, affected: &BTreeMap<PodKey, &PodRow>) -> Scaling {
        let rows = affected.values();
        let is_news = add_nodes(&mut scaling, rows.clone().filter_map(|row| row.node.as_deref()));
        if is_news {
            scaling.message = Some(self.why(affected));
        }
        let notices = rows.filter_map(|row| self.view.notice(row));
        hasten(&mut scaling, notices, self.view.now);
        scaling
    }

    fn why(&self, affected: &BTreeMap<PodKey, &PodRow>) -> String {
        let says = |(key, row): (&PodKey, &&PodRow)| match (self.view.notice(row), row.node.as_deref()) {
            (Some(notice), Some(node)) => notice.describe(node),
            _ => format!("{} is taken away", self.job.pod_name(*key)),
        };
        sentence(affected.iter().map(says))
    }

    /// The pod that those are counted with which leave now. `None` if none is counted yet.
    fn counted(&self) -> Option<PodKey> {
        self.status
            .scaling
            .as_deref()
            .filter(|scaling| scaling.step == ScalingStep::Restarting)?;
        let restarts = self.status.restarts.as_ref()?;
        let mut history = restarts.history.iter().rev();
        let record = history.find(|record| record.reason == Reason::NodeDrained.as_str())?;
        self.job.key(&record.pod)
    }

    /// All that have left, or whose time is over, start anew.
    fn evaded(&self, scaling: &Scaling) -> Evaded {
        let together = |(position, role): (usize, &Role<'_>)| {
            let is_told = scaling.roles.iter().any(|told| told.name == role.name);
            (is_told && self.starts_together(position)).then_some(position)
        };
        Evaded {
            pods: leaving_pods(self.job, scaling),
            roles: self.job.roles.iter().enumerate().filter_map(together).collect(),
            nodes: scaling.nodes.clone(),
            why: scaling.message.clone().unwrap_or_default(),
            counted: self.counted(),
        }
    }
}

impl Decision<'_, '_> {
    /// Has pods of the elastic role leave nodes that are about to go, while the others train on.
    ///
    /// Others join in their places at once, if the training can have so many pods. Otherwise the
    /// places are filled when they have left. In both cases no more leave than it can do without.
    /// What would make too few of them is put off until enough others have joined, or just before
    /// the time of the pods is over.
    fn evade(&self, scaling: Option<&Scaling>, affected: &BTreeMap<PodKey, &PodRow>) -> Option<Resize> {
        let known = scaling.map(leaving).unwrap_or_default();
        let wanted: BTreeSet<i32> = affected.keys().map(|key| key.index).collect();
        let new: BTreeSet<i32> = wanted.difference(&known).copied().collect();
        if new.is_empty() {
            return None;
        }
        let early = self.join_early(scaling, &known, new.len());
        let (victims, wait) = match early {
            Some(_) => self.spare_running(&new, &known, affected),
            None => self.spare(&new, &known, affected),
        };
        if victims.is_empty() && early.as_ref().is_none_or(BTreeSet::is_empty) {
            return Some(self.put_off(wait?));
        }
        let says = |row: &&PodRow| Some(self.view.notice(row)?.describe(row.node.as_deref()?));
        let rows_of = |chosen: &BTreeSet<i32>| -> Vec<&PodRow> {
            let rows = affected.iter().filter(|(key, _)| chosen.contains(&key.index));
            rows.map(|(_, row)| *row).collect()
        };
        // Nobody may be told yet, and others join already.
        let known_by = rows_of(if victims.is_empty() { &new } else { &victims });
        let (last, waits) = if victims == new {
            (wait, None)
        } else {
            (None, wait)
        };
        let deadline = last.and_then(|last| last.checked_add(ACKNOWLEDGE_TIMEOUT).ok());
        let deadline = deadline.map(time).or_else(|| self.leave.deadline(None));
        let mut scaling = self.told(scaling, &known, &victims, early.as_ref(), deadline);
        add_nodes(
            &mut scaling,
            known_by.iter().filter_map(|row| row.node.as_deref()),
        );
        scaling.message = Some(sentence(known_by.iter().filter_map(says)));
        let told = rows_of(&victims);
        let notices = told.iter().filter_map(|row| self.view.notice(row));
        hasten(&mut scaling, notices, self.view.now);
        let since = self.view.local.waits.put_off_since.unwrap_or(self.view.instant);
        Some(Resize {
            members: self.members.with(early.unwrap_or_default()),
            scaling: Some(scaling),
            put_off_since: waits.map(|_| since),
            wake_at: waits,
            ..self.unchanged()
        })
    }

    /// The pods that join in the places of some that have to leave, before those have left. `None`
    /// if the training can't have so many.
    fn join_early(
        &self,
        scaling: Option<&Scaling>,
        known: &BTreeSet<i32>,
        leaving: usize,
    ) -> Option<BTreeSet<i32>> {
        let (elastic, count) = (self.elastic.spec, self.members.count());
        let wanted = count.min(elastic.replicas.max(elastic.min()));
        let to = scaling.map_or(wanted, |scaling| scaling.to);
        let to = usize::try_from(to).unwrap_or_default();
        let others = self.members.iter().filter(|index| !known.contains(index));
        let missing = to.saturating_sub(others.count().saturating_sub(leaving));
        let grown = count.saturating_add(i32::try_from(missing).unwrap_or(i32::MAX));
        let fits = missing == 0 || elastic.is_valid_size(grown);
        let joins = elastic.refill != Some(Refill::Never) && fits;
        joins.then(|| self.choose_joining(missing, &BTreeSet::new()))
    }

    /// The change that is under way, or a new one, with more pods that leave and join.
    fn told(
        &self,
        scaling: Option<&Scaling>,
        known: &BTreeSet<i32>,
        victims: &BTreeSet<i32>,
        early: Option<&BTreeSet<i32>>,
        deadline: Option<Time>,
    ) -> Scaling {
        let count = self.members.count();
        let before = scaling.cloned().unwrap_or_else(|| Scaling {
            from: count,
            to: count,
            since: Some(time(self.view.now)),
            ..Scaling::default()
        });
        let fewer = i32::try_from(victims.len()).unwrap_or_default();
        let mut all_joining = joining(&before);
        all_joining.extend(early.into_iter().flatten());
        let leaving = indices::format(&known.union(victims).copied().collect());
        // Nobody has more time because others leave, too.
        let deadline = before.deadline.clone().into_iter().chain(deadline).min();
        Scaling {
            to: if early.is_some() {
                before.to
            } else {
                (before.to - fewer).max(0)
            },
            step: if leaving.is_some() {
                ScalingStep::Requested
            } else {
                ScalingStep::Joining
            },
            deadline: deadline.filter(|_| leaving.is_some()),
            victims: leaving,
            joining: indices::format(&all_joining),
            ..before
        }
    }

    /// The pods without which enough run while others join in their places, or all of them if their
    /// time is nearly over; and until when the others wait.
    fn spare_running(
        &self,
        new: &BTreeSet<i32>,
        known: &BTreeSet<i32>,
        affected: &BTreeMap<PodKey, &PodRow>,
    ) -> (BTreeSet<i32>, Option<Timestamp>) {
        let done = self.done();
        let runs = |index: &i32| !known.contains(index) && self.has_joined(*index, &done);
        let running = self.members.iter().filter(runs).count();
        let running = i32::try_from(running).unwrap_or(i32::MAX);
        let elastic = self.elastic.spec;
        let rest = running.saturating_sub(i32::try_from(new.len()).unwrap_or(i32::MAX));
        // The others train on with a size that the training can have.
        let valid = (rest..=running).find(|size| elastic.is_valid_size(*size));
        let fewer = running - valid.unwrap_or_else(|| rest.max(elastic.min()));
        let fewer = usize::try_from(fewer).unwrap_or_default();
        if fewer >= new.len() {
            return (new.clone(), None);
        }
        let some = new.iter().rev().take(fewer).copied().collect();
        self.all_at_last(new, some, affected)
    }

    /// The pods without which the training can go on, or all of them if their time is nearly over.
    /// Otherwise, until when to wait.
    fn spare(
        &self,
        new: &BTreeSet<i32>,
        known: &BTreeSet<i32>,
        affected: &BTreeMap<PodKey, &PodRow>,
    ) -> (BTreeSet<i32>, Option<Timestamp>) {
        let elastic = self.elastic.spec;
        let gone = known
            .iter()
            .filter(|index| self.members.contains(**index))
            .count();
        let staying = self.members.count() - i32::try_from(gone).unwrap_or_default();
        let many = i32::try_from(new.len()).unwrap_or(i32::MAX);
        let fitting = elastic.largest_size_within(staying.saturating_sub(many));
        let to = fitting.unwrap_or_else(|| elastic.min());
        let fewer = usize::try_from(staying - to).unwrap_or_default();
        if fewer > 0 && known.is_empty() {
            return (self.choose_victims(fewer, new).0, None);
        }
        if fewer > 0 {
            return (new.iter().rev().take(fewer).copied().collect(), None);
        }
        self.all_at_last(new, BTreeSet::new(), affected)
    }

    /// Some of the pods, or all of them if their time is nearly over; and when it is.
    fn all_at_last(
        &self,
        all: &BTreeSet<i32>,
        some: BTreeSet<i32>,
        affected: &BTreeMap<PodKey, &PodRow>,
    ) -> (BTreeSet<i32>, Option<Timestamp>) {
        let until = self.last_moment(affected);
        let is_due = until.is_none_or(|until| until <= self.view.now);
        (if is_due { all.clone() } else { some }, until)
    }

    /// When those are told at the latest whose leaving makes too few: so long before the time of
    /// the pods is over that they can say that they know.
    fn last_moment(&self, affected: &BTreeMap<PodKey, &PodRow>) -> Option<Timestamp> {
        let since = self.view.local.waits.put_off_since.unwrap_or(self.view.instant);
        let waited = self.view.instant.saturating_duration_since(since);
        let began = self.view.now.checked_sub(waited).ok()?;
        let timeout = SignedDuration::from_secs(self.job.drain_timeout_seconds.unwrap_or_default());
        let rows = affected.values().filter_map(|row| self.view.notice(row));
        let announced = rows.filter_map(|notice| notice.deadline(began));
        let over = announced.chain(began.checked_add(timeout).ok()).min()?;
        over.checked_sub(ACKNOWLEDGE_TIMEOUT).ok()
    }

    /// Nobody is told before a moment. Meanwhile what is under way goes on.
    fn put_off(&self, until: Timestamp) -> Resize {
        let resize = match self
            .view
            .job
            .status
            .as_ref()
            .and_then(|status| status.scaling.as_deref())
        {
            Some(scaling) if scaling.victims.is_some() => self.drain(scaling),
            // They join in the places of those that wait.
            Some(scaling) if scaling.evades() => Resize {
                scaling: Some(scaling.clone()),
                ..self.unchanged()
            },
            Some(scaling) => self.join(scaling),
            None => self.begin(),
        };
        let since = self.view.local.waits.put_off_since.unwrap_or(self.view.instant);
        Resize {
            put_off_since: Some(since),
            wake_at: resize.wake_at.into_iter().chain([until]).min(),
            ..resize
        }
    }
}

/// Returns true for a job that runs, or did. One that starts has nothing to save.
fn has_run(phase: JobPhase) -> bool {
    use JobPhase::{Paused, Restarting, Running, Scaling};
    matches!(phase, Running | Scaling | Restarting | Paused)
}

/// Returns true if a pod of a role is replaced when it is taken away.
fn is_replaced(role: &Role<'_>) -> bool {
    restart::replacement(role.restart_policy, End::Disruption).is_some()
}

/// Adds nodes to those that are left. Returns true if one is new.
fn add_nodes<'n>(scaling: &mut Scaling, nodes: impl Iterator<Item = &'n str>) -> bool {
    let before = scaling.nodes.len();
    let mut all: BTreeSet<String> = std::mem::take(&mut scaling.nodes).into_iter().collect();
    all.extend(nodes.map(ToOwned::to_owned));
    scaling.nodes = all.into_iter().take(MAX_NODES).collect();
    scaling.nodes.len() > before
}

/// Has pods leave before their nodes go.
fn hasten<'n>(scaling: &mut Scaling, notices: impl Iterator<Item = &'n Notice>, now: Timestamp) {
    let announced = notices.filter_map(|notice| notice.deadline(now));
    let deadline = scaling.deadline.as_ref().map(|deadline| deadline.0);
    scaling.deadline = announced.chain(deadline).min().map(time);
}

/// Joins what is said, each once.
fn sentence(parts: impl Iterator<Item = String>) -> String {
    let parts: BTreeSet<String> = parts.collect();
    let mut text = parts.into_iter().collect::<Vec<_>>().join(", ");
    crate::status::truncate(&mut text, MAX_MESSAGE);
    text
}
