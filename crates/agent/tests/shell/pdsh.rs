//! One command on many hosts.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

use crate::job::{AGENT, Client, Job, Server};
use crate::processes::Other;

/// Two hosts: servers at two addresses of this machine.
fn hosts(job: &Job) -> [Server; 2] {
    let first = job.serve();
    let mut command = Command::new(AGENT);
    command.arg("serve").env("TRAINYARD_SHELL_ADDRESS", "127.0.0.2");
    let second = Server::start(job.configure(command, first.port));
    [first, second]
}

/// Called by its name, as by `DeepSpeed`.
fn pdsh(job: &Job, port: u16, words: &[&str]) -> Client {
    let mut command = Command::new(AGENT);
    command.arg0("/usr/local/bin/pdsh").args(words);
    Client::start(job.configure(command, port))
}

const BOTH: &str = "127.0.0.1,127.0.0.2";

#[test]
fn every_host_runs_the_command_with_its_number() {
    let job = Job::new();
    let [first, _second] = hosts(&job);
    let line = [
        "export A='b c'; ",
        "cd /;",
        "echo",
        "$A",
        "$PWD",
        "%n;",
        "echo",
        "%h",
        ">&2;",
        "exit",
        "%n",
    ];
    let words = [&["-S", "-f", "1024", "-w", BOTH][..], &line].concat();
    let (code, mut out, mut err) = pdsh(&job, first.port, &words).ends();
    out.sort();
    err.sort();
    assert_eq!(code, Some(1), "the largest: {err:?}");
    assert_eq!(out, ["127.0.0.1: b c / 0", "127.0.0.2: b c / 1"]);
    assert_eq!(err, ["127.0.0.1: 127.0.0.1", "127.0.0.2: 127.0.0.2"]);
}

#[test]
fn without_the_option_the_code_is_not_told_and_labels_can_be_left_out() {
    let job = Job::new();
    let [first, _second] = hosts(&job);
    let (code, out, _) = pdsh(&job, first.port, &["-N", "-w", BOTH, "-f1", "echo %n; exit 3"]).ends();
    assert_eq!((code, &*out), (Some(0), &["0".to_owned(), "1".to_owned()][..]));
}

#[test]
fn a_host_that_falls_silent_ends_the_others() {
    let job = Job::new();
    let [first, second] = hosts(&job);
    let client = pdsh(
        &job,
        first.port,
        &[
            "-SN",
            "-w",
            BOTH,
            "echo $$; trap '' TERM; while :; do sleep 0.1; done",
        ],
    );
    let others = [Other::from_line(&client.out), Other::from_line(&client.out)];
    second.process.signal(Signal::STOP);
    let (code, _, err) = client.ends();
    assert_eq!(code, Some(255), "{err:?}");
    assert!(err.iter().any(|line| line.contains("127.0.0.2")), "{err:?}");
    drop(second);
    others.iter().for_each(Other::goes);
}

#[test]
fn one_that_fails_ends_the_others_only_if_it_is_asked_for() {
    let job = Job::new();
    let [first, _second] = hosts(&job);
    let line = "[ %n = 0 ] || exit 7; while :; do sleep 0.1; done";
    let (code, ..) = pdsh(&job, first.port, &["-S", "-k", "-w", BOTH, line]).ends();
    assert_eq!(code, Some(143), "it was told to end");
    let line = "[ %n = 0 ] || exit 7; sleep 0.5; echo on";
    let (code, out, _) = pdsh(&job, first.port, &["-S", "-w", BOTH, line]).ends();
    assert_eq!((code, &*out), (Some(7), &["127.0.0.1: on".to_owned()][..]));
}

#[test]
fn a_signal_reaches_all() {
    let job = Job::new();
    let [first, _second] = hosts(&job);
    let line = "trap 'echo told; exit 5' INT; echo ready; while :; do sleep 0.05; done";
    let client = pdsh(&job, first.port, &["-SN", "-w", BOTH, line]);
    assert_eq!([client.out.next(), client.out.next()], ["ready", "ready"]);
    client.process.signal(Signal::INT);
    let (code, out, _) = client.ends();
    assert_eq!(
        (code, &*out),
        (Some(5), &["told".to_owned(), "told".to_owned()][..])
    );
}

#[test]
fn nonsense_is_told() {
    let job = Job::new();
    let (code, _, err) = pdsh(&job, 1, &["-w", "w[0-3]", "ls"]).ends();
    assert_eq!(code, Some(2));
    assert!(
        err[0].contains("name each; see `trainyard-agent --help`"),
        "{err:?}"
    );
}

#[test]
fn the_name_ssh_is_the_remote_shell() {
    let job = Job::new();
    let server = job.serve();
    let mut command = Command::new(AGENT);
    command
        .arg0("ssh")
        .args(["-o", "PasswordAuthentication=no", "127.0.0.1", "echo", "here"]);
    let (code, out, _) = Client::start(job.configure(command, server.port)).ends();
    assert_eq!((code, &*out), (Some(0), &["here".to_owned()][..]));
}
