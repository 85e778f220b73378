//! Objects that a job refers to: a pod would wait for ever for one that does not exist.

use anyhow::Result;
use serde_json::Value;
use trainyard_api::FieldError;

use super::manifest::{Manifest, refuse};
use crate::validate::text;

/// Types of volumes that the embedded cluster supports.
const VOLUMES: &[&str] = &[
    "emptyDir",
    "configMap",
    "secret",
    "downwardAPI",
    "projected",
    "hostPath",
    "persistentVolumeClaim",
];
/// Every namespace has this ConfigMap.
const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";

/// Refuses unsupported volumes, and references to objects that are not in the file.
pub fn check(manifest: &Manifest) -> Result<()> {
    let mut errors = Vec::new();
    let framework = manifest.job.pointer("/spec/framework").and_then(Value::as_object);
    for (name, options) in framework.into_iter().flatten() {
        let secret = (&**name, "Secret", "sshAuthSecretName");
        errors.extend(check_reference(manifest, "spec.framework", Some(options), secret));
    }
    let roles = manifest.job.pointer("/spec/roles").and_then(Value::as_array);
    for (r, role) in roles.into_iter().flatten().enumerate() {
        let path = format!("spec.roles[{r}].template.spec");
        for (v, volume) in list(role, "/template/spec/volumes").enumerate() {
            errors.extend(check_volume(manifest, &format!("{path}.volumes[{v}]"), volume));
        }
        for containers in ["initContainers", "containers"] {
            for (c, container) in list(role, &format!("/template/spec/{containers}")).enumerate() {
                errors.extend(check_container(
                    manifest,
                    &format!("{path}.{containers}[{c}]"),
                    container,
                ));
            }
        }
    }
    refuse("the job needs what is not there", &errors)
}

fn check_volume(manifest: &Manifest, path: &str, volume: &Value) -> Vec<FieldError> {
    let kinds = volume.as_object().into_iter().flat_map(|volume| volume.keys());
    let unsupported = kinds.filter(|kind| *kind != "name" && !VOLUMES.contains(&kind.as_str()));
    let unsupported = unsupported.map(|kind| {
        let kinds = VOLUMES.join(", ");
        let message = format!("there are no such volumes on this machine: there are {kinds}");
        FieldError::new(format!("{path}.{kind}"), message)
    });
    let mut errors: Vec<FieldError> = unsupported.collect();
    let sources = list(volume, "/projected/sources").enumerate();
    let sources = sources.map(|(s, source)| (format!("{path}.projected.sources[{s}]"), source));
    for (path, source) in std::iter::once((path.to_owned(), volume)).chain(sources) {
        let references = [
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
            ("secret", "Secret", "name"),
            ("persistentVolumeClaim", "PersistentVolumeClaim", "claimName"),
        ];
        let found = references.map(|names| check_reference(manifest, &path, source.get(names.0), names));
        errors.extend(found.into_iter().flatten());
    }
    errors
}

fn check_container(manifest: &Manifest, path: &str, container: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (e, from) in list(container, "/envFrom").enumerate() {
        let path = format!("{path}.envFrom[{e}]");
        for (field, kind) in [("configMapRef", "ConfigMap"), ("secretRef", "Secret")] {
            let names = (field, kind, "name");
            errors.extend(check_reference(manifest, &path, from.get(field), names));
        }
    }
    for (e, variable) in list(container, "/env").enumerate() {
        let path = format!("{path}.env[{e}].valueFrom");
        for (field, kind) in [("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")] {
            let reference = variable.pointer(&format!("/valueFrom/{field}"));
            errors.extend(check_reference(manifest, &path, reference, (field, kind, "name")));
        }
    }
    errors
}

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    let items = value.pointer(pointer).and_then(Value::as_array);
    items.into_iter().flatten()
}

/// An error if a reference is not optional and its object is not in the file. The names are those
/// of the field with the reference, of the kind that it refers to, and of the member with the
/// object's name.
fn check_reference(
    manifest: &Manifest,
    path: &str,
    reference: Option<&Value>,
    (field, kind, key): (&str, &str, &str),
) -> Option<FieldError> {
    let reference = reference?;
    let name = reference.get(key)?.as_str()?;
    let optional = reference.get("optional") == Some(&Value::Bool(true));
    let is_it =
        |object: &Value| text(object, "/kind") == Some(kind) && text(object, "/metadata/name") == Some(name);
    if optional || name == ROOT_CA_CONFIG_MAP || manifest.companions.iter().any(is_it) {
        return None;
    }
    let message = format!("there is no {kind} {name:?} in the file: add it there, beside the job");
    Some(FieldError::new(format!("{path}.{field}.{key}"), message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(spec: &Value) -> String {
        let manifest = Manifest {
            job: json!({"spec": {"roles": [{"name": "worker", "template": {"spec": spec}}]}}),
            companions: vec![
                json!({"kind": "ConfigMap", "metadata": {"name": "data"}}),
                json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "disk"}}),
            ],
            ..Manifest::default()
        };
        check(&manifest).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn what_is_in_the_file_or_optional_is_fine() {
        let said = found(&json!({
            "volumes": [
                {"name": "a", "configMap": {"name": "data"}},
                {"name": "b", "persistentVolumeClaim": {"claimName": "disk"}},
                {"name": "c", "secret": {"secretName": "x", "optional": true}},
                {"name": "d", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}},
                {"name": "e", "emptyDir": {}},
            ],
            "containers": [{
                "envFrom": [{"configMapRef": {"name": "data"}}],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            }],
        }));
        assert_eq!(said, "");
    }

    #[test]
    fn a_key_that_the_job_is_to_use_is_in_the_file() {
        let job = json!({"spec": {"framework": {"name": "mpi", "mpi": {"attach": "Ssh", "sshAuthSecretName": "keys"}}}});
        let mut manifest = Manifest {
            job,
            ..Manifest::default()
        };
        let said = check(&manifest).unwrap_err().to_string();
        assert!(
            said.contains("spec.framework.mpi.sshAuthSecretName: there is no Secret \"keys\" in the file"),
            "{said}"
        );
        manifest.companions = vec![json!({"kind": "Secret", "metadata": {"name": "keys"}})];
        assert!(check(&manifest).is_ok());
    }

    #[test]
    fn what_is_not_there_is_named() {
        let said = found(&json!({
            "volumes": [
                {"name": "a", "configMap": {"name": "no"}},
                {"name": "b", "persistentVolumeClaim": {"claimName": "no"}},
                {"name": "c", "secret": {"secretName": "no"}},
                {"name": "d", "projected": {"sources": [{"secret": {"name": "no"}}]}},
                {"name": "e", "nfs": {"server": "a", "path": "/"}},
            ],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "no"}}]}],
            "containers": [{"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "k"}}}]}],
        }));
        for path in [
            "volumes[0].configMap.name: there is no ConfigMap \"no\"",
            "volumes[1].persistentVolumeClaim.claimName: there is no PersistentVolumeClaim",
            "volumes[2].secret.secretName: there is no Secret",
            "volumes[3].projected.sources[0].secret.name: there is no Secret",
            "volumes[4].nfs: there are no such volumes",
            "initContainers[0].envFrom[0].secretRef.name: there is no Secret",
            "containers[0].env[0].valueFrom.configMapKeyRef.name: there is no ConfigMap",
        ] {
            assert!(
                said.contains(&format!("spec.roles[0].template.spec.{path}")),
                "{path}: {said}"
            );
        }
    }
}
