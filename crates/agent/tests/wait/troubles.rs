//! What fails and is tried again.

use rstest::rstest;

use crate::agent::{Agent, Pod};
use crate::server::{Authority, Port, Server};

/// The next connection is well, and says that it may go.
fn goes(server: &Server, agent: Agent) -> Vec<String> {
    server.guest().welcomed().go();
    let end = agent.ends();
    assert_eq!(end.code, Some(0), "{end:?}");
    end.err
}

#[test]
fn an_observer_that_comes_late() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let mut agent = pod.start(&port.url(), &authority.pem);
    agent.complains("refused");
    let server = port.serve(authority.serving());
    let err = goes(&server, agent);
    let expected = format!(
        "trainyard-agent: can't connect to {} at 127.0.0.1: Connection refused (os error 111); trying again",
        port.url()
    );
    assert_eq!(err, [expected]);
}

#[test]
fn an_observer_that_dies_and_comes_back() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let server = port.serve(authority.serving());
    let mut agent = pod.start(&port.url(), &authority.pem);
    let mut guest = server.guest().welcomed();
    guest.wait("waits for the role a to run");
    agent.says("waits for the role a to run");
    guest.say("{\"state\":");
    drop(server);
    drop(guest);
    agent.complains("has closed the connection; trying again");
    agent.complains("refused");
    let server = port.serve(authority.serving());
    let mut guest = server.guest().welcomed();
    guest.wait("waits for the role a to run");
    guest.bid_farewell();
    let mut guest = server.guest().welcomed();
    guest.wait("waits for the role b to run");
    guest.go();
    let end = agent.ends();
    assert_eq!(end.code, Some(0));
    let expected = ["a", "a", "b"].map(|role| format!("waits for the role {role} to run"));
    assert_eq!(end.out[..2], expected[..2]);
    assert_eq!(end.out.last(), expected.last());
}

#[test]
fn a_certificate_of_another_authority() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let other = port.serve(Authority::new().serving());
    let mut agent = pod.start(&port.url(), &authority.pem);
    assert!(other.try_guest().is_err());
    agent.complains("its certificate is not signed by any authority in TRAINYARD_AUTHORITY; trying again");
    drop(other);
    let server = port.serve(authority.serving());
    goes(&server, agent);
}

#[test]
fn a_certificate_for_another_name() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let other = port.serve(authority.serving_as(&["127.0.0.2", "elsewhere"]));
    let mut agent = pod.start(&port.url(), &authority.pem);
    assert!(other.try_guest().is_err());
    agent.complains("its certificate is for another name; trying again");
    drop(other);
    goes(&port.serve(authority.serving()), agent);
}

#[test]
fn one_of_several_authorities_is_enough_and_a_name_will_do() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let server = port.serve(authority.serving_as(&["localhost"]));
    let authorities = Authority::new().pem + &authority.pem;
    let agent = pod.start(&format!("https://localhost:{}", port.number()), &authorities);
    assert!(goes(&server, agent).is_empty());
}

#[rstest]
#[case("401 Unauthorized", "the token has expired")]
#[case("403 Forbidden", "pod x is not of job mnist")]
#[case("404 Not Found", "there is no job mnist")]
#[case("503 Service Unavailable", "the index is not complete")]
fn an_observer_that_says_no_at_first(#[case] status: &str, #[case] sentence: &str) {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let server = port.serve(authority.serving());
    let agent = pod.start(&port.url(), &authority.pem);
    server.guest().refuse(status, sentence);
    server.guest().refuse(status, sentence);
    let code = status.split_once(' ').unwrap().0;
    let expected = format!(
        "trainyard-agent: {} answers {code}: {sentence}; trying again",
        port.url()
    );
    assert_eq!(goes(&server, agent), [expected]);
}

#[test]
fn a_token_is_read_for_every_connection() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let server = port.serve(authority.serving());
    let agent = pod.start(&port.url(), &authority.pem);
    let guest = server.guest();
    assert_eq!(guest.token(), "first-token");
    pod.write("token", "second-token");
    guest.refuse("401 Unauthorized", "the token has expired");
    let mut guest = server.guest().welcomed();
    assert_eq!(guest.token(), "second-token");
    guest.go();
    assert_eq!(agent.ends().code, Some(0));
}

#[test]
fn a_token_that_is_not_there_yet() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    std::fs::remove_file(pod.file("token")).unwrap();
    let server = port.serve(authority.serving());
    let mut agent = pod.start(&port.url(), &authority.pem);
    agent.complains("can't read the token in ");
    pod.write("token", "late-token");
    let mut guest = server.guest().welcomed();
    assert_eq!(guest.token(), "late-token");
    guest.go();
    let end = agent.ends();
    assert_eq!(end.code, Some(0));
    assert!(!format!("{end:?}").contains("late-token"));
}

#[rstest]
#[case::no_json(
    "HTTP/1.1 200 OK\r\n\r\nGo\n",
    "sends a line that can't be used: expected value"
)]
#[case::unknown_state(
    "HTTP/1.1 200 OK\r\n\r\n{\"state\":\"Hurry\"}\n",
    "sends a line that can't be used: there is no state \"Hurry\""
)]
#[case::long_line(&format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(70_000)), "sends a line of more than 65536 bytes")]
#[case::chunks(
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nf\r\n{\"state\":\"Go\"}\n\r\n0\r\n\r\n",
    "answers with a transfer encoding"
)]
#[case::no_http("hello\r\n\r\n", "does not answer in HTTP")]
fn an_answer_that_makes_no_sense(#[case] answer: &str, #[case] complaint: &str) {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let server = port.serve(authority.serving());
    let mut agent = pod.start(&port.url(), &authority.pem);
    let mut guest = server.guest();
    guest.say(answer);
    agent.complains(complaint);
    guest.leaves();
    assert_eq!(goes(&server, agent).len(), 1);
}
