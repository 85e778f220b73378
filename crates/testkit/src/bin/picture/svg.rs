//! A recording as SVG: every distinct line once, every frame a stack of lines, and an animation
//! that moves along a strip of frames.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::recording::{CharStyle, Frame, Line, Recording, Size};

/// The size of a character.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 18.0;
/// The space around the characters.
const MARGIN: f64 = 14.0;
/// How long the last frame stays before the animation repeats.
const LAST_FRAME_DURATION: Duration = Duration::from_secs(5);

const COLOURS: [&str; 16] = [
    "#484f58", "#ff7b72", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#c9d1d9", "#6e7681",
    "#ffa198", "#7ee787", "#f2cc60", "#a5d6ff", "#e2c5ff", "#b3f0ff", "#ffffff",
];

pub fn draw(recording: &Recording, size: Size) -> String {
    let width = f64::from(size.columns) * WIDTH + 2.0 * MARGIN;
    let inner = f64::from(size.rows) * HEIGHT;
    let height = inner + 2.0 * MARGIN;
    let mut numbers: HashMap<&Line, usize> = HashMap::new();
    let (mut defined, mut strip) = (String::new(), String::new());
    for (index, frame) in recording.frames.iter().enumerate() {
        for (row, line) in frame
            .lines
            .iter()
            .enumerate()
            .filter(|(_, line)| !line.is_empty())
        {
            let next = numbers.len();
            let number = *numbers.entry(line).or_insert_with(|| {
                define(&mut defined, next, line);
                next
            });
            let y = (offset(index) * f64::from(size.rows) + offset(row)) * HEIGHT;
            append(&mut strip, format_args!("<use href=\"#l{number}\" y=\"{y}\"/>"));
        }
    }
    let last = -offset(recording.frames.len().saturating_sub(1)) * inner;
    let (seconds, keys) = keys(&recording.frames, inner);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} \
         {height:.0}\" role=\"img\">\n<style>\ntext{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;\
         fill:#c9d1d9;white-space:pre}}\n#strip{{transform:translateY({last}px);animation:film {seconds:.2}s infinite \
         steps(1,end)}}\n@keyframes film{{{keys}}}\n@media (prefers-reduced-motion:reduce){{#strip{{animation:none}}}}\n\
         </style>\n<defs>\n{defined}</defs>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n<svg \
         x=\"{MARGIN}\" y=\"{MARGIN}\" height=\"{inner}\" width=\"{:.0}\"><g id=\"strip\">\n{strip}</g></svg>\n</svg>\n",
        f64::from(size.columns) * WIDTH
    )
}

/// The duration of the animation, and its key frames.
fn keys(frames: &[Frame], inner: f64) -> (f64, String) {
    let end = frames.last().map(|frame| frame.at).unwrap_or_default() + LAST_FRAME_DURATION;
    let seconds = end.as_secs_f64();
    let mut keys = String::new();
    for (index, frame) in frames.iter().enumerate() {
        let percent = frame.at.as_secs_f64() / seconds * 100.0;
        let y = -offset(index) * inner;
        append(
            &mut keys,
            format_args!("{percent:.3}%{{transform:translateY({y}px)}}"),
        );
    }
    (seconds, keys)
}

fn define(defined: &mut String, number: usize, line: &Line) {
    append(
        defined,
        format_args!(
            "<text id=\"l{number}\" y=\"{:.1}\" xml:space=\"preserve\">",
            HEIGHT * 0.75
        ),
    );
    for run in line {
        // With explicit positions, a different font can't shift the text.
        let x = f64::from(run.column) * WIDTH;
        let style = style(run.style);
        let text = escape(&run.text);
        append(defined, format_args!("<tspan x=\"{x:.1}\"{style}>{text}</tspan>"));
    }
    defined.push_str("</text>\n");
}

fn style(style: CharStyle) -> String {
    let mut said = String::new();
    if let Some(colour) = style.colour.and_then(|colour| COLOURS.get(usize::from(colour))) {
        append(&mut said, format_args!(" fill=\"{colour}\""));
    }
    if style.bold {
        said.push_str(" font-weight=\"600\"");
    }
    if style.faint {
        said.push_str(" opacity=\"0.6\"");
    }
    said
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Writing to a string does not fail.
fn append(text: &mut String, more: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(more);
}

#[allow(
    clippy::cast_precision_loss,
    reason = "counts of pictures and lines are small"
)]
fn offset(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Output;

    #[test]
    fn every_line_is_there_once_and_every_picture_has_its_time() {
        let size = Size { columns: 10, rows: 2 };
        let output = |milliseconds, text: &str| Output {
            at: Duration::from_millis(milliseconds),
            bytes: text.as_bytes().to_vec(),
        };
        let recording = Recording::of(
            "go",
            &[output(1000, "a<b"), output(2000, "\r\u{1b}[31mc\u{1b}[0m")],
            size,
        );
        let svg = draw(&recording, size);
        assert_eq!(svg.matches("<text id=").count(), 3, "{svg}");
        assert_eq!(svg.matches("href=\"#l0\"").count(), 3, "{svg}");
        assert!(svg.contains(">a&lt;b<"), "{svg}");
        assert!(
            svg.contains("<tspan x=\"0.0\" fill=\"#ff7b72\">c</tspan>"),
            "{svg}"
        );
        // Seven seconds: two, and the rest.
        assert!(svg.contains("animation:film 7.00s"), "{svg}");
        assert!(svg.contains("28.571%{transform:translateY(-72px)}"), "{svg}");
    }
}
