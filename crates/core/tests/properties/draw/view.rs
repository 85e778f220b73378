//! All that is known of a job besides the job itself.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use trainyard_api::{Progress, TrainingJob};
use trainyard_contract::start::WAITED_IN_VAIN;
use trainyard_core::agent::WAIT_CONTAINER;
use trainyard_core::local_state::{ExecRightState, LocalState, SecretState};
use trainyard_core::model::Identity;
use trainyard_core::notice::{Notice, NoticeCause};
use trainyard_core::view::{
    Conflict, NodeState, Nodes, PodEnd, PodPhase, PodRow, Refusal, ServiceRow, Settings, Trouble, View,
};

use super::status::progress;
use super::{name, number, text, time};
use crate::common::jobs::{with_agent, with_silent_agent};

/// What a view shows besides its job.
#[derive(Clone, Debug)]
pub struct Seen {
    pub pods: Vec<PodRow>,
    pub services: Vec<ServiceRow>,
    pub departed: Vec<PodRow>,
    pub conflicts: Vec<Conflict>,
    pub local: LocalState,
    pub refusal: Option<Refusal>,
    pub progress: Option<Progress>,
    pub settings: Settings,
    pub now: Timestamp,
    pub instant: Instant,
}

impl Seen {
    pub fn of<'a>(&'a self, job: &'a TrainingJob) -> View<'a> {
        View {
            frameworks: trainyard_core::registry::Frameworks::built_in(),
            job,
            pods: &self.pods,
            services: &self.services,
            departed: &self.departed,
            conflicts: &self.conflicts,
            local: &self.local,
            absence_is_confirmed: true,
            refusal: self.refusal.as_ref(),
            progress: self.progress.as_ref(),
            nodes: &SomeNodes,
            budgets: None,
            settings: &self.settings,
            now: self.now,
            instant: self.instant,
        }
    }
}

struct SomeNodes;

static CORDONED: Notice = Notice {
    why: NoticeCause::Cordon,
    others: Vec::new(),
    leave_by: None,
    seconds: None,
};

impl Nodes for SomeNodes {
    fn state(&self, name: &str) -> NodeState {
        match name {
            "node-1" => NodeState::Down,
            "node-2" => NodeState::Gone,
            _ => NodeState::Up,
        }
    }

    fn notice(&self, name: &str) -> Option<&Notice> {
        (name == "node-0").then_some(&CORDONED)
    }

    fn are_known(&self) -> bool {
        true
    }
}

pub fn seen() -> BoxedStrategy<Seen> {
    let secret = select(vec![
        SecretState::Unknown,
        SecretState::Exists(Identity::Certificate),
        SecretState::Exists(Identity::SshKey),
        SecretState::Missing(Identity::Certificate),
        SecretState::Missing(Identity::SshKey),
    ]);
    let right = prop_oneof![
        1 => Just(ExecRightState::Unknown),
        1 => Just(ExecRightState::Missing),
        3 => vec(row(), 0..3).prop_map(|rows| {
            ExecRightState::Covers(rows.into_iter().map(|row| row.name).collect())
        }),
    ];
    (
        (vec(row(), 0..8), services(), vec(row(), 0..3)),
        // Most jobs have none, and what comes after them is to be reached.
        option::weighted(0.2, vec(conflict(), 1..4)),
        (secret, right, any::<[bool; 2]>()),
        (option::weighted(0.2, refusal()), option::of(said())),
        (settings(), time()),
    )
        .prop_map(
            |(children, conflicts, rights, (refusal, progress), (settings, now))| {
                let (mut pods, services, departed) = children;
                let (secret, right, [right_is_sure, is_overdue]) = rights;
                let instant = Instant::now() + Duration::from_hours(24);
                let long_ago = instant.checked_sub(Duration::from_hours(1));
                let mut local = LocalState::default();
                (local.secret, local.exec_right, local.exec_right_is_sure) = (secret, right, right_is_sure);
                local.waits.overdue_since = long_ago.filter(|_| is_overdue);
                for (i, row) in pods.iter_mut().enumerate() {
                    row.uid = format!("uid-{i}").into();
                }
                Seen {
                    pods,
                    services,
                    departed,
                    conflicts: conflicts.unwrap_or_default(),
                    local,
                    refusal,
                    progress,
                    settings,
                    now,
                    instant,
                }
            },
        )
        .boxed()
}

fn services() -> impl Strategy<Value = Vec<ServiceRow>> {
    let other = vec((name(), any::<bool>()), 0..3);
    // With its own, which all else waits for.
    (option::of(any::<bool>()), other).prop_map(|(own, other)| {
        let own = own.map(|terminating| ("mnist".to_owned(), terminating));
        let all = own.into_iter().chain(other).enumerate();
        all.map(|(i, (name, terminating))| ServiceRow {
            name: name.into(),
            uid: format!("uid-s{i}").into(),
            terminating,
        })
        .collect()
    })
}

fn conflict() -> BoxedStrategy<Conflict> {
    let kind = select(vec![
        "Pod",
        "Service",
        "Secret",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "Other",
        "",
    ]);
    let own = select(vec!["mnist", "mnist-mpi", "mnist-ssh", "mnist-master"]);
    let name = prop_oneof![own.prop_map(str::to_owned), name()];
    let owner = prop_oneof![
        select(vec![
            "nobody",
            "TrainingJob other",
            "TrainingJob ",
            "Deployment web"
        ])
        .prop_map(str::to_owned),
        text(),
    ];
    (kind, name, owner)
        .prop_map(|(kind, name, owner)| Conflict { kind, name, owner })
        .boxed()
}

fn refusal() -> BoxedStrategy<Refusal> {
    let kind = select(vec!["Pod", "Service", "Secret", "Role", ""]);
    (kind, name(), text())
        .prop_map(|(kind, name, message)| Refusal { kind, name, message })
        .boxed()
}

/// What programs say has no time of its own.
fn said() -> impl Strategy<Value = Progress> {
    progress().prop_map(|said| Progress { time: None, ..said })
}

fn settings() -> BoxedStrategy<Settings> {
    let agent = prop_oneof![
        1 => Just(Settings::default()),
        1 => Just(with_silent_agent()),
        2 => Just(with_agent()),
    ];
    let domain = prop_oneof![4 => Just("cluster.local".to_owned()), 1 => text()];
    let command = select(vec![vec![], vec!["/trainyard-agent".to_owned()]]);
    (agent, domain, any::<[bool; 3]>(), command)
        .prop_map(
            |(mut settings, cluster_domain, [allows_exec, may_be_root, pulls], command)| {
                if let Some(agent) = &mut settings.agent {
                    agent.may_be_root = may_be_root;
                    agent.image_pull_policy = pulls.then(|| "Always".to_owned());
                    agent.command = command;
                }
                Settings {
                    cluster_domain,
                    allows_exec,
                    runs_scripts: allows_exec,
                    ..settings
                }
            },
        )
        .boxed()
}

fn row() -> BoxedStrategy<PodRow> {
    let phase = select(vec![
        PodPhase::Pending,
        PodPhase::Running,
        PodPhase::Succeeded,
        PodPhase::Failed,
        PodPhase::Unknown,
    ]);
    let trouble = (text(), text()).prop_map(|(reason, message)| Box::new(Trouble { reason, message }));
    (
        (name(), option::of(0..3u8), phase, 0..3u64),
        any::<[bool; 4]>(),
        // What is rare, so that the common is not: two in three pods are as their job knows them.
        (prop::bool::weighted(0.2), prop::bool::weighted(0.9)),
        option::of(select(vec![IpAddr::from([10, 0, 0, 1]), IpAddr::from([0; 16])])),
        option::of(end()),
        option::of(trouble),
    )
        .prop_map(
            |((name, node, phase, template), facts, rare, address, end, trouble)| {
                let [ready, lingers, released, waits] = facts;
                let (terminating, labelled) = rare;
                PodRow {
                    name: name.into(),
                    uid: "".into(),
                    node: node.map(|node| format!("node-{node}").into()),
                    phase,
                    lingers,
                    ready,
                    address,
                    terminating,
                    labelled,
                    passed_on: template,
                    released,
                    waits,
                    template: NonZeroU64::new(template),
                    spec: None,
                    attempt: i32::from(template == 1),
                    end,
                    trouble,
                }
            },
        )
        .boxed()
}

fn end() -> BoxedStrategy<Box<PodEnd>> {
    // The last: an agent that has waited in vain.
    let what = prop_oneof![
        4 => (option::of(text()), option::of(number())),
        1 => Just((Some(WAIT_CONTAINER.to_owned()), Some(i32::from(WAITED_IN_VAIN)))),
    ];
    (
        what,
        option::of(number()),
        (option::of(text()), option::of(text())),
        option::of(time()),
        option::of(time()),
        (0..3u64, any::<bool>()),
    )
        .prop_map(
            |(
                (container, exit_code),
                signal,
                (reason, message),
                finished_at,
                asked_at,
                (told, disrupted),
            )| {
                Box::new(PodEnd {
                    container,
                    exit_code,
                    signal,
                    reason,
                    message,
                    finished_at,
                    asked_at,
                    seen_version: told,
                    disrupted,
                })
            },
        )
        .boxed()
}
