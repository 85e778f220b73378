//! How everything ends when somebody goes away.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rstest::rstest;
use rustix::process::Signal;

use crate::job::{AGENT, Client, Job, Lines, Process, Server};
use crate::processes::Other;

const SILENCE_VARIABLE: &str = "TRAINYARD_SHELL_SILENCE_SECONDS";

/// A command with a child and a grandchild, whose shells all have this trap.
fn family(job: &Job, server: &Server, trap: &str) -> (Client, Vec<Other>) {
    let line = format!("{trap} sh -c 'sleep 1000 & echo $!; echo $$; wait' & wait; wait");
    let client = job.sh(server, &format!("echo $$; {line}"));
    let members = (0..3).map(|_| Other::from_line(&client.out)).collect();
    (client, members)
}

#[rstest]
#[case(Signal::TERM, 143)]
#[case(Signal::HUP, 129)]
fn a_signal_reaches_all_processes_of_the_command(#[case] signal: Signal, #[case] code: i32) {
    let job = Job::new();
    let server = job.serve();
    let (client, members) = family(&job, &server, "");
    client.process.signal(signal);
    assert_eq!(client.ends().0, Some(code));
    members.iter().for_each(Other::goes);
}

#[test]
fn a_command_decides_what_a_signal_means() {
    let job = Job::new();
    let server = job.serve();
    let line = "trap 'echo told; exit 5' INT; echo ready; while :; do sleep 0.05; done";
    let client = job.sh(&server, line);
    assert_eq!(client.out.next(), "ready");
    client.process.signal(Signal::INT);
    let (code, out, _) = client.ends();
    assert_eq!((code, &*out), (Some(5), &["told".to_owned()][..]));
}

#[rstest]
#[case("")]
#[case("trap '' TERM;")]
fn a_client_that_is_killed_takes_its_command_with_it(#[case] trap: &str) {
    let job = Job::new();
    let server = job.serve();
    let (client, members) = family(&job, &server, trap);
    client.process.signal(Signal::KILL);
    members.iter().for_each(Other::goes);
    server
        .log
        .until("ended what 127.0.0.1 had asked for: the connection");
}

#[test]
fn a_client_that_is_silent_is_taken_for_gone() {
    let job = Job::new();
    let server = job.serve();
    let (client, members) = family(&job, &server, "");
    client.process.signal(Signal::STOP);
    members.iter().for_each(Other::goes);
    server.log.until("nothing was heard from it for 10 s");
}

#[test]
fn an_output_that_is_closed_ends_the_command() {
    let job = Job::new();
    let server = job.serve();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let mut command = Command::new(AGENT);
    command.args([
        "rsh",
        "-n",
        "localhost",
        &format!("echo $$ > {}; exec yes", file.display()),
    ]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = Process(job.configure(command, server.port).spawn().unwrap());
    let mut first = [0; 2];
    client.0.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let told = Lines::of(client.0.stderr.take().unwrap()).rest();
    assert_eq!((first, client.ends()), (*b"y\n", Some(255)));
    assert!(
        told[0].contains("its output can't be written: Broken pipe"),
        "{told:?}"
    );
    Other::from_line(&Lines::of(File::open(file).unwrap())).goes();
}

#[test]
fn an_output_that_is_lost_is_told() {
    let job = Job::new();
    let server = job.serve();
    let mut command = Command::new(AGENT);
    command.args(["rsh", "-n", "localhost", "echo lost"]);
    command.stdout(File::options().write(true).open("/dev/full").unwrap());
    command.stderr(Stdio::piped());
    let mut client = Process(job.configure(command, server.port).spawn().unwrap());
    let told = Lines::of(client.0.stderr.take().unwrap()).rest();
    assert_eq!(client.ends(), Some(255));
    assert!(
        told[0].contains("its output can't be written: No space left"),
        "{told:?}"
    );
}

#[test]
fn an_output_that_is_lost_after_the_end_of_the_command_is_told() {
    let job = Job::new();
    let server = job.serve();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("begun");
    let mut command = Command::new(AGENT);
    // More than a pipe holds, and less than may be under way.
    let line = format!("echo > {}; head -c 200000 /dev/zero", file.display());
    command.args(["rsh", "-n", "localhost", &line]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = Process(job.configure(command, server.port).spawn().unwrap());
    let output = client.0.stdout.take();
    let myself = Other::of(&server.process);
    myself.waits_until("has not begun", |_| file.exists());
    // The thread of the connection ends when the client has closed it. Others wait for signals, for
    // clients and for what is to be started.
    myself.waits_until("serves", |server| server.field("Threads").as_deref() == Some("3"));
    drop(output);
    let told = Lines::of(client.0.stderr.take().unwrap()).rest();
    assert_eq!(client.ends(), Some(255));
    assert!(
        told[0].contains("its output can't be written: Broken pipe"),
        "{told:?}"
    );
}

#[test]
fn a_server_that_is_killed_is_missed_at_once() {
    let job = Job::new();
    let server = job.serve();
    let mut client = job.rsh(&server, &["localhost", "echo ready; cat"]);
    let input = client.input.take();
    assert_eq!(client.out.next(), "ready");
    server.process.signal(Signal::KILL);
    client.fails("trainyard-agent: localhost: the connection ");
    drop(input);
}

#[rstest]
#[case("", 4)]
#[case("2", 2)]
#[case("6", 6)]
fn a_server_that_falls_silent_is_given_up(#[case] asked: &str, #[case] seconds: u64) {
    let job = Job::new();
    let server = job.serve();
    let mut command = Command::new(AGENT);
    command.args(["rsh", "-n", "localhost", "echo ready; sleep 1000"]);
    command.env(SILENCE_VARIABLE, asked);
    let client = Client::start(job.configure(command, server.port));
    assert_eq!(client.out.next(), "ready");
    let begun = Instant::now();
    server.process.signal(Signal::STOP);
    client.fails(&format!(
        "trainyard-agent: localhost: nothing was heard from it for {seconds} s"
    ));
    // It was heard of a second ago at most.
    assert!(begun.elapsed() >= Duration::from_secs(seconds - 1));
}

#[test]
fn a_time_that_makes_no_sense_is_told_by_both_sides() {
    let job = Job::new();
    let server = job.serve();
    let why = "TRAINYARD_SHELL_SILENCE_SECONDS must be a whole number of seconds from 2 to 86400; it is 1";
    let mut command = Command::new(AGENT);
    command
        .args(["rsh", "-n", "localhost", "true"])
        .env(SILENCE_VARIABLE, "1");
    let client = Client::start(job.configure(command, server.port));
    client.fails(&format!("trainyard-agent: localhost: {why}"));
    for mode in ["serve", "attend"] {
        let mut command = Command::new(AGENT);
        command.arg(mode).env(SILENCE_VARIABLE, "1");
        let (code, out, err) = Client::start(job.configure(command, 0)).ends();
        assert_eq!((code, &*out), (Some(2), &[][..]), "{mode}: {err:?}");
        assert_eq!(err, [format!("trainyard-agent: {why}")]);
    }
}

#[rstest]
#[case("", 143)]
#[case("trap '' TERM;", 137)]
fn a_server_that_is_told_to_end_ends_its_commands(#[case] trap: &str, #[case] code: i32) {
    let job = Job::new();
    let mut server = job.serve();
    let (client, members) = family(&job, &server, trap);
    server.process.signal(Signal::TERM);
    assert_eq!(client.ends().0, Some(code));
    assert_eq!(
        server.process.ends(),
        Some(143),
        "a pod that is taken away has not succeeded"
    );
    members.iter().for_each(Other::goes);
}

#[test]
fn a_server_that_is_told_to_end_tells_daemons() {
    let job = Job::new();
    let mut server = job.serve();
    let directory = tempfile::tempdir().unwrap();
    let told = directory.path().join("told");
    // It has left the group and the outputs of the command, as `orted` does.
    let daemon = format!(
        "trap \"touch {}; exit\" TERM; echo $$; exec >/dev/null 2>&1; while :; do sleep 0.05; done",
        told.display()
    );
    let client = job.sh(&server, &format!("setsid sh -c '{daemon}' &"));
    let daemon = Other::from_line(&client.out);
    assert_eq!(client.ends().0, Some(0));
    server.process.signal(Signal::TERM);
    assert_eq!(server.process.ends(), Some(143));
    daemon.goes();
    assert!(told.exists());
}

#[test]
fn a_server_without_commands_ends_when_it_is_told() {
    let job = Job::new();
    let mut server = job.serve();
    server.process.signal(Signal::INT);
    assert_eq!(server.process.ends(), Some(130));
}
