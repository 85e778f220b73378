//! The sizes of the roles whose `replicas` are given in `spec.roles`. They change while the job
//! runs with `updatePolicy: Roll`.
//!
//! A role that shrinks loses its last pods at once: whoever wants pods to leave in order gives the
//! job `spec.elastic`. A role that grows gets its new pods when their names are free: a pod that
//! left before and is still on its way out is none of the role's, however it ends.

use std::collections::HashMap;

use crate::job::{Job, Role};
use crate::members::Members;
use crate::model::PodKey;
use crate::view::{PodRow, View};

/// The pods of one role from now on, and what they wait for.
pub(super) struct RoleSize<'a> {
    pub members: Members,
    /// The pod that has to go before the role gets all its pods.
    pub waits_for: Option<&'a PodRow>,
}

/// Decides which pods a role has from now on that is not elastic.
pub(super) fn decide<'a>(
    job: &Job<'_>,
    view: &View<'a>,
    (position, role): (usize, &Role<'_>),
) -> RoleSize<'a> {
    let before = role.members.end();
    if role.target <= before {
        return RoleSize {
            members: Members::first(role.target),
            waits_for: None,
        };
    }
    let rows: HashMap<&str, &'a PodRow> = view.pods.iter().map(|row| (&*row.name, row)).collect();
    let leaving = (before..role.target).find_map(|index| {
        let row = *rows.get(&*job.pod_name(PodKey {
            role: position,
            index,
        }))?;
        (row.terminating || row.has_ended()).then_some((index, row))
    });
    RoleSize {
        // Indices have no gaps, so that ranks do not change when that pod is gone.
        members: Members::first(leaving.map_or(role.target, |(index, _)| index)),
        waits_for: leaving.map(|(_, row)| row),
    }
}
