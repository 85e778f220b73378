//! What is written into a job that its user left out.

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use trainyard_api::{
    CleanPodPolicy, Completion, Dependency, DependencyState, FrameworkSpec, LauncherOptions, NodeDownPolicy,
    Placement, PodQuorum, PytorchOptions, RestartPolicy, RoleSet, RoleSpec, RunPolicy, Spread,
    TrainingJobSpec, default,
};

fn spec(text: &str) -> TrainingJobSpec {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn what_a_user_left_out_is_written_down() {
    let mut job = spec(
        "
framework: {name: custom}
roles:
- {name: a, placement: {spread: Required}, template: {spec: {containers: [{name: first}, {name: second}]}}}
",
    );
    default(&mut job);
    let expected = spec(
        "
framework: {name: custom}
roles:
- name: a
  replicas: 1
  container: first
  succeededWhen: AllPods
  failedWhen: AnyPod
  nodeDownPolicy: Wait
  placement: {spread: Required, topologyKey: kubernetes.io/hostname}
  template: {spec: {containers: [{name: first}, {name: second}]}}
runPolicy: {cleanPodPolicy: Running, backoffLimit: 6}
",
    );
    assert_eq!(job, expected);
}

#[test]
fn what_a_user_wrote_stays() {
    let written = spec(
        "
framework: {name: custom}
roles:
- name: a
  replicas: 0
  container: second
  succeededWhen: AnyPod
  failedWhen: AllPods
  nodeDownPolicy: Fail
  placement: {spread: Preferred, topologyKey: zone}
  template: {spec: {containers: [{name: first}, {name: second}]}}
runPolicy: {cleanPodPolicy: None, backoffLimit: 0}
",
    );
    let mut job = written.clone();
    default(&mut job);
    assert_eq!(job, written);
}

fn role() -> impl Strategy<Value = RoleSpec> {
    let quorum = || of(select(vec![PodQuorum::AnyPod, PodQuorum::AllPods]));
    let placement = (
        select(vec![Spread::Required, Spread::Preferred]),
        of("[a-z/]{0,10}"),
    )
        .prop_map(|(spread, topology_key)| Placement { spread, topology_key });
    let policy = select(vec![
        RestartPolicy::Never,
        RestartPolicy::OnFailure,
        RestartPolicy::Always,
        RestartPolicy::ExitCode,
    ]);
    let container = "[a-z]{0,3}".prop_map(|name| Container {
        name,
        ..Container::default()
    });
    let template = of(vec(container, 0..3)).prop_map(|containers| PodTemplateSpec {
        metadata: None,
        spec: containers.map(|containers| PodSpec {
            containers,
            ..PodSpec::default()
        }),
    });
    let down = select(vec![NodeDownPolicy::Fail, NodeDownPolicy::Wait]);
    let depends = (
        "[a-z]{0,3}",
        select(vec![DependencyState::Running, DependencyState::Succeeded]),
    )
        .prop_map(|(role, state)| Dependency { role, state });
    (
        (
            "[a-z-]{0,5}",
            of(any::<i32>()),
            template,
            of("[a-z]{0,3}"),
            of(policy),
        ),
        (
            quorum(),
            quorum(),
            of(down),
            of(placement),
            of(vec(depends, 0..3)),
        ),
    )
        .prop_map(
            |((name, replicas, template, container, restart_policy), rest)| RoleSpec {
                name,
                replicas,
                template,
                container,
                restart_policy,
                restart_scope: None,
                succeeded_when: rest.0,
                failed_when: rest.1,
                node_down_policy: rest.2,
                placement: rest.3,
                depends_on: rest.4,
                create_policy: None,
            },
        )
}

fn any_spec() -> impl Strategy<Value = TrainingJobSpec> {
    let set = || {
        vec(
            vec("[a-z]{0,3}", 0..3).prop_map(|all_of| RoleSet { all_of }),
            0..3,
        )
    };
    let completion = (set(), set()).prop_map(|(succeeded_when, failed_when)| Completion {
        succeeded_when,
        failed_when,
    });
    let clean = select(vec![
        CleanPodPolicy::All,
        CleanPodPolicy::Running,
        CleanPodPolicy::None,
    ]);
    let seconds = || of(any::<i64>());
    let times = (seconds(), seconds(), seconds(), seconds());
    let run = (of(clean), times, of(any::<i32>())).prop_map(|(clean, times, limit)| RunPolicy {
        clean_pod_policy: clean,
        ttl_seconds_after_finished: times.0,
        ttl_seconds_after_failed: times.1,
        active_deadline_seconds: times.2,
        drain_timeout_seconds: times.3,
        backoff_limit: limit,
        update_policy: None,
    });
    let options = of(any::<i32>()).prop_map(|port| PytorchOptions {
        port,
        ..PytorchOptions::default()
    });
    let slots = of(any::<i32>()).prop_map(|slots_per_worker| LauncherOptions {
        slots_per_worker,
        ..LauncherOptions::default()
    });
    let framework = ("[a-z]{0,4}", of(options), of(slots)).prop_map(|(name, pytorch, mpi)| FrameworkSpec {
        name,
        pytorch,
        mpi,
        ..FrameworkSpec::default()
    });
    (
        framework,
        vec(role(), 0..4),
        of(completion),
        of(any::<bool>()),
        of("[a-z/]{0,5}"),
        of(run),
    )
        .prop_map(
            |(framework, roles, completion, suspend, managed_by, run_policy)| TrainingJobSpec {
                dialect: None,
                progress: None,
                elastic: None,
                framework,
                roles,
                completion,
                suspend,
                managed_by,
                run_policy,
            },
        )
}

/// Whether all that is in one JSON value is in the other, unchanged.
fn keeps(before: &serde_json::Value, after: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Object};
    match (before, after) {
        (Object(before), Object(after)) => before
            .iter()
            .all(|(key, value)| after.get(key).is_some_and(|other| keeps(value, other))),
        (Array(before), Array(after)) => {
            before.len() == after.len() && before.iter().zip(after).all(|(one, other)| keeps(one, other))
        }
        _ => before == after,
    }
}

proptest! {
    #[test]
    fn defaults_are_written_once_and_change_nothing_that_is_there(spec in any_spec()) {
        let mut once = spec.clone();
        default(&mut once);
        let mut twice = once.clone();
        default(&mut twice);
        prop_assert_eq!(&once, &twice);
        let (before, after) = (serde_json::to_value(&spec).unwrap(), serde_json::to_value(&once).unwrap());
        prop_assert!(keeps(&before, &after));
    }

    #[test]
    fn a_job_reads_back_as_it_was_written(spec in any_spec()) {
        let text = serde_json::to_string(&spec).unwrap();
        prop_assert_eq!(serde_json::from_str::<TrainingJobSpec>(&text).unwrap(), spec);
    }
}
