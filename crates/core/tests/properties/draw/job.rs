//! Jobs: more than half of them such as can run, so that the decisions themselves are reached, the
//! others as wrong as can be.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, PodTemplateSpec, ResourceRequirements, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use trainyard_api::{
    Completion, CreatePolicy, Dependency, DependencyState, Dialect, Elastic, MANAGED_BY_TRAINYARD, Placement,
    ProgressPolicy, Refill, RestartPolicy, RestartScope, RigidPolicy, RoleSpec, RunPolicy, Spread, StartAt,
    TrainingJob, UpdatePolicy, ValidSizes,
};

use super::launch::{Options, options};
use super::status::{clean, status};
use super::{
    awaited_state, dependencies, node_down, number, policy, quorum, restart_scope, role_name, role_sets,
    seconds, text, time,
};
use crate::common::jobs::{custom, mpi, pytorch};

pub fn job() -> BoxedStrategy<TrainingJob> {
    let framework = prop_oneof![
        8 => select(vec!["custom", "pytorch", "mpi", "horovod", "deepspeed"]),
        1 => select(vec!["", "jax"]),
    ];
    let whole = (
        option::of(any::<bool>()),
        option::of(run_policy()),
        option::of(completion()),
        option::of(select(vec![ProgressPolicy::Ignore, ProgressPolicy::Report])),
        option::weighted(
            0.2,
            select(vec![
                Dialect::Native,
                Dialect::KubeflowMpi,
                Dialect::BdapMpi,
                Dialect::Ares,
            ]),
        ),
    );
    let sound = (
        framework,
        option::of(options()),
        [rules(), rules()],
        waits(),
        whole,
    );
    (
        sound,
        option::weighted(0.4, flaws()),
        option::of(status()),
        option::weighted(0.3, elastic()),
    )
        .prop_map(|(sound, flaws, status, elastic)| {
            let mut job = sound_job(sound);
            if let (Some(elastic), Some(role)) = (elastic, job.spec.roles.last_mut()) {
                role.replicas = None;
                job.spec.elastic = Some(elastic);
            }
            if let Some(flaws) = flaws {
                spoil(&mut job, flaws);
            }
            job.status = status;
            job
        })
        .boxed()
}

/// Sizes, most of which make sense.
fn elastic() -> BoxedStrategy<Elastic> {
    let bounds = (option::of(1..3i32), option::of(2..6i32));
    let sizes = select(vec![
        None,
        Some(ValidSizes {
            values: Some(vec![1, 2, 4]),
            step: None,
        }),
        Some(ValidSizes {
            values: None,
            step: Some(2),
        }),
        Some(ValidSizes::default()),
    ]);
    let start = option::of(select(vec![StartAt::Min, StartAt::Target]));
    let refill = option::of(select(vec![Refill::Always, Refill::Never]));
    let seconds = (option::of(seconds()), option::of(seconds()));
    let rigid = option::of(select(RigidPolicy::ALL.to_vec()));
    let replicas = prop_oneof![8 => 1..5i32, 1 => number().prop_map(|number| number.min(9))];
    (replicas, bounds, sizes, start, refill, rigid, seconds)
        .prop_map(
            |(replicas, (min, max), valid_sizes, start_at, refill, rigid, (drain, pause))| Elastic {
                role: None,
                replicas,
                min_replicas: min,
                max_replicas: max,
                valid_sizes,
                start_at,
                refill,
                rigid,
                drain_timeout_seconds: drain,
                pause_timeout_seconds: pause,
            },
        )
        .boxed()
}

/// What a job says of its roles beyond their names, numbers and templates.
#[derive(Clone, Debug)]
struct Rules {
    policy: Option<RestartPolicy>,
    scope: Option<RestartScope>,
    quorums: [Option<trainyard_api::PodQuorum>; 2],
    node_down: Option<trainyard_api::NodeDownPolicy>,
    placement: Option<Placement>,
}

fn rules() -> BoxedStrategy<Rules> {
    let placement = (
        select(vec![Spread::Required, Spread::Preferred]),
        option::of(Just("zone".to_owned())),
    )
        .prop_map(|(spread, topology_key)| Placement { spread, topology_key });
    (
        (option::of(policy()), option::of(restart_scope())),
        [option::of(quorum()), option::of(quorum())],
        option::of(node_down()),
        option::of(placement),
    )
        .prop_map(|((policy, scope), quorums, node_down, placement)| Rules {
            policy,
            scope,
            quorums,
            node_down,
            placement,
        })
        .boxed()
}

/// Which of two roles waits for the other, for what, and when its pods are made.
type Waits = Option<(usize, DependencyState, Option<CreatePolicy>)>;

fn waits() -> impl Strategy<Value = Waits> {
    option::of((0..2usize, awaited_state(), option::of(create_policy())))
}

fn create_policy() -> impl Strategy<Value = CreatePolicy> {
    select(vec![CreatePolicy::Immediately, CreatePolicy::WhenDependenciesMet])
}

fn run_policy() -> BoxedStrategy<RunPolicy> {
    let update = select(vec![UpdatePolicy::Refuse, UpdatePolicy::Roll, UpdatePolicy::Roll]);
    (
        option::of(clean()),
        option::of(seconds()),
        option::of(seconds()),
        option::of(seconds()),
        option::of(seconds()),
        option::of(number()),
        option::of(update),
    )
        .prop_map(
            |(clean_pod_policy, finished, failed, deadline, drain, backoff_limit, update_policy)| RunPolicy {
                clean_pod_policy,
                ttl_seconds_after_finished: finished,
                ttl_seconds_after_failed: failed,
                active_deadline_seconds: deadline,
                drain_timeout_seconds: drain,
                backoff_limit,
                update_policy,
            },
        )
        .boxed()
}

fn completion() -> BoxedStrategy<Completion> {
    (role_sets(), role_sets())
        .prop_map(|(succeeded_when, failed_when)| Completion {
            succeeded_when,
            failed_when,
        })
        .boxed()
}

type Whole = (
    Option<bool>,
    Option<RunPolicy>,
    Option<Completion>,
    Option<ProgressPolicy>,
    Option<Dialect>,
);

/// A job that is valid, but for what does not go together: that is found where it is looked for.
fn sound_job(
    (framework, options, rules, waits, whole): (&'static str, Option<Options>, [Rules; 2], Waits, Whole),
) -> TrainingJob {
    let sizes: &[(&str, i32)] = &[("master", 1), ("worker", 3)];
    let mut job = match framework {
        "pytorch" => pytorch(sizes),
        "mpi" | "horovod" | "deepspeed" => mpi("", 3),
        _ => custom(sizes),
    };
    let is_mpi = framework == "mpi";
    let has_launcher = matches!(framework, "mpi" | "horovod" | "deepspeed");
    framework.clone_into(&mut job.spec.framework.name);
    job.spec.framework.mpi = None;
    if let Some(options) = options {
        options.give(&mut job.spec.framework);
    }
    for (role, rules) in job.spec.roles.iter_mut().zip(rules) {
        let [succeeded_when, failed_when] = rules.quorums;
        let launches = role.name == "launcher";
        role.restart_policy = rules
            .policy
            .filter(|policy| !launches || *policy != RestartPolicy::Always);
        role.succeeded_when = succeeded_when;
        role.failed_when = failed_when;
        role.node_down_policy = rules.node_down;
        role.placement = rules.placement;
    }
    if let Some((waiting, state, create_policy)) = waits
        && let [first, second] = &mut *job.spec.roles
    {
        let (role, other) = if waiting == 0 {
            (first, second)
        } else {
            (second, first)
        };
        role.depends_on = Some(vec![Dependency {
            role: other.name.clone(),
            state,
        }]);
        role.create_policy = create_policy;
        // Where the framework says that this one waits, both would.
        other.depends_on = Some(Vec::new());
    }
    let (suspend, run, completion, progress, dialect) = whole;
    job.spec.suspend = suspend;
    job.spec.progress = progress;
    job.spec.dialect = dialect.filter(|dialect| is_mpi || matches!(dialect, Dialect::Native | Dialect::Ares));
    job.spec.run_policy = run.map(|run| RunPolicy {
        ttl_seconds_after_finished: run.ttl_seconds_after_finished.map(i64::saturating_abs),
        ttl_seconds_after_failed: run.ttl_seconds_after_failed.map(i64::saturating_abs),
        active_deadline_seconds: run
            .active_deadline_seconds
            .map(|deadline| deadline.saturating_abs().max(1)),
        drain_timeout_seconds: run.drain_timeout_seconds.map(i64::saturating_abs),
        backoff_limit: run.backoff_limit.map(i32::saturating_abs),
        ..run
    });
    let names: Vec<String> = job.spec.roles.iter().map(|role| role.name.clone()).collect();
    let ends = |name: &String| {
        let role = job.spec.roles.iter().find(|role| role.name == *name);
        role.is_some_and(|role| role.restart_policy != Some(RestartPolicy::Always))
            && !(has_launcher && name == "worker")
    };
    job.spec.completion = completion.filter(|completion| {
        let mut sets = completion.succeeded_when.iter().chain(&completion.failed_when);
        let mut to_succeed = completion.succeeded_when.iter().flat_map(|set| &set.all_of);
        to_succeed.all(ends)
            && sets.all(|set| !set.all_of.is_empty() && set.all_of.iter().all(|role| names.contains(role)))
    });
    job
}

/// What is wrong with a job.
#[derive(Clone, Debug)]
struct Flaws {
    roles: Option<Vec<(RoleSpec, u8)>>,
    run: Option<RunPolicy>,
    completion: Option<Completion>,
    options: Option<Options>,
    dialect: Option<Dialect>,
    object: u8,
    text: String,
    deleted: Option<Time>,
}

fn flaws() -> BoxedStrategy<Flaws> {
    let role = (
        (role_name(), option::of(number()), rules()),
        (
            option::of(dependencies()),
            option::of(create_policy()),
            option::of(text()),
        ),
        0..30u8,
    )
        .prop_map(
            |((name, replicas, rules), (depends_on, create_policy, container), odd)| {
                let [succeeded_when, failed_when] = rules.quorums;
                let role = RoleSpec {
                    name,
                    replicas,
                    template: PodTemplateSpec::default(),
                    container: container.filter(|_| odd > 20),
                    restart_policy: rules.policy,
                    restart_scope: rules.scope,
                    succeeded_when,
                    failed_when,
                    node_down_policy: rules.node_down,
                    placement: rules.placement,
                    depends_on,
                    create_policy,
                };
                (role, odd)
            },
        );
    (
        option::of(vec(role, 0..4)),
        (option::of(run_policy()), option::of(completion())),
        (
            option::of(options()),
            option::weighted(0.2, Just(Dialect::KubeflowMpi)),
        ),
        (0..20u8, text()),
        option::weighted(0.05, time().prop_map(Time)),
    )
        .prop_map(
            |(roles, (run, completion), (options, dialect), (object, text), deleted)| Flaws {
                roles,
                run,
                completion,
                options,
                dialect,
                object,
                text,
                deleted,
            },
        )
        .boxed()
}

fn spoil(job: &mut TrainingJob, flaws: Flaws) {
    let template = job.spec.roles[0].template.clone();
    if let Some(roles) = flaws.roles {
        let flawed = roles.into_iter().map(|(role, odd)| RoleSpec {
            template: odd_template(template.clone(), odd),
            ..role
        });
        job.spec.roles = flawed.collect();
    }
    if let Some(options) = flaws.options {
        options.give_all(&mut job.spec.framework);
    }
    job.spec.run_policy = flaws.run.or(job.spec.run_policy.take());
    job.spec.completion = flaws.completion.or(job.spec.completion.take());
    job.spec.dialect = flaws.dialect.or(job.spec.dialect);
    job.metadata.deletion_timestamp = flaws.deleted;
    match flaws.object {
        0 => job.metadata.name = None,
        1 => job.metadata.name = Some("x".repeat(300)),
        2 => job.metadata.generation = None,
        3 => job.metadata.uid = None,
        4 => job.metadata.namespace = None,
        5 => job.metadata.name = Some(flaws.text),
        6 => job.spec.managed_by = Some(flaws.text),
        7 => job.spec.managed_by = Some(MANAGED_BY_TRAINYARD.to_owned()),
        8 => job.metadata.namespace = Some(flaws.text),
        _ => {}
    }
}

/// A template with something about it, of which some is wrong, and some only for some frameworks.
fn odd_template(mut template: PodTemplateSpec, odd: u8) -> PodTemplateSpec {
    let Some(pod) = &mut template.spec else {
        return template;
    };
    let main = &mut pod.containers[0];
    match odd {
        0 => template.spec = None,
        1 => pod.containers.clear(),
        2 => pod.host_network = Some(true),
        3 => pod.dns_policy = Some("Default".to_owned()),
        4 => pod.service_account_name = Some("mine".to_owned()),
        5 => pod.automount_service_account_token = Some(true),
        6 => pod.restart_policy = Some("Always".to_owned()),
        7 => {
            main.resources = Some(ResourceRequirements {
                limits: Some(BTreeMap::from([(
                    "nvidia.com/gpu".to_owned(),
                    Quantity("99999999999999999999".to_owned()),
                )])),
                ..ResourceRequirements::default()
            });
        }
        8 => {
            main.ports = Some(vec![ContainerPort {
                container_port: 7522,
                ..ContainerPort::default()
            }]);
        }
        9 => {
            main.volume_mounts = Some(vec![VolumeMount {
                name: "trainyard-mpi".to_owned(),
                mount_path: "/etc/mpi".to_owned(),
                ..VolumeMount::default()
            }]);
        }
        10 => {
            main.env = Some(vec![EnvVar {
                name: "MASTER_ADDR".to_owned(),
                ..EnvVar::default()
            }]);
        }
        11 => pod.init_containers = Some(vec![Container::default()]),
        12 => {
            let twin = main.clone();
            pod.containers.push(twin);
        }
        13 => main.name.clear(),
        14 => main.command = None,
        15 => main.args = Some(vec!["--now".to_owned()]),
        16 => {
            main.volume_mounts = Some(vec![VolumeMount {
                name: "data".to_owned(),
                mount_path: "/var/run".to_owned(),
                ..VolumeMount::default()
            }]);
            pod.volumes = Some(vec![Volume {
                name: "data".to_owned(),
                ..Volume::default()
            }]);
        }
        17 => pod.dns_policy = Some("None".to_owned()),
        18 => pod.priority = Some(1),
        _ => {}
    }
    template
}
