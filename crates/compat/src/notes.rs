//! Events of an object: changes of its conditions, and what differs from the other operator.

use serde_json::Value;
use trainyard_api::TrainingJob;
use trainyard_api::names::ANNOTATION_NOTES;
use trainyard_core::foreign::ForeignNote;

/// Tells that some fields mean something else here, or nothing.
const DIFFERS: &str = "Differs";
/// Somewhat less than the server takes of an event's words.
const TOLD: usize = 1000;
/// Far less than the server takes of all annotations.
const KEPT: usize = 16_384;

/// What a condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition<'a> {
    pub kind: &'a str,
    pub holds: bool,
    pub reason: &'a str,
    pub message: &'a str,
}

/// How a change is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As things go, on the way to something else: not told if that is told with it.
    Passing,
    /// As things go.
    Normal,
    /// Something has gone wrong.
    Warning,
    /// The object, or a change of it, can't be carried out: told again whenever there is something
    /// else to say, and also where nobody knows what was told before.
    Refusal,
}

/// What is told of a change of status. `tell` says of a condition how it is told, if it is, and by
/// which reason.
pub fn notes(
    before: Option<&Value>,
    after: &Value,
    tell: for<'a> fn(&Condition<'a>) -> Option<(Tone, &'a str)>,
) -> Vec<ForeignNote> {
    let mut news: Vec<(Tone, ForeignNote)> = Vec::new();
    for now in conditions(after) {
        let Some((tone, reason)) = tell(&now) else {
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

/// Keeps on the child of an object what is different there, and tells it, unless the child has the
/// same already.
pub fn differences(child: &mut TrainingJob, notes: &[String]) -> Vec<ForeignNote> {
    let annotations = child.metadata.annotations.get_or_insert_default();
    if notes.is_empty() {
        annotations.remove(ANNOTATION_NOTES);
        return Vec::new();
    }
    let kept = fitting(notes, KEPT, "");
    let before = annotations.insert(ANNOTATION_NOTES.to_owned(), kept.clone());
    if before == Some(kept) {
        return Vec::new();
    }
    let rest = format!(" in the annotation {ANNOTATION_NOTES} of its TrainingJob");
    vec![ForeignNote {
        warning: false,
        reason: DIFFERS.to_owned(),
        message: fitting(notes, TOLD, &rest),
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
