//! What AresOperator's observer would say of a job, line by line.

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{JobPhase, RolePhase};
use trainyard_core::members::Members;
use trainyard_core::observe::ares::{job_of, roles};
use trainyard_core::observe::{Drain, Observed, ObservedPod, ObservedRole, Start};

/// A role whose pods are given as words: the index, `+` if it runs or `-` if not, and its address
/// if it has one.
fn role(name: &str, phase: RolePhase, replicas: i32, pods: &[&str]) -> ObservedRole {
    let pod = |word: &&str| {
        let (index, address) = word.split_once(['+', '-']).unwrap();
        ObservedPod {
            index: index.parse().unwrap(),
            name: format!("mnist-{name}-{index}"),
            host: format!("mnist-{name}-{index}.mnist"),
            address: (!address.is_empty()).then(|| address.parse().unwrap()),
            running: word.contains('+'),
            ready: false,
            drain: Drain::Stay,
        }
    };
    let pods: Vec<ObservedPod> = pods.iter().map(pod).collect();
    let running = pods.iter().filter(|pod| pod.running).count();
    ObservedRole {
        name: name.to_owned(),
        phase,
        replicas,
        members: Members::first(replicas),
        running: running.try_into().unwrap(),
        ready: 0,
        succeeded: 0,
        start: Start::Go,
        pods,
    }
}

fn said(phase: Option<JobPhase>, roles_of_job: Vec<ObservedRole>) -> Value {
    let observed = Observed {
        namespace: "team".to_owned(),
        name: "mnist".to_owned(),
        phase,
        roles: roles_of_job,
        progress: None,
        script: trainyard_core::local_state::ScriptOffer::Undecided,
    };
    serde_json::to_value(roles(&observed)).unwrap()
}

#[rstest]
//                                    job                   role                  pods                                  phase        ips
#[case::nothing_exists(               JobPhase::Pending,    RolePhase::Pending,   &[],                                  "Pending",   &[])]
#[case::no_pod_runs(                  JobPhase::Starting,   RolePhase::Starting,  &["0-", "1-10.0.0.2"],                "Starting",  &[])]
#[case::some_run(                     JobPhase::Starting,   RolePhase::Starting,  &["0+10.0.0.1", "1-10.0.0.2"],        "Starting",  &[])]
#[case::some_are_missing(             JobPhase::Starting,   RolePhase::Starting,  &["1+10.0.0.2"],                      "Starting",  &[])]
#[case::all_run(                      JobPhase::Running,    RolePhase::Running,   &["0+10.0.0.2", "1+10.0.0.1"],        "Running",   &["10.0.0.2", "10.0.0.1"])]
#[case::while_another_role_starts(    JobPhase::Starting,   RolePhase::Running,   &["0+10.0.0.1", "1+10.0.0.2"],        "Running",   &["10.0.0.1", "10.0.0.2"])]
#[case::on_one_node_with_its_network( JobPhase::Running,    RolePhase::Running,   &["0+10.0.0.1", "1+10.0.0.1"],        "Running",   &["10.0.0.1", "10.0.0.1"])]
#[case::with_other_addresses(         JobPhase::Running,    RolePhase::Running,   &["0+fd00::1", "1+fd00::2"],          "Running",   &["fd00::1", "fd00::2"])]
#[case::an_address_is_not_known_yet(  JobPhase::Running,    RolePhase::Running,   &["0+10.0.0.1", "1+"],                "Starting",  &[])]
#[case::one_has_ended(                JobPhase::Running,    RolePhase::Running,   &["0-10.0.0.1", "1+10.0.0.2"],        "Starting",  &[])]
#[case::one_has_ended_and_is_gone(    JobPhase::Running,    RolePhase::Running,   &["1+10.0.0.2"],                      "Starting",  &[])]
#[case::one_is_replaced(              JobPhase::Restarting, RolePhase::Starting,  &["0+10.0.0.1", "1-"],                "Starting",  &[])]
#[case::it_was_to_start_and_has(      JobPhase::Starting,   RolePhase::Starting,  &["0+10.0.0.1", "1+10.0.0.2"],        "Starting",  &[])]
#[case::it_has_succeeded(             JobPhase::Running,    RolePhase::Succeeded, &["0-10.0.0.1", "1-10.0.0.2"],        "Succeeded", &[])]
#[case::it_succeeded_with_one(        JobPhase::Succeeded,  RolePhase::Succeeded, &["0+10.0.0.1", "1+10.0.0.2"],        "Succeeded", &[])]
#[case::it_has_failed(                JobPhase::Failed,     RolePhase::Failed,    &["0+10.0.0.1", "1+10.0.0.2"],        "Failed",    &[])]
#[case::it_ended_with_a_success(      JobPhase::Succeeded,  RolePhase::Stopped,   &[],                                  "Succeeded", &[])]
#[case::it_ended_with_a_failure(      JobPhase::Failed,     RolePhase::Stopped,   &[],                                  "Failed",    &[])]
#[rustfmt::skip]
fn a_role_of_two(
    #[case] job: JobPhase,
    #[case] phase: RolePhase,
    #[case] pods: &[&str],
    #[case] expected: &str,
    #[case] ips: &[&str],
) {
    let mut worker = json!({"phase": expected, "running": expected == "Running"});
    if !ips.is_empty() {
        worker["ips"] = json!(ips);
    }
    assert_eq!(said(Some(job), vec![role("worker", phase, 2, pods)]), json!({"worker": worker}));
}

#[test]
fn every_role_is_told_by_its_name_and_a_job_that_was_never_accepted_has_none() {
    let launcher = role("launcher", RolePhase::Starting, 1, &["0-10.0.0.9"]);
    let worker = role("worker", RolePhase::Running, 1, &["0+10.0.0.1"]);
    assert_eq!(
        said(Some(JobPhase::Starting), vec![worker, launcher]).to_string(),
        r#"{"launcher":{"phase":"Starting","running":false},"worker":{"ips":["10.0.0.1"],"phase":"Running","running":true}}"#
    );
    assert_eq!(said(None, Vec::new()), json!({}));
}

#[rstest]
#[case("team.mnist", Some(("team", "mnist")))]
#[case("team.mnist.v2.1", Some(("team", "mnist.v2.1")))]
#[case("team", None)]
#[case("", None)]
#[case(".mnist", None)]
#[case("team.", None)]
fn a_key_is_a_namespace_and_a_name(#[case] key: &str, #[case] job: Option<(&str, &str)>) {
    assert_eq!(job_of(key), job);
}
