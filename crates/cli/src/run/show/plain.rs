//! Plain lines, for pipes, files and dumb terminals: logs on one stream, messages on the other.

use std::io::{self, BufWriter, Write};

use super::style::{Emphasis, Paint};
use super::{Show, text};
use crate::run::outcome::Outcome;
use crate::run::view::{Item, Summary};

pub struct Plain {
    logs: BufWriter<Box<dyn Write + Send>>,
    logs_paint: Paint,
    messages: Box<dyn Write + Send>,
    messages_paint: Paint,
    quiet: bool,
}

impl Plain {
    pub fn new(
        logs: Box<dyn Write + Send>,
        logs_paint: Paint,
        messages: Box<dyn Write + Send>,
        messages_paint: Paint,
        quiet: bool,
    ) -> Self {
        Self {
            logs: BufWriter::new(logs),
            logs_paint,
            messages,
            messages_paint,
            quiet,
        }
    }

    /// Problems are shown with `--quiet`, too.
    fn is_wanted(&self, item: &Item) -> bool {
        !self.quiet || matches!(item, Item::Trouble { .. })
    }
}

impl Show for Plain {
    fn items(&mut self, items: &[Item]) -> io::Result<()> {
        for item in items {
            if let Item::Log { source, line } = item {
                let who = self.logs_paint.paint(Emphasis::Pod(source.number), &source.label);
                writeln!(self.logs, "{who} | {}", self.logs_paint.sanitize(line))?;
            } else if let Some(sentence) =
                text::sentence(item, self.messages_paint).filter(|_| self.is_wanted(item))
            {
                // Keeps the order of events where both streams are the same terminal.
                self.logs.flush()?;
                writeln!(self.messages, "trainyard: {sentence}")?;
            }
        }
        self.logs.flush()
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        let logs = self.logs.flush();
        if self.quiet && summary.outcome == Outcome::Succeeded {
            return logs;
        }
        for line in text::summary_lines(summary, self.messages_paint) {
            writeln!(self.messages, "trainyard: {line}")?;
        }
        self.messages.flush().and(logs)
    }
}
