//! Goes on with a request whose change was decided, until it is done or its time is over.

use std::collections::BTreeSet;

use jiff::Timestamp;
use trainyard_api::{Elastic, ScalePhase, ScaleReason, Scaling};

use super::begin::limit;
use super::script::ScriptStep;
use super::{Case, Change, Next, RequestSpec, RequestStep, after, index_in};
use crate::indices;
use crate::job::Job;
use crate::model::PodKey;
use crate::requested_size::RequestedSize;
use crate::scaling::{self, RestartStage};
use crate::view::View;

impl Case<'_> {
    /// The target of the job is written, if it is not yet. Then the request waits until the change
    /// is done. One that is not done in time is undone.
    pub(super) fn go_on(&self, spec: &RequestSpec, view: &View<'_>) -> Next {
        let status = &self.request.status;
        let (Some(from), Some(to)) = (status.from, status.to) else {
            let message = "Its status does not say any more what was decided: create another request.";
            return self.fail(ScaleReason::Invalid, message);
        };
        let this = self.reference(status.rollback);
        let job_status = view.job.status.as_ref();
        if job_status.and_then(|status| status.last_scale_request.as_deref()) == Some(&this) {
            return self.finish(spec, view, to);
        }
        let scaling = job_status.and_then(|status| status.scaling.as_deref());
        let scaling = scaling.filter(|scaling| scaling.request.as_ref() == Some(&this));
        let is_written = RequestedSize::of(view.job).is_some_and(|size| size.request == this);
        let (before, target) = if status.rollback { (to, from) } else { (from, to) };
        let replicas = view.job.spec.elastic.as_ref().map(|elastic| elastic.replicas);
        let expected = if is_written { target } else { before };
        match scaling {
            None if replicas != Some(expected) => self.superseded(spec, replicas.unwrap_or_default()),
            None if !is_written => self
                .before_leaving(spec, view)
                .unwrap_or_else(|| self.apply(spec, view, target)),
            scaling => self.watch_time(spec, view, scaling),
        }
    }

    /// What comes before the pods of a ScaleIn are told to leave: its script.
    fn before_leaving(&self, spec: &RequestSpec, view: &View<'_>) -> Option<Next> {
        if self.request.status.rollback || !matches!(spec.change, Change::Remove(_)) {
            return None;
        }
        let job = Job::parse_with(view.job, view.frameworks).ok()?;
        match self.run_script(spec, view, &job) {
            ScriptStep::Done => None,
            ScriptStep::UnderWay(next) => Some(next),
            ScriptStep::Failed(status, message) => {
                let message = format!("Nobody leaves. {message}");
                let (phase, reason) = (ScalePhase::ScaleFailed, ScaleReason::ScriptFailed);
                Some(self.end_with(*status, phase, reason, message))
            }
        }
    }

    /// Writes the target of the job, and who joins or leaves.
    fn apply(&self, spec: &RequestSpec, view: &View<'_>, target: i32) -> Next {
        let status = &self.request.status;
        if !status.rollback && self.due(spec).is_none_or(|due| due <= self.now) {
            // The server may refuse the write, for ever.
            return self.not_begun(spec);
        }
        let size = RequestedSize {
            request: self.reference(status.rollback),
            to: target,
            drain_timeout_seconds: spec.drain_timeout_seconds,
            ..RequestedSize::default()
        };
        let job = match Job::parse_with(view.job, view.frameworks) {
            Ok(job) => job,
            // It may be valid again when it has its former target, which names nobody.
            Err(_) if status.rollback => return Self::resize(&size),
            // The job does not change its size before it is valid again.
            Err(_) => return self.watch_time(spec, view, None),
        };
        let elastic = job.elastic.map(|elastic| elastic.spec);
        if let Some(elastic) = elastic.filter(|elastic| !status.rollback && !elastic.is_valid_size(target)) {
            return self.refused_meanwhile(elastic, target);
        }
        let leaving = if status.rollback {
            &status.joining
        } else {
            &status.victims
        };
        let victims = find(&job, leaving);
        let joining = status.joining.iter().filter(|_| !status.rollback);
        let joining: BTreeSet<i32> = joining.filter_map(|name| index_in(&job, name)).collect();
        Self::resize(&RequestedSize {
            victims: indices::format(&victims),
            joining: indices::format(&joining),
            ..size
        })
    }

    /// Somebody has changed the bounds of the job since the decision.
    fn refused_meanwhile(&self, elastic: &Elastic, target: i32) -> Next {
        let message = format!(
            "The job was to have {target} pods, but meanwhile {}. Nobody has joined or left.",
            limit(elastic, target)
        );
        self.fail(ScaleReason::SizeRefused, message)
    }

    /// Waits for a change that is under way. Pods that leave have the time that `scaling` gives
    /// them; all else has that of the request.
    fn watch_time(&self, spec: &RequestSpec, view: &View<'_>, scaling: Option<&Scaling>) -> Next {
        let status = &self.request.status;
        let is_leaving = match scaling.and_then(RestartStage::of) {
            None => matches!(spec.change, Change::Remove(_)) && scaling.is_some(),
            stage => stage != Some(RestartStage::Joining),
        };
        if is_leaving || status.rollback {
            return Next::default();
        }
        // All pods start anew: those that were there before had time of their own to leave.
        let restarted = scaling.filter(|scaling| scaling.restarts_all());
        let joining_since = restarted.and_then(|scaling| scaling.since.as_ref());
        let due = match joining_since {
            Some(since) => after(since.0, spec.timeout_seconds),
            None => self.due(spec),
        };
        match due.filter(|due| *due > self.now) {
            None => self.roll_back(spec, view, scaling),
            due => Next {
                wake_at: due,
                ..Next::default()
            },
        }
    }

    /// When the time of the change is over. A ScaleIn has changed nothing before its script was
    /// run.
    fn due(&self, spec: &RequestSpec) -> Option<Timestamp> {
        let status = &self.request.status;
        let script = status
            .script
            .as_ref()
            .and_then(|script| script.completion_time.as_ref());
        let script = script.filter(|_| matches!(spec.change, Change::Remove(_)));
        let start = script.or(status.start_time.as_ref())?;
        after(start.0, spec.timeout_seconds)
    }

    /// The time is over: it is recorded that the job is to have its former size again, and which
    /// pods leave for that.
    fn roll_back(&self, spec: &RequestSpec, view: &View<'_>, scaling: Option<&Scaling>) -> Next {
        let mut status = self.request.status.clone();
        let job = Job::parse_with(view.job, view.frameworks).ok();
        let scaling = scaling.filter(|scaling| !scaling.restarts_all());
        if let (Some(scaling), Some(job)) = (scaling, job) {
            let role = job.elastic.map_or(0, |elastic| elastic.role);
            let joining = scaling::joining(scaling).into_iter();
            status.joining = joining
                .map(|index| job.pod_name(PodKey { role, index }))
                .collect();
        }
        let message = match spec.change {
            Change::Add(_) => "The new pods do not run in time, and are removed.",
            Change::Remove(_) => "The change did not begin in time, and does not take place.",
        };
        status.rollback = true;
        status.message = Some(message.to_owned());
        self.set_condition(
            &mut status,
            ScalePhase::Scaling,
            true,
            ScaleReason::RollingBack,
            message,
        );
        Next::step(RequestStep::WriteStatus(Box::new(status)))
    }

    /// The job has carried out what was written.
    fn finish(&self, spec: &RequestSpec, view: &View<'_>, to: i32) -> Next {
        if self.request.status.rollback {
            return self.rolled_back(spec);
        }
        let has = view.job.status.as_ref().and_then(|status| status.replicas);
        let has = has.unwrap_or_default();
        match spec.change {
            Change::Add(_) if has < to => {
                let message = format!("Only {has} of {to} pods are there: some were lost as they joined.");
                self.fail(ScaleReason::PodsLost, message)
            }
            Change::Add(_) if spec.script.is_some() => self.after_joining(spec, view, has),
            _ => self.scaled(has),
        }
    }

    fn scaled(&self, has: i32) -> Next {
        let message = format!("The job has {has} pods.");
        self.end(ScalePhase::ScaleSucceeded, ScaleReason::Scaled, message)
    }

    /// What comes after the pods of a ScaleOut run: its script.
    fn after_joining(&self, spec: &RequestSpec, view: &View<'_>, has: i32) -> Next {
        let Ok(job) = Job::parse_with(view.job, view.frameworks) else {
            // It goes on when the job is valid again.
            return Next::default();
        };
        match self.run_script(spec, view, &job) {
            ScriptStep::Done => self.scaled(has),
            ScriptStep::UnderWay(next) => next,
            ScriptStep::Failed(status, _) => self.undo_joining(status),
        }
    }

    /// The job has the size again that it had.
    fn rolled_back(&self, spec: &RequestSpec) -> Next {
        if let Some((reason, message)) = self.script_failure() {
            return self.fail(reason, format!("The new pods were removed again. {message}"));
        }
        let seconds = spec.timeout_seconds;
        let message = match spec.change {
            Change::Add(_) => format!(
                "Not all new pods ran within {seconds} seconds (timeoutSeconds): they were removed again. `kubectl \
                 describe` of a pod says why it does not run."
            ),
            Change::Remove(_) => return self.not_begun(spec),
        };
        self.fail(ScaleReason::TimedOut, message)
    }

    fn not_begun(&self, spec: &RequestSpec) -> Next {
        let seconds = spec.timeout_seconds;
        let message = format!(
            "The change did not begin within {seconds} seconds (timeoutSeconds). Nobody has joined or left."
        );
        self.fail(ScaleReason::TimedOut, message)
    }

    /// Somebody else has written another target.
    fn superseded(&self, spec: &RequestSpec, replicas: i32) -> Next {
        if self.request.status.rollback {
            return self.rolled_back(spec);
        }
        let message = format!(
            "Somebody has set spec.elastic.replicas of the job to {replicas} meanwhile, which holds. Create another \
             request if it is still wanted."
        );
        self.fail(ScaleReason::Superseded, message)
    }
}

/// The indices of those pods that are still members.
fn find(job: &Job<'_>, names: &[String]) -> BTreeSet<i32> {
    let keys = names.iter().filter_map(|name| job.key(name));
    keys.map(|key| key.index).collect()
}
