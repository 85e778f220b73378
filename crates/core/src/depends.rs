//! Roles that wait for each other: whether what a role waits for has come, may still come, or never will.

use trainyard_api::{CreatePolicy, DependencyState, RolePhase};

use crate::agent;
use crate::deduce::Tally;
use crate::job::{Job, Role};
use crate::model::Awaited;
use crate::view::Settings;

/// What became of something that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It has come.
    Met,
    /// It may still come.
    Open,
    /// It can't come any more.
    Never,
}

/// Whether a role has ended in a way that whoever waits for it waits in vain.
pub fn is_in_vain(phase: RolePhase) -> bool {
    phase.is_terminal() && phase != RolePhase::Succeeded
}

/// What became of one role that another one waits for.
#[rustfmt::skip]
pub fn outlook(state: DependencyState, phase: RolePhase, tally: &Tally) -> Outlook {
    use DependencyState::{Ready, Running};
    let t = tally;
    // A role that goes on without pods that failed for good has what it will ever have.
    let ended = t.succeeded + t.failed + t.lost;
    let table = [
        (phase == RolePhase::Succeeded,                                Outlook::Met),
        (is_in_vain(phase),                                            Outlook::Never),
        (state == Running && t.active + ended >= t.replicas,           Outlook::Met),
        (state == Ready   && t.ready + ended >= t.replicas,            Outlook::Met),
    ];
    let first = table.into_iter().find(|(holds, _)| *holds);
    first.map_or(Outlook::Open, |(_, outlook)| outlook)
}

/// The first thing that a role waits for and that has not come, with its outlook; what never comes is the first of all.
/// `None`: all of it has come.
pub fn first_unmet(role: &Role<'_>, look: impl Fn(&Awaited) -> Outlook) -> Option<(Awaited, Outlook)> {
    let unmet = role.depends_on.iter().map(|awaited| (*awaited, look(awaited)));
    unmet
        .filter(|(_, outlook)| *outlook != Outlook::Met)
        .min_by_key(|(_, outlook)| *outlook != Outlook::Never)
}

/// Whether the pods of a role are created at once and wait inside.
pub fn waits_inside(role: &Role<'_>, settings: &Settings) -> bool {
    !role.depends_on.is_empty()
        && role.create_policy == CreatePolicy::Immediately
        && settings.told_agent().is_some()
        && agent::can_be_reached(role.pod)
}

/// Whether the pods of a role are created only when what it waits for has come. Where no agent can wait in the pod, or
/// nobody could tell it when to stop, there is no other way.
pub fn is_created_late(role: &Role<'_>, settings: &Settings) -> bool {
    !role.depends_on.is_empty() && !waits_inside(role, settings)
}

/// What is waited for, in words: `the role worker to be Ready`.
pub fn describe(job: &Job<'_>, awaited: Awaited) -> String {
    let name = job.roles.get(awaited.role).map_or("?", |role| role.name);
    match awaited.state {
        DependencyState::Running => format!("the role {name} to run"),
        DependencyState::Ready => format!("the role {name} to be ready"),
        DependencyState::Succeeded => format!("the role {name} to succeed"),
    }
}

/// Whether the pods of a role can't do their work without those of another: they wait for them, or would if their user did not
/// want it otherwise.
pub(crate) fn needs(job: &Job<'_>, role: usize, other: usize) -> bool {
    let (Some(role), Some(other)) = (job.roles.get(role), job.roles.get(other)) else {
        return false;
    };
    let names: Vec<&str> = job.roles.iter().map(|role| role.name).collect();
    let awaited = role.depends_on.iter().filter_map(|on| job.roles.get(on.role));
    let by_user = awaited.into_iter().any(|on| on.name == other.name);
    let by_framework = job.framework.dependencies(role.name, &names);
    by_user || by_framework.iter().any(|on| on.role == other.name)
}
