use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::Sender;

use rstest::rstest;

use super::*;
use crate::observer::{Address, AnswerError, Failure};

const NO_TIME: Duration = Duration::from_millis(1);

fn waits(reason: &str) -> News {
    News::Said(Verdict::Wait(reason.to_owned()))
}

fn trouble(sentence: &str) -> News {
    News::Trouble(sentence.to_owned())
}

/// Both outputs as they are interleaved; what is on the standard error begins with `!`.
fn told(tell: impl FnOnce(&mut Story<'_>)) -> String {
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
    tell(&mut Story::new(&mut Marked(&log, ""), &mut Marked(&log, "!")));
    log.into_inner()
}

fn attended(news: impl IntoIterator<Item = News>) -> (io::Result<Option<String>>, String) {
    let (sender, heard) = channel();
    news.into_iter().for_each(|news| sender.send(news).unwrap());
    drop(sender);
    let mut result = Ok(None);
    let log = told(|story| result = attend(&heard, NO_TIME, || false, story));
    (result, log)
}

#[test]
fn goes_when_it_may() {
    let (result, log) = attended([
        waits("waits for a"),
        waits("waits for a"),
        waits("waits for b"),
        GO,
    ]);
    assert_eq!(result.unwrap(), None);
    assert_eq!(log, "waits for a\nwaits for b\n");
}

const GO: News = News::Said(Verdict::Go);

#[test]
fn gives_up_when_there_is_no_use() {
    let (result, _) = attended([
        waits("waits for a"),
        News::Said(Verdict::Never("a has failed".to_owned())),
        GO,
    ]);
    assert_eq!(result.unwrap().as_deref(), Some("a has failed"));
}

#[test]
fn does_not_go_by_accident() {
    let (result, _) = attended([waits("waits for a")]);
    assert!(result.unwrap_err().to_string().contains("has died"));
}

#[test]
fn tells_every_change_once() {
    let (_, log) = attended([
        trouble("refused"),
        trouble("refused"),
        trouble("no such host"),
        waits("waits for a"),
        waits("waits for a"),
        trouble("closed"),
        waits("waits for a"),
        trouble("closed"),
        waits("waits for a"),
        trouble("refused"),
        waits("waits for a"),
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
    let (_silent, heard): (Sender<News>, _) = channel();
    let looks = Cell::new(0);
    let is_overridden = || looks.replace(looks.get() + 1) == 3;
    let log = told(|story| assert_eq!(attend(&heard, NO_TIME, is_overridden, story).unwrap(), None));
    assert_eq!(log, "told to start now, by the annotation trainyard.dev/start\n");
    assert_eq!(looks.get(), 4);
}

#[test]
fn a_person_ends_the_wait_though_troubles_never_cease() {
    let (sender, heard) = channel();
    (0..100).for_each(|_| sender.send(trouble("refused")).unwrap());
    told(|story| assert_eq!(attend(&heard, Duration::MAX, || true, story).unwrap(), None));
    assert_eq!(heard.try_iter().count(), 100);
}

fn address() -> Address {
    "https://observer:9444".parse().unwrap()
}

fn refused(status: u16) -> Failure {
    let problem = AnswerError::Refused {
        status,
        sentence: "no".to_owned(),
    };
    Failure::Answer {
        address: address(),
        problem,
    }
}

fn closed() -> Failure {
    Failure::Answer {
        address: address(),
        problem: AnswerError::Ended,
    }
}

/// Follows connections that each say something and then fail; the one after the last of them says that it may go.
/// Returns what was told and the pauses in milliseconds.
fn followed(connections: Vec<(Vec<Verdict>, Failure)>) -> (Vec<News>, Vec<u128>) {
    let mut connections = VecDeque::from(connections);
    let (mut news, mut pauses) = (Vec::new(), Vec::new());
    follow(
        |hear| {
            let (said, end) = match connections.pop_front() {
                Some((said, failure)) => (said, Err(failure)),
                None => (vec![Verdict::Go], Ok(())),
            };
            for verdict in said {
                assert!(hear(verdict).is_continue());
            }
            end
        },
        |heard| {
            news.push(heard);
            ControlFlow::Continue(())
        },
        |pause| pauses.push(pause.as_millis()),
        || 1.0,
    );
    (news, pauses)
}

#[test]
fn pauses_grow_until_something_was_heard() {
    let wait = || vec![Verdict::Wait("for a".to_owned())];
    let (news, pauses) = followed(vec![
        (vec![], closed()),
        (vec![], closed()),
        (vec![], closed()),
        (wait(), closed()),
        (vec![], closed()),
        (vec![], closed()),
    ]);
    assert_eq!(pauses, [50, 100, 200, 50, 100, 200]);
    let closed = trouble("https://observer:9444 has closed the connection");
    assert_eq!(news.iter().filter(|news| **news == closed).count(), 6);
    assert_eq!((&news[3], news.last()), (&waits("for a"), Some(&GO)));
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
