//! The `Framework` objects as they were last seen.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use trainyard_api::{DeclaredFramework, FieldError};

#[derive(Default)]
pub(super) struct Store {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    objects: HashMap<String, (DeclaredFramework, Vec<FieldError>)>,
    /// The names of those that can't be read.
    unreadable: HashSet<String>,
    /// The names that were seen since a list began.
    seen: HashSet<String>,
}

impl Store {
    pub(super) fn begin_list(&self) {
        self.inner.lock().seen.clear();
    }

    /// Ends a list. Returns the names of those that were not in it.
    pub(super) fn end_list(&self) -> Vec<String> {
        let inner = self.inner.lock();
        let known = inner.objects.keys().chain(&inner.unreadable);
        known
            .filter(|name| !inner.seen.contains(*name))
            .cloned()
            .collect()
    }

    /// Records that an object was seen and can't be read.
    pub(super) fn put_unreadable(&self, name: &str) {
        let mut inner = self.inner.lock();
        inner.objects.remove(name);
        inner.unreadable.insert(name.to_owned());
        inner.seen.insert(name.to_owned());
    }

    /// Returns true if the declaration is not the one that was seen before.
    pub(super) fn is_new(&self, name: &str, object: &DeclaredFramework) -> bool {
        let inner = self.inner.lock();
        inner
            .objects
            .get(name)
            .is_none_or(|(known, _)| known.spec != object.spec)
    }

    /// Keeps an object, with what is wrong with it. `None`: the same as before.
    pub(super) fn put(&self, name: &str, object: DeclaredFramework, errors: Option<Vec<FieldError>>) {
        let mut inner = self.inner.lock();
        let before = inner.objects.remove(name).map(|(_, errors)| errors);
        let errors = errors.or(before).unwrap_or_default();
        inner.objects.insert(name.to_owned(), (object, errors));
        inner.unreadable.remove(name);
        inner.seen.insert(name.to_owned());
    }

    pub(super) fn get(&self, name: &str) -> Option<(DeclaredFramework, Vec<FieldError>)> {
        self.inner.lock().objects.get(name).cloned()
    }

    pub(super) fn remove(&self, name: &str) {
        let mut inner = self.inner.lock();
        inner.objects.remove(name);
        inner.unreadable.remove(name);
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.inner.lock().objects.keys().cloned().collect()
    }
}
