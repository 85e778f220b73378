//! Which places the volumes of users may have beside those of the operator.

use std::ptr;

use trainyard_api::{FieldError, TrainingJob};

use super::hostfiles::is_within;
use super::{containers, launching};
use crate::agent::PROGRESS_DIRECTORY;

/// A place in containers of users where the operator mounts something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its path.
    pub path: String,
    /// Whether the main container alone has it.
    pub main_only: bool,
    /// What is there.
    pub content: Content,
}

/// What the operator mounts into containers of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The agent, or the credentials of the job.
    Mpi,
    /// A directory with a host file of the user's.
    HostFile {
        /// The path of the file.
        file: String,
        /// The field that asks for it.
        field: String,
    },
    /// A program, or a file that a framework looks for.
    Program,
    /// The file to which programs append their progress.
    Progress,
}

impl Place {
    /// A place that all containers have.
    pub(super) fn of_all(path: impl Into<String>, content: Content) -> Self {
        Self {
            path: path.into(),
            main_only: false,
            content,
        }
    }

    /// A place that the main container has.
    pub(super) fn of_main(path: impl Into<String>, content: Content) -> Self {
        Self {
            main_only: true,
            ..Self::of_all(path, content)
        }
    }

    /// What is wrong with a volume of the user's at a path.
    fn problem(&self, path: &str) -> Option<String> {
        let in_place = is_within(path, &self.path);
        if !in_place && !is_within(&self.path, path) {
            return None;
        }
        let (what, or) = match &self.content {
            Content::Mpi => ("is where the operator puts what MPI needs", ""),
            Content::Program => ("is put there by the operator", ""),
            Content::Progress => (
                "is where programs report their progress",
                ", or leave spec.progress out",
            ),
            Content::HostFile { .. } => ("would be in the same place", ", or give the file another path"),
        };
        let subject = match &self.content {
            // It says where the file is, which is more than the directory.
            Content::HostFile { file, field } => format!("the host file {file} ({field})"),
            _ if in_place => self.path.clone(),
            _ => format!("{}, which {what},", self.path),
        };
        // Runtimes mount from the root downwards, so that ours would be seen: but no rule says so,
        // and ours needs a directory in the volume, which can't be made in one that is read-only.
        let around = "would be inside of the volume, which may hide it or have no place for it";
        let problem = if in_place { what } else { around };
        Some(format!(
            "{subject} {problem}: mount the volume somewhere else{or}"
        ))
    }
}

/// What is wrong with where volumes of users are mounted, in a job whose framework needs places in the pods of a role.
pub(super) fn check(job: &TrainingJob, places: impl Fn(&str) -> Vec<Place>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mounted = containers(job).filter(|(.., container)| container.volume_mounts.is_some());
    for (at, role, container) in mounted {
        let mut places = places(&role.name);
        if job.reports_progress() {
            places.push(Place::of_main(PROGRESS_DIRECTORY, Content::Progress));
        }
        let is_main = launching::main_of(role).is_some_and(|main| ptr::eq(main, container));
        // One without a path is refused where it is given.
        places.retain(|place| !place.path.is_empty() && (is_main || !place.main_only));
        for (m, mount) in container.volume_mounts.iter().flatten().enumerate() {
            let path = normal(&mount.mount_path);
            let problem = places.iter().find_map(|place| place.problem(&path));
            let error = |problem| FieldError::new(format!("{at}.volumeMounts[{m}].mountPath"), problem);
            errors.extend(problem.map(error));
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
