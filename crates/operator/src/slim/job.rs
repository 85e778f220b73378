//! Decodes a job. One that can't be decoded must not hold up others.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference, Time};
use serde::Deserialize;
use trainyard_api::{JobPhase, TrainingJob, TrainingJobSpec, TrainingJobStatus};
use trainyard_core::bounds;

use super::Version;

/// A job, or what could be decoded of it.
#[derive(Clone, Debug)]
pub enum JobObject {
    Ok(Box<TrainingJob>),
    /// The server stores it as a job, but it does not have the type.
    Malformed(Box<Malformed>),
}

/// What could be decoded of a malformed job.
#[derive(Clone, Debug, PartialEq)]
pub struct Malformed {
    pub metadata: ObjectMeta,
    /// Empty if they could not be decoded.
    pub conditions: Vec<Condition>,
    pub phase: Option<JobPhase>,
    /// The path of the field, and what is wrong with it.
    pub error: String,
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    spec: TrainingJobSpec,
    #[serde(default)]
    status: Option<TrainingJobStatus>,
}

#[derive(Deserialize)]
struct WireMetaOnly {
    metadata: WireMeta,
}

#[derive(Deserialize)]
struct WireStatus<S> {
    status: S,
}

#[derive(Deserialize)]
struct ConditionsOnly {
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct PhaseOnly {
    phase: JobPhase,
}

/// The metadata without `managedFields`, which is the larger part.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    uid: String,
    resource_version: String,
    #[serde(default)]
    generation: Option<i64>,
    #[serde(default)]
    generate_name: Option<String>,
    #[serde(default)]
    creation_timestamp: Option<Time>,
    #[serde(default)]
    deletion_timestamp: Option<Time>,
    #[serde(default)]
    deletion_grace_period_seconds: Option<i64>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    finalizers: Option<Vec<String>>,
    #[serde(default)]
    owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Deserialize)]
struct SmallMetaOnly {
    metadata: SmallMeta,
}

/// What must be known of an object that is too large to be decoded.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SmallMeta {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    uid: String,
    resource_version: String,
    #[serde(default)]
    generation: Option<i64>,
    #[serde(default)]
    creation_timestamp: Option<Time>,
    #[serde(default)]
    deletion_timestamp: Option<Time>,
}

impl From<SmallMeta> for ObjectMeta {
    fn from(small: SmallMeta) -> Self {
        Self {
            name: Some(small.name),
            namespace: small.namespace,
            uid: Some(small.uid),
            resource_version: Some(small.resource_version),
            generation: small.generation,
            creation_timestamp: small.creation_timestamp,
            deletion_timestamp: small.deletion_timestamp,
            ..Self::default()
        }
    }
}

impl From<WireMeta> for ObjectMeta {
    fn from(wire: WireMeta) -> Self {
        Self {
            name: Some(wire.name),
            namespace: wire.namespace,
            uid: Some(wire.uid),
            resource_version: Some(wire.resource_version),
            generation: wire.generation,
            generate_name: wire.generate_name,
            creation_timestamp: wire.creation_timestamp,
            deletion_timestamp: wire.deletion_timestamp,
            deletion_grace_period_seconds: wire.deletion_grace_period_seconds,
            labels: wire.labels,
            annotations: wire.annotations,
            finalizers: wire.finalizers,
            owner_references: wire.owner_references,
            ..Self::default()
        }
    }
}

/// The longest message, in bytes. It quotes the value that is wrong, which may be as long as the
/// object; the API server takes no status with it then.
const MAX_ERROR: usize = 2000;

impl JobObject {
    /// Fails only if the metadata can't be decoded. A job that is too large is malformed.
    pub fn decode(json: &str) -> Result<Self, serde_json::Error> {
        if let Some(excess) = bounds::excess(json) {
            let SmallMetaOnly { metadata } = serde_json::from_str(json)?;
            let error = format!("{}: {}", excess.path, excess.message);
            return Ok(Self::malformed(json, metadata.into(), error));
        }
        match serde_json::from_str::<Wire>(json) {
            Ok(wire) => {
                let mut job = TrainingJob {
                    metadata: wire.metadata.into(),
                    spec: wire.spec,
                    status: wire.status,
                };
                shrink(&mut job.spec);
                Ok(Self::Ok(Box::new(job)))
            }
            Err(error) => Self::decode_malformed(json, &error),
        }
    }

    fn decode_malformed(json: &str, error: &serde_json::Error) -> Result<Self, serde_json::Error> {
        let WireMetaOnly { metadata } = serde_json::from_str(json)?;
        // To track the path costs time. Only malformed objects need it.
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let error = match serde_path_to_error::deserialize::<_, Wire>(&mut deserializer) {
            Err(traced) => format!("{}: {}", traced.path(), without_position(traced.inner())),
            Ok(_) => without_position(error),
        };
        Ok(Self::malformed(json, metadata.into(), error))
    }

    fn malformed(json: &str, metadata: ObjectMeta, mut error: String) -> Self {
        error.truncate(error.floor_char_boundary(MAX_ERROR));
        let conditions = serde_json::from_str::<WireStatus<ConditionsOnly>>(json);
        let phase = serde_json::from_str::<WireStatus<PhaseOnly>>(json);
        Self::Malformed(Box::new(Malformed {
            metadata,
            conditions: conditions.map(|wire| wire.status.conditions).unwrap_or_default(),
            phase: phase.ok().map(|wire| wire.status.phase),
            error,
        }))
    }

    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Ok(job) => &job.metadata,
            Self::Malformed(malformed) => &malformed.metadata,
        }
    }

    pub fn version(&self) -> Version {
        version(self.metadata())
    }
}

/// Gives back what lists have reserved while they grew: they are kept as long as the job.
fn shrink(spec: &mut TrainingJobSpec) {
    fn shrink<T>(list: &mut Option<Vec<T>>) {
        if let Some(list) = list {
            list.shrink_to_fit();
        }
    }
    spec.roles.shrink_to_fit();
    for pod in spec
        .roles
        .iter_mut()
        .filter_map(|role| role.template.spec.as_mut())
    {
        shrink(&mut pod.volumes);
        shrink(&mut pod.init_containers);
        shrink(&mut pod.ephemeral_containers);
        pod.containers.shrink_to_fit();
        let containers = pod
            .containers
            .iter_mut()
            .chain(pod.init_containers.iter_mut().flatten());
        containers.for_each(|container| shrink(&mut container.env));
    }
}

pub(crate) fn version(metadata: &ObjectMeta) -> Version {
    metadata
        .resource_version
        .as_deref()
        .map(Version::parse)
        .unwrap_or_default()
}

/// Returns an error's message without line and column: users don't see the server's JSON.
fn without_position(error: &serde_json::Error) -> String {
    let words = error.to_string();
    match words.rsplit_once(" at line ") {
        Some((what, _)) => what.to_owned(),
        None => words,
    }
}

/// The metadata in the answer to a write.
#[derive(Deserialize)]
pub(crate) struct MetadataAnswer {
    metadata: WireMeta,
}

impl MetadataAnswer {
    pub(crate) fn into_metadata(self) -> ObjectMeta {
        self.metadata.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"apiVersion":"trainyard.dev/v1alpha1","kind":"TrainingJob","metadata":{
        "name":"mnist","namespace":"team","uid":"u1","resourceVersion":"41","generation":2,
        "creationTimestamp":"2026-01-02T03:04:05Z","labels":{"a":"b"},
        "managedFields":[{"manager":"kubectl","operation":"Update","fieldsV1":{"f:spec":{"f:roles":{}}}}]},
        "spec":{"framework":{"name":"custom"},"roles":[{"name":"worker","replicas":2,
        "template":{"spec":{"containers":[{"name":"train","image":"i"}]}}}]},
        "status":{"phase":"Running","conditions":[{"type":"Accepted","status":"True","reason":"Valid","message":"",
        "lastTransitionTime":"2026-01-02T03:04:05Z"}]}}"#;

    #[test]
    fn a_good_job_is_decoded_without_its_managed_fields() {
        let JobObject::Ok(job) = JobObject::decode(GOOD).unwrap() else {
            panic!("malformed")
        };
        assert_eq!(job.metadata.name.as_deref(), Some("mnist"));
        assert_eq!(job.metadata.generation, Some(2));
        assert!(job.metadata.managed_fields.is_none());
        assert_eq!(job.spec.roles.len(), 1);
        assert_eq!(version(&job.metadata), Version(41));
        // What the type itself would have decoded is the same but for the managed fields.
        let mut whole: TrainingJob = serde_json::from_str(GOOD).unwrap();
        whole.metadata.managed_fields = None;
        assert_eq!(*job, whole);
    }

    #[test]
    fn a_job_that_is_too_large_is_malformed_and_nothing_of_it_is_kept() {
        let sources = format!(r#""sources":[{}{{}}]"#, "{},".repeat(100_000));
        let volumes = format!(r#""volumes":[{{"name":"v","projected":{{{sources}}}}}],"containers""#);
        let large = GOOD.replace(r#""containers""#, &volumes);
        let JobObject::Malformed(large) = JobObject::decode(&large).unwrap() else {
            panic!("decoded")
        };
        assert!(large.error.starts_with("spec: this has 200"), "{}", large.error);
        assert_eq!(large.metadata.uid.as_deref(), Some("u1"));
        assert_eq!(
            (large.phase, large.metadata.labels.as_ref()),
            (Some(JobPhase::Running), None)
        );
        let labels: Vec<String> = (0..20_000).map(|i| format!(r#""l{i}":"","#)).collect();
        let labels = labels.concat();
        let large = GOOD.replace(r#""labels":{"#, &format!(r#""labels":{{{labels}"#));
        assert!(matches!(
            JobObject::decode(&large).unwrap(),
            JobObject::Malformed(_)
        ));
    }

    #[test]
    fn a_job_takes_no_more_memory_than_it_may() {
        JobObject::decode(GOOD).unwrap();
        for (name, spec) in crate::budget::tests::hostile_specs() {
            let metadata = r#"{"name":"a","namespace":"b","uid":"u","resourceVersion":"1"}"#;
            let json = format!(r#"{{"metadata":{metadata},"spec":{spec}}}"#);
            let (growth, job) = crate::budget::tests::peak_growth(|| JobObject::decode(&json).unwrap());
            let is_refused = name.starts_with("too ");
            assert_eq!(matches!(job, JobObject::Malformed(_)), is_refused, "{name}");
            // Lists reserve memory while they grow.
            let most = if is_refused {
                64 * crate::budget::KIB
            } else {
                3 * bounds::MAX_WEIGHT
            };
            assert!(growth <= most, "{name}: {} KiB", growth / 1024);
        }
    }

    #[test]
    fn a_malformed_job_keeps_its_metadata_and_says_where_it_is_wrong() {
        let bad = GOOD.replace("\"replicas\":2", "\"replicas\":\"two\"");
        let JobObject::Malformed(bad) = JobObject::decode(&bad).unwrap() else {
            panic!("decoded")
        };
        assert_eq!(bad.metadata.uid.as_deref(), Some("u1"));
        assert!(
            bad.error.starts_with("spec.roles[0].replicas: invalid type"),
            "{}",
            bad.error
        );
        assert!(!bad.error.contains("line"), "{}", bad.error);
        assert_eq!(bad.conditions.len(), 1);
    }

    #[test]
    fn a_long_value_that_is_wrong_is_not_repeated() {
        let long = format!("\"replicas\":\"{}\"", "ü".repeat(100_000));
        let bad = GOOD.replace("\"replicas\":2", &long);
        let JobObject::Malformed(bad) = JobObject::decode(&bad).unwrap() else {
            panic!("decoded")
        };
        assert!(bad.error.starts_with("spec.roles[0].replicas: invalid type"));
        let length = bad.error.len();
        assert!((MAX_ERROR - 4..=MAX_ERROR).contains(&length), "{length}");
    }

    #[test]
    fn a_job_without_spec_and_with_an_odd_status_is_malformed_not_fatal() {
        let bad =
            r#"{"metadata":{"name":"x","uid":"u","resourceVersion":"7"},"status":{"conditions":"none"}}"#;
        let JobObject::Malformed(bad) = JobObject::decode(bad).unwrap() else {
            panic!("decoded")
        };
        assert!(
            bad.error.starts_with("status.conditions: invalid type"),
            "{}",
            bad.error
        );
        assert!(bad.conditions.is_empty());
        let bad = r#"{"metadata":{"name":"x","uid":"u","resourceVersion":"7"}}"#;
        let JobObject::Malformed(bad) = JobObject::decode(bad).unwrap() else {
            panic!("decoded")
        };
        assert!(bad.error.contains("missing field `spec`"), "{}", bad.error);
    }

    #[test]
    fn an_object_without_identity_is_an_error() {
        assert!(JobObject::decode(r#"{"metadata":{"name":"x"}}"#).is_err());
        assert!(JobObject::decode("[]").is_err());
    }
}
