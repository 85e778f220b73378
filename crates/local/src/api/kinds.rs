//! The table of all kinds that are served: their groups, versions, names, scopes, subresources and
//! rules.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::rules::Rules;
use super::store::TableId;

/// A version of a kind.
#[allow(
    clippy::struct_field_names,
    reason = "the kind of a kind is what Kubernetes calls it"
)]
pub(crate) struct Kind {
    pub(crate) group: Box<str>,
    pub(crate) version: Box<str>,
    /// `group/version`, as in objects.
    pub(crate) api_version: Box<str>,
    /// The version in which objects are stored.
    pub(crate) stored_as: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) plural: Box<str>,
    pub(crate) singular: Box<str>,
    pub(crate) short_names: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) subresources: Subresources,
    pub(crate) traits: KindTraits,
    pub(crate) table: TableId,
    pub(crate) rules: Arc<dyn Rules>,
}

/// Subresources that any kind may have. Those of pods are apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subresources {
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
}

/// The paths of the scale subresource.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) spec_replicas: Vec<String>,
    pub(crate) status_replicas: Vec<String>,
    pub(crate) selector: Option<Vec<String>>,
}

/// By `group/version`, then by plural.
type ByPath = HashMap<Box<str>, HashMap<Box<str>, Arc<Kind>>>;

/// How the server treats objects of a kind, where kinds differ for historical reasons only.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a trait of its own")]
pub(crate) struct KindTraits {
    pub(crate) name_format: NameFormat,
    /// Whether an update needs no resourceVersion.
    pub(crate) unconditional_update: bool,
    /// Whether an update of an object that does not exist creates it.
    pub(crate) create_on_update: bool,
    /// Whether the answer to a delete is the object rather than a Status.
    pub(crate) returns_deleted: bool,
    /// Whether metadata.generation counts changes of the spec.
    pub(crate) counts_generations: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameFormat {
    Subdomain,
    Label,
    /// Any path segment.
    Segment,
}

/// The traits of most kinds.
pub(crate) const DEFAULT_TRAITS: KindTraits = KindTraits {
    name_format: NameFormat::Subdomain,
    unconditional_update: true,
    create_on_update: false,
    returns_deleted: false,
    counts_generations: false,
};

/// The traits of custom resources.
pub(crate) const CUSTOM_TRAITS: KindTraits = KindTraits {
    unconditional_update: false,
    counts_generations: true,
    ..DEFAULT_TRAITS
};

impl Kind {
    /// `plural.group`.
    pub(crate) fn qualified(&self) -> String {
        match &*self.group {
            "" => self.plural.to_string(),
            group => format!("{}.{group}", self.plural),
        }
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        *self.group == *group && *self.plural == *plural
    }

    pub(crate) fn is_pod(&self) -> bool {
        self.is("", "pods")
    }

    pub(crate) fn is_service_account(&self) -> bool {
        self.is("", "serviceaccounts")
    }
}

/// All kinds that are served.
#[derive(Default)]
pub(crate) struct Kinds {
    by_path: RwLock<ByPath>,
}

impl Kinds {
    pub(crate) fn get(&self, api_version: &str, plural: &str) -> Option<Arc<Kind>> {
        let kinds = self.by_path.read();
        kinds.get(api_version)?.get(plural).cloned()
    }

    /// The kind that objects of a table are stored as.
    pub(crate) fn stored_in(&self, table: TableId) -> Option<Arc<Kind>> {
        let kinds = self.by_path.read();
        let mut all = kinds.values().flat_map(HashMap::values);
        all.find(|kind| kind.table == table && kind.stored_as == kind.api_version)
            .cloned()
    }

    /// Every kind, ordered by group, version and name.
    pub(crate) fn all(&self) -> Vec<Arc<Kind>> {
        let kinds = self.by_path.read();
        let mut all: Vec<_> = kinds.values().flat_map(HashMap::values).cloned().collect();
        all.sort_by(|a, b| (&a.api_version, &a.plural).cmp(&(&b.api_version, &b.plural)));
        all
    }

    /// Atomically replaces the served versions of a resource.
    pub(crate) fn replace(&self, group: &str, plural: &str, versions: Vec<Kind>) {
        let mut kinds = self.by_path.write();
        for of_version in kinds.values_mut() {
            of_version.retain(|_, kind| !kind.is(group, plural));
        }
        for kind in versions {
            insert(&mut kinds, kind);
        }
        kinds.retain(|_, of_version| !of_version.is_empty());
    }

    pub(crate) fn add(&self, kind: Kind) {
        let mut kinds = self.by_path.write();
        insert(&mut kinds, kind);
    }
}

fn insert(kinds: &mut ByPath, kind: Kind) {
    let of_version = kinds.entry(kind.api_version.clone()).or_default();
    of_version.insert(kind.plural.clone(), Arc::new(kind));
}
