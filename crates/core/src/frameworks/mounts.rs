//! Which places the volumes of users may have beside those of the operator.

use std::ptr;

use trainyard_api::{FieldError, RoleSpec, TrainingJob};
use trainyard_contract::directories::drain::DIRECTORY as DRAIN_DIRECTORY;
use trainyard_contract::directories::progress::DIRECTORY as PROGRESS_DIRECTORY;

use super::hostfiles::is_within;
use super::{containers, launcher};
use crate::job::{Content, Elasticity, Place};

/// What is wrong with a volume of the user's at a path.
fn problem(place: &Place, path: &str) -> Option<String> {
    let in_place = is_within(path, &place.path);
    if !in_place && !is_within(&place.path, path) {
        return None;
    }
    let (what, or) = match &place.content {
        Content::Mpi => ("is where the operator puts what MPI needs", ""),
        Content::Declared => ("is where the framework puts something", ""),
        Content::Program => ("is put there by the operator", ""),
        Content::Progress => (
            "is where programs report their progress",
            ", or leave spec.progress out",
        ),
        Content::Drain => (
            "is where programs are told to leave",
            ", or leave spec.elastic out",
        ),
        Content::HostFile { .. } => ("would be in the same place", ", or give the file another path"),
    };
    let subject = match &place.content {
        // It says where the file is, which is more than the directory.
        Content::HostFile { file, field } => format!("the host file {file} ({field})"),
        _ if in_place => place.path.clone(),
        _ => format!("{}, which {what},", place.path),
    };
    // Runtimes mount from the root downwards, so that ours would be seen: but no rule says so,
    // and ours needs a directory in the volume, which can't be made in one that is read-only.
    let around = "would be inside of the volume, which may hide it or have no place for it";
    let problem = if in_place { what } else { around };
    Some(format!(
        "{subject} {problem}: mount the volume somewhere else{or}"
    ))
}

/// What is wrong with where volumes of users are mounted, in a job whose framework needs places in
/// the pods of a role.
pub(super) fn check(
    job: &TrainingJob,
    elasticity: Elasticity,
    places: impl Fn(&str) -> Vec<Place>,
) -> Vec<FieldError> {
    let elastic = job.spec.elastic_role().and_then(|role| job.spec.roles.get(role));
    let is_rigid = elasticity == Elasticity::Rigid;
    let run = job.spec.run_policy.as_ref();
    let is_drained = run.is_some_and(|run| run.drain_timeout_seconds.is_some());
    let may_leave =
        |role: &RoleSpec| is_drained || elastic.is_some_and(|elastic| is_rigid || ptr::eq(elastic, role));
    let mut errors = Vec::new();
    let mounted = containers(job).filter(|(.., container)| container.volume_mounts.is_some());
    for (at, role, container) in mounted {
        let mut places = places(&role.name);
        if job.reports_progress() {
            places.push(Place::of_main(PROGRESS_DIRECTORY, Content::Progress));
        }
        if may_leave(role) {
            places.push(Place::of_main(DRAIN_DIRECTORY, Content::Drain));
        }
        let is_main = launcher::main_of(role).is_some_and(|main| ptr::eq(main, container));
        // One without a path is refused where it is given.
        places.retain(|place| !place.path.is_empty() && (is_main || !place.main_only));
        for (m, mount) in container.volume_mounts.iter().flatten().enumerate() {
            let path = normal(&mount.mount_path);
            let problem = places.iter().find_map(|place| problem(place, &path));
            let error = |problem| FieldError::new(format!("{at}.volumeMounts[{m}].mountPath"), problem);
            errors.extend(problem.map(error));
        }
    }
    errors
}

/// The place that a path means to a kubelet and a runtime, however it is written. That of the root
/// is empty.
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
