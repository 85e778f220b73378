//! `trainyard run` and the machine it runs on: what it leaves there, what it takes from others, and
//! what it says where the machine can't. As who runs the tests and, if that is root, as an ordinary
//! user too.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use serde_json::Value;

use super::groups::groups;
use super::home::{self, Home, machine, said, until_none};
use super::{repository, text};

/// A job of one worker that runs a script of the shell, with resources.
fn job(script: &str, resources: &str) -> String {
    home::job(script, "", &format!("resources: {resources}"))
}

/// Two workers that talk over the port of the job, and say where rank 0 is. They wait until as many
/// jobs as `JOBS` says are under way.
const TALK: &str = r#"
import os, socket, time
master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.create_server(master) as server:
        open("here-" + os.environ["NUMBER"], "w").close()
        while len([name for name in os.listdir(".") if name.startswith("here-")]) < int(os.environ["JOBS"]):
            time.sleep(0.01)
        peer, _ = server.accept()
        print(peer.recv(100).decode(), "at", socket.gethostbyname(master[0]), flush=True)
else:
    while True:
        try:
            peer = socket.create_connection(master)
            break
        except OSError:
            time.sleep(0.01)
    peer.sendall(("hello from " + os.environ["NUMBER"]).encode())
"#;

fn talk<'a>(number: &'a str, jobs: &'a str, options: &[&'a str]) -> Vec<String> {
    let number = format!("NUMBER={number}");
    let jobs = format!("JOBS={jobs}");
    let start = ["run", "-n", "2", "--name", "same", "-e", &number, "-e", &jobs];
    let end = ["--", "python3", "talk.py"];
    let line = start.iter().chain(options).chain(&end);
    line.map(ToString::to_string).collect()
}

fn words(line: &[String]) -> Vec<&str> {
    line.iter().map(String::as_str).collect()
}

#[test]
fn nothing_is_left_of_a_run_that_is_interrupted() {
    for home in Home::each() {
        left_after(&home, &[], "INT", Some(130));
    }
}

#[test]
fn a_run_that_is_to_outlive_its_terminal_does() {
    let home = Home::own();
    let mut command = home.wrapped(
        &["nohup"],
        &["run", "--", "sh", "-c", "echo up; sleep 3; echo done"],
    );
    let mut running = Home::started(&mut command);
    running.signal("HUP");
    let ended = running.rest();
    assert_eq!(
        (ended.code, ended.out.as_str()),
        (Some(0), "worker-0 | done\n"),
        "{ended:?}"
    );
}

/// The states of all processes of a home, as `/proc` has them.
fn states(home: &Home) -> Vec<String> {
    let state = |(process, _): &(String, PathBuf)| {
        let status = fs::read_to_string(format!("{}/status", process.split(' ').next()?)).ok()?;
        let state = status.lines().find_map(|line| line.strip_prefix("State:\t"))?;
        Some(format!("{} {process}", state.get(..1)?))
    };
    home.processes().iter().filter_map(state).collect()
}

#[test]
fn a_run_stops_when_the_user_wants_it_to_and_goes_on() {
    for home in Home::each() {
        let script = "echo up; until test -e go; do sleep 0.05; done; echo done";
        let mut command = home.command(&["run", "--", "sh", "-c", script]);
        // As a shell starts it, that could have it go on.
        command.process_group(0);
        let mut running = Home::started(&mut command);
        running.signal("TSTP");
        // Two of our own stay awake, to hear when it is to go on. A shell whose child was stopped
        // before it became another program waits for that in the kernel (D), and can't run either.
        until_none("processes that run", || {
            let awake = states(&home)
                .into_iter()
                .filter(|process| !process.starts_with(['T', 'D']));
            awake.skip(2).collect()
        });
        home.file("go", "");
        running.signal("CONT");
        let ended = running.rest();
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (Some(0), "worker-0 | done\n"),
            "{ended:?}"
        );
    }
}

#[test]
fn a_terminal_that_stops_who_writes_from_the_background_stops_no_run() {
    let home = Home::own();
    let inner = "stty tostop && exec $PROGRAM run -- echo up";
    // A run that is stopped would never end.
    let terminal = "exec timeout --foreground 120 script --quiet --return --command \"$INNER\" /dev/null";
    let mut command = home.wrapped(&["sh", "-c", terminal], &[]);
    let program = home.path().join("trainyard");
    command.envs([
        ("INNER", inner.as_ref()),
        ("TERM", "dumb".as_ref()),
        ("PROGRAM", program.as_os_str()),
    ]);
    let said = said(command);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("worker-0 | up"), "{said:?}");
}

#[test]
fn nothing_is_left_of_a_run_that_is_killed() {
    for home in Home::each() {
        left_after(&home, &[], "KILL", None);
    }
}

#[test]
fn nothing_is_left_of_plain_processes() {
    for home in Home::each() {
        left_after(&home, &["--isolation", "plain"], "INT", Some(130));
        left_after(&home, &["--isolation", "plain"], "KILL", None);
    }
}

/// Starts a run, ends it, and looks for what it left: processes, mounts, links, network namespaces,
/// groups, files.
fn left_after(home: &Home, options: &[&str], signal: &str, code: Option<i32>) {
    let script = "trap 'exit 0' TERM; (setsid sleep 4321 &); sleep 4322 & echo up; wait";
    home.file("job.yaml", &job(script, "{limits: {cpu: '1', memory: 256Mi}}"));
    let before = machine();
    let mut running = home.start(&[&["run", "job.yaml"], options].concat());
    let runs = home.runs();
    assert_eq!(runs.len(), 1, "{runs:?}");
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    let networks: Vec<PathBuf> = home.processes().into_iter().map(|(_, network)| network).collect();
    let networks: Vec<PathBuf> = networks.into_iter().filter(|network| *network != own).collect();
    assert_eq!(
        networks.is_empty(),
        !options.is_empty(),
        "a network of the yard's own"
    );
    assert_eq!(groups(&runs).is_empty(), !home.has_limits(), "groups for limits");
    running.signal(signal);
    let ended = running.rest();
    assert_eq!(ended.code, code, "{ended:?}");
    if code.is_none() {
        // What the kernel does not take away is taken away by the next start.
        let next = home.call(&["run", "--", "true"]);
        assert_eq!(next.code, Some(0), "{next:?}");
    }
    until_none("processes", || home.processes());
    until_none("network namespaces", || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let all = processes.filter_map(|process| fs::read_link(process.path().join("ns/net")).ok());
        all.filter(|network| networks.contains(network)).collect()
    });
    let now = machine();
    let added: Vec<_> = now.iter().filter(|one| !before.contains(one)).collect();
    assert!(added.is_empty(), "left on the machine: {added:#?}");
    assert_eq!(groups(&runs), Vec::<PathBuf>::new());
    assert_eq!(home.runs(), [""; 0]);
}

#[test]
fn memory_is_limited_where_groups_can_be_written() {
    for home in Home::each() {
        let script = "exec python3 -c 'x = bytearray(300 << 20); print(len(x))'";
        home.file("job.yaml", &job(script, "{limits: {memory: 64Mi}}"));
        let said = home.call(&["run", "job.yaml", "--output", "json"]);
        let summary: Value = serde_json::from_str(&said.out).unwrap();
        let note = "limits of memory and processors are not enforced here";
        assert_ne!(home.has_limits(), said.words.contains(note), "{said:?}");
        if home.has_limits() {
            assert_eq!(said.code, Some(1), "{said:?}");
            assert_eq!(text(&summary, "/rootCause/reason"), "OOMKilled", "{summary}");
            assert_eq!(summary["rootCause"]["exitCode"], 137, "{summary}");
        } else {
            assert_eq!(said.code, Some(0), "{said:?}");
        }
        // Who has no limits need not know.
        let said = home.call(&["run", "--", "true"]);
        assert!(!said.words.contains(note), "{said:?}");
    }
}

#[test]
fn two_runs_of_the_same_job_do_not_meet() {
    for home in Home::each() {
        for options in [&[][..], &["--network", "host"], &["--isolation", "plain"]] {
            home.file("talk.py", TALK);
            let lines = ["1", "2"].map(|number| talk(number, "2", options));
            let runs = lines.map(|line| home.command(&words(&line)).spawn().unwrap());
            let mut places = Vec::new();
            for (number, run) in ["1", "2"].into_iter().zip(runs) {
                let output = run.wait_with_output().unwrap();
                let out = String::from_utf8(output.stdout).unwrap();
                let words = String::from_utf8(output.stderr).unwrap();
                assert_eq!(output.status.code(), Some(0), "{out}{words}");
                let place = out
                    .trim()
                    .strip_prefix(&format!("worker-0 | hello from {number} at "));
                places.push(place.unwrap_or_else(|| panic!("{out}")).to_owned());
            }
            // On a network of their own they may be at the same place, and on that of the machine
            // they may not.
            if !options.is_empty() {
                assert!(places.iter().all(|place| place.starts_with("127.")), "{places:?}");
                assert_ne!(places[0], places[1]);
            }
            for number in ["1", "2"] {
                fs::remove_file(home.work().join(format!("here-{number}"))).unwrap();
            }
        }
    }
}

#[test]
fn a_port_that_is_taken_disturbs_only_who_shares_it() {
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for home in Home::each() {
        home.file("talk.py", TALK);
        let set = format!("framework.pytorch.port={port}");
        let line = talk("1", "1", &["--set", &set]);
        let said = home.call(&words(&line));
        assert_eq!(said.code, Some(0), "{said:?}");
        let line = talk(
            "1",
            "1",
            &["--set", &set, "--isolation", "plain", "--timeout", "1m"],
        );
        let said = home.call(&words(&line));
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(
            said.words
                .contains(&format!("listens on port {port}, on every address")),
            "{said:?}"
        );
        assert!(
            said.words.contains("--set framework.pytorch.port=PORT"),
            "{said:?}"
        );
        assert!(said.words.contains("Address already in use"), "{said:?}");
    }
}

#[test]
fn the_quickstart_trains_without_namespaces() {
    for (home, options) in [
        (Home::own(), ["--isolation", "plain"]),
        (Home::own(), ["--network", "host"]),
    ] {
        for name in ["job.yaml", "train.py"] {
            let content = fs::read_to_string(repository().join("examples/quickstart").join(name)).unwrap();
            home.file(name, &content);
        }
        let said = home.call(&[&["run", "job.yaml"], &options[..]].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(
            said.out.contains("worker-0 | done: the model is in model.json"),
            "{said:?}"
        );
        assert!(said.words.contains("told addresses instead of names"), "{said:?}");
        assert!(home.work().join("model.json").exists());
    }
}

#[test]
fn who_runs_pods_as_root_is_told_what_that_means() {
    for home in Home::each() {
        let isolation = home.doctor()["isolation"].clone();
        let said = home.call(&["run", "--", "true"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let is_told = said
            .words
            .contains("note: pods are run by root and without a user namespace");
        assert_eq!(is_told, isolation == "Root", "{isolation}: {said:?}");
    }
}

#[test]
fn isolation_that_is_not_possible_is_refused() {
    let home = Home::each().pop().unwrap();
    let said = home.call(&["run", "--isolation", "root", "--", "true"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(
        said.words.contains("does not allow namespaces, as root"),
        "{said:?}"
    );
    assert!(said.words.contains("--isolation auto"), "{said:?}");
    let said = home.call(&["run", "--isolation", "root", "-o", "json", "--", "true"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    let summary: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(text(&summary, "/outcome"), "Broken", "{summary}");
    assert_eq!(
        (text(&summary, "/job"), &summary["exitCode"]),
        ("true", &Value::from(4))
    );
    assert!(
        text(&summary, "/message").contains("does not allow namespaces"),
        "{summary}"
    );
}

#[test]
fn a_full_disk_is_told() {
    for home in Home::each() {
        let namespaces = if home.is_roots() { "-m" } else { "-rm" };
        let inside = |size: &str, line: &str| {
            let script = format!("mkdir -p small && mount -t tmpfs -o size={size} none small && exec {line}");
            let mut command = home.wrapped(&["unshare", namespaces, "sh", "-c", &script], &[]);
            command.env("TRAINYARD_CACHE", home.work().join("small"));
            said(command)
        };
        let said = inside("4k", "$0 run -- true");
        assert_eq!(said.code, Some(4), "{said:?}");
        assert!(
            said.words.contains("make room there, or set TRAINYARD_CACHE"),
            "{said:?}"
        );
        // Full only when the job is under way: its output is lost, and that is said.
        let said = inside(
            "512k",
            "$0 run -- sh -c 'yes trainyard | head -n 100000; echo end >&2'",
        );
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(
            said.out.contains("output of this container was lost"),
            "{}",
            said.words
        );
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_job_and_hears_no_success() {
    let home = Home::own();
    let script = "$0 run -- yes | head -n 1; exit ${PIPESTATUS[0]}";
    let said = said(home.wrapped(&["bash", "-c", script], &[]));
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.words.contains("the output can't be written"), "{said:?}");
}

#[test]
fn a_machine_without_python_says_so_as_kubernetes_does() {
    let home = Home::own();
    let mut command = home.command(&["run", "--output", "json", "--", "python3", "train.py"]);
    command.env("PATH", home.work());
    let said = said(command);
    assert_eq!(said.code, Some(1), "{said:?}");
    let summary: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(text(&summary, "/rootCause/reason"), "StartError", "{summary}");
    assert_eq!(summary["rootCause"]["exitCode"], 128, "{summary}");
    let sentence = "exec: \"python3\": executable file not found in $PATH";
    assert_eq!(text(&summary, "/rootCause/lastLines/0"), sentence, "{summary}");
}

#[test]
fn what_fits_nowhere_is_refused_with_what_helps() {
    let home = Home::own();
    home.file("job.yaml", &job("true", "{requests: {cpu: '5000'}}"));
    let line = ["run", "job.yaml", "--nodes", "3", "--output", "json"];
    let said = home.call(&line);
    assert_eq!(said.code, Some(4), "{said:?}");
    let summary: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(text(&summary, "/outcome"), "Broken", "{summary}");
    let help = "roles.worker.template.spec.containers.train.resources=null";
    assert!(text(&summary, "/message").contains(help), "{summary}");
    let said = home.call(&[&line[..], &["--set", help]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
}
