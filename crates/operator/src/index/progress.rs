//! How far each watch has come.

use std::collections::HashMap;

use tokio::time::Instant;

use super::Source;
use crate::slim::Version;

/// The kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `TrainingJob`.
    Job,
    /// `Pod`.
    Pod,
    /// `Service`.
    Service,
    /// `Node`.
    Node,
}

impl Kind {
    /// The kind's name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Job => "TrainingJob",
            Self::Pod => "Pod",
            Self::Service => "Service",
            Self::Node => "Node",
        }
    }
}

/// How far one watch of one scope has come.
#[derive(Clone, Debug, Default)]
struct Progress {
    version: Version,
    /// The number of the list that is or was last taken in.
    epoch: u32,
    /// When the last complete list began.
    listed: Option<Instant>,
    /// The server does not let us list it.
    refused: bool,
}

/// How far all watches have come. A scope is a namespace, or all of them.
#[derive(Debug)]
pub(super) struct WatchCursors {
    scopes: HashMap<String, usize>,
    of: [Vec<Progress>; 4],
}

impl WatchCursors {
    pub(super) fn new(namespaces: &[String]) -> Self {
        let each = vec![Progress::default(); namespaces.len().max(1)];
        let scopes = namespaces
            .iter()
            .enumerate()
            .map(|(position, name)| (name.clone(), position))
            .collect();
        Self {
            scopes,
            of: [each.clone(), each.clone(), each, vec![Progress::default()]],
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

    fn at(&mut self, kind: Kind, scope: usize) -> Option<&mut Progress> {
        self.of.get_mut(kind as usize)?.get_mut(scope)
    }

    /// What the watch of a namespace has reached.
    pub(super) fn version(&self, kind: Kind, namespace: &str) -> Version {
        let scope = self.scope(kind, namespace);
        self.of
            .get(kind as usize)
            .and_then(|of| of.get(scope))
            .map(|progress| progress.version)
            .unwrap_or_default()
    }

    /// Notes an object; the epoch it is to be marked with.
    pub(super) fn reached(&mut self, kind: Kind, namespace: &str, version: Version, source: Source) -> u32 {
        let scope = self.scope(kind, namespace);
        let Some(progress) = self.at(kind, scope) else {
            return 0;
        };
        if source == Source::Watch {
            progress.version = progress.version.max(version);
        }
        progress.epoch
    }

    /// Notes how far a watch has come.
    pub(super) fn bookmark(&mut self, kind: Kind, scope: usize, version: Version) {
        if let Some(progress) = self.at(kind, scope) {
            progress.version = progress.version.max(version);
        }
    }

    /// A list begins. Whether versions have gone back.
    pub(super) fn begin(&mut self, kind: Kind, scope: usize, listed: Version) -> bool {
        let Some(progress) = self.at(kind, scope) else {
            return false;
        };
        progress.epoch = progress.epoch.wrapping_add(1);
        let back = listed < progress.version && listed != Version(0);
        if back {
            progress.version = listed;
        }
        back
    }

    /// A list ends; its epoch.
    pub(super) fn end(&mut self, kind: Kind, scope: usize, listed: Version, began: Instant) -> u32 {
        let Some(progress) = self.at(kind, scope) else {
            return 0;
        };
        progress.version = progress.version.max(listed);
        progress.listed = Some(began);
        progress.refused = false;
        progress.epoch
    }

    /// A list was refused. Where that is one of several namespaces, the others go on without it.
    pub(super) fn refuse(&mut self, kind: Kind, scope: usize) {
        if let Some(progress) = self.at(kind, scope) {
            progress.refused = true;
        }
    }

    /// Whether a list of a namespace was refused: what is known of its jobs may be a part, or out of date.
    pub(super) fn is_refused(&self, namespace: &str) -> bool {
        let scope = self.scope(Kind::Job, namespace);
        let kinds = self.of[..Kind::Node as usize].iter();
        let mut of = kinds.filter_map(|kind| kind.get(scope));
        of.any(|progress| progress.refused)
    }

    /// Whether everything but nodes has been listed, by lists that began no earlier than `since`, or was refused. Not
    /// where all of a kind was: that is no namespace that was removed, but an operator without its rights.
    pub(super) fn is_listed_since(&self, since: Option<Instant>) -> bool {
        let listed = |progress: &Progress| {
            progress
                .listed
                .is_some_and(|began| since.is_none_or(|since| began >= since))
        };
        let passes = |progress: &Progress| progress.refused || listed(progress);
        let mut kinds = self.of[..Kind::Node as usize].iter();
        kinds.all(|kind| kind.iter().all(passes) && kind.iter().any(listed))
    }
}
