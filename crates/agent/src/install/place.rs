//! Makes the files.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use trainyard_contract::directories::mpi::names::{DISCOVERY, PROGRAM, SHELL, USABLE};
use trainyard_contract::host_list::{Format, all, list};
use trainyard_contract::installation::UNFINISHED;

use super::plan::Plan;

/// The running program, even if its path has another file by now.
const THIS_PROGRAM: &str = "/proc/self/exe";

const PROGRAM_MODE: u32 = 0o755;
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// Why a file can't be made.
#[derive(Debug, thiserror::Error)]
#[error("can't {action} {path}: {source}")]
pub struct PlaceError {
    action: &'static str,
    path: String,
    source: io::Error,
}

/// Creates all files of the plan. Existing ones are replaced.
pub fn place(plan: &Plan) -> Result<(), PlaceError> {
    let directory = &plan.directory;
    let program = directory.join(PROGRAM);
    replace(&program, |new| {
        fs::copy(THIS_PROGRAM, new).map_err(failed("copy this program to", new))?;
        mode(new, PROGRAM_MODE)
    })?;
    for name in plan.programs.iter().copied().chain([SHELL]) {
        replace(&directory.join(name), |new| {
            fs::hard_link(&program, new).map_err(failed("link the program to", new))
        })?;
    }
    for file in &plan.files {
        write(directory, &file.path, &file.text)?;
    }
    let usable = list(&all(&plan.hosts), Format::MPICH);
    for place in plan.discovery() {
        write(directory, &place.join(USABLE), &usable)?;
        replace(&directory.join(place).join(DISCOVERY), |new| {
            fs::hard_link(&program, new).map_err(failed("link the program to", new))
        })?;
    }
    Ok(())
}

/// Writes a file of the directory, with the directories that it is in.
pub(crate) fn write(directory: &Path, path: &Path, text: &str) -> Result<(), PlaceError> {
    let mut parent = directory.to_owned();
    for name in path.parent().into_iter().flat_map(Path::components) {
        parent.push(name);
        enter(&parent)?;
    }
    replace(&directory.join(path), |new| {
        fs::write(new, text).map_err(failed("write", new))?;
        mode(new, FILE_MODE)
    })
}

/// Creates a directory if it does not exist. A link is refused, because it may lead out of the
/// volume.
fn enter(directory: &Path) -> Result<(), PlaceError> {
    match fs::create_dir(directory) {
        // The list may be read by another user.
        Ok(()) => mode(directory, DIRECTORY_MODE),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(directory).map_err(failed("look at", directory))?;
            if found.is_dir() {
                Ok(())
            } else {
                let problem = io::Error::new(ErrorKind::NotADirectory, "it is there and is no directory");
                Err(failed("make the directory", directory)(problem))
            }
        }
        Err(error) => Err(failed("make the directory", directory)(error)),
    }
}

/// Writes a file beside the one that it replaces, so that no reader sees a part of it.
fn replace(path: &Path, make: impl FnOnce(&Path) -> Result<(), PlaceError>) -> Result<(), PlaceError> {
    let new = unfinished(path);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed("remove", &new)(error)),
        _ => {}
    }
    make(&new)?;
    fs::rename(&new, path).map_err(failed("put in place", path))
}

/// Always the same name, so that the file of an interrupted attempt is overwritten.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or(OsStr::new("file")));
    name.push(UNFINISHED);
    path.with_file_name(name)
}

/// Sets the mode in spite of the umask.
fn mode(path: &Path, mode: u32) -> Result<(), PlaceError> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed("set the mode of", path))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PlaceError {
    let path = path.display().to_string();
    move |source| PlaceError { action, path, source }
}
