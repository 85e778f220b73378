//! How far the lists and watches of a kind are, in each scope: a namespace, or all of them.

use crate::index::Source;
use crate::slim::Version;

#[derive(Debug, Default)]
struct Scope {
    epoch: u32,
    /// The newest version that lists and watches have shown.
    reached: Version,
    listed: bool,
}

#[derive(Debug)]
pub(crate) struct ListScopes(Vec<Scope>);

/// Where an object was seen, and the list that had it last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sighting {
    pub version: Version,
    scope: usize,
    epoch: u32,
}

impl ListScopes {
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| Scope::default()).collect())
    }

    /// Returns true if all scopes have been listed.
    pub(crate) fn is_listed(&self) -> bool {
        self.0.iter().all(|scope| scope.listed)
    }

    /// Records that a watch has shown a version.
    pub(crate) fn reach(&mut self, scope: usize, version: Version) {
        if let Some(scope) = self.0.get_mut(scope) {
            scope.reached = scope.reached.max(version);
        }
    }

    /// Records that an object was seen.
    pub(crate) fn see(&mut self, scope: usize, version: Version, source: Source) -> Sighting {
        if source == Source::Watch {
            self.reach(scope, version);
        }
        let epoch = self.0.get(scope).map_or(0, |scope| scope.epoch);
        Sighting {
            version,
            scope,
            epoch,
        }
    }

    /// A list of a version begins. Returns true if the cluster was restored from a backup: the
    /// known versions are of another history.
    pub(crate) fn begin_list(&mut self, scope: usize, version: Version) -> bool {
        let Some(scope) = self.0.get_mut(scope) else {
            return false;
        };
        scope.epoch = scope.epoch.wrapping_add(1);
        let is_restored = version < scope.reached;
        scope.reached = version;
        is_restored
    }

    /// A list of a version is complete. Returns what tells of an object whether it is gone.
    pub(crate) fn complete_list(
        &mut self,
        scope: usize,
        version: Version,
    ) -> impl Fn(&Sighting) -> bool + use<> {
        let epoch = self.0.get_mut(scope).map(|scope| {
            scope.listed = true;
            scope.epoch
        });
        move |seen| {
            seen.scope == scope && epoch.is_some_and(|epoch| epoch != seen.epoch) && seen.version <= version
        }
    }

    /// The kind does not exist, or may not be listed: there is nothing to wait for.
    pub(crate) fn give_up(&mut self, scope: usize) {
        if let Some(scope) = self.0.get_mut(scope) {
            scope.listed = true;
        }
    }
}

impl Sighting {
    pub(crate) fn is_in(&self, scope: usize) -> bool {
        self.scope == scope
    }

    /// Returns true if another sighting shows nothing newer. It is still there.
    pub(crate) fn covers(&mut self, other: &Self) -> bool {
        let is_old = other.version <= self.version && other.version != Version(0);
        if is_old {
            self.epoch = other.epoch;
        }
        is_old
    }

    /// The scope of the object, for what is answered about it.
    pub(crate) fn scope(&self) -> usize {
        self.scope
    }
}
