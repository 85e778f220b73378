//! A user's home with nothing in it but the program, and what runs of it leave on the machine.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use trainyard_eventually::eventually;

/// Nobody's number on any machine.
const USER: u32 = 54_321;

/// Whether the tests run as root.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A home, and who lives there.
pub struct Home {
    place: TempDir,
    user: Option<u32>,
}

/// How a run ended, and what it said.
#[derive(Debug)]
pub struct Output {
    pub code: Option<i32>,
    pub out: String,
    pub words: String,
}

impl Home {
    /// Of who runs the tests.
    pub fn own() -> Self {
        Self::of(None)
    }

    /// Of who runs the tests and, if that is root, of an ordinary user.
    pub fn each() -> Vec<Self> {
        let mut homes = vec![Self::own()];
        if is_root() {
            homes.push(Self::of(Some(USER)));
        }
        homes
    }

    fn of(user: Option<u32>) -> Self {
        let place = tempfile::tempdir().unwrap();
        // What is built may be where only root can look.
        let program = place.path().join("trainyard");
        if fs::hard_link(env!("CARGO_BIN_EXE_trainyard"), &program).is_err() {
            fs::copy(env!("CARGO_BIN_EXE_trainyard"), &program).unwrap();
        }
        let home = Self { place, user };
        fs::create_dir(home.work()).unwrap();
        if let Some(user) = user {
            for path in [home.path(), &home.work()] {
                chown(path, Some(user), Some(user)).unwrap();
            }
        }
        home
    }

    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Where its runs work.
    pub fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    /// A file that its runs find.
    pub fn file(&self, name: &str, content: &str) {
        fs::write(self.work().join(name), content).unwrap();
    }

    /// Whether it is root's.
    pub fn is_roots(&self) -> bool {
        self.user.is_none() && is_root()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.wrapped(&[], arguments)
    }

    /// As [`Home::command`], started by another program.
    pub fn wrapped(&self, by: &[&str], arguments: &[&str]) -> Command {
        // Where tests run in the background, as in a script, interrupts are ignored, and so they
        // would be by those tested.
        let mut command = Command::new("/usr/bin/env");
        command
            .arg("--default-signal")
            .args(by)
            .arg(self.path().join("trainyard"))
            .args(arguments)
            .current_dir(self.work())
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// A call that ends by itself.
    pub fn call(&self, arguments: &[&str]) -> Output {
        said(self.command(arguments))
    }

    /// A run that has printed its first line, which has to be `worker-0 | up`.
    pub fn start(&self, arguments: &[&str]) -> Running {
        Self::started(&mut self.command(arguments))
    }

    /// The same, of any command.
    pub fn started(command: &mut Command) -> Running {
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let words = child.stderr.take().unwrap();
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let mut running = Running { child, out, words };
        if line != "worker-0 | up\n" {
            let said = running.rest();
            panic!("{line}{said:?}");
        }
        running
    }

    /// What this machine allows its user.
    pub fn doctor(&self) -> Value {
        let said = self.call(&["doctor", "--output", "json"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        serde_json::from_str(&said.out).unwrap()
    }

    /// Whether limits are enforced for its user.
    pub fn has_limits(&self) -> bool {
        let report = self.doctor();
        let abilities = super::list(&report, "/abilities");
        let limits = abilities
            .iter()
            .find(|ability| super::text(ability, "/name").starts_with("limits"));
        limits.unwrap()["possible"] == true
    }

    /// Directories that its runs keep while they run.
    pub fn runs(&self) -> Vec<String> {
        let runs = fs::read_dir(self.path().join(".cache/trainyard/local/runs"));
        let names = runs.into_iter().flatten().flatten();
        names
            .map(|run| run.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// Processes that were started from it, with their network namespaces.
    pub fn processes(&self) -> Vec<(String, PathBuf)> {
        let mark = format!("HOME={}", self.path().display());
        let has_mark = |environment: Vec<u8>| {
            environment
                .split(|byte| *byte == 0)
                .any(|one| one == mark.as_bytes())
        };
        let mut found = Vec::new();
        for process in fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()) {
            if fs::read(process.join("environ")).is_ok_and(has_mark) {
                let command = fs::read(process.join("cmdline")).unwrap_or_default();
                let command = format!("{} {}", process.display(), String::from_utf8_lossy(&command));
                found.push((command, fs::read_link(process.join("ns/net")).unwrap_or_default()));
            }
        }
        found
    }
}

/// What a command that ends by itself says.
pub fn said(mut command: Command) -> Output {
    let output = command.output().unwrap();
    Output {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        words: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A run that goes on.
pub struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    words: ChildStderr,
}

impl Running {
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end.
    pub fn rest(&mut self) -> Output {
        let (mut out, mut words) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.words.read_to_string(&mut words).unwrap();
        Output {
            code: self.child.wait().unwrap().code(),
            out,
            words,
        }
    }
}

/// Also where a test has failed.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a machine has that runs could leave something in: mounts and links.
pub fn machine() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let links = Command::new("ip").args(["-o", "link"]).output().unwrap().stdout;
    let links = String::from_utf8(links).unwrap();
    // What comes after the flags are counters and states that change by themselves.
    let links = links.lines().filter_map(|line| line.split(' ').nth(1));
    let mounts = mounts.lines().map(|line| format!("mount {line}"));
    mounts.chain(links.map(|link| format!("link {link}"))).collect()
}

/// Waits until nothing is found any more: the kernel ends processes in its own time.
pub fn until_none<T: std::fmt::Debug>(what: &str, found: impl Fn() -> Vec<T>) {
    eventually(&format!("none of this: {what}"), || {
        let now = found();
        if now.is_empty() {
            Ok(())
        } else {
            Err(format!("{now:#?}"))
        }
    });
}

/// A job of one worker that runs a script of the shell, with more in its pod and its container.
pub fn job(script: &str, pod: &str, container: &str) -> String {
    format!(
        "
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: small}}
spec:
  framework: {{name: pytorch}}
  roles:
  - name: worker
    replicas: 1
    restartPolicy: Never
    template:
      spec:
        {pod}
        containers:
        - name: train
          image: none
          command: [sh, -c, {script:?}]
          {container}
"
    )
}
