//! The machine as the tests see it: users, processes, and what is left of them.

use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::chown;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::unistd::geteuid;
use tempfile::TempDir;

/// Nobody's number on any machine.
const USER: u32 = 54_321;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Identity {
    Root,
    User,
}

impl Identity {
    pub const ALL: [Self; 2] = [Self::Root, Self::User];

    /// Root can be both; everyone else is what they are.
    pub fn is_possible(self) -> bool {
        self == Self::User || geteuid().is_root()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "root",
            Self::User => "user",
        })
    }
}

/// A home, and this program started from it.
pub struct Run {
    identity: Identity,
    home: TempDir,
}

impl Run {
    pub fn new(identity: Identity) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("work")).unwrap();
        fs::create_dir(home.path().join("state")).unwrap();
        if matches!(identity, Identity::User) && geteuid().is_root() {
            for path in [home.path(), &home.path().join("work"), &home.path().join("state")] {
                chown(path, Some(USER), Some(USER)).unwrap();
            }
        }
        Self { identity, home }
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Directories of runs in the state directory.
    pub fn runs(&self) -> usize {
        fs::read_dir(self.home().join("state")).unwrap().count()
    }

    /// The names of these directories.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.home().join("state")).unwrap().flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// This program, where the user can reach it: what is built may be in a directory that is
    /// root's alone.
    pub fn program(&self) -> PathBuf {
        let built = std::env::current_exe().unwrap();
        let reachable = self.home().join("program");
        if !reachable.exists() && fs::hard_link(&built, &reachable).is_err() {
            fs::copy(&built, &reachable).unwrap();
        }
        reachable
    }

    fn command(&self, arguments: &[&str]) -> Command {
        // Where tests run in the background, as in a script, interrupts are ignored, and so they
        // would be by those tested.
        let mut command = self.command_of(Path::new("/usr/bin/env"));
        command
            .arg("--default-signal")
            .arg(self.program())
            .arg("run")
            .args(arguments);
        command
    }

    fn command_of(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.home().join("work"))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.home())
            .env(super::inside::STATE, self.home().join("state"))
            .stdin(Stdio::null());
        if matches!(self.identity, Identity::User) && geteuid().is_root() {
            command.uid(USER).gid(USER);
        }
        command
    }

    /// Runs to the end, which has to be a good one. What it printed.
    pub fn to_end(&self, arguments: &[&str]) -> String {
        Self::end_of(&mut self.command(arguments))
    }

    fn end_of(command: &mut Command) -> String {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?}\n{said}{errors}", output.status);
        said
    }

    /// As [`Run::to_end`], of a program whose file has been removed.
    pub fn to_end_without_file(&self, arguments: &[&str]) -> String {
        let program = self.program();
        let open = fs::File::open(&program).unwrap();
        fs::remove_file(program).unwrap();
        let program = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        Self::end_of(self.command_of(&program).arg("run").args(arguments))
    }

    /// As [`Run::to_end`], after a shell has done something in the same process.
    pub fn to_end_after(&self, script: &str, arguments: &[&str]) -> String {
        let program = self.program();
        let script = format!("{script} exec {} run {}", program.display(), arguments.join(" "));
        let mut command = self.command_of(Path::new("/bin/sh"));
        Self::end_of(command.args(["-c", &script]))
    }

    /// As [`Run::to_end`], for a user to whom a group was given.
    pub fn to_end_in(&self, group: &Delegated, arguments: &[&str]) -> String {
        let inner = self.command(arguments);
        let mut command = Command::new("sh");
        let files = group
            .0
            .iter()
            .map(|group| format!("echo $$ > {}/cgroup.procs; ", group.display()));
        let script = format!(
            "{}exec setpriv --reuid {USER} --regid {USER} --clear-groups \"$@\"",
            files.collect::<String>()
        );
        command
            .args(["-c", &script, "sh"])
            .arg(inner.get_program())
            .args(inner.get_args());
        command.current_dir(self.home().join("work")).env_clear();
        for (name, value) in inner.get_envs() {
            command.env(name, value.unwrap());
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?}\n{errors}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn start(&self, arguments: &[&str]) -> Running {
        let mut child = self.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Running { child, stdout }
    }
}

/// Groups of the first form that belong to the ordinary user.
pub struct Delegated(Vec<PathBuf>);

impl Delegated {
    fn parents() -> Vec<PathBuf> {
        let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let parent = |line: &str| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (tree, group) = (fields.next()?, fields.next()?);
            let directory = Path::new("/sys/fs/cgroup")
                .join(tree)
                .join(group.trim_start_matches('/'));
            (["cpu", "memory", "pids"].contains(&tree) && directory.exists()).then_some(directory)
        };
        memberships.lines().filter_map(parent).collect()
    }

    pub fn is_possible() -> bool {
        geteuid().is_root() && Self::parents().len() == 3
    }

    pub fn make() -> Self {
        let name = format!("trainyard-test-{}", std::process::id());
        let groups: Vec<PathBuf> = Self::parents()
            .into_iter()
            .map(|parent| parent.join(&name))
            .collect();
        for group in &groups {
            fs::create_dir(group).unwrap();
            for path in [group.clone(), group.join("cgroup.procs")] {
                chown(path, Some(USER), Some(USER)).unwrap();
            }
        }
        Self(groups)
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for group in &self.0 {
            if let Err(error) = fs::remove_dir(group) {
                eprintln!("{} is left: {error}", group.display());
            }
        }
    }
}

pub struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Reads up to a line.
    pub fn expect(&mut self, wanted: &str) {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).unwrap() > 0 {
            if line.trim_end() == wanted {
                return;
            }
            line.clear();
        }
        panic!("ended without {wanted:?}");
    }

    pub fn signal(&self, name: &str) {
        let signal = format!("SIG{name}").parse::<nix::sys::signal::Signal>().unwrap();
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    pub fn end(mut self) -> i32 {
        self.stdout.read_to_string(&mut String::new()).unwrap();
        let status = self.child.wait().unwrap();
        status.code().or(status.signal().map(|s| 128 + s)).unwrap()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // Its output is closed when the last process that has it is gone.
        self.stdout.read_to_string(&mut String::new()).unwrap();
    }
}

pub mod remains {
    use trainyard_eventually::eventually;

    use super::{PathBuf, Run, fs};

    /// Processes whose environment or directory is in the home of a run, as this machine sees them.
    pub struct Remains(PathBuf);

    pub fn of(run: &Run) -> Remains {
        Remains(run.home().to_owned())
    }

    impl Remains {
        fn processes(&self) -> Vec<String> {
            let home = self.0.to_str().unwrap().to_owned();
            let mut found = Vec::new();
            for entry in fs::read_dir("/proc").unwrap().flatten() {
                let Some(pid) = entry
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse::<u32>().ok())
                else {
                    continue;
                };
                let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
                let directory = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
                if String::from_utf8_lossy(&environment).contains(&home) || directory.starts_with(&self.0) {
                    let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                    found.push(format!("{pid} {}", String::from_utf8_lossy(&command)));
                }
            }
            found
        }

        pub fn assert_none(&self) {
            until("processes are left", || self.processes());
        }
    }

    /// Mounts, links and network namespaces of the machine.
    pub struct Machine(Vec<String>);

    pub fn of_machine() -> Machine {
        let mut all = Vec::new();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        all.extend(mounts.lines().map(|line| format!("mount {line}")));
        for entry in fs::read_dir("/sys/class/net").unwrap().flatten() {
            all.push(format!("link {}", entry.file_name().display()));
        }
        Machine(all)
    }

    impl Machine {
        pub fn assert_same(&self) {
            let before = &self.0;
            let now = of_machine().0;
            let added: Vec<_> = now.iter().filter(|one| !before.contains(one)).collect();
            assert!(added.is_empty(), "left on the machine: {added:#?}");
        }
    }

    /// The network namespaces that processes of a run are in, without that of the machine.
    pub struct Namespaces(Vec<PathBuf>);

    impl Remains {
        pub fn namespaces(&self) -> Namespaces {
            let own = fs::read_link("/proc/self/ns/net").unwrap();
            let pids = self.processes();
            let pids = pids.iter().filter_map(|process| process.split(' ').next());
            let namespaces = pids.filter_map(|pid| fs::read_link(format!("/proc/{pid}/ns/net")).ok());
            Namespaces(namespaces.filter(|namespace| *namespace != own).collect())
        }
    }

    impl Namespaces {
        pub fn assert_gone(&self) {
            // The yard's and the pod's.
            assert!(self.0.len() > 1, "the test looks for the wrong namespaces");
            until("network namespaces are left", || {
                let processes = fs::read_dir("/proc").unwrap().flatten();
                let all = processes.filter_map(|entry| fs::read_link(entry.path().join("ns/net")).ok());
                all.filter(|namespace| self.0.contains(namespace))
                    .map(|namespace| namespace.display().to_string())
                    .collect()
            });
        }
    }

    /// The kernel ends processes in its own time.
    fn until(what: &str, found: impl Fn() -> Vec<String>) {
        eventually(&format!("no longer {what}"), || {
            let now = found();
            if now.is_empty() {
                Ok(())
            } else {
                Err(format!("{now:#?}"))
            }
        });
    }
}
