//! Limits of CPU and memory: a control group for each container with limits, below one for the run.
//!
//! Unlike everything else of a run, control groups do not go away with its namespaces. So the group
//! of a run is recorded in the run's directory before it is created, and is removed before that
//! directory.

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
const PREFIX: &str = "trainyard-";
/// The file with the processes of a group.
const MEMBERS: &str = "cgroup.procs";
const JOIN: &str = "put a command under the limits of its container";
/// Attempts to remove a group whose last processes are still ending.
const MAX_REMOVE_ATTEMPTS: u32 = 2000;
const REMOVE_RETRY_INTERVAL: Duration = Duration::from_millis(1);

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
    /// Thousandths of a processor: its share when there is not enough for all.
    pub requested_millicpus: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
}

/// Whether limits can be set here. Tries it and cleans up.
pub fn ability() -> Ability {
    let made = Trees::make(&format!("{PREFIX}probe-{}", std::process::id()), |_| Ok(()));
    for tree in &made.trees {
        remove(&tree.directory);
    }
    made.ability()
}

/// Removes the recorded groups of a run and kills their processes. Returns whether they are gone.
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

fn name(run: &Path) -> String {
    format!(
        "{PREFIX}{}",
        run.file_name().unwrap_or_default().to_string_lossy()
    )
}

/// The group of a run, with those of its containers below it. It is created for the first container
/// with limits.
#[derive(Debug)]
pub struct RunGroup {
    run: PathBuf,
    trees: OnceLock<Trees>,
}

impl RunGroup {
    pub fn new(run: &Path) -> Self {
        Self {
            run: run.to_owned(),
            trees: OnceLock::new(),
        }
    }

    /// Creates the group of a container, with those limits that this machine can enforce.
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

/// Records a group before it is created.
fn note(run: &Path, group: &Path) -> io::Result<()> {
    let mut record = OpenOptions::new()
        .create(true)
        .append(true)
        .open(run.join(RECORD))?;
    writeln!(record, "{}", group.display())
}

/// The group of a run in each hierarchy in which it could be created.
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

/// The group of a run in one hierarchy.
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

/// Enables controllers of cgroup v2 for the groups below. Returns those that are enabled.
fn delegate(directory: &Path, wanted: &[Controller]) -> io::Result<Vec<Controller>> {
    // Moving a process into a group below needs the right to write here.
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

fn most_processes() -> Option<u64> {
    let read = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).ok()?;
        text.trim().parse().ok()
    };
    [read("pid_max"), read("threads-max")].into_iter().flatten().min()
}

/// Writes to an existing file. Creating one here would fail with a misleading error.
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

/// The group of a container. It is removed when dropped, which must be after the end of its
/// processes.
#[derive(Debug, Default)]
pub struct Group {
    own: Vec<PathBuf>,
    members: Vec<PathBuf>,
    oom_kills: Option<File>,
}

/// Counts processes that the kernel killed because of the memory limit.
#[derive(Debug, Default)]
pub struct OomCounter(Option<File>);

impl OomCounter {
    /// Whether the kernel killed a process of the group because of its memory limit.
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
            // The limits of the run apply anyway. In cgroup v2 only leaf groups have processes.
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

    /// Files to which a process writes 0 to join the group.
    pub fn members(&self) -> &[PathBuf] {
        &self.members
    }

    /// The counter to read at the end. It is open, because the thread may see other files by then.
    pub fn take_oom_counter(&mut self) -> OomCounter {
        OomCounter(self.oom_kills.take())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for directory in &self.own {
            remove(directory);
        }
    }
}

/// Moves a process into a group after it was started.
#[derive(Debug)]
pub struct Joiner(Vec<File>);

impl Joiner {
    pub fn open(members: &[PathBuf]) -> Result<Self, Error> {
        let open = |file: &PathBuf| OpenOptions::new().write(true).open(file);
        let files: io::Result<Vec<File>> = members.iter().map(open).collect();
        files.map(Self).map_err(Error::new(JOIN))
    }

    /// Moves a process into the group, or kills it. Until this returns the process is not limited.
    pub fn join(self, mut child: Child) -> Result<Child, Error> {
        let pid = child.id().to_string();
        for mut file in self.0 {
            match file.write_all(pid.as_bytes()) {
                // It has ended.
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

/// Removes a group and those below it, and kills their processes. Returns whether they are gone.
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
    // Processes of other namespaces are shown as 0, which would mean this process.
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
