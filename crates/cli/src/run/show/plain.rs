//! Plain lines, for pipes, files and small terminals: logs on one stream, our own words on the other.

use std::io::{self, BufWriter, Write};

use super::style::{Look, Paint};
use super::{Show, text};
use crate::run::outcome::Outcome;
use crate::run::view::{Item, Summary};

/// Shows a run as lines.
pub struct Plain {
    logs: BufWriter<Box<dyn Write + Send>>,
    logs_paint: Paint,
    words: Box<dyn Write + Send>,
    words_paint: Paint,
    quiet: bool,
}

impl Plain {
    /// Logs go to the first stream, all else to the second.
    pub fn new(
        logs: Box<dyn Write + Send>,
        logs_paint: Paint,
        words: Box<dyn Write + Send>,
        words_paint: Paint,
        quiet: bool,
    ) -> Self {
        Self {
            logs: BufWriter::new(logs),
            logs_paint,
            words,
            words_paint,
            quiet,
        }
    }

    /// What went wrong is said also by who was told to be quiet.
    fn is_wanted(&self, item: &Item) -> bool {
        !self.quiet || matches!(item, Item::Trouble { .. })
    }
}

impl Show for Plain {
    fn items(&mut self, items: &[Item]) -> io::Result<()> {
        for item in items {
            if let Item::Log { speaker, line } = item {
                let who = self.logs_paint.paint(Look::Pod(speaker.number), &speaker.label);
                writeln!(self.logs, "{who} | {}", self.logs_paint.foreign(line))?;
            } else if let Some(sentence) =
                text::sentence(item, self.words_paint).filter(|_| self.is_wanted(item))
            {
                // In the order in which it happened, where both streams end at the same place.
                self.logs.flush()?;
                writeln!(self.words, "trainyard: {sentence}")?;
            }
        }
        self.logs.flush()
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        let logs = self.logs.flush();
        if self.quiet && summary.outcome == Outcome::Succeeded {
            return logs;
        }
        for line in text::ending(summary, self.words_paint) {
            writeln!(self.words, "trainyard: {line}")?;
        }
        self.words.flush().and(logs)
    }
}
