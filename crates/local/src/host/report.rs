//! What a machine allows, for `trainyard doctor`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How pods are kept apart, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// Namespaces, made by root.
    Root,
    /// Namespaces within a user namespace of an ordinary user.
    User,
    /// Processes like any other.
    Plain,
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "namespaces, as root",
            Self::User => "namespaces, as an ordinary user",
            Self::Plain => "plain processes",
        })
    }
}

/// Whether something is possible here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ability {
    /// It works.
    Yes,
    /// It does not work.
    No {
        /// Why, and what to do about it.
        reason: String,
    },
}

impl Ability {
    /// Why not.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Yes => None,
            Self::No { reason } => Some(reason),
        }
    }

    pub(crate) fn no(reason: impl Into<String>) -> Self {
        Self::No {
            reason: reason.into(),
        }
    }

    pub(crate) fn of<E: fmt::Display>(what: &str, result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Yes,
            Err(error) => Self::no(format!("{what}: {error}")),
        }
    }
}

/// What this machine allows, and why not more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The best that works.
    pub isolation: Isolation,
    /// Mount, process and host name namespaces.
    pub namespaces: Ability,
    /// A copy-on-write view of the machine's files.
    pub overlay: Ability,
    /// A network of the yard's own, with a bridge.
    pub network: Ability,
    /// Limits of processors and memory.
    pub cgroups: Ability,
}

impl Report {
    pub(crate) fn plain(reason: impl Into<String>) -> Self {
        let no = Ability::no(reason);
        Self {
            isolation: Isolation::Plain,
            namespaces: no.clone(),
            overlay: no.clone(),
            network: no.clone(),
            cgroups: no,
        }
    }

    /// Name, state and reason of each ability, in the order in which they matter.
    pub fn abilities(&self) -> [(&'static str, &Ability); 4] {
        [
            ("namespaces", &self.namespaces),
            ("copy-on-write files", &self.overlay),
            ("network of its own", &self.network),
            ("limits (cgroups)", &self.cgroups),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "isolation: {}", self.isolation)?;
        for (name, ability) in self.abilities() {
            match ability {
                Ability::Yes => writeln!(f, "  yes  {name}")?,
                Ability::No { reason } => writeln!(f, "  no   {name}: {reason}")?,
            }
        }
        Ok(())
    }
}
