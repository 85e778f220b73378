//! Which ends belong together. Pods that train as one can't go on without each other: where one ends, the others do. All of that is
//! one incident, which the first end gives its kind, and which costs what that end costs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use trainyard_api::{EndedPods, Incident, RestartCause, RestartPolicy, Restarts};

use super::{Assessment, Ended, NewRestart, replace};
use crate::depends::needs;
use crate::indices;
use crate::job::Job;
use crate::model::PodKey;
use crate::restart::End;
use crate::status::time;

/// How long after the latest end of an incident another may still be its consequence. A remote shell takes up to 5 s to notice a
/// worker that fell silent, and its launcher a moment more to stop the others.
const WINDOW: SignedDuration = SignedDuration::from_secs(10);

/// How much the clocks of nodes may differ, which tell in whole seconds when their pods ended.
const SKEW: SignedDuration = SignedDuration::from_secs(2);

/// The incidents that ends may still belong to, one for each role in which one began; where pods train as one, there is one.
#[derive(Debug)]
pub(crate) struct Incidents {
    open: Vec<Open>,
    needs: Needs,
}

impl Incidents {
    /// The incidents that a status tells of.
    pub(crate) fn read(job: &Job<'_>, restarts: &Restarts) -> Self {
        let written = restarts.incidents.iter();
        Self {
            open: written
                .filter_map(|written| Open::read(job, restarts, written))
                .collect(),
            needs: Needs::of(job),
        }
    }

    pub(crate) fn write(&self, job: &Job<'_>) -> Vec<Incident> {
        self.open.iter().map(|open| open.write(job)).collect()
    }

    /// Begins one with an end that came of no other.
    pub(crate) fn begin(&mut self, job: &Job<'_>, new: &NewRestart<'_>, now: Timestamp) {
        let role = new.ended.key.role;
        self.open.retain(|open| !open.is_beside(job, role));
        if (0..job.roles.len()).any(|other| self.needs.has(other, role)) {
            self.open.push(Open::new(new, now));
        }
    }

    /// The same with an end that stands, and is seen again and again: only while nothing has come since.
    fn begin_standing(&mut self, job: &Job<'_>, new: &NewRestart<'_>, now: Timestamp) {
        let at = at(&new.ended, now);
        let is_old = |open: &Open| open.is_beside(job, new.ended.key.role) && open.last >= at;
        if !self.open.iter().any(is_old) {
            self.begin(job, new, now);
            if let Some(open) = self.of(new.ended.key) {
                open.stands = true;
            }
        }
    }

    /// Forgets those that are over and that a pod had a part in which ends again now: that it leaves is none of theirs.
    pub(crate) fn outlive(&mut self, ended: &Ended<'_>, now: Timestamp) {
        let at = at(ended, now);
        self.open.retain(|open| {
            open.leaving || !open.contains(ended.key) || at.duration_since(open.last) <= WINDOW
        });
    }

    /// The one that a pod began.
    pub(crate) fn of(&mut self, first: PodKey) -> Option<&mut Open> {
        self.open.iter_mut().find(|open| open.first == first)
    }

    /// The one of pods that are being replaced right now because of their template, if it is of this role's too.
    pub(crate) fn update_of(&mut self, job: &Job<'_>, role: usize, now: Timestamp) -> Option<&mut Open> {
        let is_it = |open: &&mut Open| {
            open.cause == RestartCause::Update && open.last == now && open.is_beside(job, role)
        };
        self.open.iter_mut().find(is_it)
    }

    /// Pods that were asked to go are gone now: others may end because of that from now on.
    pub(crate) fn left(&mut self, keys: impl Iterator<Item = PodKey>, now: Timestamp) {
        for key in keys {
            for open in self.open.iter_mut().filter(|open| open.contains(key)) {
                open.last = open.last.max(now);
            }
        }
    }

    /// The latest one that an end belongs to.
    fn taking(
        &mut self,
        job: &Job<'_>,
        seen: &Assessment<'_>,
        ended: &Ended<'_>,
        stands: bool,
        now: Timestamp,
    ) -> Option<&mut Open> {
        let Self { open, needs } = self;
        let open = open.iter_mut().filter(|open| !stands || !open.stands);
        open.filter(|open| open.takes(job, seen, needs, ended, now))
            .max_by_key(|open| open.last)
    }
}

/// An incident that ends may still belong to.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    first: PodKey,
    cause: RestartCause,
    /// When the first ended, if that is known.
    start: Option<Timestamp>,
    last: Timestamp,
    /// The indices of the pods that have ended in it, by role.
    ended: BTreeMap<usize, BTreeSet<i32>>,
    /// A pod that was asked to go is still there: the others may end when it does.
    leaving: bool,
    /// Its first is not replaced. What has the same policy stands as well, whatever came first.
    stands: bool,
}

impl Open {
    fn new(new: &NewRestart<'_>, now: Timestamp) -> Self {
        let key = new.ended.key;
        Self {
            first: key,
            cause: new.cause,
            start: new.ended.time().map(|at| at.min(now)),
            last: until(&new.ended, now),
            ended: BTreeMap::from([(key.role, BTreeSet::from([key.index]))]),
            leaving: new.ended.is_leaving(),
            stands: false,
        }
    }

    /// The incident that a status tells of. A status may have been edited by anybody: what makes no sense is none.
    fn read(job: &Job<'_>, restarts: &Restarts, written: &Incident) -> Option<Self> {
        let of_role = |ended: &EndedPods| {
            let (role, known) = job.role(&ended.role)?;
            Some((role, indices::parse(&ended.indices, known.replicas)))
        };
        let mut open = Self {
            first: job.key(&written.pod)?,
            cause: written.cause,
            start: written.start_time.as_ref().map(|start| start.0),
            last: written.last_time.0,
            ended: written.ended.iter().filter_map(of_role).collect(),
            leaving: false,
            stands: false,
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

    /// Whether there is only one of it and those that begin in a role.
    fn is_beside(&self, job: &Job<'_>, role: usize) -> bool {
        self.first.role == role || job.framework.trains_as_one()
    }

    fn contains(&self, key: PodKey) -> bool {
        let role = self.ended.get(&key.role);
        role.is_some_and(|role| role.contains(&key.index))
    }

    /// Takes in an end that belongs to it.
    pub(crate) fn add(&mut self, ended: &Ended<'_>, now: Timestamp) {
        self.ended
            .entry(ended.key.role)
            .or_default()
            .insert(ended.key.index);
        self.last = self.last.max(until(ended, now));
        self.leaving |= ended.is_leaving();
    }

    /// Whether an end belongs to it.
    fn takes(
        &self,
        job: &Job<'_>,
        seen: &Assessment<'_>,
        needs: &Needs,
        ended: &Ended<'_>,
        now: Timestamp,
    ) -> bool {
        // As its node has it: the clock of another operator may be behind.
        let known = ended.time().zip(self.start);
        let is_earlier = known.is_some_and(|(at, start)| at.duration_since(start) < -SKEW);
        let is_later = !self.leaving && at(ended, now).duration_since(self.last) > WINDOW;
        !is_earlier
            && !is_later
            && !self.is_repeated_by(ended.key)
            && needs.has(ended.key.role, self.first.role)
            && !self.is_over(job, seen, needs)
    }

    /// Whether the end of a pod says again what began it, rather than what came of that: one that failed by itself does so again, or
    /// a pod of the new template fails.
    fn is_repeated_by(&self, key: PodKey) -> bool {
        match self.cause {
            RestartCause::Failure => key == self.first,
            RestartCause::Update => self.contains(key),
            RestartCause::Disruption | RestartCause::Completion => false,
        }
    }

    /// Whether all pods have ended in it that it could take with it: those that are there now are new, and what ends them is
    /// something else.
    fn is_over(&self, job: &Job<'_>, seen: &Assessment<'_>, needs: &Needs) -> bool {
        let none = BTreeSet::new();
        let roles = job.roles.iter().zip(&seen.roles).enumerate();
        let mut others = roles.filter(|(role, _)| needs.has(*role, self.first.role));
        others.all(|(role, (rules, this))| {
            let ended = self.ended.get(&role).unwrap_or(&none);
            let sum = i32::try_from(ended.len() + this.done.len());
            let may_be = sum.is_ok_and(|sum| sum >= rules.replicas);
            may_be && (0..rules.replicas).all(|index| ended.contains(&index) || this.done.contains(&index))
        })
    }
}

/// Which roles can't go on without which, directly or through others. Found once, and asked for
/// every pod that ended.
#[derive(Debug)]
enum Needs {
    /// All pods train as one.
    All,
    /// The roles that each role needs, by position.
    Roles(Vec<BTreeSet<usize>>),
}

impl Needs {
    fn of(job: &Job<'_>) -> Self {
        if job.framework.trains_as_one() {
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

    /// Whether a role needs another, so that the end of a pod of the other may end one of its own.
    fn has(&self, role: usize, other: usize) -> bool {
        match self {
            Self::All => true,
            Self::Roles(roles) => roles.get(role).is_some_and(|needed| needed.contains(&other)),
        }
    }
}

/// Finds out which ends are what came of others: of one that was counted before, or of one that is to be counted now. Those are
/// retried with it, also where the exit code alone would make them final.
pub(crate) fn trace<'a>(job: &Job<'a>, restarts: &Restarts, now: Timestamp, seen: &mut Assessment<'a>) {
    let retried = std::mem::take(&mut seen.new_restarts).into_iter();
    let mut ends: Vec<(NewRestart<'a>, bool)> = retried.map(|end| (end, false)).collect();
    ends.extend(standing(seen).map(|end| (end, true)));
    if ends.is_empty() {
        return;
    }
    ends.sort_by_key(|(end, _)| order(&end.ended));
    let mut incidents = Incidents::read(job, restarts);
    for (mut end, stands) in ends {
        let is_told = stands && is_told(seen, &end);
        let may_follow = end.cause != RestartCause::Completion && !is_told;
        let taking = may_follow.then(|| incidents.taking(job, seen, &end.ended, stands, now));
        if let Some(open) = taking.flatten() {
            end.follows = Some(open.first);
            end.cause = open.cause;
            open.add(&end.ended, now);
        } else if stands {
            incidents.begin_standing(job, &end, now);
        } else if may_follow {
            incidents.begin(job, &end, now);
        }
        if let Some(first) = end.follows.filter(|_| stands) {
            seen.followers.insert(end.ended.key, (first, end.cause));
        }
        if !stands || end.follows.is_some() && is_judged_by_code(job, end.ended.key) {
            seen.new_restarts.push(end);
        }
    }
    retry(job, seen);
}

/// The ends that stand, of roles that go on.
fn standing<'a>(seen: &Assessment<'a>) -> impl Iterator<Item = NewRestart<'a>> {
    let roles = seen.roles.iter().filter(|role| !role.has_ended);
    roles.flat_map(|role| &role.final_ends).filter_map(|ended| {
        let cause = match ended.end {
            End::Failure(_) => RestartCause::Failure,
            End::Disruption | End::NodeDown => RestartCause::Disruption,
            _ => return None,
        };
        Some(NewRestart {
            ended: *ended,
            cause,
            follows: None,
        })
    })
}

/// Whether status already says that an end is final, or no incident could change that.
fn is_told(seen: &Assessment<'_>, end: &NewRestart<'_>) -> bool {
    let PodKey { role, index } = end.ended.key;
    let role = seen.roles.get(role);
    end.cause != RestartCause::Failure || role.is_some_and(|role| role.told_failed.contains(&index))
}

/// Whether it is by their exit code that failures of a pod's role stand or not.
pub(crate) fn is_judged_by_code(job: &Job<'_>, key: PodKey) -> bool {
    let role = job.roles.get(key.role);
    role.is_some_and(|role| role.restart_policy == RestartPolicy::ExitCode)
}

/// What seemed to stand by its exit code, and only follows, is replaced after all.
fn retry(job: &Job<'_>, seen: &mut Assessment<'_>) {
    let Assessment { roles, followers, .. } = seen;
    for role in roles {
        let is_retried =
            |ended: &mut Ended<'_>| is_judged_by_code(job, ended.key) && followers.contains_key(&ended.key);
        let retried: Vec<Ended<'_>> = role.final_ends.extract_if(.., is_retried).collect();
        for ended in retried {
            followers.remove(&ended.key);
            role.tally.failed -= 1;
            replace(&mut role.tally, &ended);
            let (_, _, pods) = role.retried.get_or_insert((ended, None, 0));
            *pods += 1;
        }
    }
}

/// The order in which ends came. A pod that was taken away has ended before that was known; of others of which the time is not
/// known, nothing came.
fn order(ended: &Ended<'_>) -> (u8, Option<Timestamp>, u64) {
    let told = ended
        .row
        .and_then(|row| row.end.as_deref())
        .map_or(0, |end| end.seen_version);
    let known = match (ended.time(), ended.end) {
        (None, End::Disruption | End::NodeDown) => 0,
        (Some(_), _) => 1,
        (None, _) => 2,
    };
    (known, ended.time(), told)
}

/// When a pod ended, as far as that is known: not later than now.
fn at(ended: &Ended<'_>, now: Timestamp) -> Timestamp {
    ended.time().map_or(now, |at| at.min(now))
}

/// Until when it may have run. One that was asked to go took its time.
fn until(ended: &Ended<'_>, now: Timestamp) -> Timestamp {
    let finished = ended.row.and_then(|row| row.end.as_deref()?.finished_at);
    let at = at(ended, now);
    finished.map_or(at, |finished| at.max(finished.min(now)))
}
