//! The sentences of a run.

use std::time::Duration;

use super::style::{Look, Paint};
use crate::run::outcome::Outcome;
use crate::run::view::{Bar, Item, Picture, Speaker, Stop, Summary, words};

/// Troubles beyond these are counted, not listed.
const MAX_TROUBLES: usize = 3;

/// What an item says, without who says it. Nothing for logs, which say it themselves.
pub fn sentence(item: &Item, paint: Paint) -> Option<String> {
    let text = match item {
        Item::Log { .. } => return None,
        Item::Note(note) => format!("{} {}", paint.paint(Look::Warning, "note:"), paint.foreign(note)),
        Item::Phase { phase, at } => {
            let after = paint.paint(Look::Faint, format!("after {}", words::span(*at)));
            format!("{} {after}", paint.paint(Look::Strong, phase.as_str()))
        }
        Item::Trouble { speaker, message } => {
            let who = paint.paint(Look::Pod(speaker.number), &speaker.label);
            format!("{who}: {}", paint.paint(Look::Bad, paint.foreign(message)))
        }
        Item::Progress(text) => paint.foreign(text).into_owned(),
        Item::Stopping(Stop::Interrupted) => {
            "interrupted: the pods are told to end; once more, and they are ended at once".to_owned()
        }
        Item::Stopping(Stop::TimedOut) => {
            "the time is over: the pods are told to end, and have their grace period for that".to_owned()
        }
    };
    Some(text)
}

/// How it went, in lines.
pub fn ending(summary: &Summary, paint: Paint) -> Vec<String> {
    let (mark, look) = match summary.outcome {
        Outcome::Succeeded => ("✓", Look::Good),
        Outcome::Interrupted => ("■", Look::Warning),
        _ => ("✗", Look::Bad),
    };
    let mut lines = vec![format!(
        "{} {}",
        paint.paint(look, mark),
        paint.paint(Look::Strong, summary.headline())
    )];
    let phases: Vec<String> = summary
        .phases
        .iter()
        .map(|span| {
            let took = words::span(Duration::from_secs_f64(span.seconds));
            format!("{} {took}", span.phase.as_str())
        })
        .collect();
    if !phases.is_empty() {
        lines.push(format!("  {}", paint.paint(Look::Faint, phases.join(" · "))));
    }
    if let Some(message) = &summary.message {
        let message = paint.foreign(message);
        lines.extend(message.lines().map(|line| format!("  {line}")));
    }
    if let Some(cause) = &summary.root_cause {
        let container = cause.container.as_deref();
        let container = container.map_or_else(String::new, |name| format!(" (container {name})"));
        let how = paint.paint(Look::Bad, paint.foreign(&cause.ending()));
        lines.push(format!("  first to fail: {}{container}: {how}", cause.pod));
        if !cause.last_lines.is_empty() {
            lines.push("  its last lines:".to_owned());
            let bar = paint.paint(Look::Bad, "│");
            let last = cause.last_lines.iter().map(|line| paint.foreign(line));
            lines.extend(last.map(|line| format!("    {bar} {line}")));
        }
    }
    lines
}

/// The present, in lines no wider than the terminal.
pub fn picture(picture: &Picture, paint: Paint, width: usize) -> Vec<String> {
    let (phase, since) = picture.phase;
    let pods: Vec<String> = picture
        .roles
        .iter()
        .map(|(role, up, all)| format!("{role} {up}/{all}"))
        .collect();
    let mut lines = vec![format!(
        "{} {} {}  {}",
        paint.paint(Look::Strong, &picture.job),
        paint.paint(Look::Good, phase.as_str()),
        paint.paint(Look::Faint, words::span(since)),
        pods.join("  ")
    )];
    if let Some(progress) = &picture.progress {
        lines.push(bar(progress, paint, width));
    }
    for (speaker, trouble) in picture.troubles.iter().take(MAX_TROUBLES) {
        lines.push(format!(
            "{}: {}",
            paint.paint(Look::Pod(speaker.number), &speaker.label),
            paint.paint(Look::Warning, paint.foreign(trouble).replace('\n', " "))
        ));
    }
    if let Some(more) = picture
        .troubles
        .len()
        .checked_sub(MAX_TROUBLES)
        .filter(|more| *more > 0)
    {
        lines.push(paint.paint(Look::Warning, format!("and {more} more")));
    }
    if let Some((_, left)) = picture.stopping {
        let text = format!(
            "stopping: {} left; Ctrl-C ends it at once",
            words::count(left, "pod")
        );
        lines.push(paint.paint(Look::Warning, text));
    }
    lines
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a part of a terminal's width"
)]
fn bar(progress: &Bar, paint: Paint, width: usize) -> String {
    let text = progress.text();
    let text = paint.foreign(&text).into_owned();
    let Some(fraction) = progress.fraction else {
        return text;
    };
    let percent = format!("{:3.0} %", fraction * 100.0);
    // The bar takes what the words leave, within reason.
    let room = width
        .saturating_sub(text.chars().count() + percent.len() + 4)
        .clamp(10, 40);
    let done = ((room as f64) * fraction).round() as usize;
    format!(
        "{}{} {percent}  {text}",
        paint.paint(Look::Good, "━".repeat(done)),
        paint.paint(Look::Faint, "─".repeat(room - done.min(room)))
    )
}

/// Who says a line, before what is said.
pub fn prefix(speaker: &Speaker, width: usize, paint: Paint) -> String {
    let label = format!("{:width$}", speaker.label);
    format!(
        "{} ",
        paint.paint(Look::Pod(speaker.number), format!("{label} │"))
    )
}
