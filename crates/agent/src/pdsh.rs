//! `trainyard-agent pdsh`, also called `pdsh`: runs a command in many pods of the same job at once.
//!
//! Each host has a process of its own, which is this program as the client of the remote shell, so
//! that failures are independent.

mod arguments;
mod label;
mod running;

use std::ffi::OsString;
use std::io::Write;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::mode::{Mode, PROGRAM, report_misuse};
use crate::signals::ExitSignals;

pub use arguments::Call;

pub(crate) const MODE: Mode = Mode {
    name: "pdsh",
    summary: "Run a command in many pods of the same job at once",
    help: HELP,
    run: main,
};

const HELP: &str = "\
Runs a command in many pods of the same job at once, where `trainyard-agent serve` runs. It is called by DeepSpeed in
place of the program pdsh. A program of the name pdsh is this mode, too.

Usage: trainyard-agent pdsh [options] -w host,host... command...
       pdsh [options] -w host,host... command...

Options:
  -w host,...  The hosts; ranges are not taken
  -f number    How many commands run at once [default: 32]
  -S           The exit code is the largest of those of the commands
  -k           One that fails ends the others
  -N           Lines do not begin with the host
Others of pdsh are taken and mean nothing. In the command `%n` is the number of the host, `%h` its name and `%%` is `%`.

Commands are run as by `trainyard-agent rsh`, without input. Lines of output begin with the name of the host, without
its domain. Signals are passed to all commands. A host that is lost, or can't be reached, ends the others: SIGTERM, and
after 5 s they are left, by which they get SIGKILL.

Exit codes: 255 if a host was lost; with -S the largest of those of the commands; else 0.
";

/// The exit code for what is not the commands' own.
const FAILED: u8 = 255;

fn main(args: &[OsString], _out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let call = match Call::parse(args) {
        Ok(call) => call,
        Err(error) => return report_misuse(err, &error.to_string()),
    };
    let signals = ExitSignals::new(&[SIGTERM, SIGINT, SIGHUP]).and_then(ExitSignals::listen);
    match signals.and_then(|signals| running::run(call, signals)) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(err, "{PROGRAM}: pdsh: {error}");
            FAILED
        }
    }
}
