//! Roles that wait for each other: whether a dependency is met, may still be met, or never will be.

use trainyard_api::{CreatePolicy, DependencyState, RolePhase};

use crate::agent;
use crate::deduce::Tally;
use crate::job::{Job, Role};
use crate::model::Awaited;
use crate::view::Settings;

/// Whether a dependency is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It is met.
    Met,
    /// It may still be met.
    Open,
    /// It can't be met any more.
    Never,
}

/// Returns true if roles that wait for a role in this phase wait in vain.
pub fn is_waited_for_in_vain(phase: RolePhase) -> bool {
    phase.is_terminal() && phase != RolePhase::Succeeded
}

/// Decides whether a dependency is met.
#[rustfmt::skip]
pub fn outlook(state: DependencyState, phase: RolePhase, tally: &Tally) -> Outlook {
    use DependencyState::{Ready, Running};
    let t = tally;
    // A role that goes on without its failed pods won't get any more pods than it has.
    let ended = t.succeeded + t.failed + t.lost;
    let table = [
        (phase == RolePhase::Succeeded,                                Outlook::Met),
        (is_waited_for_in_vain(phase),                                            Outlook::Never),
        (state == Running && t.active + ended >= t.needed,             Outlook::Met),
        (state == Ready   && t.ready + ended >= t.needed,              Outlook::Met),
    ];
    let first = table.into_iter().find(|(holds, _)| *holds);
    first.map_or(Outlook::Open, |(_, outlook)| outlook)
}

/// The first dependency of a role that is not met, with its outlook. One that can't be met any more
/// comes first. `None` if all are met.
pub fn first_unmet(role: &Role<'_>, outlook: impl Fn(&Awaited) -> Outlook) -> Option<(Awaited, Outlook)> {
    let unmet = role.depends_on.iter().map(|awaited| (*awaited, outlook(awaited)));
    unmet
        .filter(|(_, outlook)| *outlook != Outlook::Met)
        .min_by_key(|(_, outlook)| *outlook != Outlook::Never)
}

/// Returns true if the pods of a role are created at once and wait inside.
pub fn waits_inside(role: &Role<'_>, settings: &Settings) -> bool {
    !role.depends_on.is_empty()
        && role.create_policy == CreatePolicy::Immediately
        && settings.waits_inside
        && settings.agent_and_observer().is_some()
        && agent::can_be_reached(role.pod)
}

/// Returns true if the pods of a role are created only when its dependencies are met: its user
/// wants it so, or no agent in the pod could wait and be told when to go on.
pub fn is_created_late(role: &Role<'_>, settings: &Settings) -> bool {
    !role.depends_on.is_empty() && !waits_inside(role, settings)
}

/// Describes a dependency: `the role worker to be ready`.
pub fn describe(job: &Job<'_>, awaited: Awaited) -> String {
    let name = job.roles.get(awaited.role).map_or("?", |role| role.name);
    match awaited.state {
        DependencyState::Running => format!("the role {name} to run"),
        DependencyState::Ready => format!("the role {name} to be ready"),
        DependencyState::Succeeded => format!("the role {name} to succeed"),
    }
}

/// Returns true if the pods of a role can't work without those of another: they wait for them, or
/// would by default.
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
