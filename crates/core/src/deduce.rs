//! How the phase of a role follows from its pods, and the phase of a job from its roles.
//!
//! Both are tables: the first line that holds decides. A final phase stays. Pods that are being
//! deleted count only as terminating.

use trainyard_api::{JobPhase, PodQuorum, RestartPolicy, RolePhase};

/// The pods of one role, counted by state. Every pod counts once, except that ready pods are also
/// active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many pods the role should have.
    pub replicas: i32,
    /// How many of them must run for the role to run.
    pub needed: i32,
    /// Pods that run.
    pub active: i32,
    /// Pods that run and are ready.
    pub ready: i32,
    /// Pods that have succeeded, also if they were deleted afterwards.
    pub succeeded: i32,
    /// Pods that have failed and will not be replaced.
    pub failed: i32,
    /// Pods that do not run yet.
    pub pending: i32,
    /// Pods that have ended and will be replaced.
    pub replacing: i32,
    /// Pods that are being deleted.
    pub terminating: i32,
    /// Pods that do not exist and are to be created.
    pub to_create: i32,
    /// Pods that ran, do not exist any more and will not be replaced.
    pub lost: i32,
}

/// What became of pod 0 of a role, as far as it is final.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstPod {
    /// Nothing yet.
    #[default]
    GoesOn,
    /// It has succeeded.
    Succeeded,
    /// It has failed and will not be replaced.
    Failed,
    /// It ran, does not exist any more and will not be replaced.
    Lost,
}

/// What the phase of a role depends on.
#[derive(Clone, Copy, Debug)]
pub struct RoleFacts {
    /// Its pods.
    pub tally: Tally,
    /// What became of the first of them.
    pub first: FirstPod,
    /// How many successes make the role succeed.
    pub succeeded_when: PodQuorum,
    /// How many failures make the role fail.
    pub failed_when: PodQuorum,
    /// Its restart policy.
    pub restart_policy: RestartPolicy,
    /// Its phase so far.
    pub phase: RolePhase,
}

/// Why a role is in its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleWhy {
    /// There is nothing to explain.
    Plain,
    /// Pods failed.
    PodFailed,
    /// Pods that had been running do not exist any more.
    PodMissing,
}

fn reached(quorum: PodQuorum, pods: i32, replicas: i32, first: bool) -> bool {
    match quorum {
        PodQuorum::AnyPod => pods > 0,
        // All pods of an elastic role may have been lost, and nobody has succeeded then.
        PodQuorum::AllPods => replicas > 0 && pods >= replicas,
        PodQuorum::FirstPod => first,
    }
}

/// Deduces the phase of a role.
#[rustfmt::skip]
pub fn role(facts: &RoleFacts) -> (RolePhase, RoleWhy) {
    use RolePhase::{Failed, Pending, Running, Starting, Succeeded};
    let RoleFacts { tally: t, first, phase: was, .. } = *facts;
    let never = facts.restart_policy == RestartPolicy::Never;
    // A lost pod has failed, too.
    let failed = t.failed + t.lost;
    let is_failed = |pods, first| reached(facts.failed_when, pods, t.replicas, first);
    let first_is_lost = matches!(first, FirstPod::Failed | FirstPod::Lost);
    let is_succeeded = reached(facts.succeeded_when, t.succeeded, t.replicas, first == FirstPod::Succeeded);
    let have_ended = |pods| reached(PodQuorum::AllPods, pods, t.replicas, false);
    let table = [
        (was.is_terminal(),                                              was,       RoleWhy::Plain),
        (is_failed(t.failed, first == FirstPod::Failed),                 Failed,    RoleWhy::PodFailed),
        (is_failed(failed, first_is_lost),                               Failed,    RoleWhy::PodMissing),
        (is_succeeded,                                                   Succeeded, RoleWhy::Plain),
        // Every pod has ended and no rule holds, so none ever will.
        (have_ended(t.failed + t.succeeded),                             Failed,    RoleWhy::PodFailed),
        (have_ended(failed + t.succeeded),                               Failed,    RoleWhy::PodMissing),
        (t.active + t.succeeded + failed >= t.needed,                    Running,   RoleWhy::Plain),
        (t.pending + t.replacing > 0,                                    Starting,  RoleWhy::Plain),
        // Pods are added to a role that runs.
        (was == Running && t.to_create > 0,                              Starting,  RoleWhy::Plain),
        // A terminating pod will be replaced. With Never it has not ended yet.
        (!never && t.terminating > 0,                                    Starting,  RoleWhy::Plain),
        (was == Pending && t.active + t.terminating > 0,                 Starting,  RoleWhy::Plain),
    ];
    let first = table.into_iter().find(|(holds, ..)| *holds);
    first.map_or((was, RoleWhy::Plain), |(_, phase, why)| (phase, why))
}

/// Deduces the phase of a job from the phases of its roles, by position. `replacing`: pods that
/// ended are being replaced. `resized`: the number of pods of a role changed.
#[rustfmt::skip]
pub fn job(
    was: Option<JobPhase>,
    roles: &[RolePhase],
    replacing: bool,
    resized: bool,
    failed_when: &[Vec<usize>],
    succeeded_when: &[Vec<usize>],
) -> JobPhase {
    let all = |set: &[usize], phase| !set.is_empty() && set.iter().all(|role| roles.get(*role) == Some(&phase));
    let any = |sets: &[Vec<usize>], phase| sets.iter().any(|set| all(set, phase));
    let ended = |role: &RolePhase| role.is_terminal();
    let final_state = was.filter(|was| was.is_terminal());
    let ran = matches!(was, Some(JobPhase::Running | JobPhase::Scaling | JobPhase::Restarting | JobPhase::Paused));
    let scaling = resized || was == Some(JobPhase::Scaling);
    let table = [
        (final_state.is_some(),                                          final_state.unwrap_or(JobPhase::Failed)),
        (any(failed_when, RolePhase::Failed),                            JobPhase::Failed),
        (any(succeeded_when, RolePhase::Succeeded),                      JobPhase::Succeeded),
        // Every role has ended and no rule holds, so none ever will.
        (roles.iter().all(ended),                                        JobPhase::Failed),
        (roles.iter().all(|r| ended(r) || *r == RolePhase::Running),     JobPhase::Running),
        (ran && scaling && !replacing,                                   JobPhase::Scaling),
        (ran || replacing,                                               JobPhase::Restarting),
    ];
    table.into_iter().find(|(holds, _)| *holds).map_or(JobPhase::Starting, |(_, phase)| phase)
}
