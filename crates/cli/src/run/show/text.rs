//! The sentences of a run.

use std::time::Duration;

use trainyard_api::JobResult;

use super::style::{Emphasis, Paint};
use crate::run::outcome::Outcome;
use crate::run::view::{Bar, Change, Dashboard, Item, Size, Source, Stop, Summary, humanize};

/// Troubles beyond these are counted, not listed.
const MAX_TROUBLES: usize = 3;

/// The sentence for an item; None for a log line.
pub fn sentence(item: &Item, paint: Paint) -> Option<String> {
    let text = match item {
        Item::Log { .. } => return None,
        Item::Note(note) => format!(
            "{} {}",
            paint.paint(Emphasis::Warning, "note:"),
            paint.sanitize(note)
        ),
        Item::Phase { phase, at } => {
            let after = paint.paint(Emphasis::Faint, format!("after {}", humanize::span(*at)));
            format!("{} {after}", paint.paint(Emphasis::Strong, phase.as_str()))
        }
        Item::Trouble { source, message } => {
            let who = paint.paint(Emphasis::Pod(source.number), &source.label);
            format!("{who}: {}", paint.paint(Emphasis::Bad, paint.sanitize(message)))
        }
        Item::Progress(text) => paint.sanitize(text).into_owned(),
        Item::Stopping(Stop::Interrupted) => {
            "interrupted: the pods are told to end; once more, and they are ended at once".to_owned()
        }
        Item::Stopping(Stop::TimedOut) => {
            "the time is over: the pods are told to end, and have their grace period for that".to_owned()
        }
    };
    Some(text)
}

pub fn summary_lines(summary: &Summary, paint: Paint) -> Vec<String> {
    let (mark, emphasis) = match summary.outcome {
        Outcome::Succeeded => ("✓", Emphasis::Good),
        Outcome::Interrupted => ("■", Emphasis::Warning),
        _ => ("✗", Emphasis::Bad),
    };
    let mut lines = vec![format!(
        "{} {}",
        paint.paint(emphasis, mark),
        paint.paint(Emphasis::Strong, summary.headline())
    )];
    let phases: Vec<String> = summary
        .phases
        .iter()
        .map(|span| {
            let took = humanize::span(Duration::from_secs_f64(span.seconds));
            format!("{} {took}", span.phase.as_str())
        })
        .collect();
    if !phases.is_empty() {
        lines.push(format!("  {}", paint.paint(Emphasis::Faint, phases.join(" · "))));
    }
    if let Some(message) = &summary.message {
        let message = paint.sanitize(message);
        lines.extend(message.lines().map(|line| format!("  {line}")));
    }
    if let Some(result) = &summary.result {
        lines.extend(result_lines(result, paint));
    }
    if let Some(cause) = &summary.root_cause {
        let container = cause.container.as_deref();
        let container = container.map_or_else(String::new, |name| format!(" (container {name})"));
        let exit = paint.paint(Emphasis::Bad, paint.sanitize(&cause.ending()));
        lines.push(format!(
            "  first to fail: {}: {exit}",
            paint.sanitize(&format!("{}{container}", cause.pod))
        ));
        if !cause.last_lines.is_empty() {
            lines.push("  its last lines:".to_owned());
            let bar = paint.paint(Emphasis::Bad, "│");
            let last = cause.last_lines.iter().map(|line| paint.sanitize(line));
            lines.extend(last.map(|line| format!("    {bar} {line}")));
        }
    }
    lines
}

/// One line for all metrics, the loss first, and one for each artifact.
fn result_lines(result: &JobResult, paint: Paint) -> Vec<String> {
    let loss = result.metrics.get_key_value("loss");
    let others = result.metrics.iter().filter(|(name, _)| *name != "loss");
    let metrics = loss.into_iter().chain(others);
    let metrics: Vec<String> = metrics.map(|(name, number)| format!("{name} {number}")).collect();
    let metrics = (!metrics.is_empty()).then(|| format!("result: {}", metrics.join("  ")));
    let artifacts = result.artifacts.iter();
    let artifacts = artifacts.map(|(name, location)| format!("{name}: {location}"));
    let lines = metrics.into_iter().chain(artifacts);
    lines.map(|line| format!("  {}", paint.sanitize(&line))).collect()
}

/// The lines of the dashboard, no wider than the terminal.
pub fn dashboard_lines(dashboard: &Dashboard, paint: Paint, width: usize) -> Vec<String> {
    let (phase, since) = dashboard.phase;
    let pods: Vec<String> = dashboard
        .roles
        .iter()
        .map(|(role, up, all)| format!("{} {up}/{all}", paint.sanitize(role)))
        .collect();
    let mut lines = vec![format!(
        "{} {} {}  {}",
        paint.paint(Emphasis::Strong, &dashboard.job),
        paint.paint(Emphasis::Good, phase.as_str()),
        paint.paint(Emphasis::Faint, humanize::span(since)),
        pods.join("  ")
    )];
    if let Some(progress) = &dashboard.progress {
        lines.push(bar(progress, paint, width));
    }
    lines.extend(dashboard.size.as_ref().map(|size| size_line(size, paint)));
    for (source, trouble) in dashboard.troubles.iter().take(MAX_TROUBLES) {
        lines.push(format!(
            "{}: {}",
            paint.paint(Emphasis::Pod(source.number), &source.label),
            paint.paint(Emphasis::Warning, paint.sanitize(trouble).replace('\n', " "))
        ));
    }
    if let Some(more) = dashboard
        .troubles
        .len()
        .checked_sub(MAX_TROUBLES)
        .filter(|more| *more > 0)
    {
        lines.push(paint.paint(Emphasis::Warning, format!("and {more} more")));
    }
    if let Some((_, left)) = dashboard.stopping {
        let text = format!(
            "stopping: {} left; Ctrl-C ends it at once",
            humanize::count(left, "pod")
        );
        lines.push(paint.paint(Emphasis::Warning, text));
    }
    lines
}

/// How large an elastic job is and will be, who joins or leaves, and which keys change that.
fn size_line(size: &Size, paint: Paint) -> String {
    let Size {
        now,
        target,
        min,
        max,
        ..
    } = size;
    let arrow = (now != target).then(|| format!(" → {target}"));
    let most = max.map_or_else(|| "or more".to_owned(), |max| format!("to {max}"));
    let mut line = format!("size {now}{} ({min} {most})", arrow.unwrap_or_default());
    if let Some(Change { role, pods, leaving }) = &size.change {
        let what = match leaving {
            Some(step) => format!("{role} {pods} leaves: {}", step.as_str()),
            None => format!("{role} {pods} joins"),
        };
        line = format!("{line}  {}", paint.paint(Emphasis::Warning, what));
    }
    if size.has_keys {
        line = format!(
            "{line}  {}",
            paint.paint(Emphasis::Faint, "keys + and - change it")
        );
    }
    line
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a part of a terminal's width"
)]
fn bar(progress: &Bar, paint: Paint, width: usize) -> String {
    let text = progress.text();
    let text = paint.sanitize(&text).into_owned();
    let Some(fraction) = progress.fraction else {
        return text;
    };
    let percent = format!("{:3.0} %", fraction * 100.0);
    // The bar takes the columns that the text leaves, within reason.
    let room = width
        .saturating_sub(text.chars().count() + percent.len() + 4)
        .clamp(10, 40);
    let done = ((room as f64) * fraction).round() as usize;
    format!(
        "{}{} {percent}  {text}",
        paint.paint(Emphasis::Good, "━".repeat(done)),
        paint.paint(Emphasis::Faint, "─".repeat(room - done.min(room)))
    )
}

/// The label in front of a log line.
pub fn prefix(source: &Source, width: usize, paint: Paint) -> String {
    let label = format!("{:width$}", source.label);
    format!(
        "{} ",
        paint.paint(Emphasis::Pod(source.number), format!("{label} │"))
    )
}
