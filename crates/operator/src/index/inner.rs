//! What the index does under its lock, for all kinds of objects.

use std::sync::Arc;

use tokio::time::Instant;
use trainyard_api::{JobPhase, TrainingJob};
use trainyard_core::foreign::is_child;
use trainyard_core::local_state::LocalState;

use super::entry::Job;
use super::rows::Rows;
use super::{Inner, JobKey, Kind, Lookup, Snapshot};
use crate::slim::Version;

impl Inner {
    /// Signals the followers of some jobs that these have changed.
    pub(super) fn notify_followers(&mut self, changed: &[JobKey]) {
        if self.followers.is_empty() {
            return;
        }
        for key in changed {
            let Some(followers) = self.followers.get(key) else {
                continue;
            };
            if followers.receiver_count() == 0 {
                self.followers.remove(key);
            } else {
                followers.send_modify(|changes| *changes = changes.wrapping_add(1));
            }
        }
    }

    /// Signals the followers of the job with a UID.
    pub(super) fn notify_followers_of(&mut self, uid: &str) {
        if let Some(key) = self.owners.get(uid).map(|owner| owner.key.clone()) {
            self.notify_followers(&[key]);
        }
    }

    /// What only this process knows about a job.
    pub(super) fn local_of(&mut self, key: &JobKey) -> Option<&mut LocalState> {
        let uid = self.names.get(key)?.clone();
        Some(&mut self.owners.get_mut(&uid)?.job.as_mut()?.local)
    }

    /// Sends the keys of changed jobs to all listeners.
    pub(super) fn notify_listeners(&mut self, changed: &[JobKey]) {
        for key in changed {
            self.listeners
                .retain(|listener| listener.send(key.clone()).is_ok());
        }
    }

    /// Sends the key of a job whose pods have changed, if it starts and is the child of an object
    /// that tells how many of them run.
    pub(super) fn notify_listeners_of_starting(&mut self, changed: Option<&JobKey>) {
        let Some(key) = changed.filter(|_| !self.listeners.is_empty()) else {
            return;
        };
        let owner = self.names.get(key).and_then(|uid| self.owners.get(uid));
        let job = owner.and_then(|owner| match &owner.job.as_ref()?.job {
            Job::Ok(job) => Some(job.clone()),
            Job::Malformed(_) => None,
        });
        let phase = |job: &TrainingJob| job.status.as_ref().and_then(|status| status.phase);
        let starts = |job: &TrainingJob| {
            matches!(phase(job), None | Some(JobPhase::Pending | JobPhase::Starting)) && is_child(job)
        };
        if job.is_some_and(|job| starts(&job)) {
            self.notify_listeners(std::slice::from_ref(key));
        }
    }

    pub(super) fn get(&self, key: &JobKey) -> Option<Lookup> {
        let uid = self.names.get(key)?;
        let owner = self.owners.get(uid)?;
        let entry = owner.job.as_ref()?;
        Some(match &entry.job {
            Job::Ok(job) => Lookup::Job(Box::new(Snapshot {
                uid: uid.clone(),
                job: job.clone(),
                pods: owner.pods.share(),
                services: owner.services.share(),
                departed: owner.departed.clone(),
                conflicts: owner.conflicts.clone(),
                refusal: owner.refusal.clone(),
                progress: owner
                    .progress_report
                    .as_ref()
                    .map(|report| report.progress.clone()),
                nodes: self.nodes.facts(owner.pods.iter()),
                budgets: self.budgets_of(owner),
                local: entry.local.clone(),
            })),
            Job::Malformed(malformed) => Lookup::Malformed(malformed.clone(), Box::new(entry.local.clone())),
        })
    }

    /// The keys of jobs in namespaces whose list was refused.
    pub(super) fn refused_keys(&self) -> Vec<JobKey> {
        let refused = |key: &&JobKey| self.cursors.is_refused(&key.namespace);
        self.names.keys().filter(refused).cloned().collect()
    }

    /// Returns those of the refused jobs whose namespace can be listed again. Their departed pods
    /// are forgotten, as when a term begins, because they may be of a former run.
    pub(super) fn listed_again(&mut self, mut refused: Vec<JobKey>) -> Vec<JobKey> {
        refused.retain(|key| !self.cursors.is_refused(&key.namespace));
        for key in &refused {
            if let Some(owner) = self.names.get(key).and_then(|uid| self.owners.get_mut(uid)) {
                owner.departed.clear();
            }
        }
        refused
    }

    pub(super) fn on_nodes(&self, nodes: &[Arc<str>]) -> Vec<JobKey> {
        if nodes.is_empty() {
            return Vec::new();
        }
        let affected = self.owners.values().filter(|owner| {
            let mut names = owner.pods.iter().filter_map(|(pod, _)| pod.node.as_ref());
            owner.job.is_some() && names.any(|name| nodes.contains(name))
        });
        affected.map(|owner| owner.key.clone()).collect()
    }

    pub(super) fn listed(
        &mut self,
        kind: Kind,
        scope: usize,
        listed: Version,
        began: Instant,
    ) -> Vec<JobKey> {
        let could_see = self.cursors.may_see(kind, scope) == Some(true);
        let epoch = self.cursors.end(kind, scope, listed, began);
        if kind == Kind::Node {
            let deleted = self.nodes.sweep(epoch, listed);
            let mut affected = self.on_nodes(&deleted);
            if !could_see {
                affected.extend(self.keys_with_budgets());
            }
            return affected;
        }
        if kind == Kind::Budget {
            return self.budgets_listed(scope, epoch, listed, could_see);
        }
        if kind == Kind::Job {
            return self.sweep_jobs(scope, epoch, listed);
        }
        let cursors = &self.cursors;
        let mut swept = Vec::new();
        for (uid, owner) in &mut self.owners {
            let is_in_scope = cursors.scope(kind, &owner.key.namespace) == scope;
            if is_in_scope && owner.sweep(kind, epoch, listed) {
                swept.push(uid.clone());
            }
        }
        swept.iter().filter_map(|uid| self.drop_if_empty(uid)).collect()
    }

    pub(super) fn forget_versions(&mut self, kind: Kind, scope: usize) {
        if kind == Kind::Node {
            self.nodes.forget_versions();
        }
        for owner in self.owners.values_mut() {
            if self.cursors.scope(kind, &owner.key.namespace) != scope {
                continue;
            }
            match kind {
                Kind::Pod => owner.pods.forget_versions(),
                Kind::Service => owner.services.forget_versions(),
                Kind::Job => owner.job.iter_mut().for_each(|entry| entry.version = Version(0)),
                Kind::Budget => owner.budgets.forget_versions(),
                Kind::Node => {}
            }
        }
        if kind == Kind::Budget {
            self.foreign_budgets.values_mut().for_each(Rows::forget_versions);
        }
    }
}
