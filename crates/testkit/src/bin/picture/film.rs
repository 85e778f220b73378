//! What was to be seen on a terminal, one picture after the other.

use std::time::Duration;

/// Changes that are closer together are one.
const FRAME: Duration = Duration::from_millis(150);
/// What is before the command.
const PROMPT: &str = "$ ";

/// The size of a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Characters in a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
}

/// Something that was written.
#[derive(Clone, Debug)]
pub struct Piece {
    /// When, from the beginning.
    pub at: Duration,
    /// What.
    pub bytes: Vec<u8>,
}

/// How characters look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Look {
    /// The number of a colour, of sixteen.
    pub colour: Option<u8>,
    /// Bold.
    pub bold: bool,
    /// Fainter than the rest.
    pub faint: bool,
}

/// Characters that look alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The column of the first.
    pub column: u16,
    /// The characters.
    pub text: String,
    /// How they look.
    pub look: Look,
}

/// A line of a terminal.
pub type Line = Vec<Run>;

/// A terminal at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Since when it looked like this.
    pub at: Duration,
    /// Its lines.
    pub lines: Vec<Line>,
}

/// All that was to be seen.
#[derive(Clone, Debug)]
pub struct Film {
    /// In the order of time.
    pub frames: Vec<Frame>,
}

impl Film {
    /// What was to be seen when a command wrote this.
    pub fn of(command: &str, pieces: &[Piece], size: Size) -> Self {
        let mut terminal = vt100::Parser::new(size.rows, size.columns, 0);
        terminal.process(format!("{PROMPT}{command}\r\n").as_bytes());
        let mut frames = vec![Frame {
            at: Duration::ZERO,
            lines: lines(terminal.screen()),
        }];
        let mut pieces = pieces.iter().peekable();
        while let Some(first) = pieces.next() {
            terminal.process(&first.bytes);
            let end = first.at + FRAME;
            while let Some(next) = pieces.next_if(|piece| piece.at < end) {
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
        let look = Look {
            colour: match cell.fgcolor() {
                vt100::Color::Idx(number) if number < 16 => Some(number),
                _ => None,
            },
            bold: cell.bold(),
            faint: cell.dim(),
        };
        let text = if cell.has_contents() { cell.contents() } else { " " };
        match runs.last_mut() {
            Some(run) if run.look == look => run.text.push_str(text),
            _ => runs.push(Run {
                column,
                text: text.to_owned(),
                look,
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

    fn piece(milliseconds: u64, text: &str) -> Piece {
        Piece {
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
        let pieces = [piece(10, "a"), piece(20, "b"), piece(400, "\rc"), piece(900, "")];
        let film = Film::of("go", &pieces, SIZE);
        let seen: Vec<_> = film.frames.iter().map(texts).collect();
        assert_eq!(seen, [["$ go", "", ""], ["$ go", "ab", ""], ["$ go", "cb", ""]]);
        assert_eq!(film.frames[2].at, Duration::from_millis(400));
    }

    #[test]
    fn lines_scroll_and_colours_stay() {
        let pieces = [piece(
            0,
            "one\r\n\u{1b}[1;32mtwo\u{1b}[0m and \u{1b}[2mthree\u{1b}[0m\r\n",
        )];
        let film = Film::of("go", &pieces, SIZE);
        let lines = &film.frames[1].lines;
        assert_eq!(texts(&film.frames[1]), ["one", "two and three", ""]);
        let green = Look {
            colour: Some(2),
            bold: true,
            faint: false,
        };
        assert_eq!(lines[1][0].look, green);
        assert!(lines[1].last().unwrap().look.faint);
        assert_eq!(lines[1].last().unwrap().column, 8);
    }
}
