//! Limits of processors and memory.

use std::path::{Path, PathBuf};

use super::Limits;
use crate::yard::Ability;

/// Whether limits can be set here.
pub fn ability() -> Ability {
    Ability::no("limits are not enforced by this version")
}

/// What one container is counted in.
#[derive(Debug)]
pub struct Group;

impl Group {
    /// Makes the group of a container.
    pub fn make(_place: &Path, _limits: Limits) -> Self {
        Self
    }

    /// Files to which a process writes 0 to be in the group.
    pub fn members(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Whether the kernel ended a process of the group for want of memory.
    pub fn out_of_memory(&self) -> bool {
        false
    }
}
