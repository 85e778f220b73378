//! A mode: one thing that the program can do.

use std::ffi::OsString;
use std::io::Write;

/// The name by which the program speaks of itself, and under which it is installed.
pub(crate) use trainyard_contract::directories::mpi::names::PROGRAM;
/// The exit code for a command line or settings that make no sense.
pub(crate) const USAGE_ERROR: u8 = 2;

/// One thing that the program can do.
pub struct Mode {
    /// The argument that chooses the mode.
    pub name: &'static str,
    /// One line for the list of modes.
    pub summary: &'static str,
    /// What `--help` after the name prints.
    pub help: &'static str,
    /// Gets the arguments after the name, standard output and standard error. Returns the exit
    /// code.
    pub run: fn(&[OsString], &mut dyn Write, &mut dyn Write) -> u8,
}

/// Prints what is wrong with the command line. Returns the exit code.
pub(crate) fn report_misuse(err: &mut dyn Write, problem: &str) -> u8 {
    let _ = writeln!(err, "{PROGRAM}: {problem}; see `{PROGRAM} --help`");
    USAGE_ERROR
}
