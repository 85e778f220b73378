//! Images, which are not pulled here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::Value;

use super::command;
use super::manifest::containers;
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
}
