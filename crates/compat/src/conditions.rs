//! Conditions and messages of objects whose own operator has none: those of the TrainingJob.

use serde_json::{Map, Value};
use trainyard_api::{ConditionType, Reason, RestartCause};

use crate::notes::{Condition, Tone};
use crate::report::{Problem, Report};

const ACCEPTED: &str = ConditionType::Accepted.as_str();

/// The conditions of the child that the object has too, in this order.
const COPIED: [ConditionType; 3] = [
    ConditionType::Running,
    ConditionType::Succeeded,
    ConditionType::Failed,
];

/// The part of a status that says what holds: `observedGeneration`, `phase`, `message`,
/// `conditions` and times.
pub fn status(report: &Report<'_>) -> Map<String, Value> {
    let refusal = report.refusal();
    let generation = report.object.pointer("/metadata/generation").cloned();
    let observed = generation.map(|generation| ("observedGeneration".to_owned(), generation));
    let mut conditions = conditions(report, refusal.as_ref());
    for condition in &mut conditions {
        condition.extend(observed.clone());
    }
    let message = refusal.map(|refusal| refusal.message).or_else(|| message(report));
    let mut status = Map::new();
    status.extend(observed);
    status.insert("phase".to_owned(), report.phase().as_str().into());
    status.extend(message.map(|message| ("message".to_owned(), message.into())));
    status.insert(
        "conditions".to_owned(),
        conditions.into_iter().map(Value::from).collect(),
    );
    status.extend(report.times().map(|(field, time)| (field.to_owned(), time)));
    status
}

fn conditions(report: &Report<'_>, refusal: Option<&Problem>) -> Vec<Map<String, Value>> {
    let mut conditions = vec![match refusal {
        Some(refusal) => report.condition(ACCEPTED, false, &refusal.reason, &refusal.message),
        None => report.condition(ACCEPTED, true, "Valid", "the job is valid"),
    }];
    let child = report.status().into_iter().flat_map(|status| &status.conditions);
    let child: Vec<_> = child.collect();
    conditions.extend(COPIED.iter().filter_map(|kind| {
        let same = child.iter().find(|condition| condition.type_ == kind.as_str())?;
        Some(report.condition(kind.as_str(), same.status == "True", &same.reason, &same.message))
    }));
    conditions
}

/// The event that reports a condition, by the reasons that the TrainingJob has.
pub fn event<'a>(condition: &Condition<'a>) -> Option<(Tone, &'a str)> {
    let kinds = [ConditionType::Accepted].into_iter().chain(COPIED);
    let kind = kinds.into_iter().find(|kind| kind.as_str() == condition.kind)?;
    let tone = match (kind, condition.holds) {
        (ConditionType::Accepted, false) => Tone::Refusal,
        (ConditionType::Accepted, true) => Tone::Passing,
        (ConditionType::Failed, true) => Tone::Warning,
        (ConditionType::Running, false) if condition.reason == Reason::Restarting.as_str() => Tone::Warning,
        (_, true) => Tone::Normal,
        (_, false) => return None,
    };
    Some((tone, condition.reason))
}

/// What there is to say in one sentence.
fn message(report: &Report<'_>) -> Option<String> {
    let ended = [ConditionType::Failed, ConditionType::Succeeded];
    let ended = ended.into_iter().find_map(|kind| report.holds(kind));
    let replaced = || {
        let history = report.status()?.restarts.as_ref()?.history.iter();
        let failed = history
            .rev()
            .find(|record| record.cause == RestartCause::Failure)?;
        Some(format!(
            "{} failed ({}) and was replaced",
            failed.pod, failed.reason
        ))
    };
    ended.map(|condition| condition.message.clone()).or_else(replaced)
}
