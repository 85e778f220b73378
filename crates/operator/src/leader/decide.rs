//! Decides who may hold the lease. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

/// The record of a lease, and when this process first saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    record: LeaseSpec,
    seen: Instant,
}

impl Observation {
    pub fn of(lease: &Lease, now: Instant) -> Option<Self> {
        Some(Self {
            record: lease.spec.clone()?,
            seen: now,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Claim(Claim),
    /// The holder may still be writing.
    Wait {
        holder: String,
    },
}

/// How to write the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    Create,
    /// Take it from another process.
    Acquire,
    Renew,
}

/// Decides from the lease as it is now, and from when its record was first seen.
///
/// The times in the record are another machine's and are ignored. A holder that is alive changes
/// the record. It keeps the lease for `leaseDurationSeconds` of the record, or else for `duration`,
/// from the moment at which *we* saw the change.
pub fn step(
    observed: Option<Observation>,
    lease: Option<&Lease>,
    identity: &str,
    duration: Duration,
    now: Instant,
) -> (Option<Observation>, Decision) {
    let found = lease.is_some();
    let record = lease.map(|lease| lease.spec.clone().unwrap_or_default());
    let observed = match (observed, record) {
        (None, None) => return (None, Decision::Claim(Claim::Create)),
        // The holder of a deleted lease goes on writing until it finds out.
        (Some(observed), None) => observed,
        (Some(observed), Some(record)) if observed.record == record => observed,
        (_, Some(record)) => Observation { record, seen: now },
    };
    let holder = observed.record.holder_identity.as_deref().unwrap_or_default();
    let granted = observed
        .record
        .lease_duration_seconds
        .and_then(|secs| u64::try_from(secs).ok());
    let granted = granted
        .filter(|secs| *secs > 0)
        .map_or(duration, Duration::from_secs);
    let ours = holder == identity;
    let free = ours || holder.is_empty() || now >= observed.seen + granted;
    let decision = if free && !found {
        Decision::Claim(Claim::Create)
    } else if ours {
        Decision::Claim(Claim::Renew)
    } else if free {
        Decision::Claim(Claim::Acquire)
    } else {
        Decision::Wait {
            holder: holder.to_owned(),
        }
    };
    (Some(observed), decision)
}

/// Returns the lease to write. It has the resource version of `previous`, so that only one of
/// several claims succeeds, and keeps all that others wrote into it.
pub fn claim(
    previous: Option<&Lease>,
    identity: &str,
    duration: Duration,
    how: Claim,
    now: Timestamp,
) -> Lease {
    let mut lease = previous.cloned().unwrap_or_default();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(identity.to_owned());
    spec.lease_duration_seconds = Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX));
    spec.renew_time = Some(MicroTime(now));
    match how {
        Claim::Renew => {
            spec.acquire_time.get_or_insert(MicroTime(now));
        }
        Claim::Create => {
            spec.acquire_time = Some(MicroTime(now));
            spec.lease_transitions = Some(0);
        }
        Claim::Acquire => {
            spec.acquire_time = Some(MicroTime(now));
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
    }
    lease
}

/// Returns the released lease, if it is ours: without a holder, and with the shortest duration for
/// those who look only at that.
pub fn released(lease: &Lease, identity: &str, now: Timestamp) -> Option<Lease> {
    let mut lease = lease.clone();
    let spec = lease
        .spec
        .as_mut()
        .filter(|spec| spec.holder_identity.as_deref() == Some(identity))?;
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.renew_time = Some(MicroTime(now));
    spec.acquire_time = Some(MicroTime(now));
    Some(lease)
}

#[cfg(test)]
mod tests;
