//! `trainyard-agent install`: puts this program and lists of hosts into a volume that the
//! containers of the pod share.
//!
//! A container that fails is restarted, so files may exist already, perhaps incomplete: each file
//! is written under another name and then renamed.

pub(crate) mod place;
mod plan;

use std::ffi::OsString;
use std::io::Write;

use trainyard_contract::{environment, modes};

use crate::mode::{Mode, PROGRAM, USAGE_ERROR, report_misuse};
use crate::settings;
use crate::signals::exit_on_signal;

pub use place::{PlaceError, place};
pub use plan::Plan;

pub(crate) const MODE: Mode = Mode {
    name: modes::INSTALL,
    summary: "Put this program and lists of hosts where the other containers of this pod find them",
    help: HELP,
    run: main,
};

const HELP: &str = r#"Puts this program and lists of hosts into a volume that the containers of this pod share.

Usage: trainyard-agent install

Environment:
  TRAINYARD_INSTALL  What to put where, as JSON:
      {"directory": "/etc/mpi",
       "hosts": [{"pattern": "train-worker-{}.train.ns.svc", "from": 0, "count": 3, "slots": 2}],
       "files": [{"path": "/etc/mpi/hostfile", "format": "OpenMPI"}],
       "programs": ["pdsh", "ssh"]}

In the directory, which must be there and writable, it makes
  trainyard-agent  this program
  kubexec.sh       the same file: called by this name it is `trainyard-agent rsh`
  pdsh, ssh        the same file, if `programs` names them: `trainyard-agent pdsh` and `trainyard-agent rsh`
and each file, with all hosts. `{}` in a pattern is the number of the host, `count` of them beginning with `from`.
Formats: OpenMPI and DeepSpeed write `host slots=2`, MPICH and Intel write `host:2`, Hosts writes `host` on two lines.
Nothing is ever written outside of the directory. What an earlier attempt has left is replaced. Where hosts have a
`role`, their number may change: there it also makes discover_hosts.sh, this program again, which prints `host:slots`
for each host that can be used now; `trainyard-agent hosts` keeps what it prints, and the files, current.

Exit codes: 0 all is in place, 1 a file can't be written, 2 the variable is missing or makes no sense, 130 and 143
ended by a signal.
"#;

const VARIABLE: &str = environment::INSTALL;
const FAILED: u8 = 1;

fn main(args: &[OsString], _out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    if let Some(word) = args.first() {
        let word = word.to_string_lossy();
        return report_misuse(
            err,
            &format!("`install` takes no words after it, and there is {word:?}"),
        );
    }
    let mut fail = |code, problem: &dyn std::fmt::Display| {
        let _ = writeln!(err, "{PROGRAM}: {problem}");
        code
    };
    if let Err(error) = exit_on_signal() {
        return fail(FAILED, &error);
    }
    let text = match settings::required(&|name| std::env::var_os(name), VARIABLE) {
        Ok(text) => text,
        Err(error) => return fail(USAGE_ERROR, &error),
    };
    let plan: Plan = match text.parse() {
        Ok(plan) => plan,
        Err(error) => return fail(USAGE_ERROR, &format!("{VARIABLE}: {error}")),
    };
    match place(&plan) {
        Ok(()) => 0,
        Err(error) => fail(FAILED, &error),
    }
}
