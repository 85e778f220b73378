//! What AresOperator's observer says of a job, for programs that were written to ask that one.
//!
//! Theirs takes the phase of a role and the addresses of its pods from two caches, so that a list
//! of addresses may lack some. Here both come from one [`Observed`], and addresses are told all or
//! none:
//!
//! - `running` is true, and `phase` is `Running`, only if every pod of the role runs and has an
//!   address.
//! - `ips` are the addresses of all pods, in the order of their indices, while that holds, and none
//!   otherwise.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;
use trainyard_api::{JobPhase, RolePhase};

use super::{Observed, ObservedRole};

/// The phase of a role, in the words of AresOperator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Phase {
    /// It has no pods yet.
    Pending,
    /// Some of its pods do not run, or have no address.
    Starting,
    /// All of its pods run and have addresses.
    Running,
    /// It has succeeded.
    Succeeded,
    /// It has failed.
    Failed,
}

/// What is said of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Role {
    /// Its phase.
    pub phase: Phase,
    /// Whether that is [`Phase::Running`].
    pub running: bool,
    /// The addresses of its pods, by index; left out where there are none to tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
}

/// What is said of a job: its roles by name. None, if the job was never accepted.
pub fn roles(seen: &Observed) -> BTreeMap<&str, Role> {
    let said = |role: &ObservedRole| {
        let ips = addresses(role);
        let phase = phase(role.phase, seen.phase, !ips.is_empty());
        let running = phase == Phase::Running;
        let ips = if running { ips } else { Vec::new() };
        Role { phase, running, ips }
    };
    let roles = seen.roles.iter();
    roles.map(|role| (role.name.as_str(), said(role))).collect()
}

/// The namespace and the name of the job that a key means: `{namespace}.{job}`. Only a name can
/// have dots.
pub fn job_of(key: &str) -> Option<(&str, &str)> {
    let (namespace, name) = key.split_once('.')?;
    (!namespace.is_empty() && !name.is_empty()).then_some((namespace, name))
}

/// The phase of a role that all its addresses are known of, or not, in a job of a phase.
fn phase(role: RolePhase, job: Option<JobPhase>, complete: bool) -> Phase {
    match role {
        RolePhase::Pending => Phase::Pending,
        RolePhase::Starting => Phase::Starting,
        RolePhase::Running if complete => Phase::Running,
        // It may be that some of its pods have ended, and others run on: there is no word for that.
        RolePhase::Running => Phase::Starting,
        RolePhase::Succeeded => Phase::Succeeded,
        // Nor for a role that ended with its job.
        RolePhase::Stopped if job == Some(JobPhase::Succeeded) => Phase::Succeeded,
        RolePhase::Failed | RolePhase::Stopped => Phase::Failed,
    }
}

/// The addresses of all pods of a role, if all of them run and have one.
fn addresses(role: &ObservedRole) -> Vec<IpAddr> {
    let pods = role.pods.iter();
    let running = pods.filter_map(|pod| pod.address.filter(|_| pod.running));
    let addresses: Vec<IpAddr> = running.collect();
    if usize::try_from(role.replicas) == Ok(addresses.len()) {
        addresses
    } else {
        Vec::new()
    }
}
