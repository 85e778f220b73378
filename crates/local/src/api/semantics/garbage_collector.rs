//! The garbage collector: removes dependents with their owners, the content of a namespace with the
//! namespace, and the objects of a kind with its definition.
//!
//! In a real cluster controllers do this a moment later. Here it is done before the request that
//! caused it is answered, so that it is deterministic.

use std::sync::Arc;

use serde_json::Value;

use super::delete::{FOREGROUND, ORPHAN, Propagation, Removal};
use super::garbage::{Garbage, Task};
use super::{Target, WriteOptions};
use crate::api::Shared;
use crate::api::crd;
use crate::api::kinds::Kind;
use crate::api::meta;
use crate::api::store::{Object, ObjectKey, Stored, TableId};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bond {
    Solid,
    /// The owner is terminating and waits for the dependent.
    Waiting,
    Absent,
}

/// Runs all tasks, and those that follow from them.
pub(super) fn collect(garbage: Garbage, shared: &Shared) {
    GarbageCollector { shared, garbage }.run();
}

struct GarbageCollector<'a> {
    shared: &'a Shared,
    garbage: Garbage,
}

impl GarbageCollector<'_> {
    fn run(mut self) {
        let store = &self.shared.store;
        while let Some(task) = self.garbage.pop() {
            match task {
                Task::ExamineDependent(key) => self.examine_dependent(&key),
                Task::ExamineOwner(key) => self.examine_owner(&key),
                Task::OwnerRemoved(uid) => {
                    let dependents = store.dependents(&uid).into_iter();
                    self.garbage.extend(dependents.map(Task::ExamineDependent));
                }
                Task::DependentLost(uid) => self.garbage.extend(store.find(&uid).map(Task::ExamineOwner)),
                Task::EmptyNamespace(name) => self.empty_namespace(&name),
                Task::EmptyDefinition(name) => self.empty_definition(&name),
                Task::ContentRemoved(namespace) => self.content_removed(namespace),
            }
        }
    }

    fn examine_dependent(&mut self, key: &ObjectKey) {
        let shared = self.shared;
        let Some((kind, stored)) = found(shared, key) else {
            return;
        };
        let target = target(shared, &kind, &stored);
        let object = stored.object();
        let bonds: Vec<(&Value, Bond)> = owners(&object)
            .map(|owner| (owner, bond(shared, &stored, owner)))
            .collect();
        let any = |wanted| bonds.iter().any(|(_, bond)| *bond == wanted);
        if bonds.is_empty() || !(any(Bond::Absent) || any(Bond::Waiting)) {
            return;
        }
        if any(Bond::Solid) {
            let solid = bonds.iter().filter(|(_, bond)| *bond == Bond::Solid);
            let solid: Vec<Value> = solid.map(|(owner, _)| (*owner).clone()).collect();
            self.set_owners(&target, &stored, &solid);
            return;
        }
        let finalizers = meta::finalizers(&object);
        let has_dependents = !shared.store.dependents(&stored.head.uid).is_empty();
        let propagation = if any(Bond::Waiting) && has_dependents || finalizers.contains(&FOREGROUND) {
            Propagation::Foreground
        } else if finalizers.contains(&ORPHAN) {
            Propagation::Orphan
        } else {
            Propagation::Background
        };
        if !meta::is_terminating(&object) {
            let removal = Removal::of(&stored.head.uid, propagation);
            // It may be gone, or replaced by another object.
            let _ = target.delete_into(&stored.head.name, &removal, &mut self.garbage);
        }
    }

    fn examine_owner(&mut self, key: &ObjectKey) {
        let shared = self.shared;
        let Some((kind, stored)) = found(shared, key).filter(|(_, stored)| stored.head.terminating) else {
            return;
        };
        let target = target(shared, &kind, &stored);
        let object = stored.object();
        let finalizers = meta::finalizers(&object);
        let uid = &*stored.head.uid;
        let dependents = shared.store.dependents(uid);
        if finalizers.contains(&ORPHAN) {
            for key in dependents {
                let Some((kind, dependent)) = found(shared, &key) else {
                    continue;
                };
                let others = owners(&dependent.object())
                    .filter(|owner| !is_of(owner, uid))
                    .cloned()
                    .collect::<Vec<_>>();
                self.set_owners(
                    &Target {
                        kind: &kind,
                        namespace: &dependent.head.namespace,
                        shared,
                    },
                    &dependent,
                    &others,
                );
            }
            self.drop_finalizer(&target, &stored.head.name, ORPHAN);
        } else if finalizers.contains(&FOREGROUND) {
            let blocking: Vec<ObjectKey> = dependents
                .into_iter()
                .filter(|key| blocks(shared, key, uid))
                .collect();
            if blocking.is_empty() {
                self.drop_finalizer(&target, &stored.head.name, FOREGROUND);
            } else {
                self.garbage
                    .extend(blocking.into_iter().map(Task::ExamineDependent));
            }
        }
    }

    fn set_owners(&mut self, target: &Target<'_>, stored: &Stored, owners: &[Value]) {
        let change = |object: &mut Object| {
            let metadata = meta::metadata(object);
            if owners.is_empty() {
                metadata.remove("ownerReferences");
            } else {
                metadata.insert("ownerReferences".into(), owners.to_vec().into());
            }
            Ok(())
        };
        // It may be gone.
        let _ = target.amend(&stored.head.name, change, WriteOptions::default());
        self.garbage.owners_changed(&stored.head);
    }

    /// Removes a finalizer, and the object if that was the last one.
    fn drop_finalizer(&mut self, target: &Target<'_>, name: &str, finalizer: &str) {
        while let Ok(stored) = target.stored(name) {
            let mut object = stored.object();
            let left = meta::finalizers(&object)
                .into_iter()
                .filter(|one| *one != finalizer);
            let left: Vec<String> = left.map(ToOwned::to_owned).collect();
            let over = left.is_empty()
                && meta::number(&object, "deletionGracePeriodSeconds") == Some(0)
                && !target.kind.rules.lingers(&object);
            meta::set_finalizers(&mut object, left);
            let done = if over {
                target.remove(&stored, &mut self.garbage).is_some()
            } else {
                target
                    .shared
                    .store
                    .replace(target.kind.table, &stored, &target.draft(&object))
                    .is_ok()
            };
            if done {
                return;
            }
        }
    }

    fn content_removed(&mut self, namespace: Box<str>) {
        let shared = self.shared;
        let terminating = |api_version: &str, plural: &str, name: &str| {
            let kind = shared.kinds.get(api_version, plural)?;
            shared
                .store
                .get(kind.table, name)
                .filter(|stored| stored.head.terminating)
        };
        if !namespace.is_empty() && terminating("v1", "namespaces", &namespace).is_some() {
            self.garbage.push(Task::EmptyNamespace(namespace));
        }
        let definitions = shared.ending_definitions().into_iter();
        self.garbage.extend(definitions.map(Task::EmptyDefinition));
    }

    fn empty_namespace(&mut self, name: &str) {
        let shared = self.shared;
        for table in shared.store.tables_of(name) {
            self.remove_all(table, name);
        }
        let Some(kind) = shared.kinds.get("v1", "namespaces") else {
            return;
        };
        let target = Target {
            shared,
            kind: &kind,
            namespace: "",
        };
        while shared.store.tables_of(name).is_empty() {
            let Some(stored) = shared
                .store
                .get(kind.table, name)
                .filter(|stored| stored.head.terminating)
            else {
                return;
            };
            let mut object = stored.object();
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove("finalizers");
            }
            let done = if meta::finalizers(&object).is_empty() {
                target.remove(&stored, &mut self.garbage).is_some()
            } else {
                shared
                    .store
                    .replace(kind.table, &stored, &target.draft(&object))
                    .is_ok()
            };
            if done {
                return;
            }
        }
    }

    /// Removes the objects of a kind, and then its definition.
    fn empty_definition(&mut self, name: &str) {
        let shared = self.shared;
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        let kinds = shared.kinds.all();
        if let Some(kind) = kinds.iter().find(|kind| kind.is(group, plural)) {
            self.remove_all(kind.table, "");
            let left = shared.store.list(kind.table, "", None, None);
            if left.is_ok_and(|page| !page.objects.is_empty()) {
                return;
            }
        }
        if let Some(kind) = shared.kinds.get(crd::API_VERSION, crd::PLURAL) {
            let target = Target {
                shared,
                kind: &kind,
                namespace: "",
            };
            self.drop_finalizer(&target, name, crd::CLEANUP);
        }
    }

    fn remove_all(&mut self, table: TableId, namespace: &str) {
        let shared = self.shared;
        let Some(kind) = shared.kinds.stored_in(table) else {
            return;
        };
        let objects = shared
            .store
            .list(table, namespace, None, None)
            .map(|page| page.objects);
        for stored in objects
            .unwrap_or_default()
            .iter()
            .filter(|stored| !stored.head.terminating)
        {
            let removal = Removal::of(&stored.head.uid, Propagation::Background);
            // It may be gone.
            let _ = target(shared, &kind, stored).delete_into(&stored.head.name, &removal, &mut self.garbage);
        }
    }
}

fn found(shared: &Shared, (table, key): &ObjectKey) -> Option<(Arc<Kind>, Arc<Stored>)> {
    let stored = shared.store.get(*table, key)?;
    Some((shared.kinds.stored_in(*table)?, stored))
}

fn target<'a>(shared: &'a Shared, kind: &'a Arc<Kind>, stored: &'a Stored) -> Target<'a> {
    Target {
        shared,
        kind,
        namespace: &stored.head.namespace,
    }
}

fn owners(object: &Object) -> impl Iterator<Item = &Value> {
    let owners = object
        .get("metadata")
        .and_then(|metadata| metadata.get("ownerReferences")?.as_array());
    owners.into_iter().flatten()
}

fn is_of(owner: &Value, uid: &str) -> bool {
    owner.get("uid").and_then(Value::as_str) == Some(uid)
}

fn blocks(shared: &Shared, key: &ObjectKey, uid: &str) -> bool {
    found(shared, key).is_some_and(|(_, dependent)| {
        let object = dependent.object();
        let mut owners = owners(&object).filter(|owner| is_of(owner, uid));
        owners.any(|owner| owner.get("blockOwnerDeletion") == Some(&Value::Bool(true)))
    })
}

fn bond(shared: &Shared, dependent: &Stored, owner: &Value) -> Bond {
    let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default();
    let Some((_, owner_stored)) = shared.store.find(uid).and_then(|key| found(shared, &key)) else {
        return Bond::Absent;
    };
    let namespace = &*owner_stored.head.namespace;
    // An owner can't be in another namespace.
    if !namespace.is_empty() && *namespace != *dependent.head.namespace {
        return Bond::Absent;
    }
    let blocks = owner.get("blockOwnerDeletion") == Some(&Value::Bool(true));
    if blocks
        && owner_stored.head.terminating
        && meta::finalizers(&owner_stored.object()).contains(&FOREGROUND)
    {
        return Bond::Waiting;
    }
    Bond::Solid
}
