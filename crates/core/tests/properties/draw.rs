//! What anything may look like: jobs, statuses and views that are right, nearly right, and wrong.
//! No field is left at its default: what is never drawn is never tried.
//!
//! What has many parts is boxed: proptest holds all of them at once, and threads of tests have
//! small stacks.

mod job;
mod launch;
mod status;
mod view;

use jiff::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use trainyard_api::{
    Dependency, DependencyState, NodeDownPolicy, PodQuorum, RestartPolicy, RestartScope, RoleSet,
};

pub use job::job;
pub use view::{Seen, seen};

pub fn time() -> impl Strategy<Value = Timestamp> {
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

/// Names of pods and other children that are right, nearly right, and wrong.
fn name() -> impl Strategy<Value = String> {
    let role = select(vec!["master", "worker", "worker", "launcher"]);
    prop_oneof![
        8 => (role, 0..4i32).prop_map(|(role, i)| format!("mnist-{role}-{i}")),
        1 => select(vec![
            "", "-", "mnist", "mnist-", "mnist-worker", "mnist-worker-", "mnist-worker--1", "mnist-worker-01",
            "mnist-worker-+1", "mnist-worker-99999999999", "mnist-worker-0-0", "mnist-launcher", "mnist-master",
            "mnist-mpi", "mnist-ssh", "other-worker-0", "é-é-é",
        ]).prop_map(str::to_owned),
        1 => ".{0,60}",
    ]
}

fn role_name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => select(vec!["master", "worker", "worker", "launcher"]).prop_map(str::to_owned),
        1 => ".{0,40}",
    ]
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

fn restart_scope() -> impl Strategy<Value = RestartScope> + Clone {
    select(RestartScope::ALL.to_vec())
}

fn policy() -> impl Strategy<Value = RestartPolicy> + Clone {
    select(vec![
        RestartPolicy::Never,
        RestartPolicy::OnFailure,
        RestartPolicy::Always,
        RestartPolicy::ExitCode,
    ])
}

fn quorum() -> impl Strategy<Value = PodQuorum> + Clone {
    select(vec![PodQuorum::AllPods, PodQuorum::AnyPod])
}

fn node_down() -> impl Strategy<Value = NodeDownPolicy> + Clone {
    select(vec![NodeDownPolicy::Fail, NodeDownPolicy::Wait])
}

fn awaited_state() -> impl Strategy<Value = DependencyState> + Clone {
    select(vec![
        DependencyState::Running,
        DependencyState::Ready,
        DependencyState::Succeeded,
    ])
}

/// Roles that are waited for: those that are there, those that are not, the same twice, oneself.
fn dependencies() -> impl Strategy<Value = Vec<Dependency>> {
    let one = (role_name(), awaited_state()).prop_map(|(role, state)| Dependency { role, state });
    vec(one, 0..3)
}

fn role_sets() -> impl Strategy<Value = Vec<RoleSet>> {
    vec(vec(role_name(), 0..3).prop_map(|all_of| RoleSet { all_of }), 0..3)
}
