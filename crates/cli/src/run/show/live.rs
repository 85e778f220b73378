//! A live view on a terminal: logs scroll above a dashboard.

use std::io;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::style::Paint;
use super::{Show, text};
use crate::run::view::{Dashboard, Item, Summary};

pub struct Live {
    screen: MultiProgress,
    /// One for each line of the dashboard.
    lines: Vec<ProgressBar>,
    paint: Paint,
    /// The widest label so far, to which the others are padded.
    width: usize,
    columns: Box<dyn Fn() -> usize + Send>,
}

impl Live {
    pub fn to_stderr(paint: Paint) -> Self {
        let term = console::Term::stderr();
        let columns = move || usize::from(term.size().1);
        Self::new(ProgressDrawTarget::stderr(), paint, Box::new(columns))
    }

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
        let Item::Log { source, line } = item else {
            return Some(format!("• {}", text::sentence(item, self.paint)?));
        };
        self.width = self.width.max(source.label.chars().count());
        let line = self.paint.sanitize(line);
        Some(format!("{}{line}", text::prefix(source, self.width, self.paint)))
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
        // Progress is on the dashboard.
        let items = items.iter().filter(|item| !matches!(item, Item::Progress(_)));
        let lines: Vec<String> = items.filter_map(|item| self.line(item)).collect();
        if lines.is_empty() {
            return Ok(());
        }
        // All at once: the dashboard is drawn again after each print.
        self.screen.println(lines.join("\n"))
    }

    fn draw(&mut self, dashboard: &Dashboard) -> io::Result<()> {
        let lines = text::dashboard_lines(dashboard, self.paint, (self.columns)());
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
        self.screen
            .println(text::summary_lines(summary, self.paint).join("\n"))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // A dashboard that can't be cleared is gone with its terminal.
        let _ = self.clear();
    }
}
