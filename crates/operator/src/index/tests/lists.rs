//! What a list proves, and what it does not.

use super::*;

#[test]
fn a_list_does_not_drop_what_was_created_after_it_and_drops_what_is_gone() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    // A list of version 15 is under way when a create is answered with version 17.
    index.listing(Kind::Pod, 0, Version(15));
    index.apply_pod(
        TestPod {
            name: "a-w-1",
            uid: "p1",
            version: 17,
            ..POD
        }
        .slim(),
        Source::Answer,
    );
    assert_eq!(
        index.listed(Kind::Pod, 0, Version(15), Instant::now()),
        [key("a")]
    );
    assert_eq!(pods(&index, "a"), ["a-w-1/p1"]);
    // The next list is newer than the create and lacks the pod, so somebody deleted it in between.
    index.listing(Kind::Pod, 0, Version(18));
    assert_eq!(
        index.listed(Kind::Pod, 0, Version(18), Instant::now()),
        [key("a")]
    );
    assert!(pods(&index, "a").is_empty());
    // An answer older than that list is out of date.
    assert_eq!(
        index.apply_pod(TestPod { version: 16, ..POD }.slim(), Source::Answer),
        None
    );
    assert!(pods(&index, "a").is_empty());
}

#[test]
fn a_list_that_is_broken_off_removes_nothing() {
    let index = index();
    for (name, uid) in [("a-w-0", "p0"), ("a-w-1", "p1")] {
        index.apply_pod(TestPod { name, uid, ..POD }.slim(), Source::Watch);
    }
    index.listing(Kind::Pod, 0, Version(15));
    index.apply_pod(POD.slim(), Source::List);
    index.listing(Kind::Pod, 0, Version(16));
    index.apply_pod(
        TestPod {
            name: "a-w-1",
            uid: "p1",
            ..POD
        }
        .slim(),
        Source::List,
    );
    assert_eq!(pods(&index, "a"), ["a-w-0/p0", "a-w-1/p1"]);
    index.listed(Kind::Pod, 0, Version(16), Instant::now());
    assert_eq!(pods(&index, "a"), ["a-w-1/p1"], "only the complete list counts");
}

#[test]
fn a_job_that_a_list_lacks_is_gone_unless_it_is_newer() {
    let index = index();
    index.apply_job(job("b", "u2", 30), Source::Watch);
    index.listing(Kind::Job, 0, Version(35));
    index.apply_job(job("b", "u2", 30), Source::List);
    assert_eq!(
        index.listed(Kind::Job, 0, Version(35), Instant::now()),
        [key("a")]
    );
    assert_eq!(index.keys(), [key("b")]);
}

#[test]
fn versions_that_go_back_are_believed() {
    let index = index();
    index.apply_job(job_in("Running", "a", "u1", 900), Source::Watch);
    index.apply_pod(
        TestPod {
            version: 901,
            phase: "Running",
            ..POD
        }
        .slim(),
        Source::Watch,
    );
    index.listing(Kind::Job, 0, Version(500));
    assert_eq!(index.apply_job(job("a", "u1", 400), Source::List), Some(key("a")));
    index.listed(Kind::Job, 0, Version(500), Instant::now());
    index.listing(Kind::Pod, 0, Version(500));
    assert_eq!(
        index.listed(Kind::Pod, 0, Version(500), Instant::now()),
        [key("a")]
    );
    assert!(pods(&index, "a").is_empty());
}

#[test]
fn scopes_are_listed_apart() {
    let index = Index::new(&["ns".to_owned(), "other".to_owned()]);
    let since = Instant::now();
    for kind in [Kind::Job, Kind::Pod, Kind::Service] {
        for scope in [0, 1] {
            assert!(!index.is_listed_since(None));
            index.listing(kind, scope, Version(5));
            if kind == Kind::Job && scope == 0 {
                index.apply_job(job("a", "u1", 3), Source::List);
            }
            assert!(
                index.listed(kind, scope, Version(5), since).is_empty(),
                "the other scope is left alone"
            );
        }
    }
    assert!(index.is_listed_since(None) && index.is_listed_since(Some(since)));
    assert!(!index.is_listed_since(Some(since + std::time::Duration::from_secs(1))));
}

#[test]
fn a_namespace_that_may_not_be_listed_does_not_hold_up_the_others() {
    let namespaces = ["ns".to_owned(), "gone".to_owned()];
    let index = Index::new(&namespaces);
    let kinds = [Kind::Job, Kind::Pod, Kind::Service];
    let list = |kind: Kind, scope: usize| {
        index.listing(kind, scope, Version(5));
        index.listed(kind, scope, Version(5), Instant::now())
    };
    for kind in kinds {
        index.refused(kind, 1);
    }
    assert!(!index.is_listed_since(None), "nothing has been listed");
    for kind in kinds {
        list(kind, 0);
    }
    assert!(index.is_listed_since(None));
    // A namespace whose rights were restored counts only when it is listed.
    for kind in kinds {
        list(kind, 1);
    }
    assert!(index.is_listed_since(None));
    assert!(!index.is_listed_since(Some(Instant::now() + std::time::Duration::from_secs(1))));
}

#[test]
fn nothing_is_said_of_jobs_whose_namespace_may_not_be_listed() {
    let index = Index::new(&["other".to_owned(), "ns".to_owned()]);
    for kind in [Kind::Job, Kind::Pod, Kind::Service] {
        index.listing(kind, 1, Version(5));
        if kind == Kind::Job {
            index.apply_job(job("a", "u1", 3), Source::List);
        }
        index.listed(kind, 1, Version(5), Instant::now());
    }
    index.apply_pod(POD.slim(), Source::Watch);
    assert_eq!(pods(&index, "a"), ["a-w-0/p0"]);
    // Its pods are unknown now, which does not mean that they are deleted.
    index.refused(Kind::Pod, 1);
    assert!(index.get(&key("a")).is_none());
    // When they are known again, all its jobs are reconciled.
    index.listing(Kind::Pod, 1, Version(20));
    index.apply_pod(TestPod { version: 20, ..POD }.slim(), Source::List);
    let keys = index.listed(Kind::Pod, 1, Version(20), Instant::now());
    assert_eq!(keys, [key("a")]);
    assert_eq!(pods(&index, "a"), ["a-w-0/p0"]);
}
