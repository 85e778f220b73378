//! Kubernetes' objects, reduced to the fields that decisions need. The other fields are skipped and
//! not built.
//!
//! A pod has some kilobytes as the server sends it, most of them `managedFields` and a spec that we
//! wrote ourselves. It becomes a row of a hundred bytes.

mod budget;
mod job;
mod node;
mod pod;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use trainyard_api::names::{LABEL_MANAGED_BY, MANAGED_BY};
use trainyard_core::passed_on::PassedOn;
use trainyard_core::view::ServiceRow;

pub use budget::SlimBudget;
pub use job::{JobObject, Malformed};
pub(crate) use job::{MetadataAnswer, version};
pub use node::SlimNode;
pub use pod::SlimPod;

/// The metadata of a child.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    #[serde(default)]
    pub name: Box<str>,
    /// Empty for an object without a namespace.
    #[serde(default)]
    pub namespace: Box<str>,
    #[serde(default)]
    pub uid: Box<str>,
    #[serde(default)]
    pub resource_version: Version,
    /// When the object must be gone.
    #[serde(default)]
    pub deletion_timestamp: Option<Box<str>>,
    #[serde(default)]
    pub deletion_grace_period_seconds: Option<i64>,
    #[serde(default)]
    pub finalizers: Option<Vec<serde::de::IgnoredAny>>,
    #[serde(default)]
    pub labels: Option<Labels>,
    #[serde(default)]
    pub annotations: Option<Annotations>,
    #[serde(default)]
    pub owner_references: Option<Vec<OwnerRef>>,
}

/// The labels that decisions need.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Labels {
    #[serde(default, rename = "app.kubernetes.io/managed-by")]
    pub managed_by: Option<Box<str>>,
    #[serde(default, rename = "trainyard.dev/job")]
    pub job: Option<Box<str>>,
    #[serde(default, rename = "trainyard.dev/role")]
    pub role: Option<Box<str>>,
    #[serde(default, rename = "trainyard.dev/index")]
    pub index: Option<Box<str>>,
    #[serde(default, rename = "ares.io/ares-queue")]
    ares_queue: Option<Box<str>>,
    #[serde(default, rename = "ares.io/preemptable")]
    ares_preemptable: Option<Box<str>>,
    #[serde(default, rename = "ares.io/job-priority")]
    ares_priority: Option<Box<str>>,
}

/// The annotations that decisions need.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Annotations {
    /// The name of the container that trains.
    #[serde(default, rename = "trainyard.dev/container")]
    pub main_container: Option<String>,
    /// The same on pods of former versions. It may be another container, if the user chose that.
    #[serde(default, rename = "kubectl.kubernetes.io/default-container")]
    pub shown_container: Option<String>,
    /// Whether the pod's programs start without waiting for other roles.
    #[serde(default, rename = "trainyard.dev/start")]
    pub start: Option<Box<str>>,
    /// The hash of the template that the pod was made from.
    #[serde(default, rename = "trainyard.dev/template")]
    pub template: Option<Box<str>>,
    /// The hash of the spec that the pod was made from.
    #[serde(default, rename = "trainyard.dev/spec")]
    pub spec: Option<Box<str>>,
    /// How often the pods of its role had started anew together when the pod was made.
    #[serde(default, rename = "trainyard.dev/attempt")]
    pub attempt: Option<Box<str>>,
    #[serde(default, rename = "ares.io/ares-queue")]
    ares_queue: Option<Box<str>>,
    #[serde(default, rename = "ares.io/preemptable")]
    ares_preemptable: Option<Box<str>>,
    #[serde(default, rename = "ares.io/job-priority")]
    ares_priority: Option<Box<str>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerRef {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    #[serde(default)]
    pub controller: Option<bool>,
}

impl OwnerRef {
    pub fn is_job(&self) -> bool {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        &*self.kind == "TrainingJob" && group == trainyard_api::GROUP
    }
}

impl Meta {
    /// Returns the owner that controls the object.
    pub fn controller(&self) -> Option<&OwnerRef> {
        self.owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true))
    }

    /// Returns the job that controls the object.
    pub fn job(&self) -> Option<&OwnerRef> {
        self.controller().filter(|owner| owner.is_job())
    }

    pub fn terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns when the deletion was requested. A later request with a shorter grace period does
    /// not change this.
    pub fn asked_at(&self) -> Option<Timestamp> {
        let gone_by: Timestamp = self.deletion_timestamp.as_deref()?.parse().ok()?;
        let grace = SignedDuration::from_secs(self.deletion_grace_period_seconds.unwrap_or_default());
        gone_by.checked_sub(grace).ok()
    }

    /// Returns true if the answer to a deletion says that the object is gone.
    pub fn is_gone(&self) -> bool {
        let waits = self
            .finalizers
            .as_ref()
            .is_some_and(|finalizers| !finalizers.is_empty());
        self.deletion_grace_period_seconds == Some(0) && !waits
    }

    /// Returns true if a pod has all labels by which it is found, and they agree with its name.
    pub fn is_fully_labelled(&self) -> bool {
        let Some(Labels {
            job: Some(job),
            role: Some(role),
            index: Some(index),
            ..
        }) = &self.labels
        else {
            return false;
        };
        let owner = self.job().map(|owner| &*owner.name);
        // The name has the three with dashes between them, or the first two if the role has one
        // pod. In some dialects the role comes first.
        let fits = [(job, role), (role, job)].into_iter().any(|(first, second)| {
            let rest = self.name.strip_prefix(&**first);
            let rest = rest.and_then(|rest| rest.strip_prefix('-')?.strip_prefix(&**second));
            rest.is_some_and(|rest| match rest.strip_prefix('-') {
                Some(number) => *number == **index,
                None => rest.is_empty() && **index == *"0",
            })
        });
        owner == Some(&**job) && fits && self.is_labelled()
    }

    /// The fingerprint of what a pod carries of its job's annotations.
    pub fn passed_on(&self) -> u64 {
        let labels = self.labels.as_ref();
        let labels = labels.map(|of| [&of.ares_queue, &of.ares_preemptable, &of.ares_priority]);
        let annotations = self.annotations.as_ref();
        let annotations = annotations.map(|of| [&of.ares_queue, &of.ares_preemptable, &of.ares_priority]);
        let [labels, annotations] = [labels, annotations].map(|values| {
            values
                .map(|values| values.map(Option::as_deref))
                .unwrap_or_default()
        });
        PassedOn { labels, annotations }.fingerprint()
    }

    /// Returns true if our watches, which select by label, see the object.
    pub fn is_labelled(&self) -> bool {
        self.labels
            .as_ref()
            .and_then(|labels| labels.managed_by.as_deref())
            == Some(MANAGED_BY)
    }
}

/// Returns the label selector of all children.
pub fn selector() -> String {
    format!("{LABEL_MANAGED_BY}={MANAGED_BY}")
}

/// A resource version as a number, so that versions can be compared. 0 if the server's is no
/// number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    pub fn parse(text: &str) -> Self {
        Self(text.parse().unwrap_or(0))
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Version;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a resource version")
            }
            fn visit_str<E>(self, text: &str) -> Result<Version, E> {
                Ok(Version::parse(text))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

/// An object of which only the metadata is read.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SlimMeta {
    #[serde(default)]
    pub metadata: Meta,
}

impl SlimMeta {
    pub fn service_row(&self) -> ServiceRow {
        ServiceRow {
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
            terminating: self.metadata.terminating(),
        }
    }
}
