//! `standalone`.

use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::model::PodKey;
use trainyard_core::view::Settings;

use super::{job, table};

#[test]
fn workers_know_nothing_of_each_other() {
    insta::assert_snapshot!(table(&job("standalone", "", &[("worker", 2)])), @r"
    worker-0: OnFailure, AllPods
    worker-1: OnFailure, AllPods
    succeeds: worker
    fails: worker
    ");
}

/// A subdomain without a Service makes a name that nobody can resolve.
#[test]
fn pods_have_a_host_name_and_no_subdomain() {
    let object = job("standalone", "", &[("worker", 2)]);
    let job = Job::parse(&object).unwrap();
    let pod = build::pod(&job, &Settings::default(), PodKey { role: 0, index: 1 }).unwrap();
    let spec = pod.spec.unwrap();
    assert_eq!(
        (spec.hostname.as_deref(), spec.subdomain),
        (Some("mnist-worker-1"), None)
    );
}
