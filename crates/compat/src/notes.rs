//! What users of an object are told as events: the changes of its conditions that are worth it.

use serde_json::Value;
use trainyard_core::foreign::ForeignNote;

/// What a condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said<'a> {
    pub kind: &'a str,
    pub holds: bool,
    pub reason: &'a str,
    pub message: &'a str,
}

/// How a change is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As things go.
    Normal,
    /// Something has gone wrong.
    Warning,
    /// The object, or a change of it, can't be carried out: told again whenever there is something else to say, and also where
    /// nobody knows what was told before.
    Refusal,
}

/// What is told of a change of status. `tell` says of a condition how it is told, if it is, and by which reason.
pub fn notes(
    before: Option<&Value>,
    after: &Value,
    tell: for<'a> fn(&Said<'a>) -> Option<(Tone, &'a str)>,
) -> Vec<ForeignNote> {
    let news = said(after).filter_map(|now| {
        let (tone, reason) = tell(&now)?;
        let earlier = before.and_then(|before| said(before).find(|earlier| earlier.kind == now.kind));
        let is_new = match tone {
            Tone::Refusal => earlier != Some(now),
            Tone::Normal | Tone::Warning => {
                // The same in other words is no news.
                let same = |earlier: Said<'_>| (earlier.holds, earlier.reason) == (now.holds, now.reason);
                before.is_some() && !earlier.is_some_and(same)
            }
        };
        is_new.then(|| ForeignNote {
            warning: tone != Tone::Normal,
            reason: reason.to_owned(),
            message: now.message.to_owned(),
        })
    });
    news.collect()
}

fn said(status: &Value) -> impl Iterator<Item = Said<'_>> {
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().map(|condition| {
        let text = |member: &str| condition.get(member).and_then(Value::as_str).unwrap_or_default();
        Said {
            kind: text("type"),
            holds: text("status") == "True",
            reason: text("reason"),
            message: text("message"),
        }
    })
}
