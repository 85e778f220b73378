//! Which places the volumes of users may have beside those of the agent.

use trainyard_api::{FieldError, HostFile, TrainingJob};

use super::hostfiles::is_within;
use super::{containers, launching};
use crate::attach::{DIRECTORY, directory};

/// What is wrong with where volumes of users are mounted, in a job whose `listing` role has these host files and
/// whose credentials are in a directory.
pub(super) fn check(job: &TrainingJob, files: &[HostFile], listing: &str, identity: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (at, role, container) in containers(job) {
        let files = if role.name == listing { files } else { &[] };
        for (m, mount) in container.volume_mounts.iter().flatten().enumerate() {
            let path = &*normal(&mount.mount_path);
            let problem = reserved(path, identity)
                .or_else(|| holds_a_file(path, &launching::field(job, "hostFiles"), files));
            let error = |problem| FieldError::new(format!("{at}.volumeMounts[{m}].mountPath"), problem);
            errors.extend(problem.map(error));
        }
    }
    errors
}

/// What is wrong with where volumes of users are mounted beside files that the operator puts into pods of a role.
pub(super) fn check_beside(job: &TrainingJob, taken: &[&str], role: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (at, _, container) in containers(job).filter(|(_, of, _)| of.name == role) {
        for (m, mount) in container.volume_mounts.iter().flatten().enumerate() {
            let path = &*normal(&mount.mount_path);
            let file = taken
                .iter()
                .find(|file| is_within(file, path) || is_within(path, file));
            errors.extend(file.map(|file| {
                FieldError::new(
                    format!("{at}.volumeMounts[{m}].mountPath"),
                    format!("{file} is put there by the operator: mount the volume somewhere else"),
                )
            }));
        }
    }
    errors
}

/// The place that a path means to a kubelet and a runtime, however it is written. That of the root is empty.
fn normal(path: &str) -> String {
    let mut steps = Vec::new();
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => drop(steps.pop()),
            step => steps.push(format!("/{step}")),
        }
    }
    steps.concat()
}

fn reserved(path: &str, identity: &str) -> Option<String> {
    let taken = [DIRECTORY, identity]
        .into_iter()
        .find(|taken| is_within(path, taken));
    taken.map(|taken| {
        format!("{taken} is where the operator puts what MPI needs: mount the volume somewhere else")
    })
}

/// A volume and a directory of host files in each other's place.
fn holds_a_file(path: &str, field: &str, files: &[HostFile]) -> Option<String> {
    let (i, file) = files.iter().enumerate().find(|(_, file)| {
        let directory = directory(&file.path);
        directory != DIRECTORY && (is_within(directory, path) || is_within(path, directory))
    })?;
    Some(format!(
        "the host file {} ({field}[{i}]) would be in the same place: mount the volume somewhere else, \
         or give the file another path",
        file.path
    ))
}
