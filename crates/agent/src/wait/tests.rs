use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::Sender;

use rstest::rstest;

use super::*;
use crate::observer::{Address, AnswerError, ObserverError};

const NO_TIME: Duration = Duration::from_millis(1);

fn waiting(reason: &str) -> Event {
    Event::Start(Start::Wait(reason.to_owned()))
}

fn failure(sentence: &str) -> Event {
    Event::Error(sentence.to_owned())
}

/// Both outputs as they are interleaved; what is on the standard error begins with `!`.
fn logged(write: impl FnOnce(&mut WaitLog<'_>)) -> String {
    struct Marked<'a>(&'a RefCell<String>, &'static str);
    impl Write for Marked<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut log = self.0.borrow_mut();
            if log.is_empty() || log.ends_with('\n') {
                log.push_str(self.1);
            }
            log.push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = RefCell::new(String::new());
    write(&mut WaitLog::new(&mut Marked(&log, ""), &mut Marked(&log, "!")));
    log.into_inner()
}

fn log_of(sent: impl IntoIterator<Item = Event>) -> (io::Result<Option<String>>, String) {
    let (sender, events) = channel();
    sent.into_iter().for_each(|event| sender.send(event).unwrap());
    drop(sender);
    let mut result = Ok(None);
    let log = logged(|log| result = wait_for_start(&events, NO_TIME, || false, log));
    (result, log)
}

#[test]
fn goes_when_it_may() {
    let (result, log) = log_of([
        waiting("waits for a"),
        waiting("waits for a"),
        waiting("waits for b"),
        GO,
    ]);
    assert_eq!(result.unwrap(), None);
    assert_eq!(log, "waits for a\nwaits for b\n");
}

const GO: Event = Event::Start(Start::Go);

#[test]
fn gives_up_when_there_is_no_use() {
    let (result, _) = log_of([
        waiting("waits for a"),
        Event::Start(Start::Never("a has failed".to_owned())),
        GO,
    ]);
    assert_eq!(result.unwrap().as_deref(), Some("a has failed"));
}

#[test]
fn does_not_go_by_accident() {
    let (result, _) = log_of([waiting("waits for a")]);
    assert!(result.unwrap_err().to_string().contains("has died"));
}

#[test]
fn tells_every_change_once() {
    let (_, log) = log_of([
        failure("refused"),
        failure("refused"),
        failure("no such host"),
        waiting("waits for a"),
        waiting("waits for a"),
        failure("closed"),
        waiting("waits for a"),
        failure("closed"),
        waiting("waits for a"),
        failure("refused"),
        waiting("waits for a"),
    ]);
    let expected = "\
        !trainyard-agent: refused; trying again\n\
        !trainyard-agent: no such host; trying again\n\
        waits for a\n\
        !trainyard-agent: closed; trying again\n\
        waits for a\n\
        !trainyard-agent: refused; trying again\n\
        waits for a\n";
    assert_eq!(log, expected);
}

#[test]
fn a_person_ends_the_wait_though_nothing_is_heard() {
    let (_silent, events): (Sender<Event>, _) = channel();
    let looks = Cell::new(0);
    let is_overridden = || looks.replace(looks.get() + 1) == 3;
    let log = logged(|log| {
        assert_eq!(
            wait_for_start(&events, NO_TIME, is_overridden, log).unwrap(),
            None
        );
    });
    assert_eq!(log, "told to start now, by the annotation trainyard.dev/start\n");
    assert_eq!(looks.get(), 4);
}

#[test]
fn a_person_ends_the_wait_though_troubles_never_cease() {
    let (sender, events) = channel();
    (0..100).for_each(|_| sender.send(failure("refused")).unwrap());
    logged(|log| {
        assert_eq!(
            wait_for_start(&events, Duration::MAX, || true, log).unwrap(),
            None
        );
    });
    assert_eq!(events.try_iter().count(), 100);
}

fn address() -> Address {
    "https://observer:9444".parse().unwrap()
}

fn refused(status: u16) -> ObserverError {
    let problem = AnswerError::Refused {
        status,
        sentence: "no".to_owned(),
    };
    ObserverError::Answer {
        address: address(),
        problem,
    }
}

fn closed() -> ObserverError {
    ObserverError::Answer {
        address: address(),
        problem: AnswerError::Ended,
    }
}

/// Follows connections that each say something and then fail; the one after the last of them says
/// that it may go. Returns the events and the pauses in milliseconds.
fn followed(connections: Vec<(Vec<Start>, ObserverError)>) -> (Vec<Event>, Vec<u128>) {
    let mut connections = VecDeque::from(connections);
    let (mut events, mut pauses) = (Vec::new(), Vec::new());
    follow(
        |hear| {
            let (said, end) = match connections.pop_front() {
                Some((said, failure)) => (said, Err(failure)),
                None => (vec![Start::Go], Ok(())),
            };
            for start in said {
                assert!(hear(start).is_continue());
            }
            end
        },
        |event| {
            events.push(event);
            ControlFlow::Continue(())
        },
        |pause| pauses.push(pause.as_millis()),
        || 1.0,
    );
    (events, pauses)
}

#[test]
fn pauses_grow_until_something_was_heard() {
    let wait = || vec![Start::Wait("for a".to_owned())];
    let (events, pauses) = followed(vec![
        (vec![], closed()),
        (vec![], closed()),
        (vec![], closed()),
        (wait(), closed()),
        (vec![], closed()),
        (vec![], closed()),
    ]);
    assert_eq!(pauses, [50, 100, 200, 50, 100, 200]);
    let closed = failure("https://observer:9444 has closed the connection");
    assert_eq!(events.iter().filter(|event| **event == closed).count(), 6);
    assert_eq!((&events[3], events.last()), (&waiting("for a"), Some(&GO)));
}

#[rstest]
#[case(401, 5000)]
#[case(403, 5000)]
#[case(404, 5000)]
#[case(429, 1000)]
#[case(500, 1000)]
#[case(503, 1000)]
fn who_says_no_is_not_asked_so_often(#[case] status: u16, #[case] longest: u128) {
    let (_, pauses) = followed((0..10).map(|_| (vec![], refused(status))).collect());
    assert_eq!(pauses[..5], [50, 100, 200, 400, 800]);
    assert_eq!(pauses.last(), Some(&longest));
}

#[test]
fn stops_when_nobody_listens() {
    let mut attempts = 0;
    follow(
        |_| {
            attempts += 1;
            Err(closed())
        },
        |_| ControlFlow::Break(()),
        |_| panic!("a pause for nothing"),
        || 1.0,
    );
    assert_eq!(attempts, 1);
}

fn environment() -> BTreeMap<&'static str, String> {
    let authority = rcgen::generate_simple_self_signed(vec!["x".to_owned()]).unwrap();
    let text = |text: &str| text.to_owned();
    BTreeMap::from([
        ("TRAINYARD_OBSERVER", text("https://observer.yard.svc:9444")),
        ("TRAINYARD_AUTHORITY", authority.cert.pem()),
        ("TRAINYARD_NAMESPACE", text("vision")),
        ("TRAINYARD_JOB", text("mnist")),
        ("TRAINYARD_ROLE", text("worker")),
    ])
}

fn config(variables: &BTreeMap<&'static str, String>) -> Result<Config, SettingError> {
    Config::read(&|name| variables.get(name).map(OsString::from))
}

#[test]
fn is_configured_by_the_environment() {
    let mut variables = environment();
    let read = config(&variables).unwrap();
    assert_eq!(
        read.observer.address.to_string(),
        "https://observer.yard.svc:9444"
    );
    assert_eq!(read.path, "/v1/jobs/vision/mnist/start?role=worker");
    let files = |config: Config| {
        [
            config.observer.token_file,
            config.annotations_file,
            config.termination_log,
        ]
    };
    let defaults = [
        "/var/run/trainyard/token",
        "/var/run/trainyard/annotations",
        "/dev/termination-log",
    ];
    assert_eq!(files(read), defaults.map(PathBuf::from));

    let names = [
        "TRAINYARD_TOKEN_FILE",
        "TRAINYARD_ANNOTATIONS_FILE",
        "TRAINYARD_TERMINATION_LOG",
    ];
    variables.extend(names.map(|name| (name, format!("/files/{name}"))));
    let expected = names.map(|name| PathBuf::from(format!("/files/{name}")));
    assert_eq!(files(config(&variables).unwrap()), expected);
}

#[rstest]
#[case(
    "TRAINYARD_OBSERVER",
    "http://observer:9444",
    "must begin with https://; it is \"http://observer:9444\""
)]
#[case(
    "TRAINYARD_AUTHORITY",
    "secret",
    "must hold certificates as PEM, and holds none"
)]
#[case("TRAINYARD_NAMESPACE", "a/b", "must be a name of")]
#[case("TRAINYARD_JOB", "a b", "must be a name of")]
#[case("TRAINYARD_ROLE", "A", "must be a name of")]
fn a_bad_setting_is_named(#[case] name: &'static str, #[case] value: &str, #[case] problem: &str) {
    let mut variables = environment();
    variables.insert(name, value.to_owned());
    let error = config(&variables).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{name} {problem}")), "{error}");
    variables.remove(name);
    assert_eq!(config(&variables).unwrap_err(), SettingError::Missing(name));
}
