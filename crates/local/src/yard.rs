//! The yard: the namespaces that everything of one `trainyard run` lives in.
//!
//! ```text
//! outer   what the user started; passes signals in and the exit code out
//!  └ door     makes the namespaces (user, mount, pid, network)
//!     └ init      process 1 of the yard: reaps orphans
//!        └ worker     the user's command line again, with the whole of trainyard inside
//! ```
//!
//! Each of the three dies with its parent, and with `init` the kernel ends every process of the
//! yard, its mounts, links and network namespaces, however the outer process ended. Nothing is ever
//! made in the namespaces of the machine, so nothing can be left in them, and what listens in the
//! yard is out of reach for everyone else.
//!
//! Where the machine allows no namespaces there is no yard: [`enter`] returns in the outer process,
//! and pods are plain processes ([`Isolation::Plain`]).

#[cfg(target_os = "linux")]
pub(crate) mod descriptors;
mod ignored;
mod keyboard;
#[cfg(target_os = "linux")]
pub(crate) mod link;
#[cfg(target_os = "linux")]
pub(crate) mod namespace;
#[cfg(target_os = "linux")]
pub(crate) mod probe;
#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
pub(crate) mod stages;
#[cfg(target_os = "linux")]
mod supervise;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

pub use crate::host::{Ability, Isolation, Report};
pub use ignored::is_ignored;
pub use keyboard::Keys;

/// The first argument of a process that [`reenter`](crate::reenter()) takes.
pub(crate) const STAGE: &str = "trainyard-stage";

/// The file of this program, even if it has been replaced since.
#[cfg(target_os = "linux")]
pub(crate) fn this_program() -> std::path::PathBuf {
    "/proc/self/exe".into()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn this_program() -> std::path::PathBuf {
    std::env::current_exe().unwrap_or_default()
}

/// The variable that describes the yard to the worker. Pods do not get it.
const YARD_VARIABLE: &str = "TRAINYARD_YARD";

/// Whether this process is in a yard.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(YARD_VARIABLE).is_some()
}

/// Which network pods are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Each pod has its own network namespace and an address on the yard's bridge; nothing outside
    /// can be reached, and nothing outside can reach in.
    #[default]
    Pod,
    /// Pods use the machine's network, each with a loopback address of its own.
    Host,
}

const AS_ASKED: &str = "as asked";

/// Options of a yard.
#[derive(Clone, Copy, Debug, Default)]
pub struct YardOptions {
    /// The network of pods, if the machine allows it.
    pub network: Network,
    /// How to isolate pods; None: as well as the machine allows.
    pub isolation: Option<Isolation>,
    /// Whether the worker may ask for [`Keys`], where there is a terminal. Then it has no other
    /// input.
    pub keys: bool,
}

/// The yard of this process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Yard {
    /// How pods are isolated.
    pub isolation: Isolation,
    /// The network of pods.
    pub network: Network,
    /// What this machine allows.
    pub report: Report,
    /// The directory of overlays. It is found by the outer process, because the user may have
    /// another id inside of the yard.
    pub scratch: PathBuf,
    /// The path of this program, found by the outer process. Pods that see the files of this
    /// machine find it there.
    pub program: Option<PathBuf>,
    /// Whether the outer process passes keys on.
    pub has_keys: bool,
}

impl Yard {
    /// What differs from a real cluster here, as sentences for the user.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.isolation == Isolation::Plain {
            let reason = self.report.namespaces.reason().unwrap_or(AS_ASKED);
            notes.push(format!(
                "pods run as plain processes on loopback, each with a 127.x address and without namespaces of its own \
                 ({reason}); they are told addresses instead of names, volumes are not at their mount paths, and all \
                 share the files and ports of this machine"
            ));
            return notes;
        }
        if self.network == Network::Host {
            let reason = self.report.network.reason().unwrap_or(AS_ASKED);
            notes.push(format!(
                "pods use this machine's network, each with a 127.x address ({reason}); they are told addresses \
                 instead of names, and two that listen on every address cannot use the same port"
            ));
        }
        if let Some(reason) = self.report.overlay.reason() {
            notes.push(format!(
                "this machine's files are read-only in pods ({reason}); pods can write to /tmp, to volumes and to \
                 the working directory"
            ));
        }
        notes
    }
}

#[cfg(target_os = "linux")]
impl Yard {
    /// Whether containers can be run as other users and groups of this machine.
    pub fn has_users(&self) -> bool {
        match self.isolation {
            Isolation::Root => true,
            Isolation::User => false,
            Isolation::Plain => nix::unistd::geteuid().is_root(),
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Yard {
    /// Whether containers can be run as other users and groups of this machine.
    pub fn has_users(&self) -> bool {
        false
    }
}

/// The result of [`enter`].
#[derive(Debug)]
pub enum Entered {
    /// This is the worker, or there is no yard: continue here.
    Inside(Yard),
    /// This is the outer process, and the worker has ended: exit with this code.
    Over(ExitCode),
}

/// Why there is no yard.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The requested isolation is not possible.
    #[error(
        "this machine does not allow {isolation}: {reason}; `--isolation auto` takes what it allows, and `trainyard \
         doctor` says what that is"
    )]
    Isolation {
        /// The requested isolation.
        isolation: Isolation,
        /// Why not.
        reason: String,
    },
    /// The program could not be started again.
    #[error("could not start {what} of the yard: {source}; is this program still where it was started from?")]
    Start {
        /// Which stage.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// A system call of a stage failed.
    #[error("could not {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The network of the yard could not be made.
    #[error("could not make the network of the yard: {0}")]
    Network(String),
    /// The worker was told something that it does not understand.
    #[error("{YARD_VARIABLE} is set to something unexpected; unset it")]
    InvalidVariable,
}

impl Error {
    #[cfg(target_os = "linux")]
    pub(crate) fn system(what: &'static str) -> impl Fn(nix::Error) -> Self {
        move |source| Self::System {
            what,
            source: source.into(),
        }
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn io(what: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

/// The exit code of a stage that failed; its error is on the standard error.
pub(crate) const STAGE_FAILED: u8 = 4;

/// What this machine allows, and why not more. Tries it in a process that leaves nothing behind.
///
/// `scratch` is the directory for overlays.
pub fn isolation(scratch: &Path) -> Report {
    ask(None, scratch)
}

fn ask(wanted: Option<Isolation>, scratch: &Path) -> Report {
    let mut report = if wanted == Some(Isolation::Plain) {
        Report::plain(AS_ASKED)
    } else {
        try_namespaces(wanted, scratch)
    };
    // Control groups need no namespaces.
    if report.isolation == Isolation::Plain {
        report.cgroups = crate::host::cgroup::ability();
    }
    report
}

#[cfg(target_os = "linux")]
fn try_namespaces(wanted: Option<Isolation>, scratch: &Path) -> Report {
    probe::ask(wanted, scratch)
}

#[cfg(not(target_os = "linux"))]
fn try_namespaces(_: Option<Isolation>, _: &Path) -> Report {
    Report::plain("only Linux has namespaces")
}

/// The yard of this process, if it is a worker. Must be called before there is a second thread.
pub fn inside() -> Result<Option<Yard>, Error> {
    let Some(place) = std::env::var_os(YARD_VARIABLE) else {
        return Ok(None);
    };
    let place = place.to_str().ok_or(Error::InvalidVariable)?;
    let yard = serde_json::from_str(place).map_err(|_| Error::InvalidVariable)?;
    // The parents have blocked signals to wait for them, which is inherited.
    #[cfg(target_os = "linux")]
    [supervise::WRITES]
        .into_iter()
        .collect::<nix::sys::signal::SigSet>()
        .thread_set_mask()
        .map_err(Error::system("unblock signals"))?;
    keep_descriptors()?;
    Ok(Some(yard))
}

/// Enters the yard: returns in the outer process when the worker has ended, and in the worker at
/// once.
///
/// Must be called before there is a second thread. `scratch`, as for [`isolation`], must exist.
pub fn enter(wanted: YardOptions, scratch: &Path) -> Result<Entered, Error> {
    if let Some(yard) = inside()? {
        return Ok(Entered::Inside(yard));
    }
    let report = ask(wanted.isolation, scratch);
    let isolation = report.isolation;
    if let Some(wanted) = wanted.isolation.filter(|wanted| *wanted != isolation) {
        return Err(Error::Isolation {
            isolation: wanted,
            reason: report.namespaces.reason().unwrap_or_default().to_owned(),
        });
    }
    let network = match (isolation, &report.network) {
        (Isolation::Plain, _) | (_, Ability::No { .. }) => Network::Host,
        (_, Ability::Yes) => wanted.network,
    };
    let yard = Yard {
        isolation,
        network,
        report,
        scratch: scratch.to_owned(),
        program: std::env::current_exe().ok(),
        has_keys: wanted.keys && keyboard::is_there(),
    };
    if isolation == Isolation::Plain {
        keep_descriptors()?;
        return Ok(Entered::Inside(yard));
    }
    #[cfg(target_os = "linux")]
    return stages::outer(&yard).map(Entered::Over);
    #[cfg(not(target_os = "linux"))]
    Ok(Entered::Inside(yard))
}

#[cfg(target_os = "linux")]
fn keep_descriptors() -> Result<(), Error> {
    descriptors::keep_to_ourselves().map_err(Error::io("keep open files from pods"))
}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::unnecessary_wraps, reason = "as where there is something to do")]
fn keep_descriptors() -> Result<(), Error> {
    Ok(())
}
