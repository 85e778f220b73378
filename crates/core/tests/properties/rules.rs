//! The same rules hold with webhooks and without: a job whose defaults nobody has written is
//! judged, and decided about, as one whose defaults were written.

use proptest::prelude::*;
use trainyard_api::default::TOPOLOGY_KEY;
use trainyard_api::{
    CleanPodPolicy, CreatePolicy, Elastic, NodeDownPolicy, PodQuorum, RestartPolicy, RestartScope, Spread,
    TrainingJob,
};
use trainyard_core::job::{Job, Role};
use trainyard_core::members::Members;
use trainyard_core::model::Awaited;
use trainyard_core::model::PodKey;
use trainyard_core::{admission, build};

use crate::common::jobs::with_agent;
use crate::draw::job;

/// What decisions see of a role.
#[derive(Debug, PartialEq)]
struct SeenRole<'a> {
    name: &'a str,
    main: &'a str,
    members: &'a Members,
    restart_policy: RestartPolicy,
    restart_scope: RestartScope,
    quorums: [PodQuorum; 2],
    node_down_policy: NodeDownPolicy,
    placement: Option<(Spread, &'a str)>,
    depends_on: &'a [Awaited],
    create_policy: CreatePolicy,
    rolls_to: Option<u64>,
}

/// What decisions see of a job.
#[derive(Debug, PartialEq)]
struct SeenJob<'a> {
    framework: &'a str,
    elastic: Option<(usize, &'a Elastic)>,
    roles: Vec<SeenRole<'a>>,
    succeeded_when: &'a [Vec<usize>],
    failed_when: &'a [Vec<usize>],
    clean_pod_policy: CleanPodPolicy,
    backoff_limit: i32,
    drain_timeout_seconds: Option<i64>,
    active_deadline_seconds: Option<i64>,
}

fn seen_role<'a>(role: &'a Role<'_>) -> SeenRole<'a> {
    // Taken apart, so that a new field can't be forgotten here.
    let Role {
        name,
        members,
        target: _,
        template: _,
        rolls_to,
        pod: _,
        main,
        restart_policy,
        restart_scope,
        // It is the status that says it.
        attempt: _,
        succeeded_when,
        failed_when,
        node_down_policy,
        placement,
        depends_on,
        create_policy,
    } = role;
    SeenRole {
        name,
        main: &main.name,
        members,
        restart_policy: *restart_policy,
        restart_scope: *restart_scope,
        quorums: [*succeeded_when, *failed_when],
        node_down_policy: *node_down_policy,
        placement: placement.map(|placement| {
            (
                placement.spread,
                placement.topology_key.as_deref().unwrap_or(TOPOLOGY_KEY),
            )
        }),
        depends_on,
        create_policy: *create_policy,
        rolls_to: rolls_to.map(Into::into),
    }
}

fn seen_job<'a>(job: &'a Job<'_>) -> SeenJob<'a> {
    let Job {
        object: _,
        name: _,
        namespace: _,
        framework,
        roles,
        elastic,
        succeeded_when,
        failed_when,
        clean_pod_policy,
        backoff_limit,
        drain_timeout_seconds,
        active_deadline_seconds,
        passed_on: _,
        common: _,
    } = job;
    SeenJob {
        framework: framework.name(),
        elastic: elastic.map(|elastic| (elastic.role, elastic.spec)),
        roles: roles.iter().map(seen_role).collect(),
        succeeded_when,
        failed_when,
        clean_pod_policy: *clean_pod_policy,
        backoff_limit: *backoff_limit,
        drain_timeout_seconds: *drain_timeout_seconds,
        active_deadline_seconds: *active_deadline_seconds,
    }
}

fn defaulted(job: &TrainingJob) -> TrainingJob {
    let mut job = job.clone();
    admission::default(&mut job);
    job
}

proptest! {
    #![proptest_config(crate::cases(2000))]

    #[test]
    fn the_rules_are_the_same_without_webhooks(job in job()) {
        // One that was accepted is not judged again.
        let job = TrainingJob { status: None, ..job };
        let with_webhooks = defaulted(&job);
        let errors = admission::validate(None, &with_webhooks);
        prop_assert_eq!(Job::parse(&job).err().unwrap_or_default(), errors);
    }

    #[test]
    fn decisions_are_the_same_without_webhooks(job in job()) {
        let with_webhooks = defaulted(&job);
        let (Ok(without), Ok(with)) = (Job::parse(&job), Job::parse(&with_webhooks)) else {
            return Ok(());
        };
        prop_assert_eq!(seen_job(&without), seen_job(&with));
        let settings = with_agent();
        for role in 0..with.roles.len() {
            let key = PodKey { role, index: 0 };
            prop_assert_eq!(build::pod(&without, &settings, key), build::pod(&with, &settings, key));
        }
    }

    /// What the operator mounts into containers of users is what their own volumes keep clear of.
    #[test]
    fn every_place_of_the_operators_is_known(job in job()) {
        let job = TrainingJob { status: None, ..job };
        let Ok(parsed) = Job::parse(&job) else {
            return Ok(());
        };
        for (position, role) in parsed.roles.iter().enumerate() {
            let places = parsed.framework.places(&job, role.name);
            let pod = build::pod(&parsed, &with_agent(), PodKey { role: position, index: 0 });
            let spec = pod.and_then(|pod| pod.spec).unwrap_or_default();
            let of_users = spec.containers.iter().chain(spec.init_containers.iter().flatten());
            for container in of_users.filter(|container| !container.name.starts_with("trainyard-")) {
                let is_main = container.name == role.main.name;
                let mut mounted: Vec<&str> = container
                    .volume_mounts
                    .iter()
                    .flatten()
                    .filter(|mount| mount.name.starts_with("trainyard-"))
                    // These are not the framework's.
                    .filter(|mount| !["trainyard-progress", "trainyard-drain"].contains(&&*mount.name))
                    .map(|mount| &*mount.mount_path)
                    .collect();
                let known = places.iter().filter(|place| is_main || !place.main_only);
                let mut known: Vec<&str> = known.map(|place| &*place.path).collect();
                for paths in [&mut mounted, &mut known] {
                    paths.sort_unstable();
                    paths.dedup();
                }
                prop_assert_eq!(mounted, known);
            }
        }
    }

    #[test]
    fn it_is_known_whether_defaults_are_written(job in job()) {
        let after = defaulted(&job);
        prop_assert_eq!(admission::is_defaulted(&job), after == job);
        prop_assert!(admission::is_defaulted(&after));
    }
}
