use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::{ServerName, UnixTime};

use super::plan::{BACKDATE, CA_LIFE, LEAF_LIFE, OVERLAP, certificates};
use super::serving::LoadError;
use super::*;

const DAY: Duration = Duration::from_hours(24);
const HOUR: Duration = Duration::from_hours(1);
const SECOND: Duration = Duration::from_secs(1);

fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn names() -> Vec<String> {
    CertConfig::new("system", &["hooks"], true).names
}

fn fresh(now: Timestamp) -> SecretData {
    let plan = plan_certs(None, now, &names(), Trust::Written);
    assert!(matches!(plan, CertPlan::NewAuthority { .. }), "{plan:?}");
    carry_out(&plan, None, now, &names()).unwrap().unwrap()
}

fn next(data: &SecretData, now: Timestamp) -> SecretData {
    let plan = plan_certs(Some(data), now, &names(), Trust::Written);
    carry_out(&plan, Some(data), now, &names())
        .unwrap()
        .expect("something to do")
}

fn why(data: &SecretData, now: Timestamp) -> String {
    match plan_certs(Some(data), now, &names(), Trust::Written) {
        CertPlan::NewAuthority { why } => format!("authority: {why}"),
        CertPlan::IssueLeaf { why } => format!("leaf: {why}"),
        other => panic!("{other:?}"),
    }
}

/// Verifies the leaf as an API server does that trusts `bundle`.
fn verify(bundle: &str, data: &SecretData, name: &str, now: Timestamp) -> Result<(), rustls::Error> {
    let mut roots = RootCertStore::empty();
    for root in certificates(bundle).unwrap() {
        roots.add(root).unwrap();
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .unwrap();
    let leaf = certificates(&data.tls_crt).unwrap().remove(0);
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().try_into().unwrap()));
    verifier
        .verify_server_cert(&leaf, &[], &name, &[], at)
        .map(|_| ())
}

#[test]
fn a_fresh_leaf_is_trusted_under_every_name() {
    let now = noon();
    let data = fresh(now);
    for name in [
        "hooks.system",
        "hooks.system.svc",
        "hooks.system.svc.cluster.local",
    ] {
        verify(&data.ca_crt, &data, name, now).unwrap();
    }
    verify(&data.ca_crt, &data, "hooks.system.svc", now - BACKDATE).unwrap();
    verify(&data.ca_crt, &data, "other.system.svc", now).unwrap_err();
    verify(&data.ca_crt, &data, "hooks.system.svc", now + LEAF_LIFE + SECOND).unwrap_err();
    let other = fresh(now);
    verify(&other.ca_crt, &data, "hooks.system.svc", now).unwrap_err();
}

#[test]
fn nothing_is_done_until_two_thirds_of_the_leafs_life() {
    let now = noon();
    let data = fresh(now);
    let CertPlan::Keep { until } = plan_certs(Some(&data), now, &names(), Trust::Written) else {
        panic!()
    };
    assert_eq!(until, now - BACKDATE + (LEAF_LIFE + BACKDATE) / 3 * 2);
    assert_eq!(
        plan_certs(Some(&data), until - SECOND, &names(), Trust::Written),
        CertPlan::Keep { until }
    );
    assert!(why(&data, until).contains("two thirds"));

    let renewed = next(&data, until);
    assert_eq!((&renewed.ca_crt, &renewed.ca_key), (&data.ca_crt, &data.ca_key));
    assert_ne!(
        (&renewed.tls_crt, &renewed.tls_key),
        (&data.tls_crt, &data.tls_key)
    );
    verify(&data.ca_crt, &renewed, "hooks.system.svc", until).unwrap();
}

#[test]
fn what_is_broken_is_made_anew() {
    let now = noon();
    let good = fresh(now);
    let other = fresh(now);
    let broken = |change: &dyn Fn(&mut SecretData)| {
        let mut data = good.clone();
        change(&mut data);
        let why = why(&data, now);
        let mended = next(&data, now);
        assert!(matches!(
            plan_certs(Some(&mended), now, &names(), Trust::Written),
            CertPlan::Keep { .. }
        ));
        verify(&mended.ca_crt, &mended, "hooks.system.svc", now).unwrap();
        why
    };
    for change in [
        &(|d: &mut SecretData| d.ca_crt = String::new()) as &dyn Fn(&mut SecretData),
        &|d| d.ca_crt = "rubbish".to_owned(),
        &|d| d.ca_crt = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
        &|d| d.ca_crt = "-----BEGIN CERTIFICATE-----\nAA".to_owned(),
        &|d| d.ca_crt.clone_from(&d.tls_crt),
        &|d| d.ca_key = String::new(),
        &|d| d.ca_key.clone_from(&other.ca_key),
    ] {
        assert!(broken(change).starts_with("authority: "));
    }
    for change in [
        &(|d: &mut SecretData| d.tls_crt = String::new()) as &dyn Fn(&mut SecretData),
        &|d| d.tls_crt = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
        &|d| d.tls_key = "rubbish".to_owned(),
        &|d| d.tls_key.clone_from(&other.tls_key),
        &|d| (d.tls_crt, d.tls_key) = (other.tls_crt.clone(), other.tls_key.clone()),
    ] {
        assert!(broken(change).starts_with("leaf: "));
    }
}

#[test]
fn an_empty_secret_is_filled() {
    let data = SecretData::of(&Secret::default());
    assert!(why(&data, noon()).contains("no certificates yet"));
}

#[test]
fn other_names_need_another_leaf() {
    let now = noon();
    let data = fresh(now);
    let more = [names(), vec!["hooks.example".to_owned()]].concat();
    let plan = plan_certs(Some(&data), now, &more, Trust::Written);
    assert_eq!(
        plan,
        CertPlan::IssueLeaf {
            why: "tls.crt is not for hooks.example".to_owned()
        }
    );
    let data = carry_out(&plan, Some(&data), now, &more).unwrap().unwrap();
    verify(&data.ca_crt, &data, "hooks.example", now).unwrap();
    let CertPlan::Keep { .. } = plan_certs(Some(&data), now, &names(), Trust::Written) else {
        panic!("a name too many does no harm")
    };
}

#[test]
fn expired_certificates_and_those_of_the_future_are_made_anew() {
    let now = noon();
    let data = fresh(now);
    assert!(why(&data, now + CA_LIFE).starts_with("authority: "));
    assert!(why(&data, now + LEAF_LIFE + DAY).starts_with("leaf: "));
    assert!(
        why(&data, now - DAY).starts_with("authority: "),
        "made by a machine whose clock was ahead"
    );
}

#[test]
fn the_authority_is_replaced_without_a_moment_of_distrust() {
    // Eight years and 364 days: the authority has a year and a day left. Leaves have been renewed
    // all the time.
    let now = noon();
    let old = fresh(now);
    let due = now + CA_LIFE - DAY * 365;
    let shortly_before = due - HOUR;
    let old = next(&old, shortly_before);
    let CertPlan::Keep { until } = plan_certs(Some(&old), shortly_before, &names(), Trust::Written) else {
        panic!()
    };
    assert_eq!(until, due);
    assert_eq!(
        plan_certs(Some(&old), due, &names(), Trust::Written),
        CertPlan::AddAuthority
    );

    // Both are trusted; the leaf is still the old one's.
    let added = next(&old, due);
    assert_eq!(certificates(&added.ca_crt).unwrap().len(), 2);
    assert_eq!(added.tls_crt, old.tls_crt);
    verify(&added.ca_crt, &added, "hooks.system.svc", due).unwrap();
    assert_eq!(
        plan_certs(Some(&added), due, &names(), Trust::Written),
        CertPlan::Keep { until: due + OVERLAP }
    );

    // Who has to say so by hand may take as long as there is a leaf. Then there is nothing to lose.
    assert_eq!(
        plan_certs(Some(&added), due + DAY, &names(), Trust::Awaited),
        CertPlan::Keep {
            until: shortly_before + LEAF_LIFE - OVERLAP
        }
    );
    assert!(matches!(
        plan_certs(Some(&added), due + LEAF_LIFE, &names(), Trust::Awaited),
        CertPlan::IssueLeaf { .. }
    ));

    // Everybody trusts the new one: it signs. Both those who have seen the new bundle and replicas
    // with the old leaf are fine.
    let signed = next(&added, due + OVERLAP);
    assert_eq!(signed.ca_crt, added.ca_crt);
    verify(&signed.ca_crt, &signed, "hooks.system.svc", due + OVERLAP).unwrap();
    verify(&signed.ca_crt, &added, "hooks.system.svc", due + OVERLAP).unwrap();
    verify(&old.ca_crt, &signed, "hooks.system.svc", due + OVERLAP).unwrap_err();
    assert_eq!(
        plan_certs(Some(&signed), due + OVERLAP, &names(), Trust::Written),
        CertPlan::Keep {
            until: due + OVERLAP * 2
        }
    );

    // Everybody serves the new leaf: the old one goes.
    let done = next(&signed, due + OVERLAP * 2);
    assert_eq!(certificates(&done.ca_crt).unwrap().len(), 1);
    assert!(signed.ca_crt.starts_with(&done.ca_crt));
    assert_eq!((&done.tls_crt, &done.tls_key), (&signed.tls_crt, &signed.tls_key));
    verify(&done.ca_crt, &done, "hooks.system.svc", due + OVERLAP * 2).unwrap();
    let CertPlan::Keep { .. } = plan_certs(Some(&done), due + OVERLAP * 2, &names(), Trust::Written) else {
        panic!()
    };
}

#[test]
fn a_life_of_thirty_years_never_breaks() {
    let start = noon();
    let mut data = fresh(start);
    let mut now = start;
    let mut changes = 0;
    while now < start + DAY * (30 * 365) {
        match plan_certs(Some(&data), now, &names(), Trust::Written) {
            CertPlan::Keep { until } => {
                assert!(until > now, "it would spin");
                now = until;
            }
            CertPlan::NewAuthority { why } => panic!("at {now}: {why}"),
            _ => data = next(&data, now),
        }
        verify(&data.ca_crt, &data, "hooks.system.svc", now).unwrap();
        changes += 1;
        assert!(changes < 2000);
    }
}

#[test]
fn keys_are_never_shown() {
    let data = fresh(noon());
    let shown = format!("{data:?}");
    assert!(
        !shown.contains("PRIVATE") && shown.contains("CERTIFICATE"),
        "{shown}"
    );
    let mut broken = data.clone();
    broken.tls_key = data.tls_key.replace("BEGIN", "BEGUN");
    let error = ServingCert::default().load(&broken).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("MIG"), "{error:?}");
}

#[test]
fn a_certificate_that_can_not_be_served_leaves_the_old_one() {
    let now = noon();
    let serving = ServingCert::default();
    assert!(!serving.is_loaded());
    assert!(serving.load(&SecretData::default()).is_err());
    let data = fresh(now);
    serving.load(&data).unwrap();
    let mismatch = SecretData {
        tls_key: fresh(now).tls_key,
        ..data
    };
    assert!(matches!(serving.load(&mismatch), Err(LoadError::Pair(_))));
    assert!(serving.is_loaded());
}

#[test]
fn a_secret_keeps_what_else_it_holds() {
    let mut secret = Secret::default();
    secret
        .data
        .get_or_insert_default()
        .insert("note".into(), ByteString(b"x".to_vec()));
    let data = fresh(noon());
    data.store(&mut secret);
    assert_eq!(SecretData::of(&secret), data);
    assert_eq!(secret.data.unwrap().len(), 5);
}
