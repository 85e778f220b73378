//! Pods that start anew together, because one of them ended and the others can't go on without it.
//!
//! The status says how often the pods of each role have (`status.restarts.attempts`), and every
//! pod says of which attempt it is. That is all: a pod of a former attempt is deleted, how it ends
//! does not count, and no pod of its roles is created as long as it exists. So it is the same
//! whenever an operator dies, and whatever a former one creates late.

use std::collections::BTreeSet;

use jiff::Timestamp;
use trainyard_api::{Scaling, TrainingJobStatus};

use crate::job::Job;
use crate::model::PodKey;
use crate::restart;
use crate::view::{PodRow, View};

/// Pods that start anew together, as a status has them.
#[derive(Debug)]
pub(crate) struct Underway {
    roles: BTreeSet<usize>,
    /// A pod of a former attempt exists.
    has_former: bool,
    not_before: Option<Timestamp>,
}

impl Underway {
    /// The restart that is under way. `None` if there is none.
    pub(crate) fn of(job: &Job<'_>, view: &View<'_>, status: &TrainingJobStatus) -> Option<Self> {
        let group = status.restarts.as_ref()?.group.as_ref()?;
        let roles = positions(job, &group.roles);
        Some(Self {
            has_former: has_former(job, view, &roles),
            not_before: group.not_before.as_ref().map(|at| at.0),
            roles,
        })
    }

    pub(crate) fn covers(&self, role: usize) -> bool {
        self.roles.contains(&role)
    }

    /// Returns true if the new pods may be created.
    pub(crate) fn may_create(&self, now: Timestamp) -> bool {
        !self.has_former && self.not_before.is_none_or(|at| restart::is_due(at, now))
    }

    /// When the new pods may be created, if only time keeps them from that.
    pub(crate) fn due(&self, now: Timestamp) -> Option<Timestamp> {
        self.not_before
            .filter(|at| !self.has_former && !restart::is_due(*at, now))
    }
}

/// The positions of roles.
pub(crate) fn positions(job: &Job<'_>, names: &[String]) -> BTreeSet<usize> {
    let positions = names.iter().filter_map(|name| job.role(name));
    positions.map(|(position, _)| position).collect()
}

/// Returns true if a pod of a former attempt exists.
pub(crate) fn has_former(job: &Job<'_>, view: &View<'_>, roles: &BTreeSet<usize>) -> bool {
    let is_former = |key: PodKey, row: &PodRow| {
        let role = job.roles.get(key.role).filter(|_| roles.contains(&key.role));
        role.is_some_and(|role| role.is_former(row.attempt))
    };
    let mut rows = view.pods.iter();
    rows.any(|row| job.key(&row.name).is_some_and(|key| is_former(key, row)))
}

/// Pods that begin to start anew with this plan.
#[derive(Debug)]
pub(crate) struct Beginning {
    /// The roles whose pods all start anew.
    pub roles: BTreeSet<usize>,
    /// The pod whose end is the cause.
    pub first: PodKey,
    /// All pods are told to leave, and have time to save their work before they start anew.
    pub leave: Option<Box<Scaling>>,
}
