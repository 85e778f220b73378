//! Events of an object: changes of its conditions, and what differs from the other operator.

use serde_json::Value;
use trainyard_api::TrainingJob;
use trainyard_api::names::ANNOTATION_NOTES;
use trainyard_core::foreign::ForeignNote;

/// The reason of an event that says which fields mean something else here, or nothing.
const DIFFERS: &str = "Differs";
/// The longest message of an event, in bytes: somewhat less than the server takes.
const MAX_MESSAGE: usize = 1000;
/// The longest annotation, in bytes: far less than the server takes of all annotations.
const MAX_ANNOTATION: usize = 16_384;

/// What a condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition<'a> {
    pub kind: &'a str,
    pub holds: bool,
    pub reason: &'a str,
    pub message: &'a str,
}

/// How an event reports a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As things go, on the way to something else: not told if that is told with it.
    Passing,
    /// As things go.
    Normal,
    /// Something has gone wrong.
    Warning,
    /// The object, or a change of it, can't be carried out. It is reported again whenever there is
    /// something else to say, and also if nobody knows what was reported before.
    Refusal,
}

/// The events that report a change of status. `event` gives the tone and the reason of a
/// condition's event, if it has one.
pub fn notes(
    before: Option<&Value>,
    after: &Value,
    event: for<'a> fn(&Condition<'a>) -> Option<(Tone, &'a str)>,
) -> Vec<ForeignNote> {
    let mut news: Vec<(Tone, ForeignNote)> = Vec::new();
    for now in conditions(after) {
        let Some((tone, reason)) = event(&now) else {
            continue;
        };
        let earlier = before.and_then(|before| conditions(before).find(|earlier| earlier.kind == now.kind));
        let is_new = match tone {
            Tone::Refusal => earlier != Some(now),
            Tone::Passing | Tone::Normal | Tone::Warning => {
                // Another message for the same reason is no event.
                let same =
                    |earlier: Condition<'_>| (earlier.holds, earlier.reason) == (now.holds, now.reason);
                before.is_some() && !earlier.is_some_and(same)
            }
        };
        if is_new {
            let note = ForeignNote {
                warning: matches!(tone, Tone::Warning | Tone::Refusal),
                reason: reason.to_owned(),
                message: now.message.to_owned(),
            };
            news.push((tone, note));
        }
    }
    if news.iter().any(|(tone, _)| *tone != Tone::Passing) {
        news.retain(|(tone, _)| *tone != Tone::Passing);
    }
    news.into_iter().map(|(_, note)| note).collect()
}

fn conditions(status: &Value) -> impl Iterator<Item = Condition<'_>> {
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().map(|condition| {
        let text = |member: &str| condition.get(member).and_then(Value::as_str).unwrap_or_default();
        Condition {
            kind: text("type"),
            holds: text("status") == "True",
            reason: text("reason"),
            message: text("message"),
        }
    })
}

/// Writes on the child of an object what is different there. Returns an event that says the same,
/// unless the child had it already.
pub fn differences(child: &mut TrainingJob, notes: &[String]) -> Vec<ForeignNote> {
    let annotations = child.metadata.annotations.get_or_insert_default();
    if notes.is_empty() {
        annotations.remove(ANNOTATION_NOTES);
        return Vec::new();
    }
    let kept = fitting(notes, MAX_ANNOTATION, "");
    let before = annotations.insert(ANNOTATION_NOTES.to_owned(), kept.clone());
    if before == Some(kept) {
        return Vec::new();
    }
    let rest = format!(" in the annotation {ANNOTATION_NOTES} of its TrainingJob");
    vec![ForeignNote {
        warning: false,
        reason: DIFFERS.to_owned(),
        message: fitting(notes, MAX_MESSAGE, &rest),
    }]
}

/// As many lines as fit into so many bytes, and how many there are besides; `place` says where.
fn fitting(notes: &[String], limit: usize, place: &str) -> String {
    let whole = notes.join("\n");
    if whole.len() <= limit {
        return whole;
    }
    let rest = |left: usize| format!("... and {left} more{place}");
    // Nothing that is said of fewer is longer.
    let limit = limit.saturating_sub(rest(notes.len()).len());
    let mut text = String::new();
    let mut left = notes.iter();
    while let Some(line) = left.as_slice().first()
        && text.len() + line.len() < limit
    {
        text.push_str(line);
        text.push('\n');
        left.next();
    }
    text + &rest(left.len())
}
