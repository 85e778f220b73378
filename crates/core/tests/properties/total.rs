//! A plan can be made of anything, however malformed: nothing that a user, another program or an older version wrote
//! makes the operator panic, nor write a status that the API server rejects.

use std::num::NonZeroU64;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use trainyard_api::{
    AcceptedRole, AcceptedRules, CleanPodPolicy, Completion, Fingerprint, JobPhase, NodeDownPolicy,
    PodQuorum, Replacement, RestartCause, RestartPolicy, RestartRecord, Restarts, RolePhase, RoleSet,
    RoleStatus, RootCause, RunPolicy, TrainingJob, TrainingJobStatus, UpdatePolicy,
};
use trainyard_core::admission;
use trainyard_core::frameworks::Identity;
use trainyard_core::plan::{Action, StatusWrite, plan};
use trainyard_core::view::{
    Departed, NodeState, Nodes, PodEnd, PodPhase, PodRow, SecretState, ServiceRow, Settings, Trouble, View,
};

use crate::common::jobs::{custom, mpi, pytorch, with_agent};
use crate::common::schema;

fn time() -> impl Strategy<Value = Timestamp> {
    let bounds = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    prop_oneof![
        (bounds.0..=bounds.1).prop_map(|second| Timestamp::from_second(second).unwrap()),
        (1_760_000_000..1_770_000_000i64, 0..1_000_000_000i32)
            .prop_map(|(second, nanos)| Timestamp::new(second, nanos).unwrap()),
        Just(Timestamp::MIN),
        Just(Timestamp::MAX),
    ]
}

fn number() -> impl Strategy<Value = i32> {
    prop_oneof![-2..5i32, Just(i32::MIN), Just(i32::MAX), any::<i32>()]
}

fn seconds() -> impl Strategy<Value = i64> {
    prop_oneof![0..100i64, Just(i64::MIN), Just(i64::MAX), any::<i64>()]
}

/// Names of pods, roles and jobs that are right, nearly right, and wrong.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (select(vec!["master", "worker"]), 0..4i32).prop_map(|(role, i)| format!("mnist-{role}-{i}")),
        1 => select(vec![
            "", "-", "mnist", "mnist-", "mnist-worker", "mnist-worker-", "mnist-worker--1", "mnist-worker-01",
            "mnist-worker-+1", "mnist-worker-99999999999", "mnist-worker-0-0", "other-worker-0", "é-é-é",
        ]).prop_map(str::to_owned),
        1 => ".{0,60}",
    ]
}

fn role_name() -> impl Strategy<Value = String> {
    prop_oneof![8 => select(vec!["master", "worker"]).prop_map(str::to_owned), 1 => ".{0,40}"]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-zA-Z]{1,10}",
        ".{0,20}",
        select(vec![64, 127, 128, 129, 2000, 2001, 40_000])
            .prop_map(|bytes: usize| "é".repeat(bytes / 2 + 1)),
    ]
}

fn row() -> impl Strategy<Value = PodRow> {
    let end = (
        option::of(text()),
        option::of(number()),
        option::of(text()),
        option::of(text()),
        option::of(time()),
    );
    let end = (end, any::<bool>()).prop_map(
        |((container, exit_code, reason, message, finished_at), disrupted)| {
            Box::new(PodEnd {
                container,
                exit_code,
                signal: exit_code,
                reason,
                message,
                finished_at,
                told: 0,
                disrupted,
            })
        },
    );
    let trouble = (text(), text()).prop_map(|(reason, message)| Box::new(Trouble { reason, message }));
    let phase = select(vec![
        PodPhase::Pending,
        PodPhase::Running,
        PodPhase::Succeeded,
        PodPhase::Failed,
        PodPhase::Unknown,
    ]);
    (
        name(),
        0..9u8,
        option::of(0..3u8),
        phase,
        any::<[bool; 2]>(),
        option::of(end),
        option::of(trouble),
    )
        .prop_map(
            |(name, uid, node, phase, [ready, terminating], end, trouble)| PodRow {
                name: name.into(),
                uid: format!("uid-{uid}").into(),
                node: node.map(|node| format!("node-{node}").into()),
                phase,
                lingers: ready,
                ready,
                terminating,
                labelled: node != Some(1),
                released: false,
                waits: false,
                template: NonZeroU64::new(u64::from(uid % 3)),
                address: None,
                end,
                trouble,
            },
        )
}

fn role_status() -> impl Strategy<Value = RoleStatus> {
    let phase = select(vec![
        RolePhase::Pending,
        RolePhase::Starting,
        RolePhase::Running,
        RolePhase::Succeeded,
        RolePhase::Failed,
        RolePhase::Stopped,
    ]);
    let indices = prop_oneof![Just("0-1,3".to_owned()), "[0-9,-]{0,20}", text()];
    let replacements = prop_oneof![Just("0-1x2;3x6".to_owned()), "[0-9,;x-]{0,20}", text()];
    (
        role_name(),
        phase,
        number(),
        option::of(indices),
        option::of(replacements),
    )
        .prop_map(
            |(name, phase, count, succeeded_indices, replacements)| RoleStatus {
                name,
                phase,
                active: count,
                succeeded_indices,
                replacements,
                ..RoleStatus::default()
            },
        )
}

fn restarts() -> impl Strategy<Value = Restarts> {
    let cause = select(vec![
        RestartCause::Failure,
        RestartCause::Disruption,
        RestartCause::Completion,
    ]);
    let record = (time(), name(), cause).prop_map(|(at, pod, cause)| RestartRecord {
        time: Time(at),
        pod,
        cause,
        exit_code: None,
        reason: "Error".to_owned(),
    });
    let replacement = (name(), 0..9u8, option::of(time())).prop_map(|(pod, uid, not_before)| Replacement {
        pod,
        uid: if uid == 0 {
            String::new()
        } else {
            format!("uid-{uid}")
        },
        not_before: not_before.map(Time),
    });
    (number(), number(), vec(record, 0..20), vec(replacement, 0..8)).prop_map(
        |(failures, disruptions, history, replacing)| Restarts {
            failures,
            disruptions,
            history,
            replacing,
        },
    )
}

fn rules() -> impl Strategy<Value = AcceptedRules> {
    let policy = select(vec![RestartPolicy::Never, RestartPolicy::OnFailure]);
    let quorum = select(vec![PodQuorum::AllPods, PodQuorum::AnyPod]);
    let role =
        (role_name(), number(), policy, quorum).prop_map(|(name, replicas, restart_policy, quorum)| {
            AcceptedRole {
                name,
                // More would only take time.
                replicas: replicas.min(5),
                restart_policy,
                succeeded_when: quorum,
                failed_when: quorum,
                node_down_policy: NodeDownPolicy::Fail,
                depends_on: Vec::new(),
            }
        });
    let sets = || vec(vec(role_name(), 0..3).prop_map(|all_of| RoleSet { all_of }), 0..3);
    (vec(role, 0..4), sets(), sets()).prop_map(|(roles, succeeded_when, failed_when)| AcceptedRules {
        roles,
        succeeded_when,
        failed_when,
        clean_pod_policy: CleanPodPolicy::Running,
    })
}

fn status() -> impl Strategy<Value = TrainingJobStatus> {
    let phase = option::of(select(JobPhase::ALL.to_vec()));
    let condition = (
        select(vec!["Accepted", "Running", "Failed", "Other"]),
        any::<bool>(),
    )
        .prop_map(|(kind, holds)| Condition {
            type_: kind.to_owned(),
            status: if holds { "True" } else { "Unknown" }.to_owned(),
            reason: "Whatever".to_owned(),
            message: String::new(),
            last_transition_time: Time(Timestamp::MIN),
            observed_generation: None,
        });
    let fingerprint = (role_name(), "[0-9a-f]{0,16}").prop_map(|(field, hash)| Fingerprint {
        field: format!("spec.roles[{field}]"),
        hash,
    });
    (
        (
            option::of(0..3i64),
            phase,
            vec(role_status(), 0..4),
            vec(condition, 0..4),
        ),
        (
            option::of(time()),
            option::of(time()),
            option::of(restarts()),
            option::of(vec(fingerprint, 0..4)),
            option::of(rules()),
        ),
    )
        .prop_map(
            |((observed_generation, phase, roles, conditions), (start, end, restarts, accepted, rules))| {
                TrainingJobStatus {
                    observed_generation,
                    phase,
                    ready: None,
                    conditions,
                    roles,
                    start_time: start.map(Time),
                    completion_time: end.map(Time),
                    restarts,
                    progress: None,
                    root_cause: Some(RootCause::default()),
                    accepted_spec: accepted.unwrap_or_default(),
                    accepted_rules: rules,
                }
            },
        )
}

fn job() -> impl Strategy<Value = TrainingJob> {
    let policy = option::of(select(vec![
        RestartPolicy::Never,
        RestartPolicy::OnFailure,
        RestartPolicy::Always,
        RestartPolicy::ExitCode,
    ]));
    let roles = vec((role_name(), option::of(number()), policy, 0..10u8), 0..4);
    let run = (
        option::of(seconds()),
        option::of(seconds()),
        option::of(seconds()),
        option::of(number()),
    );
    let sets = option::of(vec(vec(role_name(), 0..3), 0..3));
    let framework = prop_oneof![8 => select(vec!["custom", "pytorch", "mpi"]), 1 => select(vec!["", "jax"])];
    (
        framework,
        any::<bool>(),
        roles,
        run,
        sets,
        option::of(any::<bool>()),
        0..10u8,
        option::of(status()),
    )
        .prop_map(
            |(framework, sound, roles, (ttl, ttl_failed, deadline, limit), sets, suspend, odd, status)| {
                let sound_roles: &[(&str, i32)] = &[("master", 1), ("worker", 3)];
                let mut job = match framework {
                    "pytorch" => pytorch(sound_roles),
                    "mpi" => mpi("", 3),
                    _ => custom(sound_roles),
                };
                let template = job.spec.roles[0].template.clone();
                job.status = status;
                job.spec.suspend = suspend;
                job.spec.run_policy = Some(RunPolicy {
                    ttl_seconds_after_finished: ttl,
                    ttl_seconds_after_failed: ttl_failed,
                    active_deadline_seconds: deadline,
                    backoff_limit: limit,
                    update_policy: (odd % 2 == 0).then_some(UpdatePolicy::Roll),
                    ..RunPolicy::default()
                });
                if sound {
                    // Valid, so that the decisions themselves are reached.
                    let run = job.spec.run_policy.as_mut().unwrap();
                    run.ttl_seconds_after_finished = ttl.map(i64::saturating_abs);
                    run.ttl_seconds_after_failed = ttl_failed.map(i64::saturating_abs);
                    run.active_deadline_seconds = deadline.map(|deadline| deadline.saturating_abs().max(1));
                    run.backoff_limit = limit.map(i32::saturating_abs);
                    for (role, (_, _, policy, _)) in job.spec.roles.iter_mut().zip(roles) {
                        role.restart_policy = policy;
                    }
                    return job;
                }
                framework.clone_into(&mut job.spec.framework.name);
                job.spec.roles.clear();
                for (name, replicas, restart_policy, odd) in roles {
                    let mut role = trainyard_api::RoleSpec {
                        name,
                        replicas,
                        restart_policy,
                        template: template.clone(),
                        ..Default::default()
                    };
                    match odd {
                        0 => role.template.spec = None,
                        1 => role.template.spec.as_mut().unwrap().containers.clear(),
                        2 => role.container = Some("absent".to_owned()),
                        _ => {}
                    }
                    job.spec.roles.push(role);
                }
                let sets = sets.map(|sets| sets.into_iter().map(|all_of| RoleSet { all_of }).collect());
                job.spec.completion = sets.map(|succeeded_when| Completion {
                    succeeded_when,
                    ..Completion::default()
                });
                match odd {
                    0 => job.metadata.name = None,
                    1 => job.metadata.name = Some("x".repeat(300)),
                    2 => job.metadata.generation = None,
                    3 => job.metadata.uid = None,
                    _ => {}
                }
                job
            },
        )
}

struct Some3;

impl Nodes for Some3 {
    fn state(&self, name: &str) -> NodeState {
        match name {
            "node-1" => NodeState::Down,
            "node-2" => NodeState::Gone,
            _ => NodeState::Up,
        }
    }
}

proptest! {
    #![proptest_config(crate::cases(2000))]

    #[test]
    fn a_plan_can_be_made_of_anything(
        job in job(),
        mut pods in vec(row(), 0..8),
        services in vec(name(), 0..3),
        departed in vec((name(), 0..9u8), 0..3),
        secret in select(vec![
            SecretState::Unknown,
            SecretState::There(Identity::Certificate),
            SecretState::Gone(Identity::Certificate),
            SecretState::Gone(Identity::SshKey),
        ]),
        now in time(),
    ) {
        for (i, row) in pods.iter_mut().enumerate() {
            row.uid = format!("uid-{i}").into();
        }
        let services: Vec<ServiceRow> = services
            .into_iter()
            .map(|name| ServiceRow { name: name.into(), uid: "uid-s".into(), terminating: false })
            .collect();
        let departed: Vec<Departed> = departed
            .into_iter()
            .map(|(name, uid)| Departed { name: name.into(), uid: format!("uid-{uid}").into() })
            .collect();
        let attached = job.spec.framework.name == "mpi";
        let settings = if attached { with_agent() } else { Settings::default() };
        let plan = plan(&View {
            job: &job,
            pods: &pods,
            services: &services,
            departed: &departed,
            conflicts: &[],
            secret,
            granted: None,
            grant_is_sure: false,
            refusal: None,
            progress: None,
            nodes: &Some3,
            settings: &settings,
            now,
        });
        if let StatusWrite::Now(status) | StatusWrite::Early(status) | StatusWrite::Soon(status) = &plan.status {
            schema::check_written(job.status.as_ref(), status);
        }
        // A pod is deleted as what it is, and never created while its name is taken.
        let valid = admission::validate(None, &job).is_empty();
        for action in plan.actions.iter().chain(&plan.after) {
            match action {
                Action::DeletePod { name, uid, force } => {
                    let row = pods.iter().find(|row| *row.name == **name && *row.uid == **uid);
                    let row = row.expect("deletes a pod that is not there");
                    prop_assert_eq!(*force, row.node.as_deref() == Some("node-2"), "force only where the node is gone");
                }
                Action::CreatePod(key) => {
                    prop_assert!(valid, "an invalid job gets pods");
                    let role = &job.spec.roles[key.role];
                    let name = format!("mnist-{}-{}", role.name, key.index);
                    prop_assert!(key.index < role.replicas.unwrap_or(1));
                    prop_assert!(!pods.iter().any(|row| *row.name == *name), "{} exists", name);
                }
                _ => {}
            }
        }
        let nothing = plan.actions.is_empty() && plan.after.is_empty() && plan.status == StatusWrite::Unchanged;
        prop_assert!(!nothing || plan.wake_at.is_none_or(|at| at > now), "a hot loop");
    }
}

proptest! {
    #![proptest_config(crate::cases(500))]

    #[test]
    fn defaults_can_be_written_into_anything_and_twice_is_once(job in job()) {
        let mut once = job.clone();
        admission::default(&mut once);
        let mut twice = once.clone();
        admission::default(&mut twice);
        prop_assert_eq!(&once, &twice);
        // Defaults make nothing invalid, and are no change.
        prop_assert_eq!(admission::validate(None, &job).is_empty(), admission::validate(None, &once).is_empty());
        if admission::validate(None, &once).is_empty() {
            prop_assert_eq!(admission::validate(Some(&once), &once), []);
        }
    }

    #[test]
    fn any_two_jobs_can_be_compared(old in job(), new in job()) {
        let errors = admission::validate(Some(&old), &new);
        prop_assert!(errors.iter().all(|error| !error.path.is_empty() && !error.message.is_empty()));
    }
}
