//! What became of actions.

use std::collections::HashSet;

use trainyard_api::names;
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::model::Action;
use trainyard_core::view::Refusal;

use super::Failure;
use super::ownership::Child;

/// What became of some actions.
#[derive(Debug, Default)]
pub struct Done {
    /// How many were carried out.
    pub acted: usize,
    /// The kinds of children that were created, or found.
    pub taken: HashSet<&'static str>,
    /// Whether something is in the way that belongs to somebody else.
    pub conflict: bool,
    /// The gravest of the failures to create children, or that nothing may be written any more.
    pub failure: Option<Failure>,
    /// The child of which that failure says most.
    pub refusal: Option<Refusal>,
    /// Other writes that failed, and those that may have changed nothing though the server took them: they are not to be
    /// sent again at once.
    pub tried: Vec<(Action, Option<Failure>)>,
    /// Whether the job is not any more what the actions were decided for: those that had not begun were left out, and what
    /// is to be done is decided anew.
    pub outdated: bool,
}

impl Done {
    pub(super) fn note(&mut self, job: Option<&Job<'_>>, action: Action, result: Result<(), Failure>) {
        match result {
            Ok(()) => {
                self.acted += 1;
                self.taken.extend(Child::made_by(&action).map(Child::kind));
                // A pod that is on its way out stays there until its finalizers are gone, however often it is asked.
                if matches!(action, Action::DeletePod { force: true, .. }) {
                    self.tried.push((action, None));
                }
            }
            Err(Failure::InTheWay) => self.conflict = true,
            Err(Failure::Outdated) => self.outdated = true,
            Err(failure) if action.creates() || failure == Failure::NotLeader => {
                self.explain(job, &action, &failure);
                self.failure = Some(Failure::graver(self.failure.take(), failure));
            }
            Err(failure) => self.tried.push((action, Some(failure))),
        }
    }

    /// Names the child that a failure is about: of those for which the gravest holds the first refused, or the one whose
    /// name comes first, so that it stays the same from one try to the next.
    fn explain(&mut self, job: Option<&Job<'_>>, action: &Action, failure: &Failure) {
        let (kind, name) = match (action, job) {
            (Action::CreatePod(key), Some(job)) => (Child::Pod.kind(), job.pod_name(*key)),
            (Action::CreateService(key), Some(job)) => {
                (Child::Service.kind(), build::service_name(job.name, *key))
            }
            (Action::CreateSecret(identity) | Action::FindSecret(identity), Some(job)) => {
                (Child::Secret.kind(), identity.secret_name(job.name))
            }
            (Action::Grant, Some(job)) => (Child::Role.kind(), names::mpi_account(job.name)),
            _ => return,
        };
        let known = self.failure.as_ref().zip(self.refusal.as_ref());
        let says_more = known.is_none_or(|(gravest, refusal)| {
            let same = gravest == failure && !matches!(failure, Failure::Refused(_));
            gravest.is_less_than(failure) || same && name < refusal.name
        });
        if says_more {
            let message = failure.words().to_owned();
            self.refusal = Some(Refusal { kind, name, message });
        }
    }
}
