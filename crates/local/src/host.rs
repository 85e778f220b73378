//! What this machine offers to run pods: control groups, overlays, mounts.
//!
//! Used by the [`yard`](crate::yard), which tries what works, and by the container runtime.

pub(crate) mod cgroup;
#[cfg(target_os = "linux")]
pub(crate) mod layer;
#[cfg(target_os = "linux")]
pub(crate) mod mounts;
mod peer;
mod remove;
mod report;

pub(crate) use peer::is_this_user;
pub(crate) use remove::remove_tree;
pub use report::{Ability, Isolation, Report};
