//! The role of a job that grows and shrinks, and the pods that roles have.

use std::collections::BTreeSet;

use trainyard_api::{Elastic, JobPhase, RigidPolicy, StartAt, TrainingJob, TrainingJobStatus};

use crate::indices;
use crate::members::Members;

/// The role of a job that grows and shrinks.
#[derive(Clone, Copy, Debug)]
pub struct ElasticRole<'a> {
    /// Its position in `spec.roles`.
    pub role: usize,
    /// Its bounds.
    pub spec: &'a Elastic,
}

impl<'a> ElasticRole<'a> {
    /// The elastic role of a job; `None` if it has none.
    pub(crate) fn of(object: &'a TrainingJob) -> Option<Self> {
        Some(Self {
            role: object.spec.elastic_role()?,
            spec: object.spec.elastic.as_ref()?,
        })
    }

    /// Whether its size stays as it is while a job of a rigid framework runs.
    pub(crate) fn refuses(self) -> bool {
        self.spec.rigid == Some(RigidPolicy::Refuse)
    }
}

/// The members of a role as the status has them. `None` if the job has not started yet.
pub(crate) fn recorded_members(object: &TrainingJob, role: &str) -> Option<Members> {
    let status = object.status.as_ref();
    let has_started = |phase: JobPhase| !phase.is_suspended() && phase != JobPhase::Pending;
    let status = status.filter(|status| status.phase.is_some_and(has_started));
    let accepted = status.and_then(|status| status.accepted.rules.as_ref());
    let mut roles = accepted.into_iter().flat_map(|rules| &rules.roles);
    let accepted = roles.find(|accepted| accepted.name == role)?;
    Some(members_of(accepted.replicas, accepted.members.as_deref()))
}

/// An index is below this however often pods have died and got new ones.
const MAX_INDEX: i32 = 1_000_000;

/// The indices of lost pods whose names are not used again, as a status has them.
pub(crate) fn retired_indices(status: &TrainingJobStatus) -> BTreeSet<i32> {
    indices::parse(status.retired_indices.as_deref().unwrap_or_default(), MAX_INDEX)
}

/// The members that a status has written down.
pub(crate) fn members_of(replicas: i32, listed: Option<&str>) -> Members {
    match listed {
        Some(text) => Members::parse(text, MAX_INDEX),
        None => Members::first(replicas),
    }
}

/// How many pods an elastic role starts with.
pub(crate) fn first_size(elastic: &Elastic) -> i32 {
    let target = elastic
        .replicas
        .clamp(elastic.min(), elastic.max().max(elastic.min()));
    match elastic.start_at.unwrap_or_default() {
        StartAt::Target => elastic.largest_size_within(target).unwrap_or(target),
        StartAt::Min => elastic.min(),
    }
}
