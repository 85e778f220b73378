//! Limits of processors and memory: control groups, one for each container that has limits, below
//! one of the run's own.
//!
//! Unlike all else of a run, groups are made where the kernel does not take them away with it. So
//! the group of a run is written down in the run's directory before it is made, and whoever removes
//! that directory removes the group first.

mod find;
mod settings;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use self::find::{Controller, Parent, Version};
use super::Ability;

/// The file in the directory of a run that names its groups.
const RECORD: &str = "groups";
/// How the groups of runs are named.
const PREFIX: &str = "trainyard-";
/// The file of a group that its processes are in.
const MEMBERS: &str = "cgroup.procs";
/// What failed when a process could not join a group.
const JOIN: &str = "put a command under the limits of its container";
/// How often to try to remove a group whose last processes are still ending.
const MAX_REMOVE_ATTEMPTS: u32 = 2000;
const REMOVE_RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Why a container can't be limited.
#[derive(Debug, thiserror::Error)]
#[error("could not {what}: {source}")]
pub struct Error {
    /// What was tried.
    pub what: String,
    pub source: io::Error,
}

impl Error {
    fn new(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self {
            what: what.into(),
            source,
        }
    }
}

/// Limits of one container; absent is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Thousandths of a processor.
    pub millicpus: Option<u64>,
    /// Thousandths of a processor by which the kernel weighs it against others when there is not
    /// enough for all.
    pub requested_millicpus: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
}

/// Whether limits can be set here. Tries it, and leaves nothing.
pub fn ability() -> Ability {
    let made = Trees::make(&format!("{PREFIX}probe-{}", std::process::id()), |_| Ok(()));
    for tree in &made.trees {
        remove(&tree.directory);
    }
    made.ability()
}

/// Removes the groups that are written down in the directory of a run, with all that is in them.
/// Whether they are gone.
pub fn remove_recorded(run: &Path) -> bool {
    let record = fs::read_to_string(run.join(RECORD)).unwrap_or_default();
    let name = name(run);
    let own = record
        .lines()
        .map(Path::new)
        .filter(|group| group.file_name().is_some_and(|found| *found == *name));
    let left = own.filter(|group| !remove(group)).count();
    left == 0
}

/// The name of a run's groups.
fn name(run: &Path) -> String {
    format!(
        "{PREFIX}{}",
        run.file_name().unwrap_or_default().to_string_lossy()
    )
}

/// The group of one run, in which those of its containers are. It is made for the first container
/// with limits.
#[derive(Debug)]
pub struct RunGroup {
    run: PathBuf,
    trees: OnceLock<Trees>,
}

impl RunGroup {
    /// For the run that has this directory.
    pub fn new(run: &Path) -> Self {
        Self {
            run: run.to_owned(),
            trees: OnceLock::new(),
        }
    }

    /// Makes the group of a container, with those of its limits that this machine can enforce.
    pub fn group(&self, id: &str, limits: Limits) -> Result<Group, Error> {
        let mut group = Group::default();
        if limits == Limits::default() {
            return Ok(group);
        }
        let made = self
            .trees
            .get_or_init(|| Trees::make(&name(&self.run), |group| note(&self.run, group)));
        for tree in &made.trees {
            group.make_in(tree, id, limits)?;
        }
        Ok(group)
    }
}

/// Writes down that a group is about to be made.
fn note(run: &Path, group: &Path) -> io::Result<()> {
    let mut record = OpenOptions::new()
        .create(true)
        .append(true)
        .open(run.join(RECORD))?;
    writeln!(record, "{}", group.display())
}

/// The group of a run in each tree in which it could be made.
#[derive(Debug, Default)]
struct Trees {
    trees: Vec<Tree>,
    refusals: Vec<String>,
}

impl Trees {
    fn make(name: &str, note: impl Fn(&Path) -> io::Result<()>) -> Self {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let mut made = Self::default();
        for parent in find::parents(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup")) {
            match Tree::make(&parent, name, &note) {
                Ok(tree) => made.trees.push(tree),
                Err(refusal) => made.refusals.push(refusal),
            }
        }
        made
    }

    fn ability(&self) -> Ability {
        let has = |controller: &Controller| {
            self.trees
                .iter()
                .any(|tree| tree.controllers.contains(controller))
        };
        let wanted = [Controller::Cpu, Controller::Memory];
        let missing: Vec<&str> = wanted
            .iter()
            .filter(|controller| !has(controller))
            .map(|controller| controller.name())
            .collect();
        if missing.is_empty() {
            return Ability::Yes;
        }
        let reason = if self.refusals.is_empty() {
            "there are no such control groups on this machine".to_owned()
        } else {
            self.refusals.join("; ")
        };
        Ability::no(format!("{}: {reason}", missing.join(" and ")))
    }
}

/// The group of a run in one tree.
#[derive(Debug)]
struct Tree {
    version: Version,
    controllers: Vec<Controller>,
    directory: PathBuf,
}

impl Tree {
    fn make(parent: &Parent, name: &str, note: &impl Fn(&Path) -> io::Result<()>) -> Result<Self, String> {
        let refused = |error: io::Error| {
            let hint = match (parent.version, error.kind()) {
                (Version::Two, io::ErrorKind::PermissionDenied) => {
                    "; `systemd-run --user --scope trainyard run ...` starts it in a group that may be divided"
                }
                _ => "",
            };
            format!("{}: {error}{hint}", parent.directory.display())
        };
        let controllers = match parent.version {
            Version::One => parent.controllers.clone(),
            Version::Two => delegate(&parent.directory, &parent.controllers).map_err(refused)?,
        };
        let tree = Self {
            version: parent.version,
            controllers,
            directory: parent.directory.join(name),
        };
        note(&tree.directory).map_err(refused)?;
        fs::create_dir(&tree.directory).map_err(refused)?;
        match tree.prepare() {
            Ok(()) => Ok(tree),
            Err(error) => {
                remove(&tree.directory);
                Err(refused(error))
            }
        }
    }

    fn prepare(&self) -> io::Result<()> {
        if self.version == Version::Two {
            delegate(&self.directory, &self.controllers)?;
        }
        if self.controllers.contains(&Controller::Pids)
            && let Some(of_machine) = most_processes()
        {
            write(&self.directory, &settings::most_processes(of_machine))?;
        }
        Ok(())
    }
}

/// Has a group of the second form give controllers to the groups below it. Those that it gives.
fn delegate(directory: &Path, wanted: &[Controller]) -> io::Result<Vec<Controller>> {
    // A process comes into a group below only with the right to write here.
    OpenOptions::new().write(true).open(directory.join(MEMBERS))?;
    let listed = |file: &str| -> io::Result<Vec<Controller>> {
        let names = fs::read_to_string(directory.join(file))?;
        let has = |controller: &Controller| names.split_whitespace().any(|name| name == controller.name());
        Ok(wanted.iter().copied().filter(has).collect())
    };
    let available = listed("cgroup.controllers")?;
    let given = listed("cgroup.subtree_control")?;
    for controller in available.iter().filter(|controller| !given.contains(controller)) {
        put(
            &directory.join("cgroup.subtree_control"),
            &format!("+{}", controller.name()),
        )?;
    }
    if available.is_empty() {
        return Err(io::Error::other("it may not limit anything"));
    }
    Ok(available)
}

/// How many processes the machine may have.
fn most_processes() -> Option<u64> {
    let read = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).ok()?;
        text.trim().parse().ok()
    };
    [read("pid_max"), read("threads-max")].into_iter().flatten().min()
}

/// Writes to a file that is there; to one that is not the kernel would say that it is forbidden.
fn put(file: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(file)?
        .write_all(value.as_bytes())
}

fn write(directory: &Path, setting: &settings::Setting) -> io::Result<()> {
    match put(&directory.join(setting.file), &setting.value) {
        Err(error) if setting.may_be_missing && error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// What one container is counted in. It is removed when dropped, to be done when its processes have
/// ended.
#[derive(Debug, Default)]
pub struct Group {
    own: Vec<PathBuf>,
    members: Vec<PathBuf>,
    oom_kills: Option<File>,
}

/// How many processes of a container the kernel ended for want of memory.
#[derive(Debug, Default)]
pub struct OomCounter(Option<File>);

impl OomCounter {
    /// Whether the kernel ended a process of the group for want of memory.
    pub fn out_of_memory(self) -> bool {
        let content = self.0.and_then(|file| io::read_to_string(file).ok());
        content.is_some_and(|content| settings::oom_kills(&content) > 0)
    }
}

impl Group {
    fn make_in(&mut self, tree: &Tree, id: &str, limits: Limits) -> Result<(), Error> {
        let settings = tree.controllers.iter();
        let settings: Vec<_> = settings
            .flat_map(|controller| settings::of_container(tree.version, *controller, limits))
            .collect();
        if settings.is_empty() {
            // The limits of the run hold for it all the same. In the second form only groups at the
            // end have processes.
            if tree.version == Version::One {
                self.members.push(tree.directory.join(MEMBERS));
            }
            return Ok(());
        }
        let directory = tree.directory.join(id);
        let what = || format!("make the control group {}", directory.display());
        fs::create_dir(&directory).map_err(Error::new(what()))?;
        self.own.push(directory.clone());
        self.members.push(directory.join(MEMBERS));
        if tree.controllers.contains(&Controller::Memory) {
            let file = directory.join(settings::oom_kills_file(tree.version));
            let open = File::open(&file).map_err(Error::new(format!("open {}", file.display())));
            self.oom_kills = Some(open?);
        }
        for setting in settings {
            let what = || {
                format!(
                    "write {} to {}",
                    setting.value,
                    directory.join(setting.file).display()
                )
            };
            write(&directory, &setting).map_err(Error::new(what()))?;
        }
        Ok(())
    }

    /// Files to which a process writes 0 to be in the group.
    pub fn members(&self) -> &[PathBuf] {
        &self.members
    }

    /// What is to be asked at the end, also by a thread that does not see these files any more.
    pub fn take_oom_counter(&mut self) -> OomCounter {
        OomCounter(self.oom_kills.take())
    }

    /// Whether the container has no group of its own, so that there is nothing to remove.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for directory in &self.own {
            remove(directory);
        }
    }
}

/// Puts a process into a group that it was started outside of.
#[derive(Debug)]
pub struct Joiner(Vec<File>);

impl Joiner {
    /// Opens what [`Group::members`] names.
    pub fn open(members: &[PathBuf]) -> Result<Self, Error> {
        let open = |file: &PathBuf| OpenOptions::new().write(true).open(file);
        let files: io::Result<Vec<File>> = members.iter().map(open).collect();
        files.map(Self).map_err(Error::new(JOIN))
    }

    /// Puts a process into the group, or kills it. Until this returns the process is not limited.
    pub fn join(self, mut child: Child) -> Result<Child, Error> {
        let pid = child.id().to_string();
        for mut file in self.0 {
            match file.write_all(pid.as_bytes()) {
                // It was quick, and has ended.
                Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => {}
                Err(error) => {
                    drop(child.kill());
                    drop(child.wait());
                    return Err(Error::new(JOIN)(error));
                }
                Ok(()) => {}
            }
        }
        Ok(child)
    }
}

/// Removes a group and those below it, and ends what is still in them. Whether they are gone.
fn remove(directory: &Path) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    for entry in below {
        remove(&entry.path());
    }
    for _ in 0..MAX_REMOVE_ATTEMPTS {
        match fs::remove_dir(directory) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => end_members(directory),
            Err(_) => return false,
        }
        thread::sleep(REMOVE_RETRY_INTERVAL);
    }
    false
}

fn end_members(directory: &Path) {
    let members = fs::read_to_string(directory.join(MEMBERS)).unwrap_or_default();
    // Processes that this one can't see are shown as 0, which would be this one.
    let members = members
        .lines()
        .filter_map(|pid| pid.parse().ok())
        .filter(|pid| *pid > 0);
    for pid in members {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_of_the_run_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let run = place.path().join("run-a");
        let group = |name: &str| {
            let group = place.path().join(name);
            fs::create_dir_all(group.join("below")).unwrap();
            group
        };
        fs::create_dir(&run).unwrap();
        let (own, foreign) = (group("trainyard-run-a"), group("trainyard-run-b"));
        note(&run, &own).unwrap();
        note(&run, &foreign).unwrap();
        note(&run, &place.path().join("gone/trainyard-run-a")).unwrap();
        assert!(remove_recorded(&run));
        assert!(!own.exists() && foreign.exists());
        assert!(
            remove_recorded(place.path()),
            "a run without groups has none to remove"
        );
    }

    #[test]
    fn a_group_of_the_second_form_gives_what_it_has() {
        let place = tempfile::tempdir().unwrap();
        let file = |name: &str| place.path().join(name);
        fs::write(file(MEMBERS), "").unwrap();
        fs::write(file("cgroup.controllers"), "cpuset cpu memory\n").unwrap();
        fs::write(file("cgroup.subtree_control"), "cpu\n").unwrap();
        let given = delegate(place.path(), &Controller::ALL).unwrap();
        assert_eq!(given, [Controller::Cpu, Controller::Memory]);
        assert_eq!(
            fs::read_to_string(file("cgroup.subtree_control")).unwrap(),
            "+memory"
        );
        fs::write(file("cgroup.controllers"), "\n").unwrap();
        assert!(delegate(place.path(), &Controller::ALL).is_err());
    }
}
