//! The command line as a user calls it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

mod ares;
mod convert;
mod deploy;
mod doctor;
mod elastic;
mod escapes;
mod examples;
#[path = "../../../local/tests/node_runtime/groups.rs"]
mod groups;
mod home;
mod install;
mod local;
mod machine;
mod migrating;
mod operator;
mod quickstart;
mod rights;
mod run;
mod training;
mod uninstall;
mod users;
mod validate;
mod variants;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use serde_json::Value;

/// Calls `trainyard` with words separated by blanks.
fn trainyard(line: &str) -> Output {
    trainyard_with(line, "")
}

/// As [`trainyard`], with text on the standard input.
fn trainyard_with(line: &str, input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
    output_of(command.args(line.split_whitespace()), input)
}

/// Runs a command to its end, with text on its standard input.
fn output_of(command: &mut Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// What a call prints; it must succeed.
fn printed(line: &str) -> String {
    let output = trainyard(line);
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The objects a call prints; it must succeed. Each call is made once: many tests look at the same
/// manifests.
fn objects(line: &str) -> Vec<Value> {
    static SEEN: Mutex<BTreeMap<String, Vec<Value>>> = Mutex::new(BTreeMap::new());
    if let Some(objects) = SEEN.lock().unwrap().get(line) {
        return objects.clone();
    }
    let objects: Vec<Value> = serde_saphyr::from_multiple(&printed(line)).unwrap();
    SEEN.lock().unwrap().insert(line.to_owned(), objects.clone());
    objects
}

/// The text at a JSON pointer, empty if there is none.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a JSON pointer, empty if there is none.
fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Kind, namespace and name.
fn id(object: &Value) -> (&str, &str, &str) {
    (
        text(object, "/kind"),
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name"),
    )
}

/// The root of the repository.
fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_version_is_printed() {
    assert_eq!(
        printed("--version"),
        format!("trainyard {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn every_command_has_help() {
    for command in [
        "",
        "run",
        "scale",
        "install",
        "uninstall",
        "validate",
        "convert",
        "operator",
        "completion",
    ] {
        let help = printed(&format!("{command} --help"));
        assert!(help.contains("Usage: trainyard"), "{help}");
    }
    for command in [
        "run",
        "scale",
        "doctor",
        "install",
        "uninstall",
        "validate",
        "convert",
        "completion",
    ] {
        assert!(
            printed(&format!("{command} --help")).contains("Examples:"),
            "{command}"
        );
    }
}

#[test]
fn shells_can_complete() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            printed(&format!("completion {shell}")).contains("watch-namespace"),
            "{shell}"
        );
    }
}

#[test]
fn a_wrong_command_line_is_no_answer() {
    for line in [
        "",
        "frobnicate",
        "install --namespace Upper",
        "install --replicas 0",
        "install --watch-namespace a..b",
        "install --crds-only --no-webhooks",
        "install --crds-only --ares-observer",
        "validate",
        "convert",
        "convert /nonexistent.yaml",
        "completion tcsh9",
        "run",
        "run job.yaml -n 2",
        "run --print /nonexistent.yaml",
        "run --print --timeout 5m job.yaml",
    ] {
        assert_eq!(trainyard(line).status.code(), Some(2), "{line}");
    }
}
