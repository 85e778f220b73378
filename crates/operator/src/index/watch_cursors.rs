//! How far each watch has come.

use std::collections::HashMap;

use tokio::time::Instant;

use super::Source;
use crate::slim::Version;

/// The kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Job,
    Pod,
    Service,
    Node,
    Budget,
}

impl Kind {
    /// The kind's name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Job => "TrainingJob",
            Self::Pod => "Pod",
            Self::Service => "Service",
            Self::Node => "Node",
            Self::Budget => "PodDisruptionBudget",
        }
    }
}

/// How far one watch of one scope has come.
#[derive(Clone, Debug, Default)]
struct Cursor {
    version: Version,
    /// The number of the latest list, complete or not.
    epoch: u32,
    /// When the last complete list began.
    listed: Option<Instant>,
    /// The server refuses the list.
    refused: bool,
}

/// How far all watches have come. A scope is a namespace, or all of them.
#[derive(Debug)]
pub(super) struct WatchCursors {
    scopes: HashMap<String, usize>,
    by_kind: [Vec<Cursor>; 5],
}

impl WatchCursors {
    pub(super) fn new(namespaces: &[String]) -> Self {
        let each = vec![Cursor::default(); namespaces.len().max(1)];
        let scopes = namespaces
            .iter()
            .enumerate()
            .map(|(position, name)| (name.clone(), position))
            .collect();
        Self {
            scopes,
            by_kind: [
                each.clone(),
                each.clone(),
                each.clone(),
                vec![Cursor::default()],
                each,
            ],
        }
    }

    /// The scope of a namespace.
    pub(super) fn scope(&self, kind: Kind, namespace: &str) -> usize {
        if kind == Kind::Node {
            0
        } else {
            self.scopes.get(namespace).copied().unwrap_or(0)
        }
    }

    fn cursor_mut(&mut self, kind: Kind, scope: usize) -> Option<&mut Cursor> {
        self.by_kind.get_mut(kind as usize)?.get_mut(scope)
    }

    /// The version that the watch of a namespace has reached.
    pub(super) fn version(&self, kind: Kind, namespace: &str) -> Version {
        let scope = self.scope(kind, namespace);
        self.by_kind
            .get(kind as usize)
            .and_then(|cursors| cursors.get(scope))
            .map(|cursor| cursor.version)
            .unwrap_or_default()
    }

    /// Records an object of a watch or list. Returns the epoch to mark it with.
    pub(super) fn record(&mut self, kind: Kind, namespace: &str, version: Version, source: Source) -> u32 {
        let scope = self.scope(kind, namespace);
        let Some(cursor) = self.cursor_mut(kind, scope) else {
            return 0;
        };
        if source == Source::Watch {
            cursor.version = cursor.version.max(version);
        }
        cursor.epoch
    }

    /// Records how far a watch has come.
    pub(super) fn bookmark(&mut self, kind: Kind, scope: usize, version: Version) {
        if let Some(cursor) = self.cursor_mut(kind, scope) {
            cursor.version = cursor.version.max(version);
        }
    }

    /// Begins a list. Returns true if versions have gone back.
    pub(super) fn begin(&mut self, kind: Kind, scope: usize, listed: Version) -> bool {
        let Some(cursor) = self.cursor_mut(kind, scope) else {
            return false;
        };
        cursor.epoch = cursor.epoch.wrapping_add(1);
        let went_back = listed < cursor.version && listed != Version(0);
        if went_back {
            cursor.version = listed;
        }
        went_back
    }

    /// Ends a list. Returns its epoch.
    pub(super) fn end(&mut self, kind: Kind, scope: usize, listed: Version, began: Instant) -> u32 {
        let Some(cursor) = self.cursor_mut(kind, scope) else {
            return 0;
        };
        cursor.version = cursor.version.max(listed);
        cursor.listed = Some(began);
        cursor.refused = false;
        cursor.epoch
    }

    /// Records that a list was refused. If there are several namespaces, the others go on. Returns
    /// true if that is new.
    pub(super) fn record_refusal(&mut self, kind: Kind, scope: usize) -> bool {
        let cursor = self.cursor_mut(kind, scope);
        cursor.is_some_and(|cursor| !std::mem::replace(&mut cursor.refused, true))
    }

    /// Returns true if the objects of a kind in a scope have been listed and may still be; false if
    /// they may not; `None` as long as neither is known.
    pub(super) fn may_see(&self, kind: Kind, scope: usize) -> Option<bool> {
        let cursor = self.by_kind.get(kind as usize)?.get(scope)?;
        if cursor.refused {
            return Some(false);
        }
        cursor.listed.map(|_| true)
    }

    /// Returns true if a list of a namespace was refused: what is known about its jobs may be
    /// incomplete or out of date.
    pub(super) fn is_refused(&self, namespace: &str) -> bool {
        let scope = self.scope(Kind::Job, namespace);
        let kinds = self.by_kind[..Kind::Node as usize].iter();
        let mut cursors = kinds.filter_map(|kind| kind.get(scope));
        cursors.any(|cursor| cursor.refused)
    }

    /// Returns true if everything but nodes and budgets has been listed, by lists that began no
    /// earlier than `since`, or was refused. If all lists of a kind were refused, it returns false:
    /// then no namespace was deleted, but the operator lacks its rights.
    pub(super) fn is_listed_since(&self, since: Option<Instant>) -> bool {
        let listed = |cursor: &Cursor| {
            cursor
                .listed
                .is_some_and(|began| since.is_none_or(|since| began >= since))
        };
        let passes = |cursor: &Cursor| cursor.refused || listed(cursor);
        let mut kinds = self.by_kind[..Kind::Node as usize].iter();
        kinds.all(|kind| kind.iter().all(passes) && kind.iter().any(listed))
    }
}
