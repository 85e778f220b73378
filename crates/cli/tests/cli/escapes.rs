//! Words of others that a terminal would obey, as each command prints them.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use super::output_of;

/// Changes the title of a terminal, moves its cursor, and turns the order of what follows.
const HOSTILE: &str = "\u{1b}]0;mine\u{7}\u{8}\u{202e}";

/// As YAML has it.
const IN_YAML: &str = r"\e]0;mine\a\b\u202e";

/// An API server that refuses everything in such words. Returns its port.
fn hostile_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = refuse(stream.unwrap());
        }
    });
    port
}

fn refuse(mut stream: TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while !lines.next().transpose()?.unwrap_or_default().is_empty() {}
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
        "reason": "Forbidden", "message": HOSTILE,
    });
    let status = status.to_string();
    let head = "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\nconnection: close\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{status}", status.len())
}

fn kubeconfig(port: u16, context: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Config
current-context: \"{context}\"
clusters: [{{name: one, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]
contexts: [{{name: one, context: {{cluster: one, user: one, namespace: default}}}}]
users: [{{name: one, user: {{}}}}]
"
    )
}

const JOB: &str = "
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: mnist}
spec:
  framework: {name: custom}
  roles:
  - name: worker
    template: {spec: {containers: [{name: main, image: i, command: [sh]}]}}
";

#[test]
fn no_command_prints_what_a_terminal_obeys() {
    let home = tempfile::tempdir().unwrap();
    let place = |name: &str| home.path().join(name);
    std::fs::write(place("job.yaml"), JOB).unwrap();
    std::fs::write(place("refused"), kubeconfig(hostile_server(), "one")).unwrap();
    std::fs::write(place("unknown"), kubeconfig(1, IN_YAML)).unwrap();
    let foreign = format!("apiVersion: \"kubeflow.org/v1{IN_YAML}\"\nkind: MPIJob\nmetadata: {{name: a}}\n");
    let bad = JOB.replace("framework:", &format!("\"{IN_YAML}\": 1\n  framework:"));
    let nowhere = format!("/proc/{HOSTILE}");
    let cases: &[(&[&str], &str, (&str, &str))] = &[
        (&["validate", "-f", "-"], &bad, ("", "")),
        (&["convert", "-"], &foreign, ("", "")),
        (&["run", HOSTILE], "", ("", "")),
        (&["run", "job.yaml"], "", ("TRAINYARD_CACHE", &nowhere)),
        (&["run", "job.yaml", "--remote"], "", ("KUBECONFIG", "refused")),
        (
            &["scale", "mnist", "--to", "2", "--remote"],
            "",
            ("KUBECONFIG", "refused"),
        ),
        (
            &["scale", "mnist", "--to", "2", "--context", HOSTILE],
            "",
            ("KUBECONFIG", "refused"),
        ),
        (&["doctor"], "", ("TRAINYARD_CACHE", &nowhere)),
        (&["install", "--namespace", HOSTILE], "", ("", "")),
        (&["uninstall", "--namespace", HOSTILE], "", ("", "")),
        (&["completion", HOSTILE], "", ("", "")),
        (
            &["operator", "--http-address", "127.0.0.1:0"],
            "",
            ("KUBECONFIG", "unknown"),
        ),
    ];
    for (line, input, (variable, value)) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
        command
            .args(*line)
            .current_dir(home.path())
            .env("HOME", home.path())
            .env_remove("XDG_CACHE_HOME")
            .env_remove("KUBECONFIG");
        if !variable.is_empty() {
            command.env(variable, value);
        }
        let output = output_of(&mut command, input);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!output.status.success(), "{line:?}: {said}");
        assert!(said.contains("\\u{202e}"), "{line:?} does not say it: {said:?}");
        let is_obeyed = |c: char| c == '\u{202e}' || c.is_control() && !matches!(c, '\n' | '\t');
        assert!(!said.contains(is_obeyed), "{line:?}: {said:?}");
    }
}
