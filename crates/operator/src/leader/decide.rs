//! Who may hold the lease now: pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

/// A record of the lease, and when this process first saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    record: LeaseSpec,
    seen: Instant,
}

impl Observation {
    /// The record of this lease, seen at `now`.
    pub fn of(lease: &Lease, now: Instant) -> Option<Self> {
        Some(Self {
            record: lease.spec.clone()?,
            seen: now,
        })
    }
}

/// What to do about the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Write it.
    Claim(Claim),
    /// It is somebody's who may still be writing.
    Wait {
        /// Whose it is.
        holder: String,
    },
}

/// In what way to write the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// There is none: create it.
    Create,
    /// It was somebody else's: take it.
    Acquire,
    /// It is ours: renew it.
    Renew,
}

/// Decides from the lease as it is now, and from when its record was first seen.
///
/// The times in the record are another machine's and are not looked at. A record that changes is a holder that lives:
/// it has `leaseDurationSeconds` (its own, else `duration`) from the moment at which *we* saw the change.
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
        // Whoever held a lease that was deleted goes on writing until it finds out.
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

/// The lease to write. It keeps the resource version of `previous`, so that only one of several claims succeeds, and
/// all that others wrote into it.
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

/// The lease given back, if it is ours: nobody's, and running out at once for those who look at the duration only.
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
