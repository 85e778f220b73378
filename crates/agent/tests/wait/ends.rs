//! How a wait ends.

use std::fs;
use std::process::Command;

use rstest::rstest;
use rustix::process::Signal;

use crate::agent::{Agent, Pod};
use crate::server::{Authority, Port};

#[test]
fn goes_when_the_observer_says_so() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let server = port.serve(authority.serving());
    let mut agent = pod.start(&port.url(), &authority.pem);
    let mut guest = server.guest().welcomed();
    let head = format!(
        "GET /v1/jobs/vision/mnist/start?role=worker HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\
         Authorization: Bearer first-token\r\nAccept: application/x-ndjson\r\n",
        port.number()
    );
    assert!(guest.request.starts_with(&head), "{}", guest.request);
    guest.wait("waits for the role a to run");
    agent.says("waits for the role a to run");
    guest.say("\n\n");
    guest.wait("waits for the role a to run");
    guest.wait("waits for the role b to be ready");
    agent.says("waits for the role b to be ready");
    guest.go();
    let end = agent.ends();
    assert_eq!(end.code, Some(0));
    assert_eq!(
        end.out,
        ["waits for the role a to run", "waits for the role b to be ready"]
    );
    assert!(end.err.is_empty(), "{end:?}");
}

#[test]
fn tells_why_it_is_in_vain() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let server = port.serve(authority.serving());
    let agent = pod.start(&port.url(), &authority.pem);
    let mut guest = server.guest().welcomed();
    guest.say("{\"state\":\"Never\",\"message\":\"the role a has failed\"}\n");
    let end = agent.ends();
    assert_eq!(end.code, Some(3));
    assert_eq!(end.err, ["the role a has failed"]);
    let reason = fs::read_to_string(pod.file("termination-log")).unwrap();
    assert_eq!(reason, "the role a has failed");
}

#[test]
fn a_termination_log_that_is_not_there_is_no_matter() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    fs::create_dir(pod.file("termination-log")).unwrap();
    let server = port.serve(authority.serving());
    let agent = pod.start(&port.url(), &authority.pem);
    let mut guest = server.guest().welcomed();
    guest.say("{\"state\":\"Never\",\"message\":\"the role a has failed\"}\n");
    let end = agent.ends();
    assert_eq!((end.code, end.err.len()), (Some(3), 1));
}

#[test]
fn an_annotation_ends_it_while_the_observer_is_away() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let mut agent = pod.start(&port.url(), &authority.pem);
    agent.complains("refused");
    pod.write("annotations", "other=\"now\"\ntrainyard.dev/start=\"later\"\n");
    pod.write("annotations", "other=\"x\"\ntrainyard.dev/start=\"now\"\n");
    let end = agent.ends();
    assert_eq!(end.code, Some(0));
    let expected = ["told to start now, by the annotation trainyard.dev/start"];
    assert_eq!(end.out, expected);
}

#[test]
fn an_annotation_ends_it_while_the_observer_says_nothing() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let listener = port.listen();
    let agent = pod.start(&port.url(), &authority.pem);
    let _unanswered = listener.accept().unwrap();
    pod.write("annotations", "trainyard.dev/start=\"now\"\n");
    assert_eq!(agent.ends().code, Some(0));
}

#[rstest]
#[case(Signal::TERM, 143)]
#[case(Signal::INT, 130)]
fn a_signal_ends_it_while_it_waits(#[case] signal: Signal, #[case] code: i32) {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let server = port.serve(authority.serving());
    let mut agent = pod.start(&port.url(), &authority.pem);
    let mut guest = server.guest().welcomed();
    guest.wait("waits for the role a to run");
    agent.says("waits");
    agent.signal(signal);
    assert_eq!(agent.ends().code, Some(code));
}

#[test]
fn a_signal_ends_it_while_nobody_is_there() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let mut agent = pod.start(&port.url(), &authority.pem);
    agent.complains("refused");
    agent.signal(Signal::TERM);
    assert_eq!(agent.ends().code, Some(143));
}

#[test]
fn a_signal_ends_it_while_nothing_answers() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let listener = port.listen();
    let agent = pod.start(&port.url(), &authority.pem);
    let _unanswered = listener.accept().unwrap();
    agent.signal(Signal::TERM);
    assert_eq!(agent.ends().code, Some(143));
}

#[test]
fn a_missing_setting_is_told() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard-agent"));
    command.arg("wait").env_clear();
    let end = Agent::start(command).ends();
    assert_eq!(end.code, Some(2));
    assert!(
        end.err[0].starts_with("trainyard-agent: TRAINYARD_OBSERVER is not set"),
        "{end:?}"
    );
}

#[test]
fn a_bad_command_line_is_told() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard-agent"));
    command.arg("sleep");
    let end = Agent::start(command).ends();
    assert_eq!(end.code, Some(2));
    assert_eq!(
        end.err,
        ["trainyard-agent: there is no mode \"sleep\"; see `trainyard-agent --help`"]
    );
}
