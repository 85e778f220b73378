//! Statuses: what an operator wrote, this one or a former one, and what somebody made of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use trainyard_api::{
    Accepted, AcceptedRole, AcceptedRules, Checkpoint, CleanPodPolicy, EndedPods, Fingerprint, GroupRestart,
    Incident, JobPhase, PendingReplacement, Progress, RestartCause, RestartRecord, RestartedRole, Restarts,
    RoleAttempt, RolePhase, RoleStatus, RootCause, Scaling, ScalingStep, TrainingJobStatus,
};

use super::{
    dependencies, name, node_down, number, policy, quorum, restart_scope, role_name, role_sets, seconds,
    text, time,
};

pub fn status() -> BoxedStrategy<TrainingJobStatus> {
    (
        (
            option::of(0..3i64),
            option::of(select(JobPhase::ALL.to_vec())),
            option::of(text()),
            vec(role_status(), 0..4),
            vec(condition(), 0..4),
        ),
        (
            option::of(time()),
            option::of(time()),
            option::of(restarts()),
            option::of(root_cause()),
            option::of(progress()),
        ),
        // With any, most jobs were changed while they ran, and go no further.
        (
            option::weighted(0.3, vec(fingerprint(), 1..4)),
            option::of(rules()),
            option::of(scaling()),
        ),
    )
        .prop_map(|(first, second, (accepted_spec, accepted_rules, scaling))| {
            let (observed_generation, phase, ready, roles, conditions) = first;
            let (start, end, restarts, root_cause, progress) = second;
            TrainingJobStatus {
                observed_generation,
                phase,
                ready,
                conditions,
                roles,
                replicas: scaling.as_ref().map(|scaling| scaling.from),
                target_replicas: scaling.as_ref().map(|scaling| scaling.to),
                selector: None,
                retired_indices: scaling.as_ref().and_then(|scaling| scaling.victims.clone()),
                last_scale_time: end.map(Time),
                last_scale_request: None,
                scaling: scaling.map(Box::new),
                start_time: start.map(Time),
                completion_time: end.map(Time),
                restarts,
                root_cause,
                checkpoint: progress.as_ref().and_then(|progress| {
                    Some(Checkpoint {
                        step: progress.step?,
                        time: progress.time.clone(),
                        attempt: 0,
                    })
                }),
                result: progress.as_ref().and_then(Progress::result),
                progress,
                accepted: Accepted {
                    spec: accepted_spec.unwrap_or_default(),
                    rules: accepted_rules,
                },
                accepted_framework: None,
                ..TrainingJobStatus::default()
            }
        })
        .boxed()
}

/// What programs say of their progress, as far as the observer lets it through.
pub fn progress() -> BoxedStrategy<Progress> {
    let metrics = btree_map("[a-z]{1,8}", ".{0,32}", 0..3);
    let step = || option::of(seconds().prop_map(|step| step.max(0)));
    let artifacts = btree_map("[a-z]{1,8}", "[a-z:/]{1,32}", 0..3);
    (step(), step(), metrics, artifacts, option::of(time()))
        .prop_map(|(step, total, metrics, artifacts, at)| Progress {
            step,
            total,
            metrics,
            artifacts,
            time: at.map(Time),
        })
        .boxed()
}

/// A change of size, which anybody may have edited.
fn scaling() -> BoxedStrategy<Scaling> {
    let indices = || option::of("[0-9,-]{0,6}");
    let step = select(ScalingStep::ALL.to_vec());
    let times = (option::of(time()), option::of(time()));
    let role = (select(vec!["worker", "launcher", "a"]), indices(), indices()).prop_map(
        |(name, victims, joining)| RestartedRole {
            name: name.to_owned(),
            acknowledged: victims.clone(),
            checkpointed: joining.clone(),
            victims,
            joining,
        },
    );
    let roles = prop_oneof![2 => Just(Vec::new()), 1 => vec(role, 0..3)];
    let nodes = vec(select(vec!["node-0".to_owned(), "node-3".to_owned()]), 0..2);
    (
        (0..6i32, 0..6i32),
        step,
        times,
        indices(),
        indices(),
        roles,
        nodes,
    )
        .prop_map(
            |((from, to), step, (since, deadline), victims, joining, roles, nodes)| Scaling {
                from,
                to,
                step,
                since: since.map(Time),
                deadline: deadline.map(Time),
                acknowledged: victims.clone(),
                checkpointed: joining.clone(),
                victims,
                joining,
                roles,
                nodes,
                request: None,
                message: None,
            },
        )
        .boxed()
}

fn condition() -> BoxedStrategy<Condition> {
    let kind = select(vec![
        "Accepted",
        "Accepted",
        "Running",
        "Suspended",
        "Succeeded",
        "Failed",
        "Other",
    ]);
    let reason = select(vec![
        "Valid",
        "Invalid",
        "Unsupported",
        "OwnershipConflict",
        "SecretMissing",
        "Whatever",
    ]);
    let state = select(vec!["True", "False", "Unknown", ""]);
    (kind, state, reason, text(), time(), option::of(0..3i64))
        .prop_map(
            |(kind, state, reason, message, at, observed_generation)| Condition {
                type_: kind.to_owned(),
                status: state.to_owned(),
                reason: reason.to_owned(),
                message,
                last_transition_time: Time(at),
                observed_generation,
            },
        )
        .boxed()
}

fn role_status() -> BoxedStrategy<RoleStatus> {
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
        (role_name(), phase),
        (option::of(text()), option::of(text())),
        [number(), number(), number(), number(), number(), number()],
        (
            option::of(indices.clone()),
            option::of(indices),
            option::of(replacements),
        ),
    )
        .prop_map(|((name, phase), (reason, message), counts, written)| {
            let [active, ready, succeeded, failed, pending, terminating] = counts;
            let (succeeded_indices, failed_indices, replacements) = written;
            RoleStatus {
                name,
                phase,
                reason,
                message,
                active,
                ready,
                succeeded,
                failed,
                pending,
                terminating,
                succeeded_indices,
                failed_indices,
                replacements,
            }
        })
        .boxed()
}

fn restarts() -> BoxedStrategy<Restarts> {
    let cause = select(vec![
        RestartCause::Failure,
        RestartCause::Disruption,
        RestartCause::Completion,
        RestartCause::Update,
    ]);
    let record = (
        time(),
        name(),
        cause.clone(),
        option::of(number()),
        "[a-zA-Z]{0,10}",
    )
        .prop_map(|(at, pod, cause, exit_code, reason)| RestartRecord {
            time: Time(at),
            pod,
            cause,
            exit_code,
            reason,
            consequences: 0,
            node: None,
            step: exit_code.map(i64::from),
            checkpoint: None,
            step_after: None,
            steps_lost: None,
            seconds: exit_code.map(i64::from),
        });
    let counted = option::of(cause.clone());
    let replacement = (name(), 0..9u8, option::of(time()), counted, any::<bool>());
    let replacement = replacement.prop_map(|(pod, uid, not_before, cause, leaving)| PendingReplacement {
        pod,
        uid: if uid == 0 {
            String::new()
        } else {
            format!("uid-{uid}")
        },
        not_before: not_before.map(Time),
        cause,
        leaving,
    });
    let lists = (vec(record, 0..20), vec(replacement, 0..8));
    let incidents = vec(incident(cause), 0..3);
    let attempts = vec((role_name(), 0..3i32), 0..3);
    let anew = (attempts, option::weighted(0.3, group()));
    (number(), number(), lists, incidents, anew)
        .prop_map(
            |(failures, disruptions, (history, replacing), incidents, (attempts, group))| Restarts {
                failures,
                disruptions,
                history,
                replacing,
                incidents,
                attempts: attempts
                    .into_iter()
                    .map(|(role, attempt)| RoleAttempt { role, attempt })
                    .collect(),
                group,
            },
        )
        .boxed()
}

fn group() -> impl Strategy<Value = GroupRestart> {
    (vec(role_name(), 0..3), name(), time(), option::of(time())).prop_map(
        |(roles, pod, since, not_before)| GroupRestart {
            roles,
            pod,
            since: Time(since),
            not_before: not_before.map(Time),
        },
    )
}

fn incident(cause: impl Strategy<Value = RestartCause>) -> impl Strategy<Value = Incident> {
    let ended = (name(), "[0-9,-]{0,5}").prop_map(|(role, indices)| EndedPods { role, indices });
    (name(), cause, option::of(time()), time(), vec(ended, 0..3)).prop_map(
        |(pod, cause, start, last_time, ended)| Incident {
            pod,
            cause,
            start_time: start.map(Time),
            last_time: Time(last_time),
            ended,
        },
    )
}

fn root_cause() -> BoxedStrategy<RootCause> {
    (
        (role_name(), name(), option::of(text()), option::of(text())),
        (option::of(number()), option::of(number())),
        (option::of(text()), option::of(text()), option::of(time())),
    )
        .prop_map(
            |((role, pod, node, container), (exit_code, signal), (reason, message, at))| RootCause {
                role,
                pod,
                node,
                container,
                exit_code,
                signal,
                reason,
                message,
                time: at.map(Time),
            },
        )
        .boxed()
}

fn fingerprint() -> impl Strategy<Value = Fingerprint> {
    let field = prop_oneof![
        role_name().prop_map(|role| format!("spec.roles[{role}]")),
        select(vec![
            "spec.framework",
            "spec.runPolicy.updatePolicy",
            "spec.progress"
        ])
        .prop_map(str::to_owned),
    ];
    (field, "[0-9a-f]{0,16}").prop_map(|(field, hash)| Fingerprint { field, hash })
}

fn rules() -> BoxedStrategy<AcceptedRules> {
    let role = (
        role_name(),
        number(),
        (policy(), restart_scope()),
        [quorum(), quorum()],
        node_down(),
        dependencies(),
        option::weighted(0.2, "[0-9,-]{0,6}"),
    )
        .prop_map(
            |(name, replicas, restarts, quorums, node_down_policy, depends_on, members)| {
                let (restart_policy, restart_scope) = restarts;
                let [succeeded_when, failed_when] = quorums;
                AcceptedRole {
                    name,
                    // More would only take time.
                    replicas: replicas.min(5),
                    members,
                    restart_policy,
                    restart_scope,
                    succeeded_when,
                    failed_when,
                    node_down_policy,
                    depends_on,
                }
            },
        );
    (vec(role, 0..4), role_sets(), role_sets(), clean())
        .prop_map(
            |(roles, succeeded_when, failed_when, clean_pod_policy)| AcceptedRules {
                roles,
                succeeded_when,
                failed_when,
                clean_pod_policy,
            },
        )
        .boxed()
}

pub fn clean() -> impl Strategy<Value = CleanPodPolicy> {
    select(vec![
        CleanPodPolicy::All,
        CleanPodPolicy::Running,
        CleanPodPolicy::None,
    ])
}
