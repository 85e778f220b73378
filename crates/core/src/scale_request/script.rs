//! Runs the script of a request: one attempt after the other, each of which is in the status of the
//! request before the launcher is told of it.
//!
//! An attempt belongs to one pod. Programs of a pod are never started again, so an attempt whose
//! pod has ended without a word is over, whoever asks: it is a failed one, and is not made again.

use std::time::Duration;

use jiff::Timestamp;
use trainyard_api::scale_request::SCRIPT_EXECUTED;
use trainyard_api::{ScalePhase, ScaleReason, ScaleRequestStatus, ScriptStatus};
use trainyard_contract::script::{MAX_OUTPUT, ScriptEnd, ScriptReport, ScriptRun, printable_end};

use super::parse::Script;
use super::{Case, Change, MAX_MESSAGE, Next, RequestSpec, RequestStep, after, index_in};
use crate::job::Job;
use crate::local_state::ScriptTask;
use crate::scripts::{self, ScriptHost};
use crate::status::{time, truncate};
use crate::view::{PodPhase, PodRow, View};

/// How much longer than the script itself its result may take: the launcher may ask another replica
/// first, and one that has just begun to lead may not be asked at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// When it is checked that the launcher is told what was decided: a term that begins forgets it.
const OFFER_CHECK: Duration = Duration::from_secs(10);
/// How much of an output is in sentences.
const MAX_QUOTE: usize = 1024;

/// How far the script of a request is.
pub(super) enum ScriptStep {
    /// It has succeeded, or there is none.
    Done,
    /// It has failed for good: the status that says so, and a sentence.
    Failed(Box<ScaleRequestStatus>, String),
    /// It is under way.
    UnderWay(Next),
}

/// How an attempt is going.
enum Attempt {
    /// It may still end well, until then.
    GoesOn(Option<Timestamp>),
    Succeeded(String),
    /// Its exit code, what it has printed, and what went wrong.
    Failed(Option<i32>, Option<String>, String),
}

impl Case<'_> {
    /// Returns true if the launcher can't be told of so many pods.
    pub(super) fn is_too_long(
        &self,
        spec: &RequestSpec,
        view: &View<'_>,
        job: &Job<'_>,
        pods: &[String],
    ) -> bool {
        let Some((script, host)) = spec.script.as_ref().zip(find_host(view, job).ok()) else {
            return false;
        };
        !self.script_run(spec, script, job, &host, pods, i32::MAX).fits()
    }

    /// Goes on with the script.
    pub(super) fn run_script(&self, spec: &RequestSpec, view: &View<'_>, job: &Job<'_>) -> ScriptStep {
        let status = &self.request.status;
        let Some(script) = &spec.script else {
            return ScriptStep::Done;
        };
        let last = status.script.as_ref();
        match last.filter(|last| last.completion_time.is_some()) {
            Some(last) if last.exit_code == Some(0) => return ScriptStep::Done,
            Some(_) => {
                let message = self.script_failure().map(|(_, message)| message);
                return ScriptStep::Failed(Box::new(status.clone()), message.unwrap_or_default());
            }
            None => {}
        }
        let host = match find_host(view, job) {
            Ok(host) => host,
            Err(why) => return self.script_failed(status.clone(), ScaleReason::ScriptRefused, why),
        };
        let Some(attempt) = last else {
            return self.begin_attempt(spec, script, view, job, &host, None);
        };
        match self.look_at(spec, attempt, view) {
            Attempt::GoesOn(until) => {
                let pods = match spec.change {
                    Change::Add(_) => &status.joining,
                    Change::Remove(_) => &status.victims,
                };
                ScriptStep::UnderWay(Next {
                    step: None,
                    wake_at: until,
                    script: Some(ScriptTask {
                        pod_uid: attempt.pod_uid.as_str().into(),
                        run: self.script_run(spec, script, job, &host, pods, attempt.attempt),
                    }),
                })
            }
            Attempt::Succeeded(output) => self.succeeded(attempt, output),
            Attempt::Failed(exit_code, output, what) => {
                let ended = ScriptStatus {
                    exit_code,
                    output,
                    ..attempt.clone()
                };
                let sentence = format!("Attempt {} of {} {what}", attempt.attempt, script.attempts);
                if attempt.attempt < script.attempts {
                    return self.begin_attempt(spec, script, view, job, &host, Some((&ended, sentence)));
                }
                let mut status = status.clone();
                status.script = Some(ScriptStatus {
                    completion_time: Some(time(self.now)),
                    ..ended
                });
                self.script_failed(status, ScaleReason::ScriptFailed, sentence)
            }
        }
    }

    /// Records an attempt and the launcher that is to make it, once a launcher runs. The attempt
    /// before it, if there was one, has failed, which is recorded with the same write.
    fn begin_attempt(
        &self,
        spec: &RequestSpec,
        script: &Script,
        view: &View<'_>,
        job: &Job<'_>,
        host: &ScriptHost,
        last: Option<(&ScriptStatus, String)>,
    ) -> ScriptStep {
        let name = job.pod_name(host.pod);
        let Some(row) = view.pods.iter().find(|row| *row.name == *name && runs(row)) else {
            let due = self.launcher_due(spec, view, last.as_ref().map(|(last, _)| *last));
            if due.is_none_or(|due| due <= self.now) {
                let before = last.map(|(_, sentence)| sentence + " ").unwrap_or_default();
                let message = format!("{before}The launcher {name} does not run.");
                let status = self.request.status.clone();
                return self.script_failed(status, ScaleReason::ScriptFailed, message);
            }
            return ScriptStep::UnderWay(Next {
                wake_at: due,
                ..Next::default()
            });
        };
        let mut status = self.request.status.clone();
        let number = last
            .as_ref()
            .map_or(1, |(last, _)| last.attempt.saturating_add(1));
        status.script = Some(ScriptStatus {
            attempt: number,
            pod: name.clone(),
            pod_uid: row.uid.to_string(),
            start_time: Some(time(self.now)),
            ..ScriptStatus::default()
        });
        if let Some((_, sentence)) = last {
            let reason = ScaleReason::ScriptFailed;
            self.set_condition_of(&mut status, SCRIPT_EXECUTED, false, reason, &sentence);
        }
        let message = format!(
            "The script is run in {name}, attempt {number} of {}.",
            script.attempts
        );
        status.message = Some(message);
        ScriptStep::UnderWay(Next::step(RequestStep::WriteStatus(Box::new(status))))
    }

    /// Until when a launcher is waited for.
    fn launcher_due(
        &self,
        spec: &RequestSpec,
        view: &View<'_>,
        last: Option<&ScriptStatus>,
    ) -> Option<Timestamp> {
        let seconds = spec.timeout_seconds;
        if let Some(start) = last.and_then(|last| last.start_time.as_ref()) {
            return after(start.0, seconds.saturating_mul(2));
        }
        let decided = self.request.status.start_time.as_ref();
        let scaled = view
            .job
            .status
            .as_ref()
            .and_then(|status| status.last_scale_time.as_ref());
        let since = decided.into_iter().chain(scaled).map(|time| time.0).max()?;
        after(since, seconds)
    }

    /// How the attempt is going that the status tells of.
    fn look_at(&self, spec: &RequestSpec, attempt: &ScriptStatus, view: &View<'_>) -> Attempt {
        let uid = self.request.metadata.uid.as_deref().unwrap_or_default();
        let offered = view.local.script.offered().filter(|known| {
            let run = &known.task.run;
            (&*run.request, run.attempt) == (uid, attempt.attempt) && *known.task.pod_uid == *attempt.pod_uid
        });
        if let Some(report) = offered.and_then(|known| known.report.as_ref()) {
            return judge(spec, report);
        }
        let row = view.pods.iter().find(|row| *row.name == *attempt.pod);
        if !row.is_some_and(|row| *row.uid == *attempt.pod_uid && !row.has_ended()) {
            let what = format!("has no result: the launcher {} has ended meanwhile.", attempt.pod);
            return Attempt::Failed(None, None, what);
        }
        let seconds = u64::try_from(spec.timeout_seconds).unwrap_or_default();
        let allowed = Duration::from_secs(seconds) + ANSWER_TIMEOUT;
        match offered.and_then(|known| known.since.checked_add(allowed)) {
            Some(until) if until <= view.instant => {
                let what = format!(
                    "has no result: the launcher {} has not said one within {} seconds. A launcher that is older than \
                     this operator may know no scripts.",
                    attempt.pod,
                    allowed.as_secs()
                );
                Attempt::Failed(None, None, what)
            }
            until => {
                let until = until.unwrap_or(view.instant + OFFER_CHECK);
                Attempt::GoesOn(view.time_of(until))
            }
        }
    }

    fn succeeded(&self, attempt: &ScriptStatus, output: String) -> ScriptStep {
        let mut status = self.request.status.clone();
        status.script = Some(ScriptStatus {
            completion_time: Some(time(self.now)),
            exit_code: Some(0),
            output: Some(output).filter(|output| !output.is_empty()),
            ..attempt.clone()
        });
        let message = "The script has succeeded.";
        let reason = ScaleReason::ScriptSucceeded;
        self.set_condition_of(&mut status, SCRIPT_EXECUTED, true, reason, message);
        status.message = Some(message.to_owned());
        ScriptStep::UnderWay(Next::step(RequestStep::WriteStatus(Box::new(status))))
    }

    fn script_failed(
        &self,
        mut status: ScaleRequestStatus,
        reason: ScaleReason,
        mut message: String,
    ) -> ScriptStep {
        truncate(&mut message, MAX_MESSAGE);
        self.set_condition_of(&mut status, SCRIPT_EXECUTED, false, reason, &message);
        ScriptStep::Failed(Box::new(status), message)
    }

    /// Why the script has failed, as the status says: the reason and a sentence.
    pub(super) fn script_failure(&self) -> Option<(ScaleReason, String)> {
        let mut conditions = self.request.status.conditions.iter();
        let condition = conditions.find(|known| known.type_ == SCRIPT_EXECUTED && known.status == "False")?;
        Some((ScaleReason::parse(&condition.reason)?, condition.message.clone()))
    }

    /// The pods that have joined are removed again, because the script has failed.
    pub(super) fn undo_joining(&self, mut status: Box<ScaleRequestStatus>) -> Next {
        let message = "The script has failed: the new pods are removed.";
        status.rollback = true;
        status.message = Some(message.to_owned());
        let reason = ScaleReason::RollingBack;
        self.set_condition(&mut status, ScalePhase::Scaling, true, reason, message);
        Next::step(RequestStep::WriteStatus(status))
    }

    /// What the launcher is told.
    fn script_run(
        &self,
        spec: &RequestSpec,
        script: &Script,
        job: &Job<'_>,
        host: &ScriptHost,
        pods: &[String],
        attempt: i32,
    ) -> ScriptRun {
        let numbers = pods.iter().filter_map(|name| index_in(job, name));
        let hosts = numbers.filter_map(|number| {
            let host = host.hosts.host(u32::try_from(number).ok()?);
            Some(format!("{}:{}", host.name, host.slots))
        });
        let mut args = script.args.clone();
        args.push(hosts.collect::<Vec<_>>().join(","));
        ScriptRun {
            request: self.request.metadata.uid.clone().unwrap_or_default(),
            attempt,
            program: script.program.clone(),
            args,
            env: script.env.clone(),
            timeout_seconds: spec.timeout_seconds,
        }
    }
}

/// Why the script of a request can't be run at all.
pub(super) fn obstacle(spec: &RequestSpec, view: &View<'_>, job: &Job<'_>) -> Option<String> {
    spec.script.as_ref()?;
    find_host(view, job).err()
}

fn find_host(view: &View<'_>, job: &Job<'_>) -> Result<ScriptHost, String> {
    if !view.settings.runs_scripts {
        let why = "scripts are off in this cluster: install the operator with --scripts, or leave script out";
        return Err(format!("The script can't be run: {why}."));
    }
    scripts::host(job, view.settings).map_err(|why| format!("The script can't be run: {why}."))
}

fn runs(row: &PodRow) -> bool {
    row.phase == PodPhase::Running && !row.terminating
}

/// What a report says. Programs of the launcher could have sent it: its output is made printable
/// once more.
fn judge(spec: &RequestSpec, report: &ScriptReport) -> Attempt {
    let mut output = printable_end(report.output.as_bytes());
    truncate(&mut output, MAX_OUTPUT);
    let mut quote = printable_end(output.as_bytes());
    if quote.len() > MAX_QUOTE {
        let from = (quote.len() - MAX_QUOTE..quote.len()).find(|at| quote.is_char_boundary(*at));
        quote = format!("...{}", quote.get(from.unwrap_or_default()..).unwrap_or_default());
    }
    let with_quote = |what: String| {
        if quote.is_empty() {
            format!("{what}.")
        } else {
            format!("{what}: {quote}")
        }
    };
    let kept = Some(output.clone()).filter(|output| !output.is_empty());
    match report.end {
        ScriptEnd::Exited { code: 0 } => Attempt::Succeeded(output),
        ScriptEnd::Exited { code } => {
            let what = with_quote(format!("has ended with exit code {code}"));
            Attempt::Failed(Some(code), kept, what)
        }
        ScriptEnd::TimedOut => {
            let what = format!(
                "has taken more than {} seconds (timeoutSeconds), and was ended",
                spec.timeout_seconds
            );
            Attempt::Failed(None, kept, with_quote(what))
        }
        ScriptEnd::NotStarted => Attempt::Failed(None, kept, with_quote("could not be started".to_owned())),
    }
}
