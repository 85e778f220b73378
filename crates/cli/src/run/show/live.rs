//! A live view on a terminal: logs scroll by, and below them stands how far the job is.

use std::io;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::style::Paint;
use super::{Show, text};
use crate::run::view::{Item, Picture, Summary};

/// Shows a run on a terminal.
pub struct Live {
    screen: MultiProgress,
    /// One for each line below the logs.
    lines: Vec<ProgressBar>,
    paint: Paint,
    /// The widest name so far, so that lines begin at the same place.
    width: usize,
    columns: Box<dyn Fn() -> usize + Send>,
}

impl Live {
    /// On the terminal that the standard error is.
    pub fn to_stderr(paint: Paint) -> Self {
        let term = console::Term::stderr();
        let columns = move || usize::from(term.size().1);
        Self::new(ProgressDrawTarget::stderr(), paint, Box::new(columns))
    }

    /// On any terminal.
    #[cfg(test)]
    pub fn to_terminal(terminal: impl indicatif::TermLike + Clone + 'static, paint: Paint) -> Self {
        let width = terminal.width();
        let target = ProgressDrawTarget::term_like(Box::new(terminal));
        Self::new(target, paint, Box::new(move || usize::from(width)))
    }

    fn new(target: ProgressDrawTarget, paint: Paint, columns: Box<dyn Fn() -> usize + Send>) -> Self {
        Self {
            screen: MultiProgress::with_draw_target(target),
            lines: Vec::new(),
            paint: Paint {
                terminal: true,
                ..paint
            },
            width: 0,
            columns,
        }
    }

    fn line(&mut self, item: &Item) -> Option<String> {
        let Item::Log { speaker, line } = item else {
            return Some(format!("• {}", text::sentence(item, self.paint)?));
        };
        self.width = self.width.max(speaker.label.chars().count());
        let line = self.paint.foreign(line);
        Some(format!("{}{line}", text::prefix(speaker, self.width, self.paint)))
    }

    fn clear(&mut self) -> io::Result<()> {
        for line in self.lines.drain(..) {
            line.finish_and_clear();
            self.screen.remove(&line);
        }
        self.screen.clear()
    }
}

impl Show for Live {
    fn items(&mut self, items: &[Item]) -> io::Result<()> {
        // Progress is in the picture.
        let items = items.iter().filter(|item| !matches!(item, Item::Progress(_)));
        let lines: Vec<String> = items.filter_map(|item| self.line(item)).collect();
        if lines.is_empty() {
            return Ok(());
        }
        // All at once: the picture is drawn anew after each print.
        self.screen.println(lines.join("\n"))
    }

    fn picture(&mut self, picture: &Picture) -> io::Result<()> {
        let lines = text::picture(picture, self.paint, (self.columns)());
        while self.lines.len() < lines.len() {
            let line = self.screen.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                line.set_style(style);
            }
            self.lines.push(line);
        }
        while self.lines.len() > lines.len() {
            if let Some(line) = self.lines.pop() {
                line.finish_and_clear();
                self.screen.remove(&line);
            }
        }
        for (line, text) in self.lines.iter().zip(lines) {
            line.set_message(text);
            line.tick();
        }
        Ok(())
    }

    fn is_live(&self) -> bool {
        true
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        self.clear()?;
        self.screen.println(text::ending(summary, self.paint).join("\n"))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Whatever happens, the picture does not stay; what can't be cleared is gone anyway.
        let _ = self.clear();
    }
}
