//! Makes a job that can run here from a file or a command.

use std::collections::BTreeSet;

use anyhow::{Error, Result, anyhow, bail};
use serde_json::Value;
use trainyard_api::FieldError;
use trainyard_core::registry::Registry;

use super::{foreign, set};
use crate::validate::checker::Checker;
use crate::validate::{self, Recognized, text};

/// Kinds of objects that may be in the file of a job.
const COMPANIONS: &[&str] = &[
    "ConfigMap",
    "Framework",
    "Namespace",
    "PersistentVolumeClaim",
    "PriorityClass",
    "Secret",
    "Service",
    "ServiceAccount",
];

/// Fields that an API server writes, and that are in manifests from `kubectl get -o yaml`. They are
/// dropped: an owner would get the job garbage-collected, a finalizer would keep it from ending.
const SERVER_FIELDS: &[&str] = &[
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[derive(Debug, Default)]
pub struct Manifest {
    pub job: Value,
    /// Objects that the job needs, in the order of the file.
    pub companions: Vec<Value>,
    pub notes: Vec<String>,
    /// The frameworks that are declared among the companions.
    pub registry: Registry,
}

/// Reads a file with one TrainingJob and the objects that it needs.
pub fn parse(file: &str, content: &str) -> Result<Manifest> {
    let file = if file == "-" { "the standard input" } else { file };
    let mut manifest = Manifest::default();
    let mut jobs = Vec::new();
    let objects = match validate::parse(content) {
        Ok(objects) => objects,
        Err(error) => bail!("{file}: {error}"),
    };
    for (number, object) in objects {
        let (object, note) = match foreign::converted(object) {
            Ok(object) => object,
            Err(errors) => {
                let title = format!("{file}: document {number} can't be converted to a TrainingJob");
                return Err(refusal(&title, &errors));
            }
        };
        manifest.notes.extend(note);
        match validate::recognize(&object) {
            Recognized::Job => jobs.push(object),
            Recognized::Framework => manifest.companions.push(object),
            Recognized::Mistake(error) => {
                let field = if error.path.is_empty() { "" } else { ": " };
                bail!(
                    "{file}: document {number}: {}{field}{}",
                    error.path,
                    error.message
                );
            }
            Recognized::Foreign => {
                let kind = text(&object, "/kind").unwrap_or_default();
                if !COMPANIONS.contains(&kind) {
                    let names = COMPANIONS.join(", ");
                    bail!(
                        "{file}: document {number} is a {kind}, which can't be run here: beside the TrainingJob there may be \
                         {names}. Remove it, or apply the file to a cluster with kubectl"
                    );
                }
                manifest.companions.push(object);
            }
        }
    }
    let mut jobs = jobs.into_iter();
    manifest.job = match (jobs.next(), jobs.len()) {
        (Some(job), 0) => job,
        (Some(_), more) => bail!(
            "{file} has {} TrainingJobs, and one can be run at a time: put each into a file of its own",
            more + 1
        ),
        (None, _) => bail!(
            "there is no TrainingJob in {file}: it needs apiVersion trainyard.dev/v1alpha1 and kind TrainingJob"
        ),
    };
    manifest.notes.extend(strip_server_fields(&mut manifest.job));
    for companion in &mut manifest.companions {
        strip_server_fields(companion);
    }
    Ok(manifest)
}

/// Reads a file with Frameworks, and nothing else.
pub fn parse_frameworks(file: &str, content: &str) -> Result<Vec<Value>> {
    let objects = match validate::parse(content) {
        Ok(objects) => objects,
        Err(error) => bail!("{file}: {error}"),
    };
    let mut frameworks = Vec::new();
    for (number, mut object) in objects {
        match validate::recognize(&object) {
            Recognized::Framework => {
                strip_server_fields(&mut object);
                frameworks.push(object);
            }
            _ => bail!("{file}: document {number} {}", validate::NO_FRAMEWORK),
        }
    }
    if frameworks.is_empty() {
        bail!("{file} {}", validate::NO_FRAMEWORKS);
    }
    Ok(frameworks)
}

/// Checks the Frameworks among the companions, and makes them known to the checker.
pub fn declare(manifest: &Manifest, checker: &mut Checker) -> Result<()> {
    let is_framework = |object: &&Value| matches!(validate::recognize(object), Recognized::Framework);
    let mut seen = BTreeSet::new();
    for object in manifest.companions.iter().filter(is_framework) {
        let name = text(object, "/metadata/name").unwrap_or_default();
        if !seen.insert(name) {
            bail!(
                "there are two Frameworks {name:?}, in one file or in several: remove one, or give each its own name"
            );
        }
        refuse(
            &format!("the Framework {name:?} is not valid"),
            &checker.check_framework(object),
        )?;
        checker.declare(object);
    }
    Ok(())
}

/// Drops the status and the fields of the server. The note names them.
fn strip_server_fields(object: &mut Value) -> Option<String> {
    let mut dropped = Vec::new();
    if let Some(object) = object.as_object_mut()
        && object.remove("status").is_some()
    {
        dropped.push("status".to_owned());
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in SERVER_FIELDS {
            if metadata.remove(*field).is_some() {
                dropped.push(format!("metadata.{field}"));
            }
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
    }
    if dropped.is_empty() {
        return None;
    }
    Some(format!(
        "left out what a cluster has written: {}",
        dropped.join(", ")
    ))
}

/// Changes from the command line.
#[derive(Debug, Default)]
pub struct Changes<'a> {
    pub set: &'a [(String, String)],
    /// Environment variables of every container.
    pub env: &'a [(String, String)],
}

/// Applies the changes and validates the result.
pub fn apply_changes(manifest: &mut Manifest, checker: &Checker, changes: &Changes<'_>) -> Result<()> {
    for (path, value) in changes.set {
        if let Err(error) = set::set(&mut manifest.job, checker.schema(), path, value) {
            bail!("{error}");
        }
    }
    for (name, value) in changes.env {
        set::set_env(&mut manifest.job, name, value);
    }
    let errors = checker.check(&manifest.job);
    let errors = if errors.is_empty() {
        check_can_end(&manifest.job)
    } else {
        errors
    };
    refuse("the job is not valid", &errors)
}

/// Finds what would make a job wait for ever.
fn check_can_end(job: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if job.pointer("/spec/suspend") == Some(&Value::Bool(true)) {
        let message = "is true, so that the job would wait to be resumed: add --set suspend=false";
        errors.push(FieldError::new("spec.suspend", message));
    }
    let other =
        text(job, "/spec/managedBy").filter(|manager| *manager != trainyard_api::MANAGED_BY_TRAINYARD);
    if let Some(other) = other {
        let message = format!("is {other:?}, which does not exist here: add --set managedBy=null");
        errors.push(FieldError::new("spec.managedBy", message));
    }
    errors
}

/// An error that lists all field errors, if there are any.
pub fn refuse(title: &str, errors: &[FieldError]) -> Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(refusal(title, errors))
}

fn refusal(title: &str, errors: &[FieldError]) -> Error {
    let lines: Vec<String> = errors
        .iter()
        .map(|error| format!("\n  {}", error.to_string().replace('\n', "\n  ")))
        .collect();
    anyhow!("{title}:{}", lines.concat())
}

/// Whether a container has a limit of CPU or memory.
pub fn has_limits(job: &Value) -> bool {
    let limits = containers(job).filter_map(|container| container.pointer("/resources/limits")?.as_object());
    limits
        .flat_map(|limits| limits.keys())
        .any(|name| matches!(name.as_str(), "cpu" | "memory"))
}

pub fn has_grpc_probes(job: &Value) -> bool {
    let kinds = ["livenessProbe", "readinessProbe", "startupProbe"];
    containers(job).any(|container| {
        let probes = kinds.iter().filter_map(|kind| container.get(kind));
        probes.into_iter().any(|probe| probe.get("grpc").is_some())
    })
}

/// The pod spec of each role.
pub fn pods(job: &Value) -> impl Iterator<Item = &Value> {
    let roles = job.pointer("/spec/roles").and_then(Value::as_array);
    let roles = roles.into_iter().flatten();
    roles.filter_map(|role| role.pointer("/template/spec"))
}

/// All containers of the job, init containers included.
pub fn containers(job: &Value) -> impl Iterator<Item = &Value> {
    let lists = pods(job).flat_map(|pod| ["initContainers", "containers"].map(|list| pod.get(list)));
    lists.flatten().filter_map(Value::as_array).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_no_effect_here_is_found() {
        let with = |spec: Value| json!({"spec": {"roles": [{"template": {"spec": spec}}]}});
        let probed = with(json!({"containers": [{}, {"readinessProbe": {"grpc": {"port": 1}}}]}));
        assert!(has_grpc_probes(&probed));
        let other = with(json!({"containers": [{"livenessProbe": {"exec": {"command": ["true"]}}}]}));
        assert!(!has_grpc_probes(&other));
    }

    const JOB: &str = "
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: mnist}
spec:
  framework: {name: pytorch}
  roles:
  - name: worker
    replicas: 2
    template: {spec: {containers: [{name: train, image: example/mnist, command: [python3, train.py]}]}}
";

    fn refused(text: &str) -> String {
        format!("{:#}", parse("job.yaml", text).unwrap_err())
    }

    fn finished(text: &str, set: &[(&str, &str)]) -> Result<Manifest> {
        let mut manifest = parse("-", text)?;
        let set: Vec<_> = set
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect();
        let changes = Changes { set: &set, env: &[] };
        apply_changes(&mut manifest, &Checker::new()?, &changes).map(|()| manifest)
    }

    #[test]
    fn a_job_and_what_it_needs() {
        let needs = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: data, uid: x}\n";
        let manifest = parse("job.yaml", &format!("---\n{needs}---\n---\n{JOB}")).unwrap();
        assert_eq!(text(&manifest.job, "/metadata/name"), Some("mnist"));
        assert_eq!(manifest.companions[0]["metadata"], json!({"name": "data"}));
        assert!(manifest.notes.is_empty());
    }

    #[test]
    fn what_is_no_job_says_what_it_is() {
        assert!(refused("a: [1\nb: 2").starts_with("job.yaml: this is no valid YAML: "));
        assert!(refused("").starts_with("there is no TrainingJob in job.yaml"));
        assert!(refused("just text").starts_with("job.yaml: document 1: this is no Kubernetes object"));
        let several = refused(&format!("{JOB}---\n{JOB}"));
        assert!(several.starts_with("job.yaml has 2 TrainingJobs"), "{several}");
        let kind = refused(&JOB.replace("TrainingJob", "TrainJob"));
        assert!(
            kind.starts_with("job.yaml: document 1: kind: there is no kind"),
            "{kind}"
        );
        let other = refused(&format!(
            "{JOB}---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: a}}"
        ));
        assert!(other.contains("document 2 is a Deployment"), "{other}");
        let input = parse("-", "").unwrap_err().to_string();
        assert!(input.contains("in the standard input"), "{input}");
    }

    #[test]
    fn frameworks_come_from_files_that_have_them_and_each_once() {
        let ring = "apiVersion: trainyard.dev/v1alpha1\nkind: Framework\nmetadata: {name: ring}\nspec: {}\n";
        let refused = |text: &str| parse_frameworks("ring.yaml", text).unwrap_err().to_string();
        assert_eq!(
            refused("---\n"),
            "ring.yaml has no Framework: it needs one, with apiVersion trainyard.dev/v1alpha1 and kind Framework"
        );
        assert_eq!(
            refused(&format!("{ring}---\n{JOB}")),
            "ring.yaml: document 2 is no Framework, which has apiVersion trainyard.dev/v1alpha1 and kind Framework: give \
             other objects in the job's file"
        );
        let declared = |companions: Vec<Value>| {
            let manifest = Manifest {
                companions,
                ..Manifest::default()
            };
            declare(&manifest, &mut Checker::new().unwrap())
        };
        let one = parse_frameworks("ring.yaml", ring).unwrap();
        assert!(declared(one.clone()).is_ok());
        let error = declared([one.clone(), one].concat()).unwrap_err().to_string();
        assert!(error.starts_with("there are two Frameworks \"ring\""), "{error}");
    }

    #[test]
    fn what_a_cluster_wrote_is_dropped_with_a_note() {
        let metadata = "{name: mnist, uid: x, resourceVersion: '7', managedFields: [{}], finalizers: [a/b], labels: {a: b}}";
        let text = format!(
            "{}status: {{phase: Running}}\n",
            JOB.replace("{name: mnist}", metadata)
        );
        let manifest = finished(&text, &[]).unwrap();
        assert_eq!(
            manifest.job["metadata"],
            json!({"name": "mnist", "labels": {"a": "b"}})
        );
        assert_eq!(manifest.job.get("status"), None);
        assert_eq!(
            manifest.notes,
            [
                "left out what a cluster has written: status, metadata.finalizers, metadata.managedFields, \
                 metadata.resourceVersion, metadata.uid"
            ]
        );
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once_and_after_the_changes() {
        let wrong = JOB.replace("replicas: 2", "replicas: 0\n    colour: red");
        let error = finished(&wrong, &[("roles.worker.replicas", "-1")])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("the job is not valid:\n  spec.roles[0]."),
            "{error}"
        );
        assert!(
            error.contains("\"colour\"") && error.contains("-1 pods"),
            "{error}"
        );
        assert!(finished(JOB, &[("roles.worker.replicas", "3")]).is_ok());
        assert!(finished(JOB, &[("roles.worker.replicas", "three")]).is_err());
    }

    #[test]
    fn a_job_that_would_wait_for_ever_is_refused() {
        let error = finished(JOB, &[("suspend", "true")]).unwrap_err().to_string();
        assert!(error.contains("--set suspend=false"), "{error}");
        let error = finished(JOB, &[("managedBy", "example.com/other")])
            .unwrap_err()
            .to_string();
        assert!(error.contains("--set managedBy=null"), "{error}");
    }
}
