//! What follows from a removal: dependents go with their owners, the content of a namespace with the namespace, the
//! objects of a kind with its definition.
//!
//! In a real cluster controllers do this a moment later. Here it is done before the request that caused it is
//! answered, one step after the other, so that it is always done and always in the same order.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use super::super::Shared;
use super::super::crd;
use super::super::kinds::Kind;
use super::super::store::{Head, Object, Place, Stored, TableId};
use super::delete::{FOREGROUND, ORPHAN, Propagation, Removal};
use super::{Target, WriteOptions, meta};

/// What is still to be done.
#[derive(Debug, Default)]
pub(crate) struct Followups {
    tasks: VecDeque<Task>,
}

#[derive(Debug)]
enum Task {
    /// Look whether an object still has an owner.
    Examine(Place),
    /// Look whether an object that goes still waits for those it owns.
    Await(Place),
    /// An owner is gone.
    Orphaned(Box<str>),
    /// Remove what is in a namespace, and then the namespace.
    Namespace(Box<str>),
    /// Remove the objects of a kind, and then its definition.
    Definition(Box<str>),
    /// A part of a namespace or of a kind is gone.
    Removed(Box<str>),
    /// An owner that waits may have one dependent less.
    Owner(Box<str>),
}

/// What an owner is to its dependent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bond {
    Solid,
    /// The owner goes, and waits for the dependent to go first.
    Waiting,
    Absent,
}

impl Followups {
    /// An object may have no owner.
    pub(super) fn examine(table: TableId, key: Arc<str>) -> Self {
        let tasks = VecDeque::from([Task::Examine((table, key))]);
        Self { tasks }
    }

    /// An object has other owners than before.
    pub(super) fn owners_changed(&mut self, before: &Head) {
        self.tasks.extend(before.owners.iter().cloned().map(Task::Owner));
    }

    /// An object was removed.
    pub(super) fn removed(&mut self, head: &Head) {
        self.tasks.push_back(Task::Orphaned(head.uid.clone()));
        self.owners_changed(head);
        self.tasks.push_back(Task::Removed(head.namespace.clone()));
    }

    /// An object has been asked to go.
    pub(super) fn marked(&mut self, target: &Target<'_>, stored: &Stored) {
        let name = stored.head.name.clone();
        if target.kind.is("", "namespaces") {
            self.tasks.push_back(Task::Namespace(name.clone()));
        } else if target.kind.is(crd::GROUP, crd::PLURAL) {
            self.tasks.push_back(Task::Definition(name));
        }
        self.tasks
            .push_back(Task::Await((target.kind.table, stored.head.key())));
    }

    /// Does all of it, and what follows from that.
    pub(super) fn run(mut self, shared: &Shared) {
        while let Some(task) = self.tasks.pop_front() {
            match task {
                Task::Examine(place) => self.look(shared, &place),
                Task::Await(place) => self.wait(shared, &place),
                Task::Orphaned(uid) => {
                    self.tasks
                        .extend(shared.store.dependents(&uid).into_iter().map(Task::Examine));
                }
                Task::Owner(uid) => self.tasks.extend(shared.store.find(&uid).map(Task::Await)),
                Task::Namespace(name) => self.empty_namespace(shared, &name),
                Task::Definition(name) => self.empty_kind(shared, &name),
                Task::Removed(namespace) => self.part_removed(shared, namespace),
            }
        }
    }

    fn look(&mut self, shared: &Shared, place: &Place) {
        let Some((kind, stored)) = found(shared, place) else {
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
            // Where it is gone already, or has come back as another, there is nothing to do.
            let _ = target.delete_into(&stored.head.name, &removal, self);
        }
    }

    fn wait(&mut self, shared: &Shared, place: &Place) {
        let Some((kind, stored)) = found(shared, place).filter(|(_, stored)| stored.head.terminating) else {
            return;
        };
        let target = target(shared, &kind, &stored);
        let object = stored.object();
        let finalizers = meta::finalizers(&object);
        let uid = &*stored.head.uid;
        let dependents = shared.store.dependents(uid);
        if finalizers.contains(&ORPHAN) {
            for place in dependents {
                let Some((kind, dependent)) = found(shared, &place) else {
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
            let blocking: Vec<Place> = dependents
                .into_iter()
                .filter(|place| blocks(shared, place, uid))
                .collect();
            if blocking.is_empty() {
                self.drop_finalizer(&target, &stored.head.name, FOREGROUND);
            } else {
                self.tasks.extend(blocking.into_iter().map(Task::Examine));
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
        // It may be gone, which is as good.
        let _ = target.amend(&stored.head.name, change, WriteOptions::default());
        self.owners_changed(&stored.head);
    }

    /// Takes a finalizer away, and the object with it if that was the last thing it waited for.
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
                target.remove(&stored, self).is_some()
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

    fn part_removed(&mut self, shared: &Shared, namespace: Box<str>) {
        let terminating = |api_version: &str, plural: &str, name: &str| {
            let kind = shared.kinds.get(api_version, plural)?;
            shared
                .store
                .get(kind.table, name)
                .filter(|stored| stored.head.terminating)
        };
        if !namespace.is_empty() && terminating("v1", "namespaces", &namespace).is_some() {
            self.tasks.push_back(Task::Namespace(namespace));
        }
        self.tasks
            .extend(shared.ending_definitions().into_iter().map(Task::Definition));
    }

    fn empty_namespace(&mut self, shared: &Shared, name: &str) {
        for table in shared.store.tables_of(name) {
            self.remove_all(shared, table, name);
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
                target.remove(&stored, self).is_some()
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

    fn empty_kind(&mut self, shared: &Shared, name: &str) {
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        let kinds = shared.kinds.all();
        if let Some(kind) = kinds.iter().find(|kind| kind.is(group, plural)) {
            self.remove_all(shared, kind.table, "");
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

    fn remove_all(&mut self, shared: &Shared, table: TableId, namespace: &str) {
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
            // Gone already is as good.
            let _ = target(shared, &kind, stored).delete_into(&stored.head.name, &removal, self);
        }
    }
}

fn found(shared: &Shared, (table, key): &Place) -> Option<(Arc<Kind>, Arc<Stored>)> {
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

fn blocks(shared: &Shared, place: &Place, uid: &str) -> bool {
    found(shared, place).is_some_and(|(_, dependent)| {
        let object = dependent.object();
        let mut owners = owners(&object).filter(|owner| is_of(owner, uid));
        owners.any(|owner| owner.get("blockOwnerDeletion") == Some(&Value::Bool(true)))
    })
}

fn bond(shared: &Shared, dependent: &Stored, owner: &Value) -> Bond {
    let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default();
    let Some((_, owner_stored)) = shared.store.find(uid).and_then(|place| found(shared, &place)) else {
        return Bond::Absent;
    };
    let namespace = &*owner_stored.head.namespace;
    // What is in another namespace can't be an owner.
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
