//! Which ends belong together. Pods that train as one can't go on without each other: if one ends,
//! the others do too. All these ends are one incident. Its first end decides which cause it has and
//! what it costs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use trainyard_api::{EndedPods, Incident, RestartCause, RestartPolicy, Restarts};

use super::{Assessment, Ended, NewRestart, count_replaced};
use crate::depends::needs;
use crate::indices;
use crate::job::Job;
use crate::model::PodKey;
use crate::restart::End;
use crate::status::time;

/// How long after the latest end of an incident another end may still be its consequence. A remote
/// shell takes up to 5 s to notice a silent worker, and its launcher a moment more to stop the
/// other workers.
const WINDOW: SignedDuration = SignedDuration::from_secs(10);

/// How much the clocks of two nodes may differ. Nodes report in whole seconds when their pods
/// ended.
const SKEW: SignedDuration = SignedDuration::from_secs(2);

/// The incidents that new ends may still belong to: one for each role in which an incident began,
/// or a single one if all pods train as one.
#[derive(Debug)]
pub(crate) struct Incidents {
    open: Vec<OpenIncident>,
    needs: Needs,
}

impl Incidents {
    /// The incidents in a status.
    pub(crate) fn read(job: &Job<'_>, restarts: &Restarts) -> Self {
        let written = restarts.incidents.iter();
        Self {
            open: written
                .filter_map(|written| OpenIncident::read(job, restarts, written))
                .collect(),
            needs: Needs::of(job),
        }
    }

    pub(crate) fn write(&self, job: &Job<'_>) -> Vec<Incident> {
        self.open.iter().map(|open| open.write(job)).collect()
    }

    /// Begins an incident with an end that is not a consequence.
    pub(crate) fn begin(&mut self, job: &Job<'_>, new: &NewRestart<'_>, now: Timestamp) {
        let role = new.ended.key.role;
        self.open.retain(|open| !open.excludes(job, role));
        if (0..job.roles.len()).any(|other| self.needs.has(other, role)) {
            self.open.push(OpenIncident::new(new, now));
        }
    }

    /// Begins an incident with an end that is not retried. Such an end is assessed again and again;
    /// it begins an incident only if no later one is open.
    fn begin_final(&mut self, job: &Job<'_>, new: &NewRestart<'_>, now: Timestamp) {
        let at = ended_at(&new.ended, now);
        let is_old = |open: &OpenIncident| open.excludes(job, new.ended.key.role) && open.last >= at;
        if !self.open.iter().any(is_old) {
            self.begin(job, new, now);
            if let Some(open) = self.begun_by(new.ended.key) {
                open.is_final = true;
            }
        }
    }

    /// Drops the incidents that the ended pod took part in and that are over. Its new end does not
    /// belong to them.
    pub(crate) fn drop_outlived(&mut self, ended: &Ended<'_>, now: Timestamp) {
        let at = ended_at(ended, now);
        self.open.retain(|open| {
            open.leaving || !open.contains(ended.key) || at.duration_since(open.last) <= WINDOW
        });
    }

    /// Drops the incidents of pods that start anew together.
    pub(crate) fn drop_roles(&mut self, roles: &BTreeSet<usize>) {
        self.open.retain(|open| !roles.contains(&open.first.role));
    }

    /// The incident that a pod began.
    pub(crate) fn begun_by(&mut self, first: PodKey) -> Option<&mut OpenIncident> {
        self.open.iter_mut().find(|open| open.first == first)
    }

    /// The incident of pods that are replaced at this moment because their template changed, if it
    /// also covers this role.
    pub(crate) fn current_update(
        &mut self,
        job: &Job<'_>,
        role: usize,
        now: Timestamp,
    ) -> Option<&mut OpenIncident> {
        let is_it = |open: &&mut OpenIncident| {
            open.cause == RestartCause::Update && open.last == now && open.excludes(job, role)
        };
        self.open.iter_mut().find(is_it)
    }

    /// Records that terminating pods are deleted now. Other pods may end because of that from now
    /// on.
    pub(crate) fn record_deleted(&mut self, keys: impl Iterator<Item = PodKey>, now: Timestamp) {
        for key in keys {
            for open in self.open.iter_mut().filter(|open| open.contains(key)) {
                open.last = open.last.max(now);
            }
        }
    }

    /// The latest incident that an end belongs to.
    fn find_for(
        &mut self,
        job: &Job<'_>,
        assessment: &Assessment<'_>,
        ended: &Ended<'_>,
        is_final: bool,
        now: Timestamp,
    ) -> Option<&mut OpenIncident> {
        let Self { open, needs } = self;
        let open = open.iter_mut().filter(|open| !is_final || !open.is_final);
        open.filter(|open| open.includes(job, assessment, needs, ended, now))
            .max_by_key(|open| open.last)
    }
}

/// An incident that new ends may still belong to.
#[derive(Clone, Debug)]
pub(crate) struct OpenIncident {
    first: PodKey,
    cause: RestartCause,
    /// When the first pod ended, if that is known.
    start: Option<Timestamp>,
    last: Timestamp,
    /// The indices of the pods that have ended in it, by role.
    ended: BTreeMap<usize, BTreeSet<i32>>,
    /// A terminating pod of this incident still exists. Others may end once it is deleted.
    leaving: bool,
    /// The first pod of this incident is not replaced. Other ends that are not retried can't be its
    /// consequences: their own policy makes them final.
    is_final: bool,
}

impl OpenIncident {
    fn new(new: &NewRestart<'_>, now: Timestamp) -> Self {
        let key = new.ended.key;
        Self {
            first: key,
            cause: new.cause,
            start: new.ended.time().map(|at| at.min(now)),
            last: ran_until(&new.ended, now),
            ended: BTreeMap::from([(key.role, BTreeSet::from([key.index]))]),
            leaving: new.ended.is_leaving(),
            is_final: false,
        }
    }

    /// Reads an incident from a status. `None` if it makes no sense: anybody may have edited the
    /// status.
    fn read(job: &Job<'_>, restarts: &Restarts, written: &Incident) -> Option<Self> {
        let of_role = |ended: &EndedPods| {
            let (role, known) = job.role(&ended.role)?;
            Some((role, indices::parse(&ended.indices, known.members.end())))
        };
        let mut open = Self {
            first: job.key(&written.pod)?,
            cause: written.cause,
            start: written.start_time.as_ref().map(|start| start.0),
            last: written.last_time.0,
            ended: written.ended.iter().filter_map(of_role).collect(),
            leaving: false,
            is_final: false,
        };
        let mut leaving = restarts.replacing.iter().filter(|entry| entry.leaving);
        open.leaving = leaving.any(|entry| job.key(&entry.pod).is_some_and(|key| open.contains(key)));
        Some(open)
    }

    fn write(&self, job: &Job<'_>) -> Incident {
        let of_role = |(role, set): (&usize, &BTreeSet<i32>)| {
            Some(EndedPods {
                role: job.roles.get(*role)?.name.to_owned(),
                indices: indices::format(set)?,
            })
        };
        Incident {
            pod: job.pod_name(self.first),
            cause: self.cause,
            start_time: self.start.map(time),
            last_time: time(self.last),
            ended: self.ended.iter().filter_map(of_role).collect(),
        }
    }

    /// Returns true if this incident and one that begins in the role can't both be open.
    fn excludes(&self, job: &Job<'_>, role: usize) -> bool {
        self.first.role == role || job.framework.trains_as_one
    }

    fn contains(&self, key: PodKey) -> bool {
        let role = self.ended.get(&key.role);
        role.is_some_and(|role| role.contains(&key.index))
    }

    /// Adds an end that belongs to this incident.
    pub(crate) fn add(&mut self, ended: &Ended<'_>, now: Timestamp) {
        self.ended
            .entry(ended.key.role)
            .or_default()
            .insert(ended.key.index);
        self.last = self.last.max(ran_until(ended, now));
        self.leaving |= ended.is_leaving();
    }

    /// Returns true if an end belongs to this incident.
    fn includes(
        &self,
        job: &Job<'_>,
        assessment: &Assessment<'_>,
        needs: &Needs,
        ended: &Ended<'_>,
        now: Timestamp,
    ) -> bool {
        // Both times are from nodes. The clock of another replica of the operator may be behind.
        let known = ended.time().zip(self.start);
        let is_earlier = known.is_some_and(|(at, start)| at.duration_since(start) < -SKEW);
        let is_later = !self.leaving && ended_at(ended, now).duration_since(self.last) > WINDOW;
        !is_earlier
            && !is_later
            && !self.is_repeated_by(ended.key)
            && needs.has(ended.key.role, self.first.role)
            && !self.is_over(job, assessment, needs)
    }

    /// Returns true if the end of this pod repeats the first end rather than follows from it: the
    /// pod that failed first fails again, or a pod with the new template fails.
    fn is_repeated_by(&self, key: PodKey) -> bool {
        match self.cause {
            RestartCause::Failure => key == self.first,
            RestartCause::Update => self.contains(key),
            RestartCause::Disruption | RestartCause::Completion => false,
        }
    }

    /// Returns true if all pods that this incident could affect have ended in it. The pods that
    /// exist now are new, and their ends have another cause.
    fn is_over(&self, job: &Job<'_>, assessment: &Assessment<'_>, needs: &Needs) -> bool {
        let none = BTreeSet::new();
        let roles = job.roles.iter().zip(&assessment.roles).enumerate();
        let mut others = roles.filter(|(role, _)| needs.has(*role, self.first.role));
        others.all(|(role, (rules, this))| {
            let ended = self.ended.get(&role).unwrap_or(&none);
            let sum = i32::try_from(ended.len() + this.done.len());
            let may_be = sum.is_ok_and(|sum| sum >= rules.replicas());
            may_be
                && rules
                    .members
                    .iter()
                    .all(|index| ended.contains(&index) || this.done.contains(&index))
        })
    }
}

/// Which roles can't go on without which others, directly or through further roles. It is computed
/// once, and used for every pod that ended.
#[derive(Debug)]
enum Needs {
    /// All pods train as one.
    All,
    /// The roles that each role needs, by position.
    Roles(Vec<BTreeSet<usize>>),
}

impl Needs {
    fn of(job: &Job<'_>) -> Self {
        if job.framework.trains_as_one {
            return Self::All;
        }
        let roles = 0..job.roles.len();
        let direct = |role| {
            roles
                .clone()
                .filter(move |other| needs(job, role, *other))
                .collect()
        };
        let direct: Vec<Vec<usize>> = roles.clone().map(direct).collect();
        let all = |role: usize| {
            let (mut reached, mut next) = (BTreeSet::new(), vec![role]);
            while let Some(needed) = next.pop().and_then(|role| direct.get(role)) {
                next.extend(needed.iter().filter(|needed| reached.insert(**needed)));
            }
            reached
        };
        Self::Roles(roles.clone().map(all).collect())
    }

    /// Returns true if a role needs another one, so that the end of a pod of the other may end its
    /// own.
    fn has(&self, role: usize, other: usize) -> bool {
        match self {
            Self::All => true,
            Self::Roles(roles) => roles.get(role).is_some_and(|needed| needed.contains(&other)),
        }
    }
}

/// Finds the ends that are consequences of an end that was counted before or is to be counted now.
/// A consequence is retried together with its first end, even if its exit code alone would make it
/// final.
pub(crate) fn find_consequences<'a>(
    job: &Job<'a>,
    restarts: &Restarts,
    now: Timestamp,
    assessment: &mut Assessment<'a>,
) {
    let retried = std::mem::take(&mut assessment.new_restarts).into_iter();
    let mut ends: Vec<(NewRestart<'a>, bool)> = retried.map(|end| (end, false)).collect();
    ends.extend(final_ends(assessment).map(|end| (end, true)));
    if ends.is_empty() {
        return;
    }
    ends.sort_by_key(|(end, _)| sort_key(&end.ended));
    let mut incidents = Incidents::read(job, restarts);
    for (mut end, is_final) in ends {
        let is_recorded = is_final && is_recorded_as_final(assessment, &end);
        let may_be_consequence =
            end.cause != RestartCause::Completion && !is_recorded && !end.ended.is_forgiven(job);
        let incident =
            may_be_consequence.then(|| incidents.find_for(job, assessment, &end.ended, is_final, now));
        if let Some(open) = incident.flatten() {
            end.consequence_of = Some(open.first);
            end.cause = open.cause;
            open.add(&end.ended, now);
        } else if is_final {
            incidents.begin_final(job, &end, now);
        } else if may_be_consequence {
            incidents.begin(job, &end, now);
        }
        if let Some(first) = end.consequence_of.filter(|_| is_final) {
            assessment
                .final_consequences
                .insert(end.ended.key, (first, end.cause));
        }
        if !is_final || end.consequence_of.is_some() && is_retried_by_exit_code(job, end.ended.key) {
            assessment.new_restarts.push(end);
        }
    }
    retry_consequences(job, assessment);
}

/// The ends that are not retried, of roles that have not ended.
fn final_ends<'a>(assessment: &Assessment<'a>) -> impl Iterator<Item = NewRestart<'a>> {
    let roles = assessment.roles.iter().filter(|role| !role.has_ended);
    roles.flat_map(|role| &role.final_ends).filter_map(|ended| {
        let cause = match ended.end {
            End::Failure(_) => RestartCause::Failure,
            End::Disruption | End::NodeDown => RestartCause::Disruption,
            _ => return None,
        };
        Some(NewRestart {
            ended: *ended,
            cause,
            consequence_of: None,
        })
    })
}

/// Returns true if the status already says that an end is final, or if no incident could change
/// that.
fn is_recorded_as_final(assessment: &Assessment<'_>, end: &NewRestart<'_>) -> bool {
    let PodKey { role, index } = end.ended.key;
    let role = assessment.roles.get(role);
    end.cause != RestartCause::Failure || role.is_some_and(|role| role.recorded_failed.contains(&index))
}

/// Returns true if exit codes decide whether failures in the pod's role are retried.
pub(crate) fn is_retried_by_exit_code(job: &Job<'_>, key: PodKey) -> bool {
    let role = job.roles.get(key.role);
    role.is_some_and(|role| role.restart_policy == RestartPolicy::ExitCode)
}

/// Retries the ends that looked final by their exit code and are only consequences.
fn retry_consequences(job: &Job<'_>, assessment: &mut Assessment<'_>) {
    let Assessment {
        roles,
        final_consequences,
        ..
    } = assessment;
    for role in roles {
        let is_retried = |ended: &mut Ended<'_>| {
            is_retried_by_exit_code(job, ended.key) && final_consequences.contains_key(&ended.key)
        };
        let retried: Vec<Ended<'_>> = role.final_ends.extract_if(.., is_retried).collect();
        for ended in retried {
            final_consequences.remove(&ended.key);
            role.tally.failed -= 1;
            count_replaced(&mut role.tally, &ended);
            let (_, _, pods) = role.retried.get_or_insert((ended, None, 0));
            *pods += 1;
        }
    }
}

/// By when ends are sorted. A pod that was deleted or disrupted ended before the operator noticed,
/// so it comes first if its time is not known. Other ends without a time come last, because they
/// caused nothing.
fn sort_key(ended: &Ended<'_>) -> (u8, Option<Timestamp>, u64) {
    let seen_version = ended
        .row
        .and_then(|row| row.end.as_deref())
        .map_or(0, |end| end.seen_version);
    let known = match (ended.time(), ended.end) {
        (None, End::Disruption | End::NodeDown) => 0,
        (Some(_), _) => 1,
        (None, _) => 2,
    };
    (known, ended.time(), seen_version)
}

/// When a pod ended; now if that is not known.
fn ended_at(ended: &Ended<'_>, now: Timestamp) -> Timestamp {
    ended.time().map_or(now, |at| at.min(now))
}

/// Until when a pod may have run. A pod that was asked to terminate may have run for a while after
/// that.
fn ran_until(ended: &Ended<'_>, now: Timestamp) -> Timestamp {
    let finished = ended.row.and_then(|row| row.end.as_deref()?.finished_at);
    let at = ended_at(ended, now);
    finished.map_or(at, |finished| at.max(finished.min(now)))
}
