//! What the user sees of a job, and what tests ask of the world.

use std::collections::BTreeSet;

use trainyard_api::{JobPhase, RoleStatus, ScalingStep, TrainingJobStatus};
use trainyard_core::view::{PodPhase, PodRow};

use super::{Log, World};

impl World {
    pub fn status(&self) -> TrainingJobStatus {
        self.job.status.clone().unwrap_or_default()
    }

    pub fn phase(&self) -> Option<JobPhase> {
        self.status().phase
    }

    /// How far a change of size is, or pods that leave nodes.
    pub fn scaling_step(&self) -> Option<ScalingStep> {
        self.status().scaling.map(|scaling| scaling.step)
    }

    /// The pods that exist and are not asked to go, without the name of their job.
    pub fn staying(&self) -> String {
        let names = self.names(|row| !row.terminating);
        let short = names.iter().filter_map(|name| name.strip_prefix("mnist-"));
        short.collect::<Vec<_>>().join(" ")
    }

    pub fn role(&self, name: &str) -> RoleStatus {
        let role = self.status().roles.into_iter().find(|role| role.name == name);
        role.unwrap_or_else(|| panic!("there is no role {name}"))
    }

    /// Status and reason of a condition, such as `True RolesSucceeded`; empty if there is none.
    pub fn condition(&self, kind: &str) -> String {
        let condition = self.status().conditions.into_iter().find(|c| c.type_ == kind);
        condition
            .map(|c| format!("{} {}", c.status, c.reason))
            .unwrap_or_default()
    }

    pub fn message(&self, kind: &str) -> String {
        let condition = self.status().conditions.into_iter().find(|c| c.type_ == kind);
        condition.map(|c| c.message).unwrap_or_default()
    }

    /// Failures and disruptions that were counted.
    pub fn restarts(&self) -> (i32, i32) {
        self.status()
            .restarts
            .map_or((0, 0), |restarts| (restarts.failures, restarts.disruptions))
    }

    /// How many writes the operator has made.
    pub fn writes(&self) -> usize {
        let Log {
            pods,
            services,
            secrets,
            grants,
            deleted,
            deleted_services,
            labelled,
            statuses,
            ..
        } = &self.log;
        pods.len()
            + services.len()
            + secrets.len()
            + grants.len()
            + deleted.len()
            + deleted_services.len()
            + labelled.len()
            + statuses
            + usize::from(self.gone)
    }

    /// How many failures the ledger has seen counted.
    /// Whether all pods of a pod's role have started anew since it was made.
    pub fn is_former(&self, row: &trainyard_core::view::PodRow) -> bool {
        super::ledger::is_former(&self.job, &row.name, row.attempt)
    }

    pub fn failures_in_the_ledger(&self) -> i32 {
        self.ledger.failures()
    }

    /// A variable that a pod was made with.
    pub fn variable(&self, pod: &str, name: &str) -> Option<&str> {
        let variables = self.variables.get(&*self.pod(pod).uid)?;
        variables.get(name).map(String::as_str)
    }

    /// The image a pod was made from.
    pub fn image(&self, name: &str) -> &str {
        &self.images[&*self.pod(name).uid]
    }

    /// Pods that hold resources.
    pub fn holding(&self) -> BTreeSet<String> {
        let holds = |row: &PodRow| !matches!(row.phase, PodPhase::Succeeded | PodPhase::Failed);
        self.names(holds).into_iter().collect()
    }

    /// Names of all pods.
    pub fn all(&self) -> BTreeSet<String> {
        self.names(|_| true).into_iter().collect()
    }

    /// The reasons of all events, in order.
    pub fn told(&self) -> Vec<String> {
        self.log
            .events
            .iter()
            .map(|note| note.reason.to_string())
            .collect()
    }
}
