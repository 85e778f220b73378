//! The results of actions.

use std::collections::HashSet;

use trainyard_api::names;
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::model::Action;
use trainyard_core::view::Refusal;

use super::ownership::ChildKind;
use super::{RequestError, Result};

/// The results of some actions.
#[derive(Debug, Default)]
pub struct ActionResults {
    /// How many were carried out.
    pub acted: usize,
    /// The kinds of children that were created or found.
    pub created: HashSet<&'static str>,
    /// A child could not be created because somebody else owns an object of its name.
    pub conflict: bool,
    /// The gravest error of a creation, or that this replica does not lead any more.
    pub error: Option<RequestError>,
    /// The child that this error is about.
    pub refusal: Option<Refusal>,
    /// Other writes that failed, and writes that the server accepted but that may have changed
    /// nothing. They must not be sent again at once.
    pub unsuccessful: Vec<(Action, Option<RequestError>)>,
    /// The job has changed since the actions were decided. Those that had not begun were dropped,
    /// and the job must be planned again.
    pub outdated: bool,
}

impl ActionResults {
    pub(super) fn record(&mut self, job: Option<&Job<'_>>, action: Action, result: Result<()>) {
        match result {
            Ok(()) => {
                self.acted += 1;
                self.created
                    .extend(ChildKind::created_by(&action).map(ChildKind::kind));
                // A terminating pod exists until its finalizers are removed, however often it is
                // deleted.
                if matches!(action, Action::DeletePod { force: true, .. }) {
                    self.unsuccessful.push((action, None));
                }
            }
            Err(RequestError::NameTaken) => self.conflict = true,
            Err(RequestError::Outdated) => self.outdated = true,
            Err(error) if action.creates() || error == RequestError::NotLeader => {
                self.explain(job, &action, &error);
                self.error = Some(RequestError::graver(self.error.take(), error));
            }
            // Also a budget that is not created, without which the job goes on.
            Err(error) => self.unsuccessful.push((action, Some(error))),
        }
    }

    /// Names the child that an error is about. Of several with the gravest error it is the first
    /// one that was refused, or the one whose name sorts first, so that the choice stays the same
    /// from one try to the next.
    fn explain(&mut self, job: Option<&Job<'_>>, action: &Action, error: &RequestError) {
        let (kind, name) = match (action, job) {
            (Action::CreatePod(key), Some(job)) => (ChildKind::Pod.kind(), job.pod_name(*key)),
            (Action::CreateService(key), Some(job)) => {
                (ChildKind::Service.kind(), build::service_name(job, *key))
            }
            (Action::CreateSecret(identity) | Action::FindSecret(identity), Some(job)) => {
                (ChildKind::Secret.kind(), identity.secret_name(job.name))
            }
            (Action::CreateExecRight, Some(job)) => (ChildKind::Role.kind(), names::mpi_account(job.name)),
            _ => return,
        };
        let known = self.error.as_ref().zip(self.refusal.as_ref());
        let is_graver = known.is_none_or(|(gravest, refusal)| {
            let same = gravest == error && !matches!(error, RequestError::Refused(_));
            gravest.is_less_grave_than(error) || same && name < refusal.name
        });
        if is_graver {
            let message = error.message().to_owned();
            self.refusal = Some(Refusal { kind, name, message });
        }
    }
}
