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

use super::view::{Item, Picture, Summary};

/// Shows a run.
pub trait Show: Send {
    /// Prints what happened.
    fn items(&mut self, items: &[Item]) -> io::Result<()>;

    /// Draws the present, where there is a place for it.
    fn picture(&mut self, picture: &Picture) -> io::Result<()> {
        let _ = picture;
        Ok(())
    }

    /// Whether there is a place for the present.
    fn is_live(&self) -> bool {
        false
    }

    /// Prints how it went.
    fn end(&mut self, summary: &Summary) -> io::Result<()>;
}

/// Where the output goes, and what its reader can do.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "they are facts, and not a state")]
pub struct Surroundings {
    /// The standard output is a terminal.
    pub stdout: bool,
    /// The standard error is a terminal.
    pub stderr: bool,
    /// `NO_COLOR` is set, see no-color.org.
    pub no_color: bool,
    /// `TERM` is `dumb`: lines can't be drawn again.
    pub dumb: bool,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_this_process() -> Self {
        use std::io::IsTerminal;
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Self {
            stdout: io::stdout().is_terminal(),
            stderr: io::stderr().is_terminal(),
            no_color: set("NO_COLOR"),
            dumb: std::env::var_os("TERM").is_some_and(|term| term == "dumb"),
        }
    }

    /// Whether the run is drawn live. The drawing goes to the standard error; where the standard output carries the
    /// logs elsewhere, their reader, such as grep, may write to the same terminal, and would break the drawing.
    pub fn is_live(self, summary_on_stdout: bool) -> bool {
        self.stderr && !self.dumb && (self.stdout || summary_on_stdout)
    }

    /// Colours for what is written to the standard output, or the standard error.
    pub fn paint(self, terminal: bool) -> Paint {
        Paint {
            colours: terminal && !self.no_color && !self.dumb,
            terminal,
        }
    }
}

/// How this run is to be shown.
pub fn choose(surroundings: Surroundings, summary_on_stdout: bool, quiet: bool) -> Box<dyn Show> {
    let errors = surroundings.paint(surroundings.stderr);
    if !quiet && surroundings.is_live(summary_on_stdout) {
        return Box::new(Live::to_stderr(errors));
    }
    let (logs, paint): (Box<dyn io::Write + Send>, Paint) = if summary_on_stdout {
        (Box::new(io::stderr()), errors)
    } else {
        (Box::new(io::stdout()), surroundings.paint(surroundings.stdout))
    };
    Box::new(Plain::new(logs, paint, Box::new(io::stderr()), errors, quiet))
}
