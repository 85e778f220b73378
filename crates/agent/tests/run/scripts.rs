//! Scripts that the operator asks for, beside the command of a launcher.

use std::path::Path;
use std::process::Command;

use rustix::process::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use trainyard_eventually::eventually;

use crate::job::{AGENT, Client};
use crate::server::{Authority, Guest, Port, Server};

/// A launcher whose command runs until its input ends, and the operator.
struct World {
    directory: TempDir,
    port: Port,
    server: Server,
    launcher: Client,
}

impl World {
    fn new() -> Self {
        let (authority, port) = (Authority::new(), Port::reserve());
        let server = port.serve(authority.serving());
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("token"), "first-token").unwrap();
        let mut command = Command::new(AGENT);
        let line = r#"echo "begun <$TRAINYARD_SCRIPTS$TRAINYARD_AUTHORITY>"; read end; exit 5"#;
        command
            .args(["run", "--", "/bin/sh", "-c", line])
            .env("TRAINYARD_SCRIPTS", "true")
            .env("TRAINYARD_OBSERVER", port.url())
            .env("TRAINYARD_AUTHORITY", &authority.pem)
            .env("TRAINYARD_NAMESPACE", "ns")
            .env("TRAINYARD_JOB", "a")
            .env("OF_CONTAINER", "yes")
            .env("TRAINYARD_TOKEN_FILE", directory.path().join("token"));
        let launcher = Client::start(command);
        assert_eq!(
            launcher.out.next(),
            "begun <>",
            "launchers pass their variables on"
        );
        Self {
            directory,
            port,
            server,
            launcher,
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn script(&self, name: &str, text: &str) -> String {
        let file = self.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    /// The connection on which the agent is told what to run.
    fn listens(&self) -> Guest {
        let mut guest = self.server.guest();
        while guest.request.starts_with("PUT ") {
            // It reports again what it has reported before.
            take_report(guest);
            guest = self.server.guest();
        }
        let expected = include_str!("../../../contract/tests/v1/script.request");
        assert_eq!(guest.request, self.recorded(expected));
        guest.welcomed()
    }

    fn recorded(&self, request: &str) -> String {
        request
            .replace("{host}", &format!("127.0.0.1:{}", self.port.number()))
            .replace("{token}", "first-token")
            .replace(
                "trainyard-agent/0.1.0",
                concat!("trainyard-agent/", env!("CARGO_PKG_VERSION")),
            )
    }

    /// What the agent reports next.
    fn report(&self) -> Value {
        take_report(self.server.guest())
    }

    /// The next report that is about an attempt.
    fn report_of(&self, attempt: i32) -> Value {
        eventually("the attempt ends", || {
            let report = self.report();
            if report["attempt"] == attempt {
                Ok(report)
            } else {
                Err(report.to_string())
            }
        })
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    fn pid(&self, name: &str) -> Pid {
        eventually("the script has said its number", || {
            let text = self.read(name);
            let pid = text.trim().parse().ok().and_then(Pid::from_raw);
            pid.filter(|_| text.ends_with('\n')).ok_or(text)
        })
    }
}

fn take_report(mut guest: Guest) -> Value {
    assert!(
        guest.request.starts_with("PUT /v1/jobs/ns/a/script "),
        "{}",
        guest.request
    );
    let mut lines = guest.request.lines();
    let length = lines.find_map(|line| line.strip_prefix("Content-Length: "));
    let length = length.unwrap().parse().unwrap();
    let body = guest.body(length);
    guest.say("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
    guest.bid_farewell();
    serde_json::from_str(&body).unwrap()
}

fn run(attempt: i32, program: &str, more: &Value) -> String {
    let mut order = json!({
        "state": "Run", "request": "u", "attempt": attempt, "program": program,
        "args": ["w-1:4,w-2:4"], "timeoutSeconds": 60,
    });
    for (name, value) in more.as_object().unwrap() {
        order[name] = value.clone();
    }
    format!("{order}\n")
}

fn wait_until_gone(pid: Pid) {
    eventually("the process is gone", || {
        match std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())) {
            Ok(stat) if !stat.contains(") Z ") => Err(stat),
            _ => Ok(()),
        }
    });
}

#[test]
fn a_script_gets_its_words_as_they_are_and_is_run_once() {
    let world = World::new();
    // Without an executable bit it is run by sh.
    let text =
        r#"echo "$#|$1|$WHY|$OF_CONTAINER|$TRAINYARD_AUTHORITY" >>"$FILE"; echo out; echo err >&2; exit 3"#;
    let script = world.script("script", text);
    let file = world.path().join("said").display().to_string();
    let order = run(
        1,
        &script,
        &json!({"env": [["WHY", "it's \"$(late)\" ; & $HOME"], ["FILE", file]]}),
    );
    let mut guest = world.listens();
    guest.say("{\"state\":\"Idle\"}\n\n");
    guest.say(&order);
    let expected = json!({
        "request": "u", "attempt": 1, "end": {"state": "Exited", "code": 3}, "output": "out\nerr",
    });
    assert_eq!(world.report(), expected);
    // It is told again, by another leader, which has not heard of its end.
    drop(guest);
    let mut guest = world.listens();
    guest.say(&order);
    assert_eq!(world.report_of(1), expected);
    assert_eq!(
        world.read("said"),
        "1|w-1:4,w-2:4|it's \"$(late)\" ; & $HOME|yes|\n",
        "once"
    );
    // The next attempt is another one.
    guest.say(&run(2, "/no/such/program", &json!({})));
    let report = world.report_of(2);
    assert_eq!(report["end"], json!({"state": "NotStarted"}));
    let output = report["output"].as_str().unwrap();
    assert!(
        output.starts_with("can't run /no/such/program: No such file"),
        "{output}"
    );
}

#[test]
fn what_was_recorded_is_run_and_reported() {
    let world = World::new();
    let (_, lines) = include_str!("../../../contract/tests/v1/script.answer")
        .split_once("\r\n\r\n")
        .unwrap();
    let mut guest = world.listens();
    guest.say(lines);
    let (_, body) = include_str!("../../../contract/tests/v1/script_report.request")
        .split_once("\r\n\r\n")
        .unwrap();
    let expected: Value = serde_json::from_str(body).unwrap();
    assert_eq!(world.report_of(1), expected);
}

#[test]
fn a_script_that_takes_too_long_is_ended_with_all_that_it_has_started() {
    let world = World::new();
    let text = "trap '' TERM\nsh -c 'trap \"\" TERM; echo $$ >\"$0/child\"; while :; do sleep 1; done' \"$D\" &\nwait";
    let script = world.script("script", text);
    let env = json!([["D", world.path().display().to_string()]]);
    let mut guest = world.listens();
    guest.say(&run(1, &script, &json!({"env": env, "timeoutSeconds": 1})));
    let report = world.report_of(1);
    assert_eq!(report["end"], json!({"state": "TimedOut"}));
    wait_until_gone(world.pid("child"));
}

#[test]
fn the_output_is_bounded_and_the_command_ends_as_it_would_alone() {
    let mut world = World::new();
    let script = world.script("script", "seq 1 100000; printf '\\033[31m'; echo $$ >\"$D/pid\"");
    let env = json!([["D", world.path().display().to_string()]]);
    let mut guest = world.listens();
    guest.say(&run(1, &script, &json!({"env": env})));
    let report = world.report_of(1);
    let output = report["output"].as_str().unwrap();
    assert!(output.len() <= 2048 && output.len() > 1500, "{}", output.len());
    assert!(output.ends_with("100000\n\u{fffd}[31m"), "{output}");
    // A script that runs ends with the command.
    let script = world.script("hangs", "echo $$ >\"$D/hangs.pid\"; while :; do sleep 1; done");
    guest.say(&run(2, &script, &json!({"env": env})));
    let pid = world.pid("hangs.pid");
    world.launcher.input = None;
    assert_eq!(world.launcher.ends().0, Some(5));
    wait_until_gone(pid);
}

#[test]
fn a_script_that_nobody_wants_any_more_is_ended() {
    let world = World::new();
    let script = world.script("script", "echo $$ >\"$D/pid\"; while :; do sleep 1; done");
    let env = json!([["D", world.path().display().to_string()]]);
    let mut guest = world.listens();
    guest.say(&run(2, &script, &json!({"env": env})));
    let pid = world.pid("pid");
    // From one who does not know of the second attempt yet.
    guest.say(&run(1, &script, &json!({"env": env})));
    guest.say("{\"state\":\"Idle\"}\n");
    wait_until_gone(pid);
    guest.say(&run(3, "/bin/echo", &json!({})));
    assert_eq!(world.report_of(3)["output"], "w-1:4,w-2:4");
}

/// The command does not depend on scripts.
#[test]
fn without_an_observer_the_command_runs_alone() {
    let mut command = Command::new(AGENT);
    command
        .args(["run", "--", "/bin/sh", "-c", "echo runs; exit 4"])
        .env("TRAINYARD_SCRIPTS", "true");
    let (code, out, err) = Client::start(command).ends();
    assert_eq!((code, &*out), (Some(4), &["runs".to_owned()][..]));
    assert!(
        err.join("\n")
            .contains("no script can be run here: TRAINYARD_OBSERVER is not set"),
        "{err:?}"
    );
}
