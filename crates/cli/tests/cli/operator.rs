//! How the operator starts, and how it says that it can't.

use std::process::{Command, Output};

/// Starts an operator that can't start: its kubeconfig is the given text, and its address is
/// nobody's.
fn start(kubeconfig: &str, arguments: &[&str]) -> Output {
    start_by(
        Command::new(env!("CARGO_BIN_EXE_trainyard")),
        kubeconfig,
        arguments,
    )
}

/// The same, with what calls it.
fn start_by(mut program: Command, kubeconfig: &str, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig).unwrap();
    program
        .args(["operator", "--http-address", "192.0.2.1:80"])
        .args(arguments)
        .env("KUBECONFIG", file)
        .output()
        .unwrap()
}

const NOWHERE: &str = "
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: a, user: {}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
";

fn stderr(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_cause_is_said_once() {
    let contexts = ["current-context: a", "current-context: b"];
    for kubeconfig in contexts.map(|context| NOWHERE.replace("current-context: a", context)) {
        let said = stderr(&start(&kubeconfig, &[]));
        let last = said.lines().last().unwrap();
        assert!(last.starts_with("trainyard: "), "{said}");
        let parts: Vec<&str> = last.split(": ").filter(|part| part.len() > 12).collect();
        for part in &parts {
            assert_eq!(last.matches(part).count(), 1, "{part:?} in {last}");
        }
    }
}

#[test]
fn logs_in_a_file_have_no_colours() {
    for format in ["text", "json"] {
        let said = stderr(&start(NOWHERE, &["--log-format", format]));
        assert!(said.contains("starting"), "{said}");
        assert!(!said.contains('\u{1b}'), "{said}");
    }
}

/// As container runtimes start programs.
#[test]
fn as_many_files_are_open_as_the_system_allows() {
    let mut program = Command::new("sh");
    let few = "ulimit -Sn 256; exec \"$0\" \"$@\"";
    program.args(["-c", few, env!("CARGO_BIN_EXE_trainyard")]);
    let said = stderr(&start_by(
        program,
        NOWHERE,
        &["--log", "debug", "--log-format", "text"],
    ));
    let line = said.lines().find(|line| line.contains("more open files"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(
        line.contains("before=Some(256)") && !line.contains("now=Some(256)"),
        "{line}"
    );
}

#[test]
fn what_it_is_told_is_checked() {
    for arguments in [
        ["--watch-namespace", "a,,B b"],
        ["--concurrency", "0"],
        ["--namespace", "A"],
    ] {
        let said = stderr(&start(NOWHERE, &arguments));
        assert!(said.contains(arguments[0]), "{said}");
        assert!(!said.contains("starting"), "{said}");
    }
}
