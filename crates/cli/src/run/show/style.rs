//! Colours, or none.

use std::borrow::Cow;

use anstyle::{AnsiColor, Color, Style};

/// Colours of pods, taken in turn. Neither red, which is for what went wrong, nor black and white, which may be the
/// background.
const OF_PODS: [AnsiColor; 6] = [
    AnsiColor::Cyan,
    AnsiColor::Yellow,
    AnsiColor::Green,
    AnsiColor::Magenta,
    AnsiColor::Blue,
    AnsiColor::BrightCyan,
];

/// How a piece of text stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// What is going well.
    Good,
    /// What is not.
    Bad,
    /// What deserves a look.
    Warning,
    /// What matters most in its line.
    Strong,
    /// What matters least.
    Faint,
    /// The pod of a number.
    Pod(usize),
}

/// Paints text, or leaves it as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paint {
    /// Whether there are colours.
    pub colours: bool,
    /// Whether it is a terminal, which does what it is told by what is written to it.
    pub terminal: bool,
}

impl Paint {
    /// What somebody else has written, as it may be written to this place: a program may move the cursor of a terminal,
    /// or change its title; only its text is shown. Files and pipes get all of it.
    pub fn foreign(self, text: &str) -> Cow<'_, str> {
        if !self.terminal || !text.chars().any(is_control) {
            return Cow::Borrowed(text);
        }
        let text = console::strip_ansi_codes(text);
        Cow::Owned(text.chars().filter(|c| !is_control(*c)).collect())
    }

    /// The text as it is to be written.
    pub fn paint(self, look: Look, text: impl AsRef<str>) -> String {
        let text = text.as_ref();
        if !self.colours {
            return text.to_owned();
        }
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(Color::Ansi(colour)));
        let style = match look {
            Look::Good => colour(AnsiColor::Green).bold(),
            Look::Bad => colour(AnsiColor::Red).bold(),
            Look::Warning => colour(AnsiColor::Yellow),
            Look::Strong => Style::new().bold(),
            Look::Faint => Style::new().dimmed(),
            Look::Pod(number) => colour(OF_PODS[number % OF_PODS.len()]),
        };
        format!("{style}{text}{style:#}")
    }
}

fn is_control(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n')
}
