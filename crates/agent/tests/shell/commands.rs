//! What a command has, and what comes back of it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use rstest::rstest;
use trainyard_eventually::receive;

use crate::job::{AGENT, Client, Job, Lines, Process};

/// All that comes, if it comes to an end.
fn all_of(mut source: impl Read + Send + 'static) -> Vec<u8> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes).unwrap();
        // After the end of a test nobody wants to know.
        let _ = sender.send(bytes);
    });
    receive("the end of it", &receiver).expect("it can be read")
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}

#[test]
fn much_passes_as_it_is_both_ways() {
    let job = Job::new();
    let server = job.serve();
    let mut command = Command::new(AGENT);
    command.args(["rsh", "localhost", "cat; exit 7"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = Process(job.configure(command, server.port).spawn().unwrap());
    // Every byte, in an order that does not repeat with the size of any buffer.
    let sent: Vec<u8> = (0..50_000_000_u32)
        .map(|index| u8::try_from(index.wrapping_mul(2_654_435_761) >> 24).unwrap())
        .collect();
    let mut input = client.0.stdin.take().unwrap();
    let copy = sent.clone();
    let writer = thread::spawn(move || input.write_all(&copy).unwrap());
    let received = all_of(client.0.stdout.take().unwrap());
    writer.join().unwrap();
    assert_eq!(received.len(), sent.len());
    assert!(received == sent, "other bytes came back");
    assert_eq!(client.ends(), Some(7));
}

#[test]
fn output_and_errors_stay_apart() {
    let job = Job::new();
    let server = job.serve();
    let (code, out, err) = job.sh(&server, "echo one; echo two >&2; echo three").ends();
    assert_eq!(code, Some(0));
    assert_eq!(out, ["one", "three"]);
    assert_eq!(err, ["two"]);
}

#[rstest]
#[case("exit 0", 0)]
#[case("exit 1", 1)]
#[case("exit 42", 42)]
#[case("exit 255", 255)]
#[case("kill -TERM $$", 143)]
#[case("kill -KILL $$", 137)]
#[case("/no/such/program", 127)]
#[case("/", 126)]
fn the_exit_code_is_that_of_the_command(#[case] line: &str, #[case] code: i32) {
    let job = Job::new();
    let server = job.serve();
    assert_eq!(job.sh(&server, line).ends().0, Some(code));
}

#[test]
fn the_end_of_the_input_passes() {
    let job = Job::new();
    let server = job.serve();
    let mut client = job.rsh(
        &server,
        &["localhost", "while read x; do echo got $x; done; echo end"],
    );
    client.write("a\n");
    assert_eq!(client.out.next(), "got a");
    client.write("b\n");
    assert_eq!(client.out.next(), "got b");
    client.input = None;
    let (code, out, _) = client.ends();
    assert_eq!((code, out), (Some(0), lines(&["end"])));
}

#[test]
fn a_command_without_input_waits_for_none() {
    let job = Job::new();
    let server = job.serve();
    // The input of the client stays open, and is not read.
    let mut client = job.rsh(&server, &["-x", "-n", "localhost", "cat; echo end"]);
    let input = client.input.take();
    let (code, out, _) = client.ends();
    assert_eq!((code, out), (Some(0), lines(&["end"])));
    drop(input);
}

#[test]
fn a_command_that_closes_its_streams_goes_on() {
    let job = Job::new();
    let server = job.serve();
    let line = "exec <&- >&-; echo still here >&2; exit 4";
    let mut client = job.rsh(&server, &["localhost", line]);
    assert_eq!(client.err.next(), "still here");
    // It may have gone by now.
    let _ = client.input.as_mut().unwrap().write_all(&vec![0; 10_000_000]);
    client.input = None;
    assert_eq!(client.ends().0, Some(4));
}

#[test]
fn an_output_that_nobody_takes_holds_up_nothing_else() {
    let job = Job::new();
    let server = job.serve();
    let mut command = Command::new(AGENT);
    // Longer than a side may be silent.
    let line =
        "head -c 5000000 /dev/zero & for i in 1 2 3 4 5 6; do echo tick >&2; sleep 1; done; wait; exit 3";
    command.args(["rsh", "-n", "localhost", line]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = Process(job.configure(command, server.port).spawn().unwrap());
    let err = Lines::of(client.0.stderr.take().unwrap());
    (0..6).for_each(|_| assert_eq!(err.next(), "tick"));
    let received = all_of(client.0.stdout.take().unwrap());
    assert_eq!(received.len(), 5_000_000);
    assert_eq!((client.ends(), err.rest()), (Some(3), vec![]));
}

#[test]
fn an_input_that_nobody_takes_holds_up_nothing_else() {
    let job = Job::new();
    let server = job.serve();
    let line = "for i in 1 2 3 4 5 6; do echo tick; sleep 1; done; wc -c";
    let mut client = job.rsh(&server, &["localhost", line]);
    let mut input = client.input.take().unwrap();
    let writer = thread::spawn(move || input.write_all(&vec![0; 5_000_000]).unwrap());
    (0..6).for_each(|_| assert_eq!(client.out.next(), "tick"));
    let (code, out, _) = client.ends();
    assert_eq!((code, out), (Some(0), lines(&["5000000"])));
    writer.join().unwrap();
}

#[test]
fn the_environment_is_that_of_the_server() {
    let job = Job::new();
    let mut command = Command::new(AGENT);
    let directory = tempfile::tempdir().unwrap();
    command
        .arg("serve")
        .env("YARD", "there")
        .current_dir(directory.path());
    command.env("TRAINYARD_SHELL_ADDRESS", "127.0.0.1");
    let server = crate::job::Server::start(job.configure(command, 0));
    let (_, out, _) = job.sh(&server, "echo $YARD; pwd -P; ulimit -n").ends();
    let place = directory.path().canonicalize().unwrap();
    assert_eq!(out[..2], ["there", place.to_str().unwrap()]);
}

#[test]
fn many_run_at_once() {
    let job = Job::new();
    let server = job.serve();
    // None ends before all run.
    let mut clients: Vec<Client> = (0..64)
        .map(|index| {
            job.rsh(
                &server,
                &["127.0.0.1", &format!("echo {index}; cat; exit {index}")],
            )
        })
        .collect();
    for (index, client) in clients.iter().enumerate() {
        assert_eq!(client.out.next(), index.to_string());
    }
    for client in &mut clients {
        client.write("last\n");
        client.input = None;
    }
    for (index, client) in clients.into_iter().enumerate() {
        let (code, out, err) = client.ends();
        assert_eq!(
            (code, out),
            (i32::try_from(index).ok(), lines(&["last"])),
            "{err:?}"
        );
    }
}

/// Where it is installed, the names are links to the same file, so that the program finds itself by
/// the one it was called by.
#[test]
fn the_ssh_of_an_image_calls_it_by_a_name_that_means_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    fs::copy(AGENT, place("trainyard-agent")).unwrap();
    fs::hard_link(place("trainyard-agent"), place("kubexec.sh")).unwrap();
    let script = "#!/bin/sh\nprintf '%s\\n' \"$@\"; echo ${TRAINYARD_SSH-gone}\n";
    fs::write(place("client"), script).unwrap();
    fs::set_permissions(place("client"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(place("kubexec.sh"));
    command
        .args(["-x", "host", "true"])
        .env("TRAINYARD_SSH", place("client"));
    let (code, out, err) = Client::start(command).ends();
    assert_eq!(code, Some(0), "{err:?}");
    let program = place("trainyard-agent");
    let proxy = format!("ProxyCommand='{}' connect '%h' '%p'", program.display());
    assert_eq!(
        out,
        lines(&[
            "-o",
            "ProxyUseFdpass=yes",
            "-o",
            &proxy,
            "-x",
            "host",
            "true",
            "gone"
        ])
    );
}

#[test]
fn is_known_by_the_name_that_launchers_call() {
    let job = Job::new();
    let server = job.serve();
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("kubexec.sh");
    symlink(AGENT, &program).unwrap();
    let mut command = Command::new(&program);
    command.args([
        "-x",
        "-o",
        "ConnectionAttempts=10",
        "-p",
        "22",
        "-l",
        "me",
        "localhost",
    ]);
    command.args(["echo", "$((1 + 1))", "'a", "b'", ";", "exit", "9"]);
    let (code, out, err) = Client::start(job.configure(command, server.port)).ends();
    assert_eq!((code, out), (Some(9), lines(&["2 a b"])), "{err:?}");
}

#[test]
fn a_server_that_is_not_there_yet_is_waited_for() {
    let job = Job::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut command = Command::new(AGENT);
    command.args(["rsh", "-n", "127.0.0.1", "echo here"]);
    // It is connected to and gets no answer, then is refused for a moment.
    let client = Client::start(job.configure(command, port));
    drop(listener.accept().unwrap());
    drop(listener);
    let _server = job.serve_on(port);
    let (code, out, err) = client.ends();
    assert_eq!((code, out), (Some(0), lines(&["here"])), "{err:?}");
}

#[rstest]
#[case(&[], "say on which host to run what")]
#[case(&["localhost"], "say what to run on localhost")]
#[case(&["no/host", "true"], r#""no/host" can't be the name of a host"#)]
fn a_call_that_makes_no_sense_is_told(#[case] words: &[&str], #[case] sentence: &str) {
    let job = Job::new();
    let server = job.serve();
    job.rsh(&server, words).fails(sentence);
}
