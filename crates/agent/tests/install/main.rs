//! `trainyard-agent install`, as a pod runs it, in a directory of this machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use rstest::rstest;
use tempfile::TempDir;

const AGENT: &str = env!("CARGO_BIN_EXE_trainyard-agent");

fn install(plan: &str) -> Output {
    // Whoever reads the files is another user, whatever the mask is.
    Command::new("/bin/sh")
        .args(["-c", "umask 077; exec \"$0\" install", AGENT])
        .env_clear()
        .env("TRAINYARD_INSTALL", plan)
        .output()
        .unwrap()
}

/// A plan with one list, at this path from the directory.
fn plan(directory: &Path, path: &str, format: &str) -> String {
    let directory = directory.display();
    format!(
        r#"{{"directory": "{directory}",
             "hosts": [{{"pattern": "train-launcher-0.train.ns", "from": 0, "count": 1, "slots": 1}},
                       {{"pattern": "train-worker-{{}}.train.ns", "from": 0, "count": 2, "slots": 4}}],
             "files": [{{"path": "{directory}/{path}", "format": "{format}"}}]}}"#
    )
}

fn succeeds(output: &Output) {
    assert_eq!(
        (output.status.code(), &*String::from_utf8_lossy(&output.stderr)),
        (Some(0), "")
    );
}

fn fails(output: &Output, code: i32, sentence: &str) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{told}");
    assert!(told.contains(sentence), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[rstest]
#[case(
    "OpenMPI",
    "train-launcher-0.train.ns slots=1\ntrain-worker-0.train.ns slots=4\ntrain-worker-1.train.ns slots=4\n"
)]
#[case(
    "DeepSpeed",
    "train-launcher-0.train.ns slots=1\ntrain-worker-0.train.ns slots=4\ntrain-worker-1.train.ns slots=4\n"
)]
#[case(
    "MPICH",
    "train-launcher-0.train.ns:1\ntrain-worker-0.train.ns:4\ntrain-worker-1.train.ns:4\n"
)]
#[case(
    "Intel",
    "train-launcher-0.train.ns:1\ntrain-worker-0.train.ns:4\ntrain-worker-1.train.ns:4\n"
)]
#[case(
    "Hosts",
    &format!(
        "train-launcher-0.train.ns\n{}{}",
        "train-worker-0.train.ns\n".repeat(4),
        "train-worker-1.train.ns\n".repeat(4)
    )
)]
fn puts_everything_in_place_also_twice(#[case] format: &str, #[case] list: &str) {
    let directory = TempDir::new().unwrap();
    let at = |name: &str| directory.path().join(name);
    for _ in 0..2 {
        succeeds(&install(&plan(directory.path(), "files/0/hosts", format)));
        assert_eq!(
            names(directory.path()),
            ["files", "kubexec.sh", "trainyard-agent"]
        );
        assert_eq!(names(&at("files/0")), ["hosts"]);
        assert_eq!(fs::read_to_string(at("files/0/hosts")).unwrap(), list);
        assert_eq!((mode(&at("files/0/hosts")), mode(&at("files"))), (0o644, 0o755));
        assert_eq!(mode(&at("trainyard-agent")), 0o755);
        let (program, shell) = (
            fs::metadata(at("trainyard-agent")),
            fs::metadata(at("kubexec.sh")),
        );
        assert_eq!(program.unwrap().ino(), shell.unwrap().ino());
    }
    let version = Command::new(at("trainyard-agent"))
        .arg("--version")
        .output()
        .unwrap();
    succeeds(&version);
}

#[test]
fn more_names_are_made_if_they_are_asked_for() {
    let directory = TempDir::new().unwrap();
    let at = directory.path().display();
    let plan = |name: &str| format!(r#"{{"directory": "{at}", "programs": ["ssh", "{name}"]}}"#);
    for _ in 0..2 {
        succeeds(&install(&plan("pdsh")));
        assert_eq!(
            names(directory.path()),
            ["kubexec.sh", "pdsh", "ssh", "trainyard-agent"]
        );
    }
    let output = Command::new(directory.path().join("pdsh")).output().unwrap();
    fails(&output, 2, "say on which hosts to run what");
    fails(
        &install(&plan("../x")),
        2,
        r#"programs[1] must be one of pdsh, ssh; it is "../x""#,
    );
}

#[test]
fn what_an_earlier_attempt_left_is_replaced() {
    let directory = TempDir::new().unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in [
        "trainyard-agent",
        ".trainyard-agent.trainyard-new",
        "kubexec.sh",
        ".kubexec.sh.trainyard-new",
        ".hostfile.trainyard-new",
    ] {
        fs::write(at(name), "half").unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o444)).unwrap();
    }
    let elsewhere = TempDir::new().unwrap();
    let victim = elsewhere.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    symlink(&victim, at("hostfile")).unwrap();
    succeeds(&install(&plan(directory.path(), "hostfile", "MPICH")));
    assert_eq!(
        names(directory.path()),
        ["hostfile", "kubexec.sh", "trainyard-agent"]
    );
    assert!(
        fs::read_to_string(at("hostfile"))
            .unwrap()
            .contains("train-worker-1.train.ns:4")
    );
    assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
}

#[test]
fn a_path_that_leaves_the_directory_is_refused() {
    let directory = TempDir::new().unwrap();
    let output = install(&plan(directory.path(), "../outside", "Intel"));
    fails(
        &output,
        2,
        "TRAINYARD_INSTALL: files[0].path must be the path of a file in",
    );
    assert!(names(directory.path()).is_empty());
    assert!(!directory.path().with_file_name("outside").exists());
}

#[test]
fn a_link_that_leaves_the_directory_is_refused() {
    let (directory, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    symlink(elsewhere.path(), directory.path().join("files")).unwrap();
    let output = install(&plan(directory.path(), "files/hosts", "Intel"));
    let path = directory.path().join("files");
    let sentence = format!(
        "can't make the directory {}: it is there and is no directory",
        path.display()
    );
    fails(&output, 1, &sentence);
    assert!(names(elsewhere.path()).is_empty());
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let directory = TempDir::new().unwrap();
    let missing = directory.path().join("missing");
    let output = install(&plan(&missing, "hostfile", "Intel"));
    let sentence = format!("can't copy this program to {}", missing.display());
    fails(&output, 1, &sentence);
}

#[test]
fn a_missing_variable_is_told() {
    let output = Command::new(AGENT).arg("install").env_clear().output().unwrap();
    fails(&output, 2, "trainyard-agent: TRAINYARD_INSTALL is not set");
}
