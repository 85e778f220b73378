//! The tasks of the [garbage collector](super::garbage_collector).

use std::collections::VecDeque;
use std::sync::Arc;

use super::Target;
use crate::api::crd;
use crate::api::store::{Head, ObjectKey, Stored, TableId};

/// Tasks, in order.
#[derive(Debug, Default)]
pub(crate) struct Garbage {
    tasks: VecDeque<Task>,
}

#[derive(Debug)]
pub(super) enum Task {
    /// Check whether an object still has an owner.
    ExamineDependent(ObjectKey),
    /// Check whether a terminating object still waits for dependents.
    ExamineOwner(ObjectKey),
    /// The object with this UID is gone: check its dependents.
    OwnerRemoved(Box<str>),
    /// The object with this UID may have one dependent less.
    DependentLost(Box<str>),
    /// Remove what is in a namespace, and then the namespace.
    EmptyNamespace(Box<str>),
    /// Remove the objects of a kind, and then its definition.
    EmptyDefinition(Box<str>),
    /// An object of this namespace is gone, perhaps the last one of the namespace or of its kind.
    ContentRemoved(Box<str>),
}

impl Garbage {
    /// The owners of an object may all be gone.
    pub(super) fn may_lack_owner(table: TableId, key: Arc<str>) -> Self {
        let tasks = VecDeque::from([Task::ExamineDependent((table, key))]);
        Self { tasks }
    }

    /// An object has other owners than before.
    pub(super) fn owners_changed(&mut self, before: &Head) {
        self.extend(before.owners.iter().cloned().map(Task::DependentLost));
    }

    /// An object was removed.
    pub(super) fn removed(&mut self, head: &Head) {
        self.push(Task::OwnerRemoved(head.uid.clone()));
        self.owners_changed(head);
        self.push(Task::ContentRemoved(head.namespace.clone()));
    }

    /// An object is terminating from now on.
    pub(super) fn marked(&mut self, target: &Target<'_>, stored: &Stored) {
        let name = stored.head.name.clone();
        if target.kind.is("", "namespaces") {
            self.push(Task::EmptyNamespace(name));
        } else if target.kind.is(crd::GROUP, crd::PLURAL) {
            self.push(Task::EmptyDefinition(name));
        }
        self.push(Task::ExamineOwner((target.kind.table, stored.head.key())));
    }

    pub(super) fn push(&mut self, task: Task) {
        self.tasks.push_back(task);
    }

    pub(super) fn extend(&mut self, tasks: impl IntoIterator<Item = Task>) {
        self.tasks.extend(tasks);
    }

    pub(super) fn pop(&mut self) -> Option<Task> {
        self.tasks.pop_front()
    }
}
