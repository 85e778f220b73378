//! What holds at every moment of a life, checked event by event.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use trainyard_api::{JobPhase, ScaleRequestStatus, TrainingJob};

use crate::clock::PausedClock;
use crate::draw::Life;
use crate::record::{Entry, Event, index, members, phase, victims};

/// How long a program that says nothing is waited for.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an operator may wait before it sends a write again that has failed.
const MAX_BACKOFF: Duration = Duration::from_secs(40);

/// A worker that exists.
struct Worker {
    pod: Pod,
    index: i32,
    running_since: Option<Duration>,
    /// The test has killed it.
    is_struck: bool,
    /// When it was told to leave, and until when it may stay.
    told: Option<(Duration, Duration)>,
    acknowledged_at: Option<Duration>,
    /// When it was no member of its role any more.
    left_at: Option<Duration>,
}

impl Worker {
    fn runs(&self) -> bool {
        phase(&self.pod) == "Running"
    }

    fn is_terminating(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }
}

pub struct Ledger {
    clock: PausedClock,
    has_agents: bool,
    /// How old what the operator knows may be, and how long its writes take.
    slowness: Duration,
    min: usize,
    job: Option<TrainingJob>,
    /// By UID.
    workers: BTreeMap<String, Worker>,
    requests: BTreeMap<String, ScaleRequestStatus>,
    /// How many workers there may be: `maxReplicas`, or what it was until the job has come down to
    /// it.
    cap: usize,
    operator_since: Option<Duration>,
    /// Since when fewer workers run than the job needs, and its status says nothing of it.
    short_since: Option<Duration>,
    /// When the job was last seen suspended or at its end.
    rested_at: Option<Duration>,
    /// How many workers were removed while they ran.
    pub removals: usize,
}

impl Ledger {
    pub fn new(life: &Life, clock: PausedClock) -> Self {
        let cluster = &life.cluster;
        Self {
            clock,
            has_agents: cluster.has_agents,
            slowness: Duration::from_millis(100) + cluster.request_time * 10 + cluster.watch_lag * 4,
            min: usize::try_from(life.job.min).unwrap_or_default(),
            job: None,
            workers: BTreeMap::new(),
            requests: BTreeMap::new(),
            cap: 0,
            operator_since: None,
            short_since: None,
            rested_at: None,
            removals: 0,
        }
    }

    pub fn job(&self) -> Option<&TrainingJob> {
        self.job.as_ref()
    }

    pub fn requests(&self) -> &BTreeMap<String, ScaleRequestStatus> {
        &self.requests
    }

    /// The workers that are there to stay, by name and UID.
    pub fn workers(&self) -> Vec<(String, String)> {
        let stay = self.workers.values().filter(|worker| !worker.is_terminating());
        let mut names: Vec<_> = stay
            .map(|worker| (worker.pod.name_any(), worker.pod.uid().unwrap_or_default()))
            .collect();
        names.sort();
        names
    }

    /// How many of them run.
    pub fn running(&self) -> usize {
        let run = self.workers.values();
        run.filter(|worker| worker.runs() && !worker.is_terminating())
            .count()
    }

    /// Takes note of what was told.
    pub fn enter(&mut self, entry: &Entry) -> Result<()> {
        let age = entry.age;
        // Before it, nothing has changed since the last one.
        self.check_minimum(age)?;
        match &entry.event {
            Event::Job(job) => self.enter_job(job, age)?,
            Event::Pod(pod) => self.enter_pod(pod, age)?,
            Event::PodRemoved(pod) => {
                let uid = pod.uid().unwrap_or_default();
                if let Some(worker) = self
                    .workers
                    .remove(&uid)
                    .filter(|worker| !worker.is_terminating())
                {
                    self.check_removal(&worker, age)?;
                }
            }
            Event::Request(name, status) => self.enter_request(name, status)?,
            Event::OperatorStarted => self.operator_since = Some(age),
            Event::OperatorKilled | Event::CutOff => self.operator_since = None,
            Event::Reconnected => self.operator_since = Some(age + MAX_BACKOFF),
            Event::Struck(uid) => self.worker(uid, |worker| worker.is_struck = true),
            Event::Acknowledged(uid) => self.worker(uid, |worker| {
                worker.acknowledged_at.get_or_insert(age);
            }),
            Event::Happened(_) => {}
        }
        self.check_maximum()?;
        self.see_minimum(age);
        Ok(())
    }

    fn worker(&mut self, uid: &str, change: impl FnOnce(&mut Worker)) {
        if let Some(worker) = self.workers.get_mut(uid) {
            change(worker);
        }
    }

    fn enter_job(&mut self, job: &TrainingJob, age: Duration) -> Result<()> {
        if let Some(before) = &self.job {
            check_change(before, job)?;
        }
        let status = job.status.clone().unwrap_or_default();
        let elastic = job.spec.elastic.clone().unwrap_or_default();
        let max = usize::try_from(elastic.max()).unwrap_or_default();
        let members = members(job);
        if let Some(scaling) = &status.scaling {
            // Of a job that is suspended, all pods leave, however few they are.
            ensure!(
                scaling.to >= elastic.min() || job.is_suspended(),
                "the job is to have {} pods, fewer than minReplicas",
                scaling.to
            );
            let leaving = victims(job);
            ensure!(!leaving.contains(&0), "the first pod is to leave");
            let told = leaving
                .iter()
                .filter_map(|index| Some((*index, self.told(job, *index, age)?)));
            let told: BTreeMap<i32, (Duration, Duration)> = told.collect();
            for worker in self.workers.values_mut() {
                worker.told = worker.told.or(told.get(&worker.index).copied());
            }
        }
        if let Some(members) = &members {
            for worker in self.workers.values_mut() {
                if members.contains(worker.index) {
                    worker.left_at = None;
                } else {
                    worker.left_at.get_or_insert(age);
                }
            }
        }
        let is_settled = status.scaling.is_none()
            && members.is_some_and(|members| members.count() <= elastic.max())
            && self.staying() <= max;
        self.cap = if is_settled { max } else { self.cap.max(max) };
        let rests = |phase: JobPhase| phase.is_terminal() || phase.is_suspended();
        if job.is_suspended() || status.phase.is_some_and(rests) {
            self.rested_at = Some(age);
        }
        self.job = Some(job.clone());
        Ok(())
    }

    /// When a worker of this index is told to leave, if it is told now, and until when it may stay.
    fn told(&self, job: &TrainingJob, index: i32, age: Duration) -> Option<(Duration, Duration)> {
        let scaling = job.status.as_ref()?.scaling.as_ref()?;
        let deadline = scaling.deadline.as_ref()?;
        let is_told = victims(job).contains(&index);
        is_told.then(|| (age, self.clock.age_at(deadline.0)))
    }

    fn enter_pod(&mut self, pod: &Pod, age: Duration) -> Result<()> {
        let Some(index) = index(pod) else { return Ok(()) };
        let uid = pod.uid().unwrap_or_default();
        let told = self.job.as_ref().and_then(|job| self.told(job, index, age));
        let worker = self.workers.entry(uid.clone()).or_insert_with(|| Worker {
            pod: pod.clone(),
            index,
            running_since: None,
            is_struck: false,
            // It may have been created in the place of one that was told to leave.
            told,
            acknowledged_at: None,
            left_at: None,
        });
        let was_terminating = worker.is_terminating();
        worker.pod = pod.clone();
        if worker.runs() {
            worker.running_since.get_or_insert(age);
        }
        if worker.is_terminating() && !was_terminating {
            let worker = &self.workers[&uid];
            self.check_removal(worker, age)?;
            self.removals += usize::from(worker.runs() && !worker.is_struck);
        }
        Ok(())
    }

    /// No worker is removed before it has left or its time is over, and all of that is written
    /// before.
    fn check_removal(&self, worker: &Worker, age: Duration) -> Result<()> {
        let name = worker.pod.name_any();
        let has_rested = self
            .rested_at
            .is_some_and(|at| at + self.slowness + self.slowness >= age);
        if worker.is_struck || !worker.runs() || has_rested || self.job_rests() {
            return Ok(());
        }
        let Some(left_at) = worker.left_at else {
            bail!("{name} runs and is removed, and is a member of its role");
        };
        // It did not run yet, as far as the operator knew, and leaves without a word.
        let ran_before = worker
            .running_since
            .is_some_and(|since| since + self.slowness < left_at);
        let Some((since, deadline)) = worker.told else {
            ensure!(
                !ran_before,
                "{name} runs and is removed, and was not told to leave"
            );
            return Ok(());
        };
        if !self.has_agents || !ran_before {
            return Ok(());
        }
        let knows = worker
            .acknowledged_at
            .is_some_and(|at| at + self.slowness < left_at);
        let until = if knows {
            deadline
        } else {
            deadline.min(since + ACKNOWLEDGE_TIMEOUT)
        };
        ensure!(
            left_at >= until,
            "{name} is removed while it leaves: told at {since:?}, it may stay until {until:?}, and had to go at {left_at:?}"
        );
        Ok(())
    }

    fn job_rests(&self) -> bool {
        let Some(job) = &self.job else { return true };
        let phase = job.status.as_ref().and_then(|status| status.phase);
        job.is_suspended() || phase.is_some_and(|phase| phase.is_terminal() || phase.is_suspended())
    }

    /// The workers that run or will, and are not on their way out.
    fn staying(&self) -> usize {
        let is_there = |worker: &&Worker| {
            !worker.is_terminating() && matches!(phase(&worker.pod), "Running" | "Pending")
        };
        self.workers.values().filter(is_there).count()
    }

    fn check_maximum(&self) -> Result<()> {
        let staying = self.staying();
        ensure!(
            staying <= self.cap,
            "{staying} workers, more than maxReplicas, {}",
            self.cap
        );
        Ok(())
    }

    /// Whether fewer workers run than the job needs, and its status says nothing of it.
    fn is_short(&self) -> bool {
        let status = self.job.as_ref().and_then(|job| job.status.as_ref());
        let phase = status.and_then(|status| status.phase);
        let says_nothing = matches!(
            phase,
            Some(JobPhase::Running | JobPhase::Scaling | JobPhase::Restarting)
        );
        let run = self.workers.values();
        let run = run.filter(|worker| worker.runs() && !worker.is_terminating());
        says_nothing && !self.job_rests() && run.count() < self.min
    }

    fn see_minimum(&mut self, age: Duration) {
        if self.is_short() {
            self.short_since.get_or_insert(age);
        } else {
            self.short_since = None;
        }
    }

    fn check_minimum(&self, age: Duration) -> Result<()> {
        let (Some(short), Some(operator)) = (self.short_since, self.operator_since) else {
            return Ok(());
        };
        let time = age.saturating_sub(short.max(operator));
        ensure!(
            time <= Duration::from_secs(1) + self.slowness,
            "for {time:?} fewer workers run than minReplicas, and the job is not Paused"
        );
        Ok(())
    }

    fn enter_request(&mut self, name: &str, status: &ScaleRequestStatus) -> Result<()> {
        if let Some(before) = self.requests.insert(name.to_owned(), status.clone()) {
            let is_fixed = before.to.is_none()
                || (&before.victims, before.from, before.to) == (&status.victims, status.from, status.to);
            ensure!(is_fixed, "{name} has other victims or another size than before");
            ensure!(
                !before.has_ended() || before.phase == status.phase,
                "{name} had ended, and is {:?}",
                status.phase
            );
        }
        Ok(())
    }
}

/// What no change of a job may change.
fn check_change(before: &TrainingJob, after: &TrainingJob) -> Result<()> {
    let (Some(before), Some(after)) = (&before.status, &after.status) else {
        return Ok(());
    };
    let has_ended = before.phase.is_some_and(JobPhase::is_terminal);
    ensure!(!has_ended || after.phase == before.phase, "the job had ended");
    if let (Some(old), Some(new)) = (&before.scaling, &after.scaling)
        // A job that is suspended in the same second begins another change: all leave.
        && (old.since == new.since && old.victims.is_some() && !new.restarts_all())
    {
        ensure!(old.victims == new.victims, "other pods are to leave than before");
        ensure!(
            old.step <= new.step,
            "the step goes back, from {:?} to {:?}",
            old.step,
            new.step
        );
    }
    Ok(())
}
