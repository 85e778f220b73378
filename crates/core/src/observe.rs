//! What the observer tells of a job: the same deductions as in [`crate::plan`], from one view,
//! without doing anything.

pub mod ares;

use std::net::IpAddr;

use serde::Serialize;
use trainyard_api::{JobPhase, Progress, RolePhase, TrainingJob, TrainingJobStatus};
pub use trainyard_contract::drain::Drain;
pub use trainyard_contract::start::Start;

use crate::assess::{Assessment, Attempt, assess};
use crate::depends::{self, Outlook};
use crate::dialect;
use crate::job::{Job, Role, attempt_of};
use crate::local_state::ScriptOffer;
use crate::members::Members;
use crate::model::{Awaited, PodKey};
use crate::plan::roles;
use crate::scaling;
use crate::view::{PodPhase, PodRow, View};

/// A job at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its phase, as its status says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<JobPhase>,
    /// Its roles; none, if the job was never accepted.
    pub roles: Vec<ObservedRole>,
    /// What its programs last said of their progress, as far as this replica knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The script that one of its pods is to run, as far as this replica decides that. It is told
    /// to that pod alone.
    #[serde(skip)]
    pub script: ScriptOffer,
}

/// The place of a pod among those of a job: whoever comes first speaks for the job. `None` if it is
/// none of them.
pub fn place(job: &TrainingJob, pod: &str) -> Option<(usize, i32)> {
    let name = job.metadata.name.as_deref()?;
    let (role, index) = dialect::split(dialect::of(job), name, pod)?;
    let index = index.map_or(Some(0), |index| index.parse().ok())?;
    let position = job.spec.roles.iter().position(|known| known.name == role)?;
    Some((position, index))
}

/// Returns true if a pod is of a former attempt: all pods of its role have started anew since, and
/// do not talk to it.
pub fn is_former(job: &TrainingJob, row: &PodRow) -> bool {
    let role = place(job, &row.name).and_then(|(position, _)| job.spec.roles.get(position));
    role.is_some_and(|role| row.attempt < attempt_of(job, &role.name))
}

/// A role at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedRole {
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: RolePhase,
    /// How many pods it should have.
    pub replicas: i32,
    /// The pods that it should have, by their indices.
    #[serde(skip)]
    pub members: Members,
    /// How many run.
    pub running: i32,
    /// How many are ready.
    pub ready: i32,
    /// How many have succeeded.
    pub succeeded: i32,
    /// Whether its programs may start.
    pub start: Start,
    /// Its pods that are there and are not on their way out, by index.
    pub pods: Vec<ObservedPod>,
}

/// A pod at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedPod {
    /// Its index.
    pub index: i32,
    /// Its name.
    pub name: String,
    /// The name by which others find it.
    pub host: String,
    /// Its address, once it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Whether it runs.
    pub running: bool,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it was told to leave, and until when it may stay.
    #[serde(skip_serializing_if = "Drain::stays")]
    pub drain: Drain,
}

/// A job at the moment of a view.
pub fn observe(view: &View<'_>) -> Observed {
    let object = view.job;
    let phase = object.status.as_ref().and_then(|status| status.phase);
    // What is running was made by the rules that were accepted, whatever the spec says now.
    let roles = match Job::accepted(object, view.frameworks)
        .or_else(|| Job::parse_with(object, view.frameworks).ok())
    {
        Some(job) => roles_of(&job, view),
        None => Vec::new(),
    };
    Observed {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
        phase,
        roles,
        progress: view
            .progress
            .or_else(|| object.status.as_ref()?.progress.as_ref())
            .cloned(),
        script: view.local.script.clone(),
    }
}

fn roles_of(job: &Job<'_>, view: &View<'_>) -> Vec<ObservedRole> {
    let none = TrainingJobStatus::default();
    let status = view.job.status.as_ref().unwrap_or(&none);
    let seen = assess(job, view, status, Attempt::GoesOn, None);
    let phases: Vec<RolePhase> = roles::phases(job, &seen, status)
        .into_iter()
        .map(|(phase, _)| phase)
        .collect();
    let mut observed: Vec<ObservedRole> = job
        .roles
        .iter()
        .zip(&seen.roles)
        .zip(&phases)
        .map(|((role, this), phase)| ObservedRole {
            name: role.name.to_owned(),
            phase: *phase,
            replicas: this.tally.replicas,
            members: role.members.clone(),
            running: this.tally.active,
            ready: this.tally.ready,
            succeeded: this.tally.succeeded,
            start: start(job, view, &seen, role, &phases),
            pods: Vec::new(),
        })
        .collect();
    let scaling = status.scaling.as_deref();
    let leaving = scaling
        .map(|scaling| scaling::leaving_pods(job, scaling))
        .unwrap_or_default();
    let deadline = scaling.and_then(|scaling| scaling.deadline.as_ref());
    let drain = |key: PodKey| {
        if leaving.contains(&key) {
            Drain::Leave {
                deadline: deadline.map(|deadline| deadline.0.to_string()),
            }
        } else {
            Drain::Stay
        }
    };
    for row in view.pods.iter().filter(|row| !row.terminating) {
        let Some(key) = job.key(&row.name) else { continue };
        if job
            .roles
            .get(key.role)
            .is_some_and(|role| role.is_former(row.attempt))
        {
            continue;
        }
        if let Some(role) = observed.get_mut(key.role) {
            role.pods.push(ObservedPod {
                index: key.index,
                name: row.name.to_string(),
                host: job.host(key, &view.settings.cluster_domain),
                address: row.address,
                running: row.phase == PodPhase::Running,
                ready: row.ready,
                drain: drain(key),
            });
        }
    }
    for role in &mut observed {
        role.pods.sort_by_key(|pod| pod.index);
    }
    observed
}

fn start(
    job: &Job<'_>,
    view: &View<'_>,
    seen: &Assessment<'_>,
    role: &Role<'_>,
    phases: &[RolePhase],
) -> Start {
    if view.job.is_suspended() || view.job.metadata.deletion_timestamp.is_some() {
        return Start::Wait("the job is suspended or being deleted".to_owned());
    }
    let written = |awaited: &Awaited| {
        let name = job.roles.get(awaited.role)?.name;
        let status = view.job.status.as_ref()?;
        status
            .roles
            .iter()
            .find(|role| role.name == name)
            .map(|role| role.phase)
    };
    let look = |awaited: &Awaited| {
        let (Some(this), Some(phase)) = (seen.roles.get(awaited.role), phases.get(awaited.role)) else {
            return Outlook::Open;
        };
        match depends::outlook(awaited.state, *phase, &this.tally) {
            // A wait is ended in vain only for what is written down: that is final.
            Outlook::Never if !written(awaited).is_some_and(RolePhase::is_terminal) => Outlook::Open,
            outlook => outlook,
        }
    };
    match depends::first_unmet(role, look) {
        None => Start::Go,
        Some((awaited, Outlook::Never)) => {
            let name = job.roles.get(awaited.role).map_or("?", |role| role.name);
            Start::Never(format!("can't start: waits for the role {name}, which has ended"))
        }
        Some((awaited, _)) => Start::Wait(format!("waits for {}", depends::describe(job, awaited))),
    }
}
