//! The `Framework` objects as they were last seen.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use trainyard_api::{DeclaredFramework, FieldError};

#[derive(Default)]
pub(super) struct Store {
    inner: Mutex<Inner>,
}

/// A `Framework` object and what is wrong with it.
#[derive(Clone)]
pub(super) struct Declaration {
    /// The spec of one that can't be read is empty.
    pub(super) object: DeclaredFramework,
    pub(super) errors: Vec<FieldError>,
    is_readable: bool,
}

#[derive(Default)]
struct Inner {
    objects: HashMap<String, Declaration>,
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
        let known = inner.objects.keys();
        known
            .filter(|name| !inner.seen.contains(*name))
            .cloned()
            .collect()
    }

    /// Keeps an object of which only the metadata and the status could be read. Returns true if
    /// that was not known, or for another reason.
    pub(super) fn put_unreadable(&self, name: &str, object: DeclaredFramework, error: FieldError) -> bool {
        let mut inner = self.inner.lock();
        let declaration = Declaration {
            object,
            errors: vec![error],
            is_readable: false,
        };
        inner.seen.insert(name.to_owned());
        let errors = declaration.errors.clone();
        let before = inner.objects.insert(name.to_owned(), declaration);
        before.is_none_or(|before| before.is_readable || before.errors != errors)
    }

    /// Returns true if the declaration is not the one that was seen before.
    pub(super) fn is_new(&self, name: &str, object: &DeclaredFramework) -> bool {
        let inner = self.inner.lock();
        inner
            .objects
            .get(name)
            .is_none_or(|known| !known.is_readable || known.object.spec != object.spec)
    }

    /// Keeps an object, with what is wrong with it. `None`: the same as before.
    pub(super) fn put(&self, name: &str, object: DeclaredFramework, errors: Option<Vec<FieldError>>) {
        let mut inner = self.inner.lock();
        let before = inner.objects.remove(name).map(|known| known.errors);
        let declaration = Declaration {
            object,
            errors: errors.or(before).unwrap_or_default(),
            is_readable: true,
        };
        inner.objects.insert(name.to_owned(), declaration);
        inner.seen.insert(name.to_owned());
    }

    pub(super) fn get(&self, name: &str) -> Option<Declaration> {
        self.inner.lock().objects.get(name).cloned()
    }

    pub(super) fn remove(&self, name: &str) {
        self.inner.lock().objects.remove(name);
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.inner.lock().objects.keys().cloned().collect()
    }
}
