//! Jobs that are created, change and are deleted.

use trainyard_core::local_state::{ExecRightState, SecretState};
use trainyard_core::model::Identity;

use super::*;

#[test]
fn a_job_of_the_same_name_does_not_see_the_children_of_the_former() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    assert_eq!(index.apply_job(job("a", "u2", 30), Source::Watch), Some(key("a")));
    assert!(pods(&index, "a").is_empty());
    assert_eq!(
        index.apply_job(job("a", "u1", 29), Source::Watch),
        None,
        "late news of the former"
    );
    assert_eq!(&*snapshot(&index, "a").uid, "u2");
    let former = job("a", "u1", 31);
    assert_eq!(
        index.delete_job(former.metadata()),
        None,
        "it is the former that is gone"
    );
    assert_eq!(&*snapshot(&index, "a").uid, "u2");
    // The new job may be waiting for the name.
    assert_eq!(
        index.delete_child(Kind::Pod, &TestPod { version: 32, ..POD }.meta()),
        Some(key("a"))
    );
}

/// Another leader may have created the Secret again, or granted the right for other pods.
#[test]
fn what_is_not_watched_is_not_known_in_the_next_term() {
    let index = index();
    index.update_local("u1", |local| {
        local.secret = SecretState::Missing(Identity::Certificate);
        local.exec_right = ExecRightState::Covers(["a-w-0".into()].into());
    });
    index.forget_former_terms();
    let local = snapshot(&index, "a").local;
    assert_eq!(
        (local.secret, local.exec_right),
        (SecretState::Unknown, ExecRightState::Unknown)
    );
}

#[test]
fn the_answer_to_a_status_write_is_seen_at_once_and_never_undone() {
    let index = index();
    let JobObject::Ok(written) = job_in("Running", "a", "u1", 21) else {
        panic!()
    };
    index.apply_status("u1", written.metadata.clone(), written.status.clone());
    assert_eq!(
        snapshot(&index, "a").job.status.as_ref().unwrap().phase,
        Some(JobPhase::Running)
    );
    assert_eq!(
        index.apply_job(job_in("Running", "a", "u1", 21), Source::Watch),
        None,
        "its own echo"
    );
    assert_eq!(
        index.apply_job(job_in("Pending", "a", "u1", 20), Source::Watch),
        None
    );
    let running = |index: &Index| {
        index
            .phases()
            .find(|(phase, _)| *phase == JobPhase::Running)
            .unwrap()
            .1
    };
    assert_eq!(running(&index), 1);
    index.delete_job(&written.metadata);
    assert_eq!(running(&index), 0);
    index.apply_status("u1", written.metadata, written.status);
    assert!(
        index.get(&key("a")).is_none(),
        "an answer does not bring a deleted job back"
    );
}

#[test]
fn conflicts_are_news_once() {
    let index = index();
    let conflict = Conflict {
        kind: "Service",
        name: "a".into(),
        owner: "nobody".into(),
    };
    assert_eq!(index.add_conflict("u1", conflict.clone()), Some(key("a")));
    assert_eq!(index.add_conflict("u1", conflict.clone()), None);
    assert_eq!(snapshot(&index, "a").conflicts, [conflict]);
    index.remove_conflict("u1", "Service", "a");
    assert!(snapshot(&index, "a").conflicts.is_empty());
}

#[test]
fn nothing_is_left_of_a_job_that_is_gone_with_its_children() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    index.delete_job(job("a", "u1", 9).metadata());
    assert_eq!(
        index.delete_child(Kind::Pod, &TestPod { version: 12, ..POD }.meta()),
        None
    );
    let inner = index.lock();
    assert!(inner.owners.is_empty() && inner.names.is_empty());
}

#[test]
fn a_malformed_job_is_known_as_such() {
    let index = index();
    let bad = r#"{"metadata":{"name":"bad","namespace":"ns","uid":"u5","resourceVersion":"50"},"spec":{}}"#;
    assert_eq!(
        index.apply_job(JobObject::decode(bad).unwrap(), Source::Watch),
        Some(key("bad"))
    );
    assert!(matches!(index.get(&key("bad")), Some(Lookup::Malformed(..))));
    assert_eq!(
        index.apply_job(job("bad", "u5", 51), Source::Watch),
        Some(key("bad"))
    );
    assert!(
        matches!(index.get(&key("bad")), Some(Lookup::Job(_))),
        "it was repaired"
    );
}
