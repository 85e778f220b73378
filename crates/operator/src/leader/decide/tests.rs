//! Who may hold the lease: the tables.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use rstest::rstest;
use tokio::time::Instant;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(15);

fn lease(holder: &str, version: u64, renewed: &str) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.resource_version = Some(version.to_string());
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        lease_transitions: Some(3),
        renew_time: Some(MicroTime(renewed.parse().unwrap())),
        ..LeaseSpec::default()
    });
    lease
}

const NOON: &str = "2026-01-01T12:00:00Z";
const LONG_AGO: &str = "1999-01-01T00:00:00Z";
const IN_A_YEAR: &str = "2027-01-01T00:00:00Z";

#[rstest]
#[case::fresh(None, None, 0, Decision::Claim(Claim::Create))]
#[case::first_look_at_a_live_one(None, Some(lease("b", 1, NOON)), 0, wait("b"))]
#[case::first_look_at_one_with_a_stale_clock(None, Some(lease("b", 1, LONG_AGO)), 0, wait("b"))]
#[case::live(Some((lease("b", 1, NOON), 0)), Some(lease("b", 1, NOON)), 14, wait("b"))]
#[case::expired(Some((lease("b", 1, NOON), 0)), Some(lease("b", 1, NOON)), 15, Decision::Claim(Claim::Acquire))]
#[case::expired_though_its_clock_is_ahead(
    Some((lease("b", 1, IN_A_YEAR), 0)), Some(lease("b", 1, IN_A_YEAR)), 15, Decision::Claim(Claim::Acquire))]
#[case::renewed_in_between(Some((lease("b", 1, LONG_AGO), 0)), Some(lease("b", 2, NOON)), 15, wait("b"))]
#[case::renewed_with_a_clock_that_went_back(Some((lease("b", 1, NOON), 0)), Some(lease("b", 2, LONG_AGO)), 15, wait("b"))]
#[case::touched_but_not_renewed(
    Some((lease("b", 1, NOON), 0)), Some(lease("b", 2, NOON)), 15, Decision::Claim(Claim::Acquire))]
#[case::somebody_else_took_it(Some((lease("b", 1, NOON), 0)), Some(lease("c", 2, NOON)), 15, wait("c"))]
#[case::own(None, Some(lease("me", 1, LONG_AGO)), 0, Decision::Claim(Claim::Renew))]
#[case::own_and_expired(Some((lease("me", 1, NOON), 0)), Some(lease("me", 1, NOON)), 99, Decision::Claim(Claim::Renew))]
#[case::released(Some((lease("b", 1, NOON), 0)), Some(lease("", 2, NOON)), 1, Decision::Claim(Claim::Acquire))]
#[case::deleted(Some((lease("b", 1, NOON), 0)), None, 14, wait("b"))]
#[case::deleted_and_expired(Some((lease("b", 1, NOON), 0)), None, 15, Decision::Claim(Claim::Create))]
#[case::own_deleted(Some((lease("me", 1, NOON), 0)), None, 1, Decision::Claim(Claim::Create))]
#[case::released_and_deleted(Some((lease("", 1, NOON), 0)), None, 1, Decision::Claim(Claim::Create))]
#[case::empty(None, Some(Lease::default()), 0, Decision::Claim(Claim::Acquire))]
fn decides(
    #[case] observed: Option<(Lease, u64)>,
    #[case] found: Option<Lease>,
    #[case] seconds: u64,
    #[case] expected: Decision,
) {
    let start = Instant::now();
    let observed =
        observed.and_then(|(lease, at)| Observation::of(&lease, start + SECOND * u32::try_from(at).unwrap()));
    let now = start + Duration::from_secs(seconds);
    let (_, decision) = step(observed, found.as_ref(), "me", LEASE, now);
    assert_eq!(decision, expected);
}

fn wait(holder: &str) -> Decision {
    Decision::Wait {
        holder: holder.to_owned(),
    }
}

#[test]
fn the_holders_own_duration_is_granted() {
    let mut slow = lease("b", 1, NOON);
    slow.spec.as_mut().unwrap().lease_duration_seconds = Some(60);
    let start = Instant::now();
    let observed = Observation::of(&slow, start);
    assert_eq!(
        step(observed.clone(), Some(&slow), "me", LEASE, start + SECOND * 59).1,
        wait("b")
    );
    assert_eq!(
        step(observed, Some(&slow), "me", LEASE, start + LEASE * 4).1,
        Decision::Claim(Claim::Acquire)
    );
}

#[test]
fn claims_keep_what_is_not_theirs_and_count_transitions() {
    let now: Timestamp = NOON.parse().unwrap();
    let theirs = lease("b", 7, LONG_AGO);
    let taken = claim(Some(&theirs), "me", LEASE, Claim::Acquire, now);
    assert_eq!(
        taken.metadata.resource_version.as_deref(),
        Some("7"),
        "else two claims could both succeed"
    );
    let spec = taken.spec.clone().unwrap();
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some("me"), Some(4))
    );
    assert_eq!(
        (spec.acquire_time, spec.renew_time),
        (Some(MicroTime(now)), Some(MicroTime(now)))
    );

    let later = now + SECOND;
    let renewed = claim(Some(&taken), "me", LEASE, Claim::Renew, later)
        .spec
        .unwrap();
    assert_eq!(renewed.acquire_time, Some(MicroTime(now)));
    assert_eq!(
        (renewed.renew_time, renewed.lease_transitions),
        (Some(MicroTime(later)), Some(4))
    );

    let free = released(&taken, "me", later).unwrap();
    assert_eq!(free.metadata.resource_version.as_deref(), Some("7"));
    assert_eq!(free.spec.unwrap().holder_identity.as_deref(), Some(""));
    assert_eq!(
        released(&theirs, "me", later),
        None,
        "what is not ours is not ours to give back"
    );
}
