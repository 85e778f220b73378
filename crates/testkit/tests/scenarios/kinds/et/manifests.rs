//! et-operator's own manifests, letter by letter but for images and commands, which are some that
//! exist here.
//!
//! Tests change what depends on where they run, too: the namespace is theirs, images are in no
//! registry, and pods are told where the observer is, because the operator runs outside of the
//! cluster.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// What workers of these manifests ask for.
pub const ACCELERATOR: &str = "nvidia.com/gpu";

/// A manifest as it is.
pub fn read(file: &str) -> Value {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../compat/tests/manifests/et");
    let text = fs::read_to_string(Path::new(directory).join(file)).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

/// A job with another image, whose launcher runs a line of a shell.
pub fn job(file: &str, aliases: &Value, image: &str, line: &str) -> Value {
    let mut job = read(file);
    job["metadata"].as_object_mut().unwrap().remove("namespace");
    let roles = &mut job["spec"]["etReplicaSpecs"];
    for role in ["launcher", "worker"] {
        let pod = &mut roles[role]["template"]["spec"];
        pod["hostAliases"] = aliases.clone();
        let main = &mut pod["containers"][0];
        main["image"] = image.into();
        main["imagePullPolicy"] = "IfNotPresent".into();
    }
    roles["launcher"]["template"]["spec"]["containers"][0]["command"][2] = line.into();
    job
}
