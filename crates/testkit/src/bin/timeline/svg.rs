//! A recording as SVG: a row for each thing, and a line for each step of the removal.

use std::fmt::Write as _;

use super::recording::{Recording, Span, Track};

const WIDTH: f64 = 880.0;
/// Where the time axis begins, and the space after it.
const LEFT: f64 = 170.0;
const RIGHT: f64 = 24.0;
/// The height of the rows, and of the bars in them.
const ROW: f64 = 32.0;
const BAR: f64 = 20.0;
/// The height of a line of names of steps.
const LINE: f64 = 17.0;
/// The space above all and below all.
const MARGIN: f64 = 14.0;
const AXIS: f64 = 34.0;
/// About the width of a character.
const CHARACTER: f64 = 7.2;
/// Seconds that are shown before the recording, and after it.
const BEFORE: f64 = 0.25;
const AFTER: f64 = 0.9;

const STYLE: &str = "\
text{font:12px ui-sans-serif,system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}
.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.soft{fill:#59636e}.step{font-weight:600}
.paper{fill:#fff}.rule{stroke:#d1d9e0}.mark{stroke:#59636e;stroke-dasharray:3 3}
.even{fill:#eaeef2}.running{fill:#a5d6ff}.leaving{fill:#f5d88f}.left{fill:#d8c6f5}.done{fill:#a6e3b5}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.soft{fill:#9198a1}
.paper{fill:#0d1117}.rule{stroke:#3d444d}.mark{stroke:#9198a1}
.even{fill:#2f353d}.running{fill:#1f4f86}.leaving{fill:#73540c}.left{fill:#51397f}.done{fill:#1d5c31}
}
";

/// A bar: what it is called, and the class of its colour.
type Look = fn(&str) -> Option<(String, &'static str)>;

struct Row {
    name: String,
    track: Track,
    look: Look,
}

pub fn draw(recording: &Recording) -> String {
    let rows = rows(recording);
    let scale = Scale {
        end: recording.end + AFTER,
    };
    let (names, lines) = step_names(recording, &scale);
    let top = MARGIN + lines * LINE + 6.0;
    let bottom = top + count(rows.len()) * ROW;
    let height = bottom + AXIS;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {WIDTH:.0} \
         {height:.0}\" role=\"img\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" \
         height=\"100%\" rx=\"8\"/>\n",
        title(recording)
    );
    for (number, row) in rows.iter().enumerate() {
        draw_row(&mut svg, row, top + count(number) * ROW, &scale);
    }
    draw_axis(&mut svg, bottom, &scale);
    for (name, at, line) in names {
        let (x, y) = (scale.x(at), MARGIN + (line + 0.75) * LINE);
        append(
            &mut svg,
            format_args!(
                "<line class=\"mark\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>\n<text class=\"step\" \
                 x=\"{:.1}\" y=\"{y:.1}\">{name}</text>\n",
                y - 9.0,
                x + 4.0
            ),
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// What those read who don't see it.
fn title(recording: &Recording) -> String {
    let steps = recording.steps();
    let steps: Vec<String> = steps
        .iter()
        .map(|(name, at)| format!("{name} after {at:.2} s"))
        .collect();
    format!("A scale-in: {}", steps.join(", "))
}

fn rows(recording: &Recording) -> Vec<Row> {
    let row = |name: &str, track: &Track, look: Look| Row {
        name: name.to_owned(),
        track: track.clone(),
        look,
    };
    let mut rows = vec![
        row("ScaleIn", &recording.request, |phase| {
            let class = match phase {
                "Scaling" => "leaving",
                "ScaleSucceeded" => "done",
                _ => "even",
            };
            Some((phase.to_owned(), class))
        }),
        row("elastic.replicas", &recording.target, |replicas| {
            Some((replicas.to_owned(), "even"))
        }),
        row("status.scaling", &recording.scaling, |step| {
            (!step.is_empty()).then(|| (step.to_owned(), "leaving"))
        }),
    ];
    for (name, track) in &recording.pods {
        rows.push(row(name, &with_leaving(recording, track), |state| {
            let class = match state {
                "Running" => "running",
                "leaves" => "leaving",
                "Left" => "left",
                "Deleted" => return None,
                _ => "even",
            };
            Some((state.to_owned(), class))
        }));
    }
    rows
}

/// The track of a pod, which leaves from the time on at which it was told to.
fn with_leaving(recording: &Recording, track: &Track) -> Track {
    let mut track = track.clone();
    let Some(left) = track.iter().position(|span| span.state == "Left") else {
        return track;
    };
    let told = recording.scaling.iter().find(|span| span.state == "Requested");
    if let Some(told) = told.filter(|told| told.begin < track[left].begin) {
        let leaves = Span {
            begin: told.begin,
            state: "leaves".to_owned(),
        };
        track.insert(left, leaves);
    }
    track
}

fn draw_row(svg: &mut String, row: &Row, y: f64, scale: &Scale) {
    let middle = y + ROW / 2.0 + 4.0;
    append(
        svg,
        format_args!(
            "<text class=\"mono\" x=\"{MARGIN}\" y=\"{middle:.1}\">{}</text>\n",
            row.name
        ),
    );
    for (number, span) in row.track.iter().enumerate() {
        let Some((text, class)) = (row.look)(&span.state) else {
            continue;
        };
        let begin = if span.begin <= 0.0 { -BEFORE } else { span.begin };
        let next = row.track.get(number + 1);
        let (from, to) = (scale.x(begin), scale.x(next.map_or(scale.end, |next| next.begin)));
        let (width, top) = ((to - from - 1.0).max(1.0), y + (ROW - BAR) / 2.0);
        append(
            svg,
            format_args!(
                "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"3\"/>\n"
            ),
        );
        if width > text_width(&text) + 8.0 {
            append(
                svg,
                format_args!("<text x=\"{:.1}\" y=\"{middle:.1}\">{text}</text>\n", from + 5.0),
            );
        }
    }
}

fn draw_axis(svg: &mut String, y: f64, scale: &Scale) {
    append(
        svg,
        format_args!(
            "<line class=\"rule\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>\n",
            WIDTH - RIGHT
        ),
    );
    let mut second = 0.0;
    while second <= scale.end {
        let x = scale.x(second);
        append(
            svg,
            format_args!(
                "<line class=\"rule\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>\n<text class=\"soft\" \
                 x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{second:.0} s</text>\n",
                y + 5.0,
                y + 20.0
            ),
        );
        second += 1.0;
    }
}

/// The steps with their times, each in a line in which nothing is in its way, and how many lines
/// that takes.
fn step_names(recording: &Recording, scale: &Scale) -> (Vec<(String, f64, f64)>, f64) {
    let mut ends: Vec<f64> = Vec::new();
    let mut names = Vec::new();
    // From the right, so that the line of a step passes no name of a later one.
    for (step, at) in recording.steps().into_iter().rev() {
        let name = format!("{step} {at:.2} s");
        let begin = scale.x(at);
        let end = begin + text_width(&name) + 10.0;
        let line = ends.iter().position(|taken| end <= *taken).unwrap_or(ends.len());
        if line == ends.len() {
            ends.push(begin);
        } else {
            ends[line] = begin;
        }
        names.push((name, at, line));
    }
    let lines = count(ends.len());
    let placed = names
        .into_iter()
        .map(|(name, at, line)| (name, at, lines - 1.0 - count(line)))
        .collect();
    (placed, lines)
}

struct Scale {
    /// The last second that is shown.
    end: f64,
}

impl Scale {
    fn x(&self, second: f64) -> f64 {
        LEFT + (second + BEFORE) / (self.end + BEFORE) * (WIDTH - LEFT - RIGHT)
    }
}

fn text_width(text: &str) -> f64 {
    count(text.len()) * CHARACTER
}

#[allow(
    clippy::cast_precision_loss,
    reason = "counts of rows and characters are small"
)]
fn count(number: usize) -> f64 {
    number as f64
}

/// Writing to a string does not fail.
fn append(text: &mut String, more: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(spans: &[(f64, &str)]) -> Track {
        let span = |(begin, state): &(f64, &str)| Span {
            begin: *begin,
            state: (*state).to_owned(),
        };
        spans.iter().map(span).collect()
    }

    #[test]
    fn a_pod_leaves_from_when_it_was_told_and_names_are_not_in_each_others_way() {
        let recording = Recording {
            target: track(&[(0.0, "4"), (0.1, "3")]),
            request: track(&[(0.05, "Scaling"), (4.0, "ScaleSucceeded")]),
            scaling: track(&[(0.0, ""), (0.2, "Requested"), (0.3, "Acknowledged"), (4.0, "")]),
            pods: [(
                "p".to_owned(),
                track(&[(0.0, "Running"), (3.0, "Left"), (3.9, "Deleted")]),
            )]
            .into(),
            end: 4.0,
        };
        let leaving = with_leaving(&recording, &recording.pods["p"]);
        let states: Vec<&str> = leaving.iter().map(|span| &*span.state).collect();
        assert_eq!(states, ["Running", "leaves", "Left", "Deleted"]);
        let (names, lines) = step_names(&recording, &Scale { end: 4.0 });
        let line = |step: &str| names.iter().find(|(name, ..)| name.starts_with(step)).unwrap().2;
        assert!(line("Requested") < line("Acknowledged"), "{names:?}");
        assert!(lines >= 2.0, "{names:?}");
        let svg = draw(&recording);
        assert_eq!(svg.matches("class=\"leaving\"").count(), 4, "{svg}");
        assert!(svg.contains(">Acknowledged 0.30 s</text>"), "{svg}");
    }
}
