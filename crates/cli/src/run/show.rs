//! How a run is shown: live on a terminal, or as plain lines.

mod live;
mod plain;
mod style;
mod text;

#[cfg(test)]
mod tests;

use std::io;

pub use live::Live;
pub use plain::Plain;
pub use style::Paint;

use super::view::{Dashboard, Item, Summary};

pub trait Show: Send {
    fn items(&mut self, items: &[Item]) -> io::Result<()>;

    /// Draws the dashboard; does nothing unless [`Self::is_live`].
    fn draw(&mut self, dashboard: &Dashboard) -> io::Result<()> {
        let _ = dashboard;
        Ok(())
    }

    /// Whether there is a dashboard.
    fn is_live(&self) -> bool {
        false
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()>;
}

/// Whether the streams of this process are terminals, and what these can do.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "they are facts, and not a state")]
pub struct OutputStreams {
    /// The standard output is a terminal.
    pub stdout: bool,
    /// The standard error is a terminal.
    pub stderr: bool,
    /// `NO_COLOR` is set, see no-color.org.
    pub no_color: bool,
    /// `TERM` is `dumb`: lines can't be drawn again.
    pub dumb: bool,
}

impl OutputStreams {
    pub fn detect() -> Self {
        use std::io::IsTerminal;
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Self {
            stdout: io::stdout().is_terminal(),
            stderr: io::stderr().is_terminal(),
            no_color: set("NO_COLOR"),
            dumb: std::env::var_os("TERM").is_some_and(|term| term == "dumb"),
        }
    }

    /// Whether a dashboard is drawn, on the standard error. If logs go to a pipe, their reader,
    /// such as grep, may write to the same terminal and break the drawing.
    pub fn is_live(self, summary_on_stdout: bool) -> bool {
        self.stderr && !self.dumb && (self.stdout || summary_on_stdout)
    }

    pub fn paint(self, terminal: bool) -> Paint {
        Paint {
            colours: terminal && !self.no_color && !self.dumb,
            terminal,
        }
    }
}

pub fn choose(streams: OutputStreams, summary_on_stdout: bool, quiet: bool) -> Box<dyn Show> {
    let errors = streams.paint(streams.stderr);
    if !quiet && streams.is_live(summary_on_stdout) {
        return Box::new(Live::to_stderr(errors));
    }
    let (logs, paint): (Box<dyn io::Write + Send>, Paint) = if summary_on_stdout {
        (Box::new(io::stderr()), errors)
    } else {
        (Box::new(io::stdout()), streams.paint(streams.stdout))
    };
    Box::new(Plain::new(logs, paint, Box::new(io::stderr()), errors, quiet))
}
