//! What a terminal showed, frame by frame.

use std::time::Duration;

/// Changes that are closer together are one frame.
const MIN_FRAME_INTERVAL: Duration = Duration::from_millis(150);
const PROMPT: &str = "$ ";

#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub columns: u16,
    pub rows: u16,
}

/// Output of the command.
#[derive(Clone, Debug)]
pub struct Output {
    /// Since the start.
    pub at: Duration,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CharStyle {
    /// The number of a colour, of sixteen.
    pub colour: Option<u8>,
    pub bold: bool,
    pub faint: bool,
}

/// Characters of the same style.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StyledText {
    /// The column of the first character.
    pub column: u16,
    pub text: String,
    pub style: CharStyle,
}

pub type Line = Vec<StyledText>;

/// A state of the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When it began.
    pub at: Duration,
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug)]
pub struct Recording {
    pub frames: Vec<Frame>,
}

impl Recording {
    pub fn of(command: &str, outputs: &[Output], size: Size) -> Self {
        let mut terminal = vt100::Parser::new(size.rows, size.columns, 0);
        terminal.process(format!("{PROMPT}{command}\r\n").as_bytes());
        let mut frames = vec![Frame {
            at: Duration::ZERO,
            lines: lines(terminal.screen()),
        }];
        let mut outputs = outputs.iter().peekable();
        while let Some(first) = outputs.next() {
            terminal.process(&first.bytes);
            let end = first.at + MIN_FRAME_INTERVAL;
            while let Some(next) = outputs.next_if(|output| output.at < end) {
                terminal.process(&next.bytes);
            }
            let frame = Frame {
                at: first.at,
                lines: lines(terminal.screen()),
            };
            if frames.last().is_none_or(|last| last.lines != frame.lines) {
                frames.push(frame);
            }
        }
        Self { frames }
    }
}

fn lines(screen: &vt100::Screen) -> Vec<Line> {
    let (rows, columns) = screen.size();
    (0..rows).map(|row| line(screen, row, columns)).collect()
}

fn line(screen: &vt100::Screen, row: u16, columns: u16) -> Line {
    let mut runs: Line = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen
            .cell(row, column)
            .filter(|cell| !cell.is_wide_continuation())
        else {
            continue;
        };
        let style = CharStyle {
            colour: match cell.fgcolor() {
                vt100::Color::Idx(number) if number < 16 => Some(number),
                _ => None,
            },
            bold: cell.bold(),
            faint: cell.dim(),
        };
        let text = if cell.has_contents() { cell.contents() } else { " " };
        match runs.last_mut() {
            Some(run) if run.style == style => run.text.push_str(text),
            _ => runs.push(StyledText {
                column,
                text: text.to_owned(),
                style,
            }),
        }
    }
    if let Some(run) = runs.last_mut() {
        run.text.truncate(run.text.trim_end().len());
    }
    runs.retain(|run| !run.text.trim().is_empty());
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { columns: 20, rows: 3 };

    fn output(milliseconds: u64, text: &str) -> Output {
        Output {
            at: Duration::from_millis(milliseconds),
            bytes: text.as_bytes().to_vec(),
        }
    }

    fn texts(frame: &Frame) -> Vec<String> {
        let text = |line: &Line| line.iter().map(|run| run.text.as_str()).collect();
        frame.lines.iter().map(text).collect()
    }

    #[test]
    fn what_comes_together_is_one_picture() {
        let outputs = [
            output(10, "a"),
            output(20, "b"),
            output(400, "\rc"),
            output(900, ""),
        ];
        let recording = Recording::of("go", &outputs, SIZE);
        let seen: Vec<_> = recording.frames.iter().map(texts).collect();
        assert_eq!(seen, [["$ go", "", ""], ["$ go", "ab", ""], ["$ go", "cb", ""]]);
        assert_eq!(recording.frames[2].at, Duration::from_millis(400));
    }

    #[test]
    fn lines_scroll_and_colours_stay() {
        let outputs = [output(
            0,
            "one\r\n\u{1b}[1;32mtwo\u{1b}[0m and \u{1b}[2mthree\u{1b}[0m\r\n",
        )];
        let recording = Recording::of("go", &outputs, SIZE);
        let lines = &recording.frames[1].lines;
        assert_eq!(texts(&recording.frames[1]), ["one", "two and three", ""]);
        let green = CharStyle {
            colour: Some(2),
            bold: true,
            faint: false,
        };
        assert_eq!(lines[1][0].style, green);
        assert!(lines[1].last().unwrap().style.faint);
        assert_eq!(lines[1].last().unwrap().column, 8);
    }
}
