//! What takes long, with shorter timeouts than a pod has: the library is called with shorter times.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, LineWriter, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use trainyard_agent::wait::{Config, Outcome, run};
use trainyard_eventually::receive;

use crate::agent::Pod;
use crate::server::{Authority, Port, Server, serve};

/// Long enough for a server of this test to answer, and short enough to wait for.
const SHORT: Duration = Duration::from_secs(1);

fn config(pod: &Pod, observer: String, authority: &str) -> Config {
    let name = |name: &str| OsString::from(name);
    let variables = BTreeMap::from([
        ("TRAINYARD_OBSERVER", observer.into()),
        ("TRAINYARD_AUTHORITY", name(authority)),
        ("TRAINYARD_NAMESPACE", name("vision")),
        ("TRAINYARD_JOB", name("mnist")),
        ("TRAINYARD_ROLE", name("worker")),
        ("TRAINYARD_TOKEN_FILE", pod.file("token").into()),
        ("TRAINYARD_ANNOTATIONS_FILE", pod.file("annotations").into()),
        ("TRAINYARD_TERMINATION_LOG", pod.file("termination-log").into()),
    ]);
    Config::read(&|name| variables.get(name).cloned()).unwrap()
}

/// A wait in a thread.
struct Waiting {
    outcome: Receiver<Outcome>,
    complaints: Receiver<String>,
}

impl Waiting {
    fn start(config: Config) -> Self {
        let (sender, outcome) = channel();
        let (complaint, complaints) = channel();
        thread::spawn(move || {
            let mut err = LineWriter::new(Complaints(complaint));
            let outcome = run(&config, &mut Vec::new(), &mut err).unwrap();
            // After the end of a test nobody wants to know.
            let _ = sender.send(outcome);
        });
        Self { outcome, complaints }
    }

    /// Waits until it tells a trouble, which must have this text.
    fn complains(&self, text: &str) {
        let complaint = receive("a complaint", &self.complaints).unwrap();
        assert!(complaint.contains(text), "{complaint}");
    }

    /// Tells all who come that they may go, until it does. Its timeouts are so short that on a busy
    /// machine the first answer may be too late for it.
    fn goes(self, server: &Server) {
        for _ in 0..20 {
            if let Ok(mut guest) = server.try_guest() {
                let _ = guest.try_say("HTTP/1.0 200 OK\r\n\r\n{\"state\":\"Go\"}\n");
            }
            if let Ok(outcome) = self.outcome.recv_timeout(5 * SHORT) {
                return assert_eq!(outcome, Outcome::Go);
            }
        }
        panic!("it does not go");
    }
}

struct Complaints(Sender<String>);

impl Write for Complaints {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = self.0.send(String::from_utf8_lossy(line).into_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_observer_that_falls_silent_is_asked_again() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let server = port.serve(authority.serving());
    let mut config = config(&pod, port.url(), &authority.pem);
    config.observer.timeouts.idle = SHORT;
    let waiting = Waiting::start(config);
    let mut silent = server.guest();
    // Half a line is no sign of life. It may be tired of waiting already.
    let _ = silent.try_say("HTTP/1.0 200 OK\r\n\r\n{\"state\":\"Wait\"}\n{\"state\"");
    waiting.complains("has been silent for too long; trying again");
    silent.leaves();
    // Nor is it to take a request and not to answer it.
    server.guest().leaves();
    waiting.goes(&server);
}

#[test]
fn signs_of_life_keep_a_connection() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let server = port.serve(authority.serving());
    let waiting = Waiting::start(config(&pod, port.url(), &authority.pem));
    let mut guest = server.guest().welcomed();
    (0..100).for_each(|_| guest.say("\n"));
    guest.go();
    assert_eq!(receive("the end", &waiting.outcome), Some(Outcome::Go));
    assert_eq!(waiting.complaints.try_iter().count(), 0);
}

#[test]
fn a_handshake_that_does_not_end_is_given_up() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let listener = port.listen();
    let mut config = config(&pod, port.url(), &authority.pem);
    config.observer.timeouts.handshake = SHORT;
    let waiting = Waiting::start(config);
    let _unanswered = listener.accept().unwrap();
    waiting.complains("it took more than 1s; trying again");
    let server = serve(listener, authority.serving());
    waiting.goes(&server);
}

#[test]
fn a_connection_that_does_not_come_is_given_up() {
    let (authority, port, pod) = (Authority::new(), Port::reserve(), Pod::new());
    let listener = port.listen();
    // There is room for one who is not served, and for no other.
    rustix::net::listen(&listener, 0).unwrap();
    let _first = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut config = config(&pod, port.url(), &authority.pem);
    config.observer.timeouts.connect = SHORT;
    let waiting = Waiting::start(config);
    waiting.complains("timed out; trying again");
    let _first = listener.accept().unwrap();
    let server = serve(listener, authority.serving());
    waiting.goes(&server);
}
