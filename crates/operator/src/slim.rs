//! What is read of Kubernetes' objects: projections that skip, without building it, all that decisions do not need.
//!
//! A pod as the server sends it is some kilobytes, most of them `managedFields` and a spec that we wrote ourselves.
//! The types here decode only the fields named in them, and become rows of a hundred bytes.

mod job;
mod node;
mod pod;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use trainyard_api::names::{LABEL_MANAGED_BY, MANAGED_BY};
use trainyard_core::view::ServiceRow;

pub use job::{JobObject, Malformed};
pub(crate) use job::{MetadataAnswer, version};
pub use node::SlimNode;
pub use pod::SlimPod;

/// The metadata of a child.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Its name.
    #[serde(default)]
    pub name: Box<str>,
    /// Its namespace; empty for what has none.
    #[serde(default)]
    pub namespace: Box<str>,
    /// Its UID.
    #[serde(default)]
    pub uid: Box<str>,
    /// The version of the object.
    #[serde(default)]
    pub resource_version: Version,
    /// When it has to be gone, once it has been asked to go.
    #[serde(default)]
    pub deletion_timestamp: Option<Box<str>>,
    /// How long it may take to go; 0 means that it takes no time.
    #[serde(default)]
    pub deletion_grace_period_seconds: Option<i64>,
    /// What has to happen before it is gone.
    #[serde(default)]
    pub finalizers: Option<Vec<serde::de::IgnoredAny>>,
    /// The labels we look at.
    #[serde(default)]
    pub labels: Option<Labels>,
    /// The annotations we look at.
    #[serde(default)]
    pub annotations: Option<Annotations>,
    /// Its owners.
    #[serde(default)]
    pub owner_references: Option<Vec<OwnerRef>>,
}

/// The labels we look at.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Labels {
    /// Who manages the object.
    #[serde(default, rename = "app.kubernetes.io/managed-by")]
    pub managed_by: Option<Box<str>>,
    /// The job's name.
    #[serde(default, rename = "trainyard.dev/job")]
    pub job: Option<Box<str>>,
    /// The name of a pod's role.
    #[serde(default, rename = "trainyard.dev/role")]
    pub role: Option<Box<str>>,
    /// A pod's index within its role.
    #[serde(default, rename = "trainyard.dev/index")]
    pub index: Option<Box<str>>,
}

/// The annotations we look at.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Annotations {
    /// The name of the container that trains.
    #[serde(default, rename = "trainyard.dev/container")]
    pub main_container: Option<String>,
    /// The same on pods that former versions made, where it may be another one that the user wants to see.
    #[serde(default, rename = "kubectl.kubernetes.io/default-container")]
    pub shown_container: Option<String>,
    /// Whether a pod's programs start, whatever they wait for.
    #[serde(default, rename = "trainyard.dev/start")]
    pub start: Option<Box<str>>,
    /// A hash of the template that a pod was made from.
    #[serde(default, rename = "trainyard.dev/template")]
    pub template: Option<Box<str>>,
}

/// An owner of an object.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerRef {
    /// The owner's group and version.
    pub api_version: Box<str>,
    /// The owner's kind.
    pub kind: Box<str>,
    /// The owner's name.
    pub name: Box<str>,
    /// The owner's UID.
    pub uid: Box<str>,
    /// Whether it is the one owner that manages the object.
    #[serde(default)]
    pub controller: Option<bool>,
}

impl OwnerRef {
    /// Whether this is a job of ours.
    pub fn is_job(&self) -> bool {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        &*self.kind == "TrainingJob" && group == trainyard_api::GROUP
    }
}

impl Meta {
    /// The owner that manages the object.
    pub fn controller(&self) -> Option<&OwnerRef> {
        self.owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true))
    }

    /// The job that manages the object.
    pub fn job(&self) -> Option<&OwnerRef> {
        self.controller().filter(|owner| owner.is_job())
    }

    /// Whether it has been asked to go.
    pub fn terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// When it was asked to go. A later request that gives it less time leaves that as it is.
    pub fn asked_at(&self) -> Option<Timestamp> {
        let gone_by: Timestamp = self.deletion_timestamp.as_deref()?.parse().ok()?;
        let grace = SignedDuration::from_secs(self.deletion_grace_period_seconds.unwrap_or_default());
        gone_by.checked_sub(grace).ok()
    }

    /// Whether an object that was just deleted is gone already, rather than on its way.
    pub fn is_gone(&self) -> bool {
        let waits = self
            .finalizers
            .as_ref()
            .is_some_and(|finalizers| !finalizers.is_empty());
        self.deletion_grace_period_seconds == Some(0) && !waits
    }

    /// Whether a pod has all labels by which it is found: they say what its name says.
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
        // The name is the three with dashes between them, or the first two where there is one pod; to compare costs no
        // local.
        let rest = self.name.strip_prefix(&**job);
        let rest = rest.and_then(|rest| rest.strip_prefix('-')?.strip_prefix(&**role));
        let fits = rest.is_some_and(|rest| match rest.strip_prefix('-') {
            Some(number) => *number == **index,
            None => rest.is_empty() && **index == *"0",
        });
        owner == Some(&**job) && fits && self.is_labelled()
    }

    /// Whether our watches, which select by label, see the object.
    pub fn is_labelled(&self) -> bool {
        self.labels
            .as_ref()
            .and_then(|labels| labels.managed_by.as_deref())
            == Some(MANAGED_BY)
    }
}

/// The label selector of every child.
pub fn selector() -> String {
    format!("{LABEL_MANAGED_BY}={MANAGED_BY}")
}

/// A resource version as a number, so that older and newer can be told apart; 0 if the server's are not numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// The version that a word of the API stands for.
    pub fn parse(word: &str) -> Self {
        Self(word.parse().unwrap_or(0))
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
            fn visit_str<E>(self, word: &str) -> Result<Version, E> {
                Ok(Version::parse(word))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

/// A child of which only metadata is read.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SlimMeta {
    /// Its metadata.
    #[serde(default)]
    pub metadata: Meta,
}

impl SlimMeta {
    /// The row of a Service.
    pub fn service_row(&self) -> ServiceRow {
        ServiceRow {
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
            terminating: self.metadata.terminating(),
        }
    }
}
