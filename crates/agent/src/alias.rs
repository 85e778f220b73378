//! The file names of the program. A pod has it under several, and most of them choose what it does.

use std::ffi::OsStr;
use std::path::Path;

use trainyard_contract::directories::mpi::names::{DISCOVERY, PDSH, SHELL, SSH};

/// Names that are installed only if a job asks for them.
pub const OPTIONAL: [&str; 2] = [PDSH, SSH];

/// A name that chooses what the program does, whatever its arguments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alias {
    RemoteShell,
    Pdsh,
    DiscoverHosts,
}

impl Alias {
    /// The alias that a program's path ends with; `None` if the arguments choose.
    pub fn of(program: &OsStr) -> Option<Self> {
        match Path::new(program).file_name()?.to_str()? {
            SHELL | SSH => Some(Self::RemoteShell),
            PDSH => Some(Self::Pdsh),
            DISCOVERY => Some(Self::DiscoverHosts),
            _ => None,
        }
    }
}
