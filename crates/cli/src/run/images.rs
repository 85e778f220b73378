//! Images, which are not pulled here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde_json::Value;

use super::command;
use super::manifest::{containers, pods};
use crate::validate::text;

/// Makes the directories of `--image` absolute and checks that they exist.
pub fn resolve(given: &[(String, PathBuf)]) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for (name, directory) in given {
        let path = std::path::absolute(directory)?;
        if !path.is_dir() {
            bail!(
                "--image {name}={}: there is no directory {}",
                directory.display(),
                path.display()
            );
        }
        found.insert(name.clone(), path);
    }
    Ok(found)
}

/// The images of the job without a directory, each once: these containers run on this machine's
/// own files.
pub fn unmapped(job: &Value, is_mapped: impl Fn(&str) -> bool) -> Vec<String> {
    let mut images: Vec<String> = containers(job)
        .filter_map(|container| text(container, "/image"))
        .filter(|image| *image != command::HOST_IMAGE && !is_mapped(image))
        .map(ToOwned::to_owned)
        .collect();
    images.sort();
    images.dedup();
    images
}

/// A note for each `--image` that no container uses.
pub fn unused_notes<'a>(job: &Value, given: impl Iterator<Item = &'a String>) -> Vec<String> {
    let there: BTreeSet<&str> = containers(job)
        .filter_map(|container| text(container, "/image"))
        .collect();
    let unused = given.filter(|name| !there.contains(name.as_str()));
    let names = there.iter().copied().collect::<Vec<_>>().join(", ");
    unused
        .map(|name| format!("--image {name}=... has no effect: the images of the job are {names}"))
        .collect()
}

/// A note for each directory of `--image` that containers with this image can't see, because a
/// volume of theirs is mounted above it.
pub fn hidden_notes(job: &Value, images: &BTreeMap<String, PathBuf>) -> Vec<String> {
    let mut notes = BTreeSet::new();
    for container in containers(job) {
        let image = text(container, "/image").unwrap_or_default();
        let Some(directory) = images.get(image) else {
            continue;
        };
        let mounts = container.get("volumeMounts").and_then(Value::as_array);
        let mounts = mounts.into_iter().flatten();
        let mut paths = mounts.filter_map(|mount| text(mount, "/mountPath"));
        if let Some(path) = paths.find(|path| directory.starts_with(path)) {
            notes.insert(format!(
                "--image {image}=...: the volume at {path} hides {}, so that the container does not find it: put it elsewhere",
                directory.display()
            ));
        }
    }
    notes.into_iter().collect()
}

/// A note for each virtual environment whose Python the users of the job's pods can't execute. A
/// shell takes the next Python that it finds then, which knows nothing of the environment.
pub fn closed_notes(job: &Value, images: &BTreeMap<String, PathBuf>) -> Vec<String> {
    let used = images.iter().filter(|(name, _)| runs_as_another(job, name));
    used.filter_map(|(name, directory)| {
        let python = fs::canonicalize(directory.join("bin/python3")).ok()?;
        let closed = closed_directory(&python).filter(|_| directory.join("pyvenv.cfg").exists())?;
        Some(format!(
            "--image {name}=...: its Python is {}, and {} is closed to the user of the pods, which take another one: make \
             the environment with a Python that all users can execute, as with /usr/bin/python3 -m venv",
            python.display(),
            closed.display()
        ))
    })
    .collect()
}

/// Whether a pod with a container of the image asks for a user other than root.
fn runs_as_another(job: &Value, image: &str) -> bool {
    pods(job).any(|pod| {
        let user = |of: &Value| of.pointer("/securityContext/runAsUser").and_then(Value::as_i64);
        let containers = pod.get("containers").and_then(Value::as_array);
        let mut containers = containers.into_iter().flatten();
        containers.any(|container| {
            let has_image = text(container, "/image") == Some(image);
            has_image
                && user(container)
                    .or_else(|| user(pod))
                    .is_some_and(|user| user != 0)
        })
    })
}

/// The directory on the way to a file that is open to its owner alone.
fn closed_directory(file: &Path) -> Option<&Path> {
    const OTHERS_PASS: u32 = 0o001;
    let is_closed = |directory: &&Path| {
        let metadata = fs::metadata(directory);
        metadata.is_ok_and(|metadata| metadata.permissions().mode() & OTHERS_PASS == 0)
    };
    file.ancestors().skip(1).find(is_closed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_here_and_what_nobody_has_is_found() {
        let container = json!({"name": "train", "image": "example/mnist"});
        let job = json!({"spec": {"roles": [{"template": {"spec": {"containers": [container]}}}]}});
        assert_eq!(unmapped(&job, |_| false), ["example/mnist"]);
        assert_eq!(unmapped(&job, |_| true), [""; 0]);
        let given = ["example/mnist".to_owned(), "mnist".to_owned()];
        assert_eq!(
            unused_notes(&job, given.iter()),
            ["--image mnist=... has no effect: the images of the job are example/mnist"]
        );
    }

    #[test]
    fn a_directory_that_a_volume_hides_is_told() {
        let notes = |mount: &str| {
            let mounts = json!([{"name": "tmp", "mountPath": mount}]);
            let container = json!({"name": "main", "image": "example/jax", "volumeMounts": mounts});
            let job = json!({"spec": {"roles": [{"template": {"spec": {"containers": [container]}}}]}});
            let images = BTreeMap::from([("example/jax".to_owned(), PathBuf::from("/tmp/mine/env"))]);
            hidden_notes(&job, &images)
        };
        let told = notes("/tmp");
        assert!(
            told[0].contains("the volume at /tmp hides /tmp/mine/env"),
            "{told:?}"
        );
        assert_eq!(notes("/tmp/m"), [""; 0]);
    }

    #[test]
    fn a_python_that_pods_can_not_execute_is_told() {
        let scratch = tempfile::tempdir().unwrap();
        fs::set_permissions(&scratch, fs::Permissions::from_mode(0o755)).unwrap();
        let home = scratch.path();
        let (python, env) = (home.join("private/python3"), home.join("env"));
        fs::create_dir_all(home.join("private")).unwrap();
        fs::create_dir_all(env.join("bin")).unwrap();
        fs::write(&python, "").unwrap();
        fs::write(env.join("pyvenv.cfg"), "").unwrap();
        std::os::unix::fs::symlink(&python, env.join("bin/python3")).unwrap();
        let images = BTreeMap::from([("example/jax".to_owned(), env)]);
        let notes = |user: i64| {
            let spec = json!({
                "securityContext": {"runAsUser": user},
                "containers": [{"name": "main", "image": "example/jax"}],
            });
            closed_notes(
                &json!({"spec": {"roles": [{"template": {"spec": spec}}]}}),
                &images,
            )
        };
        let mode = |mode: u32| {
            fs::set_permissions(home.join("private"), fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(0o700);
        let told = notes(1000);
        assert!(
            told[0].contains("private is closed to the user of the pods"),
            "{told:?}"
        );
        assert_eq!(notes(0), [""; 0], "root passes everywhere");
        mode(0o755);
        assert_eq!(notes(1000), [""; 0]);
    }
}
