//! Which places host files may have, and how long they may be.

use trainyard_api::{FieldError, HostFile, HostFileFormat};
use trainyard_contract::directories::mpi::DIRECTORY;
use trainyard_contract::directories::mpi::paths::{DISCOVERY, FILES, HOST_FILE, PROGRAM, SHELL, USABLE};
use trainyard_contract::directories::progress::DIRECTORY as PROGRESS_DIRECTORY;
use trainyard_contract::installation::UNFINISHED;

use crate::remote_shell::{OTHER_NAMES, directory, name};

const MAX_FILES: usize = 8;
const MAX_PATH: usize = 255;
/// The agent needs room for the name under which it makes the file: a dot before it, and
/// [`UNFINISHED`] after it.
const MAX_NAME: usize = 255 - 1 - UNFINISHED.len();
/// Of more lines the agent could not make a file within the memory that it has.
const MAX_LINES: i64 = 50_000;

/// Directories that images need as they are. A directory with host files replaces the one of the
/// image.
const NEEDED: &[&str] = &[
    "",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib64",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/local",
    "/usr/local/bin",
    "/usr/local/lib",
    "/usr/local/sbin",
    "/usr/sbin",
    "/usr/share",
    "/var",
    "/var/lib",
    "/var/run",
];

/// Below these nothing can be put.
const KERNEL: &[&str] = &["/dev", "/proc", "/sys"];

/// What is wrong with the places of host files that are given in a field, in a job whose
/// credentials are in a directory, and which reports its progress or does not.
pub(super) fn check(at: &str, files: &[HostFile], identity: &str, reports: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if files.len() > MAX_FILES {
        errors.push(FieldError::new(
            at,
            format!("at most {MAX_FILES} files are possible"),
        ));
    }
    for (i, file) in files.iter().enumerate() {
        let before = files.get(..i).unwrap_or_default();
        let in_the_way = || over_progress(directory(&file.path)).filter(|_| reports);
        let problem = problem(&file.path, identity).or_else(in_the_way);
        if let Some(problem) = problem.or_else(|| clash(&file.path, before)) {
            errors.push(FieldError::new(format!("{at}[{i}].path"), problem));
        }
    }
    errors
}

/// What is wrong with files that have a line for each of so many processes.
pub(super) fn check_length(at: &str, files: &[HostFile], processes: i64) -> Vec<FieldError> {
    let each = files.iter().enumerate();
    let too_long = each.filter(|(_, file)| file.format == HostFileFormat::Hosts && processes > MAX_LINES);
    too_long
        .map(|(i, _)| {
            FieldError::new(
                format!("{at}[{i}].format"),
                format!(
                    "a list of {processes} lines, one for each process, is too long: at most {MAX_LINES} are possible; give a \
                     format that says how many processes a host may have"
                ),
            )
        })
        .collect()
}

/// What is wrong with how a path is written.
pub(super) fn misspelt(path: &str) -> Option<String> {
    let printable = |c: char| !c.is_control();
    if path.len() > MAX_PATH || !path.chars().all(printable) {
        return Some(format!("give a path of at most {MAX_PATH} printable characters"));
    }
    let Some(rest) = path.strip_prefix('/') else {
        return Some(format!(
            "{path:?} is no absolute path: begin it with '/', such as /job/hostfile"
        ));
    };
    if rest.split('/').any(|step| matches!(step, "" | "." | "..")) {
        return Some(format!(
            "{path:?} has a step that is empty, '.' or '..': write the path of a file without them"
        ));
    }
    // A volume's place is written with colons between its parts.
    if path.contains(':') {
        return Some(format!("{path:?} has a ':': use another name"));
    }
    None
}

/// What is wrong with a path by itself, in a pod that has its credentials in a directory.
fn problem(path: &str, identity: &str) -> Option<String> {
    if let Some(problem) = misspelt(path) {
        return Some(problem);
    }
    if [HOST_FILE, SHELL, PROGRAM, FILES, DISCOVERY, USABLE].contains(&path) {
        return Some(format!(
            "{path} is there already, made by the operator: give another path"
        ));
    }
    if OTHER_NAMES.contains(&path) {
        return Some(format!(
            "{path} is a name by which the agent itself is called: give another path"
        ));
    }
    if name(path).len() > MAX_NAME || name(path).ends_with(UNFINISHED) {
        return Some(format!(
            "give a name of at most {MAX_NAME} bytes that does not end in {UNFINISHED}, as those do under which the agent makes files"
        ));
    }
    let directory = directory(path);
    if directory != DIRECTORY && is_within(directory, DIRECTORY) {
        return Some(format!(
            "{DIRECTORY} has no directories for host files: put it into {DIRECTORY} itself, or elsewhere"
        ));
    }
    if is_needed(directory) || is_within(directory, identity) || is_within(identity, directory) {
        return Some(format!(
            "the directory of host files replaces that of the image, which programs need: give a directory of its own, \
             such as /job/{}",
            path.rsplit('/').next().unwrap_or_default()
        ));
    }
    None
}

/// What is wrong with a directory of ours beside the one in which programs report their progress.
pub(super) fn over_progress(directory: &str) -> Option<String> {
    is_within(directory, PROGRESS_DIRECTORY).then(|| {
        format!(
            "{PROGRESS_DIRECTORY} is where programs report their progress: give another directory, or leave spec.progress out"
        )
    })
}

/// Whether programs need a directory as it is in the image, so that nothing can be put in its
/// place.
pub(super) fn is_needed(directory: &str) -> bool {
    NEEDED.contains(&directory) || KERNEL.iter().any(|kernel| is_within(directory, kernel))
}

/// What is wrong with a path beside others.
pub(super) fn clash(path: &str, others: &[HostFile]) -> Option<String> {
    let within = |one: &str, other: &str| one != other && is_within(one, other);
    others.iter().find_map(|other| {
        let (this, that) = (directory(path), directory(&other.path));
        if other.path == path {
            Some(format!("there is a host file {path} already: give each its own path"))
        } else if within(this, that) || within(that, this) {
            Some(format!(
                "{this} and {that} have host files, and one is inside of the other: use one directory, or two side by side"
            ))
        } else {
            None
        }
    })
}

/// Whether a path is a directory or something in it, in images of either kind: those in which
/// `/var/run` is a link to `/run`, as in most, and those in which it is not.
pub(super) fn is_within(path: &str, directory: &str) -> bool {
    is_below(path, directory) || is_below(behind_link(path), behind_link(directory))
}

fn is_below(path: &str, directory: &str) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Where a path leads if `/var/run` is a link to `/run`.
fn behind_link(path: &str) -> &str {
    let target = path.strip_prefix("/var");
    target.filter(|target| is_below(target, "/run")).unwrap_or(path)
}
