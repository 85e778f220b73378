//! Colours, or none.

use std::borrow::Cow;

use anstyle::{AnsiColor, Color, Style};

use crate::output::is_obeyed;

/// Colours of pods, used in turn. Red is for problems; black and white may be the background.
const POD_COLOURS: [AnsiColor; 6] = [
    AnsiColor::Cyan,
    AnsiColor::Yellow,
    AnsiColor::Green,
    AnsiColor::Magenta,
    AnsiColor::Blue,
    AnsiColor::BrightCyan,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emphasis {
    Good,
    Bad,
    Warning,
    Strong,
    Faint,
    /// The colour of a pod, by its number.
    Pod(usize),
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Paint {
    pub colours: bool,
    /// Whether the text goes to a terminal, which interprets control characters.
    pub terminal: bool,
}

impl Paint {
    /// Removes control sequences, with which a program could move the cursor of a terminal or
    /// change its title. Files and pipes get the text unchanged.
    pub fn sanitize(self, text: &str) -> Cow<'_, str> {
        if !self.terminal || !text.chars().any(is_obeyed) {
            return Cow::Borrowed(text);
        }
        let text = console::strip_ansi_codes(text);
        Cow::Owned(text.chars().filter(|c| !is_obeyed(*c)).collect())
    }

    pub fn paint(self, emphasis: Emphasis, text: impl AsRef<str>) -> String {
        let text = &*self.sanitize(text.as_ref());
        if !self.colours {
            return text.to_owned();
        }
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(Color::Ansi(colour)));
        let style = match emphasis {
            Emphasis::Good => colour(AnsiColor::Green).bold(),
            Emphasis::Bad => colour(AnsiColor::Red).bold(),
            Emphasis::Warning => colour(AnsiColor::Yellow),
            Emphasis::Strong => Style::new().bold(),
            Emphasis::Faint => Style::new().dimmed(),
            Emphasis::Pod(number) => colour(POD_COLOURS[number % POD_COLOURS.len()]),
        };
        format!("{style}{text}{style:#}")
    }
}
