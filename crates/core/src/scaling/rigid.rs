//! A change of size for which all pods of the job start anew: its framework tells every pod at the
//! start how many there are.
//!
//! ```text
//! Requested ── Acknowledged ── CheckpointDone ── Restarting ── Joining
//! all are told to leave, at the former size      all deleted   all created, at the new size
//! ```

use std::collections::{BTreeMap, BTreeSet};

use trainyard_api::{RestartPolicy, RestartedRole, ScalingStep};

use super::{COOL_DOWN, Decision, Resize, RestartStage, Scaling, parse};
use crate::members::Members;
use crate::model::PodKey;
use crate::requested_size::RequestedSize;
use crate::status::time;
use crate::view::{PodPhase, PodRow};

impl Decision<'_, '_> {
    /// Why the size of a job stays as it is that runs. `None` if it can change.
    pub(super) fn refusal(&self) -> Option<String> {
        if !self.job.is_rigid() {
            return None;
        }
        let framework = self.job.framework.name();
        if self.elastic.refuses() {
            return Some(format!(
                "{framework} tells every pod at its start how many there are, and spec.elastic.rigid is Refuse: set that to \
                 Restart, or set spec.suspend to true first"
            ));
        }
        let status = self.view.job.status.as_ref();
        let roles = status.into_iter().flat_map(|status| &status.roles);
        let stays_ended = |pod: &PodRow| {
            let role = self
                .job
                .key(&pod.name)
                .and_then(|key| self.job.roles.get(key.role));
            role.is_some_and(|role| role.restart_policy != RestartPolicy::Always)
        };
        let has_ended = |pod: &PodRow| pod.phase == PodPhase::Succeeded && stays_ended(pod);
        let is_ending = roles
            .into_iter()
            .any(|role| role.phase.is_terminal() || role.succeeded_indices.is_some())
            || self.view.pods.iter().any(has_ended);
        // What has succeeded would be done again.
        is_ending.then(|| {
            format!("all pods of {framework} jobs start anew with another size, and some have ended already for good")
        })
    }

    /// Begins a change: all pods are told to leave.
    pub(super) fn begin_restart(&self, target: i32, requested: Option<RequestedSize>) -> Resize {
        let requested = requested.unwrap_or_default();
        let framework = self.job.framework.name();
        let message = format!(
            "{framework} tells every pod at its start how many there are, so that all pods start anew with another number"
        );
        self.unchanged_but(Scaling {
            from: self.members.count(),
            to: target,
            step: ScalingStep::Requested,
            since: Some(time(self.view.now)),
            deadline: self.leave.deadline(requested.drain_timeout_seconds),
            roles: self.roles(|members| RestartedRole {
                victims: members.format(),
                ..RestartedRole::default()
            }),
            request: requested.into_request(),
            message: Some(message),
            ..Scaling::default()
        })
    }

    /// All roles of the job.
    fn roles(&self, of: impl Fn(&Members) -> RestartedRole) -> Vec<RestartedRole> {
        let role = |role: &crate::job::Role<'_>| RestartedRole {
            name: role.name.to_owned(),
            ..of(&role.members)
        };
        self.job.roles.iter().map(role).collect()
    }

    /// Goes on with pods that were told to leave, until all have or their time is over.
    fn watch_leaving(&self, scaling: &Scaling) -> Resize {
        let state = self.leave.watch(scaling);
        Resize {
            drained: state.drained(),
            scaling: Some(state.scaling),
            forced: state.forced,
            unacknowledged_since: state.unacknowledged_since,
            wake_at: state.wake_at,
            ..self.unchanged()
        }
    }

    pub(super) fn go_on_restarting(&self, scaling: &Scaling) -> Resize {
        match RestartStage::of(scaling) {
            Some(RestartStage::Leaving) | None => self.watch_leaving(scaling),
            Some(RestartStage::Deleting) => self.watch_deletion(scaling),
            Some(RestartStage::Joining) => self.watch_joining(scaling),
        }
    }

    /// Waits until no pod exists any more. Then the target is read anew: it may have changed.
    fn watch_deletion(&self, scaling: &Scaling) -> Resize {
        if !self.view.pods.is_empty() {
            return Resize {
                scaling: Some(scaling.clone()),
                ..self.unchanged()
            };
        }
        let requested = RequestedSize::pending(self.view.job);
        let to = self.wanted().unwrap_or(scaling.to);
        let members = Members::first(to);
        let mut roles = self.roles(|members| RestartedRole {
            joining: members.format(),
            ..RestartedRole::default()
        });
        if let Some(role) = roles.get_mut(self.elastic.role) {
            role.joining = members.format();
        }
        Resize {
            members,
            scaling: Some(Scaling {
                to,
                step: ScalingStep::Joining,
                since: Some(time(self.view.now)),
                deadline: None,
                roles,
                request: requested.and_then(RequestedSize::into_request),
                ..scaling.clone()
            }),
            target: Some(self.elastic.spec.replicas),
            ..self.unchanged()
        }
    }

    /// The size that the target means.
    fn wanted(&self) -> Option<i32> {
        let elastic = self.elastic.spec;
        elastic.largest_size_within(elastic.replicas.max(elastic.min()))
    }

    /// Waits until all pods run. If another size is wanted meanwhile, nobody waits for that.
    fn watch_joining(&self, scaling: &Scaling) -> Resize {
        if self.have_all_started() {
            return Resize {
                finished: Some(scaling.clone()),
                fulfilled: scaling.request.clone(),
                ..self.unchanged()
            };
        }
        let unchanged = Resize {
            scaling: Some(scaling.clone()),
            ..self.unchanged()
        };
        let wanted = self.wanted().filter(|wanted| *wanted != self.members.count());
        let Some(wanted) = wanted.filter(|_| self.refusal().is_none()) else {
            return unchanged;
        };
        match self.cool_until(scaling.since.as_ref(), COOL_DOWN) {
            None => self.begin_restart(wanted, RequestedSize::pending(self.view.job)),
            wake_at => Resize { wake_at, ..unchanged },
        }
    }

    /// Returns true if every pod of the job runs, or has ended for good.
    fn have_all_started(&self) -> bool {
        let status = self.view.job.status.as_ref();
        let roles = status.into_iter().flat_map(|status| &status.roles);
        let ended: BTreeSet<&str> = roles
            .clone()
            .filter(|role| role.phase.is_terminal())
            .map(|role| &*role.name)
            .collect();
        let done: BTreeMap<&str, BTreeSet<i32>> = roles
            .map(|role| (&*role.name, parse(role.succeeded_indices.as_deref())))
            .collect();
        let running: BTreeSet<PodKey> = self
            .view
            .pods
            .iter()
            .filter(|row| !matches!(row.phase, PodPhase::Pending | PodPhase::Failed) && !row.terminating)
            .filter_map(|row| self.job.key(&row.name))
            .collect();
        self.job.keys().all(|key| {
            let role = self.job.roles.get(key.role).map_or("", |role| role.name);
            let is_done = || done.get(role).is_some_and(|done| done.contains(&key.index));
            running.contains(&key) || ended.contains(role) || is_done()
        })
    }
}
