//! `trainyard-agent run`, as a container runs it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

#[path = "../shell/job.rs"]
#[allow(dead_code, reason = "not all of it is needed here")]
mod job;

mod scripts;

#[path = "../wait/server.rs"]
#[allow(dead_code, reason = "not all of it is needed here")]
mod server;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nix::sys::signal::{SigSet, Signal as Named};
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use trainyard_eventually::{HANG_LIMIT as LONG, eventually};

use job::{AGENT, Client, Job, Server};

fn run(words: &[&str]) -> Client {
    let mut command = Command::new(AGENT);
    command.args(["run", "--"]).args(words);
    Client::start(command)
}

fn sh(line: &str) -> Client {
    run(&["/bin/sh", "-c", line])
}

fn pid(client: &Client) -> i32 {
    client.out.next().trim().parse().unwrap()
}

/// What `/proc` says about a process.
fn field(pid: i32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start_matches(':').trim().to_owned())
}

fn wait_until(problem: &str, is_so: impl Fn() -> bool) {
    eventually(&format!("no longer: {problem}"), || {
        is_so().then_some(()).ok_or_else(String::new)
    });
}

#[rstest]
#[case("exit 0", 0)]
#[case("exit 3", 3)]
#[case("exit 255", 255)]
#[case("kill -TERM $$", 143)]
#[case("kill -KILL $$", 137)]
#[case("kill -34 $$", 162)]
fn ends_as_the_command_does(#[case] line: &str, #[case] code: i32) {
    let (ended, out, err) = sh(line).ends();
    assert_eq!((ended, out, err), (Some(code), vec![], vec![]));
}

#[test]
fn streams_and_words_are_those_of_the_command() {
    let mut client = run(&["/bin/sh", "-c", r#"cat; echo "$1|$2" >&2"#, "name", "a  b", ""]);
    client.write("in\n");
    client.input = None;
    let (code, out, err) = client.ends();
    assert_eq!(
        (code, &*out, &*err),
        (Some(0), &["in".to_owned()][..], &["a  b|".to_owned()][..])
    );
}

#[test]
fn what_can_not_be_run_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "#!/bin/sh\n").unwrap();
    let file = file.to_str().unwrap();
    let told = |words: &[&str]| {
        let (code, _, err) = run(words).ends();
        assert_eq!(err.len(), 1, "{err:?}");
        (code.unwrap(), err[0].clone())
    };
    assert_eq!(
        told(&[file]),
        (
            126,
            format!("trainyard-agent: can't run {file}: Permission denied (os error 13)")
        )
    );
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(run(&[file]).ends().0, Some(0));
    let missing = "trainyard-agent: can't run no-such-program: No such file or directory (os error 2)";
    assert_eq!(told(&["no-such-program", "x"]), (127, missing.to_owned()));
}

#[rstest]
#[case("HUP", Signal::HUP)]
#[case("INT", Signal::INT)]
#[case("QUIT", Signal::QUIT)]
#[case("USR1", Signal::USR1)]
#[case("USR2", Signal::USR2)]
#[case("ALRM", Signal::ALARM)]
#[case("TERM", Signal::TERM)]
#[case("WINCH", Signal::WINCH)]
#[case("CONT", Signal::CONT)]
#[case("TSTP", Signal::TSTP)]
fn signals_are_passed(#[case] name: &str, #[case] signal: Signal) {
    let client = sh(&format!(
        "trap 'echo told; exit 9' {name}; echo ready; while :; do sleep 0.05; done"
    ));
    assert_eq!(client.out.next(), "ready");
    client.process.signal(signal);
    let (code, out, _) = client.ends();
    assert_eq!((code, &*out), (Some(9), &["told".to_owned()][..]));
}

#[test]
fn signals_are_passed_to_the_command_alone() {
    // A shell looks at signals that wait for it by their number: SIGTERM before SIGWINCH.
    let child =
        "trap \"echo wrong\" TERM; trap \"echo last; exit\" WINCH; echo $$; while :; do sleep 0.05; done";
    let client = sh(&format!("trap 'echo told' TERM; sh -c '{child}' & wait; wait"));
    let child = pid(&client);
    client.process.signal(Signal::TERM);
    assert_eq!(client.out.next(), "told");
    kill_process(Pid::from_raw(child).unwrap(), Signal::WINCH).unwrap();
    let (code, out, _) = client.ends();
    assert_eq!((code, &*out), (Some(0), &["last".to_owned()][..]));
}

#[test]
fn a_command_can_be_stopped_and_goes_on() {
    let client = sh("echo $$; read x; echo $x; exit 2");
    let child = pid(&client);
    let mut client = client;
    client.process.signal(Signal::TSTP);
    wait_until("it is not stopped", || {
        field(child, "State").unwrap().starts_with('T')
    });
    client.process.signal(Signal::CONT);
    client.write("on\n");
    let (code, out, _) = client.ends();
    assert_eq!((code, &*out), (Some(2), &["on".to_owned()][..]));
}

#[test]
fn a_command_has_a_group_of_its_own_and_no_signal_ignored_or_blocked() {
    let mut command = Command::new("/bin/sh");
    command.args([
        "-c",
        "trap '' HUP INT QUIT TERM USR1 WINCH TSTP; exec \"$@\"",
        "sh",
    ]);
    command.args([
        AGENT,
        "run",
        "--",
        "/bin/sh",
        "-c",
        "cat /proc/self/status; cut -d' ' -f5 /proc/$$/stat; echo $$",
    ]);
    let mut blocked = SigSet::empty();
    blocked.add(Named::SIGTERM);
    blocked.add(Named::SIGCHLD);
    // A process has the mask of the thread that starts it.
    let before = blocked
        .thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)
        .unwrap();
    let client = Client::start(command);
    before.thread_set_mask().unwrap();
    let (code, out, err) = client.ends();
    assert_eq!(code, Some(0), "{err:?}");
    for name in ["SigBlk:", "SigIgn:"] {
        let set = out.iter().find_map(|line| line.strip_prefix(name)).unwrap();
        // Above are signals of real time, two of which the C library keeps for itself.
        let named = u64::from_str_radix(set.trim(), 16).unwrap() & 0x7fff_ffff;
        assert_eq!(named, 0, "{name}");
    }
    let [.., group, leader] = &*out else {
        panic!("{out:?}")
    };
    assert_eq!(group, leader);
}

#[test]
fn what_others_leave_is_taken_note_of() {
    let client = sh("sh -c 'sleep 1000 & echo $!'; read x; exit 6");
    let orphan = pid(&client);
    let agent = client.process.pid().as_raw_nonzero().to_string();
    wait_until("it has another parent", || {
        field(orphan, "PPid").as_ref() == Some(&agent)
    });
    kill_process(Pid::from_raw(orphan).unwrap(), Signal::KILL).unwrap();
    wait_until("it is a zombie", || field(orphan, "State").is_none());
    let mut client = client;
    client.input = None;
    assert_eq!(client.ends().0, Some(6));
}

fn run_and_serve(job: &Job, line: &str) -> Server {
    let mut command = Command::new(AGENT);
    command.args(["run", "--serve", "--", "/bin/sh", "-c", line]);
    command.env("TRAINYARD_SHELL_ADDRESS", "127.0.0.1");
    Server::start(job.configure(command, 0))
}

#[test]
fn commands_of_others_run_beside_and_end_with_the_command() {
    let job = Job::new();
    let mut server = run_and_serve(
        &job,
        "trap 'exit 8' TERM; echo ready >&2; while :; do sleep 0.05; done",
    );
    server.log.until("ready");
    let (code, out, err) = job.sh(&server, "echo beside; exit 4").ends();
    assert_eq!((code, &*out), (Some(4), &["beside".to_owned()][..]), "{err:?}");
    let polite = job.sh(&server, "echo $$; exec sleep 1000");
    let stubborn = job.sh(&server, "trap '' TERM; echo $$; while :; do sleep 0.05; done");
    let pids = [pid(&polite), pid(&stubborn)];
    server.process.signal(Signal::TERM);
    assert_eq!(polite.ends().0, Some(143));
    assert_eq!(stubborn.ends().0, Some(137));
    assert_eq!(server.process.ends(), Some(8));
    for pid in pids {
        wait_until("it is there", || field(pid, "State").is_none());
    }
}

#[test]
fn without_an_identity_nothing_is_run() {
    let job = Job::new();
    let file = job.identity().join("touched");
    fs::remove_file(job.identity().join("ca.crt")).unwrap();
    let mut command = Command::new(AGENT);
    command.args(["run", "--serve", "--", "touch"]).arg(&file);
    let (code, _, err) = Client::start(job.configure(command, 0)).ends();
    assert_eq!(code, Some(125));
    assert!(err[0].contains("ca.crt: No such file or directory"), "{err:?}");
    assert!(!file.exists());
}
