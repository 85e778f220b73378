//! Pods that were told to leave together: what they have said, and until when they are waited for.
//!
//! They have their work in common, so what one says holds for all: as long as one that knows of it
//! is there, no other is asked by a signal, which would end what the first one waits for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trainyard_api::elastic::DRAIN_TIMEOUT_SECONDS;
use trainyard_api::{RestartedRole, Scaling, ScalingStep};
use trainyard_contract::drain::DrainState;

use super::parse;
use crate::indices;
use crate::job::{Job, Role};
use crate::model::{ForcedRemoval, PodKey};
use crate::restart;
use crate::status::time;
use crate::view::{NodeState, PodPhase, PodRow, View};

/// How long a program may take to say that it knows that it should leave.
pub(super) const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Decides about pods that leave together.
#[derive(Clone, Copy)]
pub(super) struct Leave<'a, 'b> {
    pub job: &'b Job<'a>,
    pub view: &'b View<'a>,
}

/// How far pods are that leave together.
pub(super) struct LeaveState {
    pub scaling: Scaling,
    /// How far they came before it was over.
    reached: ScalingStep,
    /// All have left, or their time is over.
    pub is_over: bool,
    /// The pods that still run when it is over.
    pub forced: BTreeMap<PodKey, ForcedRemoval>,
    /// Since when this process waits for pods to say that they know.
    pub unacknowledged_since: Option<Instant>,
    /// When it is over even if nothing changes.
    pub wake_at: Option<Timestamp>,
}

impl LeaveState {
    /// What was said until it was over. `None` if it is not.
    pub(super) fn drained(&self) -> Option<Scaling> {
        self.is_over.then(|| Scaling {
            step: self.reached,
            ..self.scaling.clone()
        })
    }
}

impl<'a> Leave<'a, '_> {
    /// Tells all pods of the job to leave. `None` if no pod has an agent that could tell its
    /// program.
    pub(super) fn begin(&self, why: &str) -> Option<Scaling> {
        let has_agents = self.view.settings.agent_and_observer().is_some();
        let may_leave = (0..self.job.roles.len()).any(|role| self.job.may_leave(role));
        if !has_agents || !may_leave || !self.view.pods.iter().any(stays) {
            return None;
        }
        let role = |role: &Role<'_>| RestartedRole {
            name: role.name.to_owned(),
            victims: role.members.format(),
            ..RestartedRole::default()
        };
        let roles = self.job.roles.iter().map(role).collect();
        Some(self.tell(roles, why.to_owned(), self.deadline(None)))
    }

    /// What is written down of pods that are told to leave now, at the size that the job has.
    pub(super) fn tell(&self, roles: Vec<RestartedRole>, why: String, deadline: Option<Time>) -> Scaling {
        let elastic = self
            .job
            .elastic
            .and_then(|elastic| self.job.roles.get(elastic.role));
        let size = elastic.map_or_else(|| self.job.total(), Role::replicas);
        Scaling {
            from: size,
            to: size,
            step: ScalingStep::Requested,
            since: Some(time(self.view.now)),
            deadline,
            roles,
            message: Some(why),
            ..Scaling::default()
        }
    }

    /// When the time of pods is over that are told to leave now: they have as long as is asked for,
    /// or as the job says.
    pub(super) fn deadline(&self, asked_for: Option<i64>) -> Option<Time> {
        let seconds = asked_for.or(self.job.drain_timeout_seconds);
        let timeout = SignedDuration::from_secs(seconds.unwrap_or(DRAIN_TIMEOUT_SECONDS));
        self.view.now.checked_add(timeout).ok().map(time)
    }

    /// When the time of pods is over that were told to leave. If the clock went back since, they
    /// have no more time than if they were told now.
    pub(super) fn no_later(&self, scaling: &Scaling) -> Option<Time> {
        // A request may have given them more.
        let anew = self.deadline(None).filter(|_| scaling.request.is_none());
        let over = scaling.deadline.clone()?;
        Some(anew.into_iter().chain([over.clone()]).min().unwrap_or(over))
    }

    /// Goes on with pods that were told to leave, until all have or their time is over.
    pub(super) fn watch(&self, scaling: &Scaling) -> LeaveState {
        let rows: HashMap<PodKey, &PodRow> = self.rows().collect();
        let mut counts = LeaveCounts::default();
        let roles: Vec<RestartedRole> = scaling
            .roles
            .iter()
            .map(|role| self.watch_role(role, &rows, &mut counts))
            .collect();
        let over = self.no_later(scaling);
        let deadline = over.as_ref().map(|deadline| deadline.0);
        let waits_since = self.view.local.waits.unacknowledged_since;
        let waits_since = waits_since.unwrap_or(self.view.instant);
        let until = if counts.stay_and_know > 0 {
            deadline
        } else {
            Some(self.silent_until(waits_since, deadline))
        };
        let is_over = counts.staying.is_empty() || until.is_none_or(|until| until <= self.view.now);
        let reached = if counts.know > 0 && counts.know == counts.have_saved {
            ScalingStep::CheckpointDone
        } else if counts.know > 0 {
            ScalingStep::Acknowledged
        } else {
            ScalingStep::Requested
        };
        let is_silent = !is_over && counts.staying.len() > counts.stay_and_know;
        // If those that knew have left, the others only wait for their signal.
        let forced = match counts.know {
            0 => Some(ForcedRemoval::Silent),
            _ if counts.stay_and_know > 0 => Some(ForcedRemoval::TimedOut),
            _ => None,
        };
        let forced = forced.filter(|_| is_over).into_iter();
        LeaveState {
            reached,
            scaling: Scaling {
                step: if is_over { ScalingStep::Restarting } else { reached },
                roles,
                deadline: over,
                ..scaling.clone()
            },
            is_over,
            forced: forced
                .flat_map(|why| counts.staying.iter().map(move |key| (*key, why)))
                .collect(),
            unacknowledged_since: is_silent.then_some(waits_since),
            wake_at: until.filter(|_| !is_over),
        }
    }

    /// The pods of the job, by their keys.
    pub(super) fn rows(&self) -> impl Iterator<Item = (PodKey, &'a PodRow)> {
        let rows = self.view.pods.iter();
        rows.filter_map(|row| Some((self.job.key(&row.name)?, row)))
    }

    /// What the pods of one role have said, and those of them that are still there.
    fn watch_role(
        &self,
        role: &RestartedRole,
        rows: &HashMap<PodKey, &PodRow>,
        counts: &mut LeaveCounts,
    ) -> RestartedRole {
        let victims = parse(role.victims.as_deref());
        let position = self.job.role(&role.name).map(|(position, _)| position);
        let of_role: BTreeMap<PodKey, &PodRow> = victims
            .iter()
            .filter_map(|index| {
                let key = PodKey {
                    role: position?,
                    index: *index,
                };
                Some((key, *rows.get(&key)?))
            })
            .collect();
        let reporting = of_role.iter().map(|(key, row)| (key.index, *row));
        let written = (role.acknowledged.as_deref(), role.checkpointed.as_deref());
        let (acknowledged, checkpointed) = self.reports(reporting, written);
        let staying = of_role.iter().filter(|(key, row)| !self.has_left(key.role, row));
        let staying: Vec<PodKey> = staying.map(|(key, _)| *key).collect();
        let knows = |key: &&PodKey| acknowledged.contains(&key.index);
        counts.know += acknowledged.len();
        counts.have_saved += checkpointed.len();
        counts.stay_and_know += staying.iter().filter(knows).count();
        counts.staying.extend(staying);
        RestartedRole {
            acknowledged: indices::format(&acknowledged),
            checkpointed: indices::format(&checkpointed),
            ..role.clone()
        }
    }

    /// Returns true if a pod of a role that was told to leave is not there any more, or never began
    /// to run. It may have died with its node.
    pub(super) fn has_left(&self, role: usize, row: &PodRow) -> bool {
        let node = self.view.node(row);
        let policy = self.job.roles.get(role).map(|role| role.node_down_policy);
        let end = policy.and_then(|policy| restart::end(row, node, policy));
        !stays(row) || node == NodeState::Gone || end.is_some()
    }

    /// The pods among some that know that they should leave, and those that have saved their work:
    /// as the status says, or as they have reported since.
    pub(super) fn reports<'r>(
        &self,
        rows: impl Iterator<Item = (i32, &'r PodRow)>,
        (acknowledged, checkpointed): (Option<&str>, Option<&str>),
    ) -> (BTreeSet<i32>, BTreeSet<i32>) {
        let (mut acknowledged, mut checkpointed) = (parse(acknowledged), parse(checkpointed));
        for (index, row) in rows {
            let report = self.view.local.drains.get(&row.uid).map(|report| report.state);
            if report >= Some(DrainState::Acknowledged) {
                acknowledged.insert(index);
            }
            if report >= Some(DrainState::CheckpointDone) {
                checkpointed.insert(index);
            }
        }
        (acknowledged, checkpointed)
    }

    /// Until when pods that say nothing may stay: their programs do not know that they should
    /// leave, and are asked by SIGTERM, with the grace period of the pod.
    ///
    /// An operator that has just begun to lead waits anew: the one before it may have been told,
    /// and not have written it down.
    pub(super) fn silent_until(&self, waits_since: Instant, deadline: Option<Timestamp>) -> Timestamp {
        let has_agents = self.view.settings.agent_and_observer().is_some();
        let until = self.view.time_of(waits_since + ACKNOWLEDGE_TIMEOUT);
        let until = until.filter(|_| has_agents).unwrap_or(self.view.now);
        deadline.map_or(until, |deadline| deadline.min(until))
    }
}

/// Returns true if a pod that was told to leave is still there.
pub(super) fn stays(row: &PodRow) -> bool {
    matches!(row.phase, PodPhase::Running | PodPhase::Unknown)
}

/// How many pods that were told to leave have said something, and those that are still there.
#[derive(Default)]
struct LeaveCounts {
    know: usize,
    have_saved: usize,
    stay_and_know: usize,
    staying: Vec<PodKey>,
}
