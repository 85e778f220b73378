//! Disruption budgets: those of jobs, which are children, and those of others, which may select the
//! pods of jobs.

use trainyard_core::disruption_budget::may_need;
use trainyard_core::view::Budgets;

use super::entry::{Job, Owner};
use super::rows::Rows;
use super::{Inner, JobKey, Kind, Source};
use crate::slim::{Meta, SlimBudget, Version};

impl Inner {
    /// The budgets that concern a job. `None` as long as they or nodes have not been listed, and
    /// where budgets may not be and the job has none that is known. Where budgets may not be listed
    /// any more, those that are known are still deleted.
    pub(super) fn budgets_of(&self, owner: &Owner) -> Option<Budgets> {
        let scope = self.cursors.scope(Kind::Budget, &owner.key.namespace);
        let may_see_budgets = self.cursors.may_see(Kind::Budget, scope)?;
        let may_see_nodes = self.cursors.may_see(Kind::Node, 0)?;
        let foreign = self.foreign_budgets.get(&*owner.key.namespace);
        let foreign = foreign.filter(|_| may_see_budgets);
        (may_see_budgets || !owner.budgets.is_empty()).then(|| Budgets {
            own: owner.budgets.share(),
            foreign: foreign.map(Rows::share).unwrap_or_default(),
            sees_all: may_see_budgets && may_see_nodes,
        })
    }

    pub(super) fn apply_budget(&mut self, budget: SlimBudget, source: Source) -> Vec<JobKey> {
        let version = budget.metadata.resource_version;
        let (uid, epoch) = match self.find_owner(Kind::Budget, &budget.metadata, source) {
            Ok(found) => found,
            Err(former) if budget.metadata.job().is_some() => return Vec::from_iter(former),
            Err(former) => {
                let mut changed = self.apply_foreign_budget(budget, source);
                changed.extend(former);
                return changed;
            }
        };
        let mut changed = self.forget_foreign_budget(&budget.metadata);
        let Some(owner) = self.owners.get_mut(&uid) else {
            return changed;
        };
        let key = owner.key.clone();
        if owner.budgets.put(budget.into_row(), version, epoch) && self.names.contains_key(&key) {
            changed.push(key);
        }
        changed
    }

    fn apply_foreign_budget(&mut self, budget: SlimBudget, source: Source) -> Vec<JobKey> {
        let Meta {
            namespace,
            resource_version,
            ..
        } = budget.metadata.clone();
        let epoch = self
            .cursors
            .record(Kind::Budget, &namespace, resource_version, source);
        let rows = self.foreign_budgets.entry(namespace.clone()).or_default();
        if rows.put(budget.into_row(), resource_version, epoch) {
            self.keys_in(&namespace)
        } else {
            Vec::new()
        }
    }

    pub(super) fn delete_budget(&mut self, metadata: &Meta) -> Vec<JobKey> {
        let mut changed = Vec::from_iter(self.delete_child(Kind::Budget, metadata));
        changed.extend(self.forget_foreign_budget(metadata));
        changed
    }

    /// Removes a budget that is of nobody, or has become a job's.
    fn forget_foreign_budget(&mut self, metadata: &Meta) -> Vec<JobKey> {
        let Some(rows) = self.foreign_budgets.get_mut(&metadata.namespace) else {
            return Vec::new();
        };
        let was_known = rows.remove(&metadata.name, &metadata.uid).is_some();
        if rows.is_empty() {
            self.foreign_budgets.remove(&metadata.namespace);
        }
        if was_known {
            self.keys_in(&metadata.namespace)
        } else {
            Vec::new()
        }
    }

    /// Ends a list of budgets. If it is the first, all jobs that may need one are planned again.
    pub(super) fn budgets_listed(
        &mut self,
        scope: usize,
        epoch: u32,
        listed: Version,
        could_see: bool,
    ) -> Vec<JobKey> {
        let cursors = &self.cursors;
        let is_in_scope = |namespace: &str| cursors.scope(Kind::Budget, namespace) == scope;
        let mut swept = Vec::new();
        for (uid, owner) in &mut self.owners {
            if is_in_scope(&owner.key.namespace) && owner.sweep(Kind::Budget, epoch, listed) {
                swept.push(uid.clone());
            }
        }
        let mut namespaces = Vec::new();
        for (namespace, rows) in &mut self.foreign_budgets {
            if is_in_scope(namespace) && !rows.sweep(epoch, listed).is_empty() {
                namespaces.push(namespace.clone());
            }
        }
        self.foreign_budgets.retain(|_, rows| !rows.is_empty());
        let mut changed: Vec<_> = swept.iter().filter_map(|uid| self.drop_if_empty(uid)).collect();
        if could_see {
            changed.extend(namespaces.iter().flat_map(|namespace| self.keys_in(namespace)));
        } else {
            changed.extend(self.keys_with_budgets());
        }
        changed
    }

    /// The keys of jobs that have a budget or may need one.
    pub(super) fn keys_with_budgets(&self) -> Vec<JobKey> {
        let concerned = self.owners.values().filter(|owner| is_concerned(owner));
        concerned.map(|owner| owner.key.clone()).collect()
    }

    /// The keys of those in a namespace. None before all budgets have been listed, which concerns
    /// all of them.
    fn keys_in(&self, namespace: &str) -> Vec<JobKey> {
        let scope = self.cursors.scope(Kind::Budget, namespace);
        if self.cursors.may_see(Kind::Budget, scope) != Some(true) {
            return Vec::new();
        }
        let mut keys = self.keys_with_budgets();
        keys.retain(|key| *key.namespace == *namespace);
        keys
    }
}

fn is_concerned(owner: &Owner) -> bool {
    owner.job.as_ref().is_some_and(|entry| match &entry.job {
        _ if !owner.budgets.is_empty() => true,
        Job::Ok(job) => may_need(job),
        Job::Malformed(_) => false,
    })
}
