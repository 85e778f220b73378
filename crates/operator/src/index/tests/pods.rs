//! Pods that are created, change and are deleted.

use super::*;

#[test]
fn a_change_of_a_pod_names_its_job_and_an_echo_does_not() {
    let index = index();
    assert_eq!(index.apply_pod(POD.slim(), Source::Answer), Some(key("a")));
    assert_eq!(
        index.apply_pod(POD.slim(), Source::Watch),
        None,
        "the watch only repeats the answer"
    );
    let heartbeat = TestPod { version: 11, ..POD };
    assert_eq!(
        index.apply_pod(heartbeat.slim(), Source::Watch),
        None,
        "nothing that decisions look at"
    );
    let running = TestPod {
        version: 12,
        phase: "Running",
        ..POD
    };
    assert_eq!(index.apply_pod(running.slim(), Source::Watch), Some(key("a")));
    assert_eq!(snapshot(&index, "a").pods[0].phase, PodPhase::Running);
}

/// Its place may be taken by a pod that goes on from an older checkpoint.
#[test]
fn what_a_pod_said_last_is_not_what_the_next_pod_says() {
    let index = index();
    let reporting = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "6", "generation": 1},
        "spec": {"framework": {"name": "custom"}, "progress": "Report", "roles": [{"name": "w", "template": {}}]},
        "status": {"phase": "Running"},
    });
    index.apply_job(JobObject::decode(&reporting.to_string()).unwrap(), Source::Watch);
    index.apply_pod(POD.slim(), Source::Watch);
    let report = |uid: &str, step: i64| {
        let progress = Progress {
            step: Some(step),
            ..Progress::default()
        };
        index
            .record_progress(&key("a"), ("a-w-0", uid), progress)
            .unwrap();
    };
    let step = || snapshot(&index, "a").progress.and_then(|progress| progress.step);
    report("p0", 130);
    let going = TestPod {
        version: 11,
        going: true,
        ..POD
    };
    index.apply_pod(going.slim(), Source::Watch);
    assert_eq!(step(), Some(130));
    index.delete_child(Kind::Pod, &TestPod { version: 12, ..POD }.meta());
    assert_eq!(step(), Some(130), "it is what the job had reached");
    let next = TestPod {
        version: 13,
        uid: "p1",
        ..POD
    };
    index.apply_pod(next.slim(), Source::Watch);
    assert_eq!(step(), None);
    report("p1", 101);
    assert_eq!(step(), Some(101));
}

#[test]
fn stale_events_change_nothing() {
    let index = index();
    index.apply_pod(
        TestPod {
            version: 20,
            phase: "Running",
            ..POD
        }
        .slim(),
        Source::Watch,
    );
    assert_eq!(index.apply_pod(POD.slim(), Source::Watch), None);
    assert_eq!(snapshot(&index, "a").pods[0].phase, PodPhase::Running);
    assert_eq!(
        index.apply_job(job_in("Running", "a", "u1", 2), Source::Watch),
        None
    );
    assert_eq!(
        index.phases().find(|(phase, _)| *phase == JobPhase::Running),
        Some((JobPhase::Running, 0))
    );
}

#[test]
fn an_answer_that_comes_after_the_object_was_removed_is_ignored() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    assert_eq!(
        index.delete_child(Kind::Pod, &TestPod { version: 12, ..POD }.meta()),
        Some(key("a"))
    );
    assert_eq!(index.apply_pod(POD.slim(), Source::Answer), None);
    assert!(pods(&index, "a").is_empty());
}

#[test]
fn a_deleted_pod_is_seen_as_going_and_never_comes_back() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    index.terminate(Kind::Pod, "u1", "a-w-0", "other");
    assert!(!snapshot(&index, "a").pods[0].terminating);
    index.terminate(Kind::Pod, "u1", "a-w-0", "p0");
    assert!(snapshot(&index, "a").pods[0].terminating);
    index.apply_pod(
        TestPod {
            version: 11,
            phase: "Running",
            ..POD
        }
        .slim(),
        Source::Watch,
    );
    let pod = &snapshot(&index, "a").pods[0];
    assert!(pod.terminating && pod.phase == PodPhase::Running);
}

#[test]
fn when_a_pod_was_first_told_to_have_failed_is_remembered() {
    let index = index();
    let failed = |version, node| TestPod {
        phase: "Failed",
        version,
        node,
        ..POD
    };
    index.apply_pod(failed(20, POD.node).slim(), Source::Watch);
    // Something else about it changes later.
    index.apply_pod(failed(30, "elsewhere").slim(), Source::Watch);
    let pod = snapshot(&index, "a").pods[0].clone();
    assert_eq!(pod.node.as_deref(), Some("elsewhere"));
    assert_eq!(pod.end.map(|end| end.seen_version), Some(20));
}

#[test]
fn only_a_pod_that_had_ended_is_remembered_when_it_is_gone() {
    type Going = fn(&Index);
    let ways: [Going; 3] = [
        |index| {
            index.delete_child(Kind::Pod, &TestPod { version: 30, ..POD }.meta());
        },
        |index| index.deleted_by_us(Kind::Pod, "u1", "a-w-0", "p0", Version(30)),
        |index| {
            index.listing(Kind::Pod, 0, Version(30));
            index.listed(Kind::Pod, 0, Version(30), Instant::now());
        },
    ];
    for go in ways {
        for phase in ["Succeeded", "Running", "Failed"] {
            let index = index();
            index.apply_pod(TestPod { phase, ..POD }.slim(), Source::Watch);
            go(&index);
            assert!(pods(&index, "a").is_empty());
            let departed = snapshot(&index, "a").departed;
            let names: Vec<_> = departed.iter().map(|row| (&*row.name, &*row.uid)).collect();
            let expected = (phase != "Running").then_some(("a-w-0", "p0"));
            assert_eq!(names, expected.as_slice(), "{phase}");
            index.forget_departed("u1", &departed);
            assert!(snapshot(&index, "a").departed.is_empty());
        }
    }
}

#[test]
fn a_pod_that_has_been_replaced_is_not_remembered() {
    // The answer to the next create may come before the watch shows the first pod as deleted.
    for late in [false, true] {
        let index = index();
        let failed = TestPod {
            phase: "Failed",
            ..POD
        };
        let next = TestPod {
            uid: "p0b",
            version: 40,
            ..POD
        };
        index.apply_pod(failed.slim(), Source::Watch);
        if late {
            index.apply_pod(next.slim(), Source::Answer);
        }
        index.delete_child(
            Kind::Pod,
            &TestPod {
                version: 30,
                ..failed
            }
            .meta(),
        );
        assert_eq!(snapshot(&index, "a").departed.len(), usize::from(!late));
        index.apply_pod(next.slim(), Source::Watch);
        assert!(snapshot(&index, "a").departed.is_empty());
    }
}

#[test]
fn a_pod_and_its_replacement_of_the_same_name_are_two() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    index.apply_pod(
        TestPod {
            uid: "p0b",
            version: 15,
            ..POD
        }
        .slim(),
        Source::Answer,
    );
    assert_eq!(pods(&index, "a"), ["a-w-0/p0", "a-w-0/p0b"]);
    index.delete_child(Kind::Pod, &TestPod { version: 14, ..POD }.meta());
    assert_eq!(pods(&index, "a"), ["a-w-0/p0b"], "only the one that was removed");
    assert_eq!(
        index.delete_child(Kind::Pod, &TestPod { version: 14, ..POD }.meta()),
        None
    );
}

#[test]
fn a_pod_is_known_before_its_job() {
    let index = index();
    let early = TestPod {
        owner: Some(("b", "u9")),
        ..POD
    };
    assert_eq!(
        index.apply_pod(early.slim(), Source::Watch),
        None,
        "nobody to look at yet"
    );
    assert_eq!(index.apply_job(job("b", "u9", 40), Source::Watch), Some(key("b")));
    assert_eq!(pods(&index, "b"), ["a-w-0/p0"]);
}

#[test]
fn a_pod_that_lost_its_owner_is_nobodys() {
    let index = index();
    index.apply_pod(POD.slim(), Source::Watch);
    let stripped = TestPod {
        version: 11,
        owner: None,
        ..POD
    };
    assert_eq!(index.apply_pod(stripped.slim(), Source::Watch), Some(key("a")));
    assert!(pods(&index, "a").is_empty());
    index.apply_pod(TestPod { version: 12, ..POD }.slim(), Source::Watch);
    let moved = TestPod {
        version: 13,
        owner: Some(("z", "u8")),
        ..POD
    };
    index.apply_pod(moved.slim(), Source::Watch);
    assert!(pods(&index, "a").is_empty());
}

/// Somebody else tells how many of their pods run; of other jobs the engine does.
#[test]
fn pods_of_a_child_that_starts_are_news_to_those_who_listen() {
    let told = |phase: &str, dialect: Option<&str>| {
        let json = json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "1", "generation": 1,
                "ownerReferences": [{"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "a",
                    "uid": "m1", "controller": true}]},
            "spec": {"framework": {"name": "custom"}, "dialect": dialect, "roles": [{"name": "w", "template": {}}]},
            "status": {"phase": phase},
        });
        let index = Index::new(&[]);
        index.apply_job(JobObject::decode(&json.to_string()).unwrap(), Source::Watch);
        let mut changes = index.listen();
        index.apply_pod(POD.slim(), Source::Watch);
        let comes = changes.try_recv().is_ok();
        // Nobody says first that it terminates, if it is removed by force.
        let gone = TestPod { version: 12, ..POD };
        index.delete_child(Kind::Pod, &gone.meta());
        (comes, changes.try_recv().is_ok())
    };
    assert_eq!(told("Starting", Some("KubeflowMpi")), (true, true));
    assert_eq!(told("Running", Some("KubeflowMpi")), (false, false));
    assert_eq!(told("Starting", None), (false, false));
}
