//! What this machine offers to run pods with, and what it forbids: control groups, layers of files,
//! mounts.
//!
//! Both the [`yard`](crate::yard), which tries what works, and the container runtime build on it.

pub(crate) mod cgroup;
#[cfg(target_os = "linux")]
pub(crate) mod layer;
#[cfg(target_os = "linux")]
pub(crate) mod mounts;
mod remove;
mod report;

pub(crate) use remove::remove_tree;
pub use report::{Ability, Isolation, Report};
