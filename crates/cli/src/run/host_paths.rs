//! Volumes of a job that are directories of this machine.

use std::path::{Component, Path, PathBuf};

use anyhow::Result;
use serde_json::Value;
use trainyard_api::FieldError;

use super::manifest::refuse;
use crate::validate::text;

/// Refuses volumes of the type `hostPath` that are not within a directory: a manifest from
/// elsewhere is not to read or change what is outside of it, unless the user says so.
pub fn check(job: &Value, directory: &Path) -> Result<()> {
    let within = real(directory).unwrap_or_else(|| directory.to_owned());
    let mut errors = Vec::new();
    let roles = job.pointer("/spec/roles").and_then(Value::as_array);
    for (r, role) in roles.into_iter().flatten().enumerate() {
        let volumes = role.pointer("/template/spec/volumes").and_then(Value::as_array);
        for (v, volume) in volumes.into_iter().flatten().enumerate() {
            let Some(path) = text(volume, "/hostPath/path") else {
                continue;
            };
            if !real(Path::new(path)).is_some_and(|real| real.starts_with(&within)) {
                errors.push(FieldError::new(
                    format!("spec.roles[{r}].template.spec.volumes[{v}].hostPath.path"),
                    format!(
                        "{path} is not in the working directory, and the job could read and change it: add --allow-host-path \
                         if it may"
                    ),
                ));
            }
        }
    }
    refuse("the job asks for directories of this machine", &errors)
}

/// Where a path leads, without symbolic links. What does not exist is where it would be made.
fn real(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return Some(real);
    }
    match path.components().next_back()? {
        Component::Normal(name) => Some(real(path.parent()?)?.join(name)),
        // Nobody knows where it leads.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    #[test]
    fn only_directories_within_are_possible() {
        let place = tempfile::tempdir().unwrap();
        let here = place.path().join("here");
        fs::create_dir(&here).unwrap();
        symlink("/etc", here.join("link")).unwrap();
        let is_possible = |path: &Path| {
            let volumes = json!([{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": path}}]);
            let job = json!({"spec": {"roles": [{"template": {"spec": {"volumes": volumes}}}]}});
            check(&job, &here).map_err(|error| error.to_string())
        };
        for path in [
            here.clone(),
            here.join("data"),
            here.join("not/yet/there"),
            here.join("a/../b"),
        ] {
            let is_clear = !path.ends_with("a/../b");
            assert_eq!(is_possible(&path).is_ok(), is_clear, "{}", path.display());
        }
        let outside = [
            place.path().to_owned(),
            "/etc".into(),
            here.join("link"),
            here.join("link/new"),
            "/".into(),
        ];
        for path in outside {
            let said = is_possible(&path).unwrap_err();
            let expected = "spec.roles[0].template.spec.volumes[1].hostPath.path";
            assert!(
                said.contains(expected) && said.contains("--allow-host-path"),
                "{said}"
            );
        }
    }
}
