//! Children that name as their owner a job of another namespace.

use super::*;

/// A pod of another namespace that claims to be a pod of `ns/a`.
fn foreign(phase: &'static str, version: u64) -> SlimPod {
    let mut pod = TestPod {
        uid: "foreign",
        phase,
        version,
        ..POD
    }
    .slim();
    pod.metadata.namespace = "other".into();
    pod
}

fn service(namespace: &str, uid: &str) -> SlimMeta {
    let mut metadata = TestPod {
        name: "a",
        uid: "s",
        ..POD
    }
    .meta();
    metadata.uid = uid.into();
    metadata.namespace = namespace.into();
    SlimMeta { metadata }
}

#[test]
fn what_is_in_another_namespace_is_not_the_jobs() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    for source in [Source::List, Source::Watch, Source::Answer] {
        assert_eq!(index.apply_pod(foreign("Succeeded", 11), source), None);
        assert_eq!(index.apply_service(&service("other", "s"), source), None);
    }
    assert_eq!(pods(&index, "a"), ["a-w-0/p0"]);
    assert!(snapshot(&index, "a").services.is_empty());
    assert_eq!(
        index.delete_child(Kind::Pod, &foreign("Succeeded", 12).metadata),
        None
    );
    assert!(snapshot(&index, "a").departed.is_empty());
    assert_eq!(pods(&index, "a"), ["a-w-0/p0"]);
}

#[test]
fn what_is_listed_before_the_job_does_not_say_where_the_job_is() {
    for foreign_first in [true, false] {
        let index = Index::new(&[]);
        index.listing(Kind::Pod, 0, Version(5));
        if foreign_first {
            index.apply_pod(foreign("Running", 4), Source::List);
            index.apply_service(&service("other", "s"), Source::List);
        }
        index.apply_pod(TestPod { version: 4, ..POD }.slim(), Source::List);
        index.apply_service(&service("ns", "s0"), Source::List);
        if !foreign_first {
            index.apply_pod(foreign("Running", 4), Source::List);
            index.apply_service(&service("other", "s"), Source::List);
        }
        index.listed(Kind::Pod, 0, Version(5), Instant::now());
        index.listing(Kind::Job, 0, Version(5));
        assert_eq!(index.apply_job(job("a", "u1", 3), Source::List), Some(key("a")));
        assert_eq!(pods(&index, "a"), ["a-w-0/p0"]);
        assert_eq!(&*snapshot(&index, "a").services[0].uid, "s0");
        assert_eq!(index.keys(), [key("a")]);
        // All of it can be removed again.
        index.delete_child(Kind::Pod, &foreign("Running", 12).metadata);
        index.delete_child(Kind::Service, &service("other", "s").metadata);
        index.delete_job(job("a", "u1", 13).metadata());
        index.delete_child(Kind::Pod, &TestPod { version: 14, ..POD }.meta());
        index.delete_child(Kind::Service, &service("ns", "s0").metadata);
        assert!(index.lock().owners.is_empty());
    }
}

#[test]
fn a_job_is_known_by_its_own_name_whatever_its_children_call_it() {
    let index = Index::new(&[]);
    let misled = TestPod {
        owner: Some(("b", "u1")),
        ..POD
    };
    index.apply_pod(misled.slim(), Source::Watch);
    assert_eq!(index.apply_job(job("a", "u1", 3), Source::Watch), Some(key("a")));
    assert_eq!(pods(&index, "a"), ["a-w-0/p0"]);
    let changed = TestPod {
        version: 11,
        phase: "Running",
        ..misled
    };
    assert_eq!(index.apply_pod(changed.slim(), Source::Watch), Some(key("a")));
}
