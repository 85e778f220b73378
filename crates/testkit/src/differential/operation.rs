//! What is asked of both sides.

use super::objects::{KINDS, Kind};

/// Which version an update is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// That of the object as it is.
    Current,
    /// An older one.
    Stale,
    /// None at all.
    Absent,
}

/// What a deletion demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    None,
    /// The UID that the object has.
    RightUid,
    /// Another UID.
    WrongUid,
    /// An older version.
    WrongVersion,
}

/// One request, or two where the first reads what the second changes.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Creates an object from one of its kind's manifests.
    Create {
        /// The kind.
        kind: &'static Kind,
        /// Its name; `None`: the server makes one.
        name: Option<String>,
        /// Which manifest.
        variant: usize,
        /// Whether nothing is to be stored.
        dry_run: bool,
    },
    /// Reads an object.
    Get {
        /// The kind.
        kind: &'static Kind,
        /// Its name.
        name: String,
    },
    /// Reads all objects of a kind.
    List {
        /// The kind.
        kind: &'static Kind,
        /// What is added to the request.
        query: &'static str,
    },
    /// Reads an object, changes it, and writes it back.
    Update {
        /// The kind.
        kind: &'static Kind,
        /// Its name.
        name: String,
        /// Which of its kind's patches describes the change.
        change: usize,
        /// From which version.
        version: Version,
        /// Whether the status is written rather than the object.
        status: bool,
    },
    /// A merge patch.
    Merge {
        /// The kind.
        kind: &'static Kind,
        /// Its name.
        name: String,
        /// Which of its kind's patches.
        change: usize,
        /// Whether the status is patched rather than the object.
        status: bool,
    },
    /// A JSON patch.
    JsonPatch {
        /// The kind.
        kind: &'static Kind,
        /// Its name.
        name: String,
        /// Which of `JSON_PATCHES`.
        change: usize,
    },
    /// Deletes an object.
    Delete {
        /// The kind.
        kind: &'static Kind,
        /// Its name.
        name: String,
        /// What it demands.
        precondition: Precondition,
        /// The grace period.
        grace: Option<i64>,
    },
    /// Binds a pod to a node.
    Bind {
        /// The pod.
        name: String,
    },
    /// Evicts a pod.
    Evict {
        /// The pod.
        name: String,
    },
}

/// A sequence of operations that follows from a seed.
pub struct RandomOperations {
    random: fastrand::Rng,
}

impl RandomOperations {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.usize(..limit.max(1))
    }

    fn name(&mut self) -> String {
        // Few names, so that operations meet.
        format!("object-{}", self.below(4))
    }
}

impl Iterator for RandomOperations {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        // Pods and jobs have most of the rules.
        let index = [0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7][self.below(11)] % KINDS.len();
        let kind = &KINDS[index];
        let name = self.name();
        let changes = kind.changes.len();
        let dice = self.below(100);
        Some(match dice {
            0..34 => Operation::Create {
                kind,
                name: (dice > 3).then_some(name),
                variant: self.below(kind.manifests.len()),
                dry_run: dice < 7,
            },
            34..40 => Operation::Get { kind, name },
            40..46 => Operation::List {
                kind,
                query: [
                    "",
                    "labelSelector=tier%3Da",
                    "labelSelector=tier+notin+(a)",
                    "limit=1",
                    "fieldSelector=metadata.name%3Dobject-1",
                ][self.below(5)],
            },
            46..58 => Operation::Update {
                kind,
                name,
                change: self.below(changes),
                version: [
                    Version::Current,
                    Version::Current,
                    Version::Stale,
                    Version::Absent,
                ][self.below(4)],
                status: kind.has_status && self.below(3) == 0,
            },
            58..72 => Operation::Merge {
                kind,
                name,
                change: self.below(changes),
                status: kind.has_status && self.below(3) == 0,
            },
            72..78 => Operation::JsonPatch {
                kind,
                name,
                change: self.below(super::objects::JSON_PATCHES.len()),
            },
            78..92 => Operation::Delete {
                kind,
                name,
                precondition: [
                    Precondition::None,
                    Precondition::None,
                    Precondition::RightUid,
                    Precondition::WrongUid,
                    Precondition::WrongVersion,
                ][self.below(5)],
                // The long one is shorter than some pods' own and longer than others', and longer
                // than any run: when it ends would depend on how fast a server answers.
                grace: [None, None, Some(0), Some(1800)][self.below(4)],
            },
            92..97 => Operation::Bind { name },
            _ => Operation::Evict { name },
        })
    }
}
