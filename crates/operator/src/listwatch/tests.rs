use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use futures::StreamExt;
use http::Response;
use http_body_util::{Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;

use super::*;

/// A server that gives scripted answers and notes what it was asked. When it has no more answers it
/// is silent.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
    times: Arc<Mutex<Vec<Instant>>>,
    exhausted: Arc<tokio::sync::Notify>,
}

impl Server {
    fn new(answers: impl IntoIterator<Item = (u16, String)>) -> Self {
        Self {
            answers: Arc::new(Mutex::new(answers.into_iter().collect())),
            ..Self::default()
        }
    }

    fn client(&self) -> kube::Client {
        let server = self.clone();
        kube::Client::new(
            tower::service_fn(move |request: http::Request<Body>| {
                let server = server.clone();
                async move {
                    let query = request.uri().query().unwrap_or_default();
                    let wanted = ["watch", "resourceVersion", "continue"];
                    let asked: Vec<_> = query
                        .split('&')
                        .filter(|pair| {
                            pair.split_once('=')
                                .is_some_and(|(name, _)| wanted.contains(&name))
                        })
                        .collect();
                    server.asked.lock().push(asked.join(" "));
                    server.times.lock().push(Instant::now());
                    let answer = server.answers.lock().pop_front();
                    let Some((code, body)) = answer else {
                        server.exhausted.notify_one();
                        return futures::future::pending().await;
                    };
                    Ok::<_, Infallible>(
                        Response::builder()
                            .status(code)
                            .body(Full::new(Bytes::from(body)))
                            .unwrap(),
                    )
                }
            }),
            "default",
        )
    }

    /// Follows until the answers are used up; what was asked and what was told.
    async fn follow(self) -> (Vec<String>, Vec<String>) {
        let sink = Notes::default();
        let (_resync, receiver) = watch::channel(0);
        let target = Target {
            kind: "pod",
            path: "/api/v1/pods".into(),
            labels: None,
            metadata_only: false,
            page: 2,
        };
        tokio::select! {
            () = follow(self.client(), target, &sink, receiver) => {}
            () = self.exhausted.notified() => {}
        }
        let asked = std::mem::take(&mut *self.asked.lock());
        (asked, sink.0.into_inner())
    }
}

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn put(&self, note: String) {
        self.0.lock().push(note);
    }

    fn named(&self, what: &str, json: &str) -> Result<Version, serde_json::Error> {
        let pod: crate::slim::SlimMeta = serde_json::from_str(json)?;
        self.put(format!("{what} {}", pod.metadata.name));
        Ok(pod.metadata.resource_version)
    }
}

impl Sink for Notes {
    fn listing(&self, version: Version) {
        self.put(format!("listing {}", version.0));
    }
    fn object(&self, json: &str, source: Source) -> Result<Version, serde_json::Error> {
        self.named(&format!("{source:?}"), json)
    }
    fn gone(&self, json: &str) -> Result<Version, serde_json::Error> {
        self.named("Gone", json)
    }
    fn listed(&self, version: Version, _: Instant) {
        self.put(format!("listed {}", version.0));
    }
    fn bookmark(&self, version: Version) {
        self.put(format!("bookmark {}", version.0));
    }
    fn refused(&self) {
        self.put("refused".to_owned());
    }
    fn interrupted(&self, error: Option<&Error>) {
        self.put(format!("interrupted {:?}", error.map(Error::code)));
    }
}

fn page(version: u32, more: &str, names: &[&str]) -> (u16, String) {
    let items: Vec<_> = names
        .iter()
        .map(|name| json!({"metadata": {"name": name, "resourceVersion": "1"}}))
        .collect();
    let metadata = json!({"resourceVersion": version.to_string(), "continue": more});
    (
        200,
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}).to_string(),
    )
}

fn event(what: &str, name: &str, version: u32) -> String {
    let object = json!({"metadata": {"name": name, "resourceVersion": version.to_string()}});
    format!("{{\"type\":\"{what}\",\"object\":{object}}}\n")
}

fn refusal(code: u16) -> (u16, String) {
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": "", "message": "no"});
    (code, status.to_string())
}

#[tokio::test(start_paused = true)]
async fn pages_then_events_then_on_from_the_last() {
    let events = [
        event("ADDED", "c", 11),
        event("MODIFIED", "c", 12),
        event("DELETED", "a", 13),
        event("BOOKMARK", "", 20),
    ];
    let server = Server::new([
        page(10, "more", &["a"]),
        page(10, "", &["b"]),
        (200, events.concat()),
    ]);
    let (asked, told) = server.follow().await;
    assert_eq!(
        asked,
        [
            "",
            "continue=more",
            "watch=true resourceVersion=10",
            "watch=true resourceVersion=20",
        ]
    );
    assert_eq!(
        told[..7],
        [
            "listing 10",
            "List a",
            "List b",
            "listed 10",
            "Watch c",
            "Watch c",
            "Gone a"
        ]
    );
    assert_eq!(told[7..], ["bookmark 20", "interrupted None"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_within_a_line_goes_on_before_it() {
    let mut broken = event("ADDED", "c", 11) + &event("ADDED", "d", 12);
    broken.truncate(broken.len() - 9);
    let (asked, told) = Server::new([page(10, "", &[]), (200, broken)]).follow().await;
    assert_eq!(asked.last().unwrap(), "watch=true resourceVersion=11");
    assert!(told.contains(&"Watch c".to_owned()) && !told.contains(&"Watch d".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_is_listed_anew_however_it_is_said() {
    for answer in [error(410), refusal(410)] {
        let (asked, told) = Server::new([page(10, "", &["a"]), answer, page(30, "", &[])])
            .follow()
            .await;
        assert_eq!(
            asked,
            [
                "",
                "watch=true resourceVersion=10",
                "",
                "watch=true resourceVersion=30"
            ]
        );
        assert_eq!(
            told,
            [
                "listing 10",
                "List a",
                "listed 10",
                "interrupted None",
                "listing 30",
                "listed 30"
            ]
        );
    }
}

fn error(code: u16) -> (u16, String) {
    (
        200,
        format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", refusal(code).1),
    )
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_again_and_again_is_listed_anew_however_it_is_said() {
    for refused in [refusal(403), refusal(500), error(500), (200, "no JSON\n".into())] {
        let refused = std::iter::repeat_n(refused, MAX_REFUSALS as usize);
        let answers = std::iter::once(page(10, "", &["a"]))
            .chain(refused)
            .chain([page(30, "", &[])]);
        let (asked, told) = Server::new(answers).follow().await;
        let watched = ["watch=true resourceVersion=10"; MAX_REFUSALS as usize];
        let expected = [&[""], &watched[..], &["", "watch=true resourceVersion=30"]].concat();
        assert_eq!(asked, expected);
        assert_eq!(told[told.len() - 2..], ["listing 30", "listed 30"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_not_be_seen_any_more_is_told() {
    let refused = std::iter::repeat_with(|| refusal(403)).take(MAX_REFUSALS as usize + 1);
    let (_, told) = Server::new(std::iter::once(page(10, "", &["a"])).chain(refused))
        .follow()
        .await;
    assert_eq!(told[told.len() - 2..], ["refused", "interrupted Some(Some(403))"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_busy_or_away_is_not_asked_for_lists() {
    let answers = [refusal(429), refusal(503), error(504), (200, String::new())];
    let answers = std::iter::repeat_n(answers, 5).flatten();
    let (asked, _) = Server::new(std::iter::once(page(10, "", &["a"])).chain(answers))
        .follow()
        .await;
    assert_eq!(asked.iter().filter(|query| query.is_empty()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_comes_further_each_time_is_not_listed_anew() {
    let answers = (11..30).map(|version| (200, event("ADDED", "c", version) + &error(500).1));
    let (asked, _) = Server::new(std::iter::once(page(10, "", &["a"])).chain(answers))
        .follow()
        .await;
    assert_eq!(asked.iter().filter(|query| query.is_empty()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_begins_anew() {
    let server = Server::new([page(10, "more", &["a"]), refusal(410), page(11, "", &["a", "b"])]);
    let (_, told) = server.follow().await;
    assert_eq!(
        told,
        [
            "listing 10",
            "List a",
            "interrupted Some(Some(410))",
            "listing 11",
            "List a",
            "List b",
            "listed 11"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_is_asked_ever_less_often() {
    let start = Instant::now();
    let server = Server::new(std::iter::repeat_with(|| refusal(500)).take(12));
    let (asked, _) = server.follow().await;
    assert_eq!(asked.len(), 13);
    let waited = start.elapsed();
    assert!(
        waited > Duration::from_secs(30) && waited < Duration::from_secs(65),
        "virtual time: {waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_object_that_makes_no_sense_is_left_out() {
    let odd = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":7,\"resourceVersion\":\"12\"}}}\n";
    let events = [event("ADDED", "c", 11), odd.to_owned(), event("ADDED", "d", 13)];
    let (asked, told) = Server::new([page(10, "", &[]), (200, events.concat())])
        .follow()
        .await;
    assert!(told.contains(&"Watch c".to_owned()) && told.contains(&"Watch d".to_owned()));
    assert_eq!(asked.last().unwrap(), "watch=true resourceVersion=13");
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_it_gets_a_new_list() {
    let server = Server::new([page(10, "", &[]), page(12, "", &[])]);
    // The first watch is refused an answer, and so lasts until the list is asked for.
    let sink = Notes::default();
    let (resync, receiver) = watch::channel(0);
    let answers = server.answers.clone();
    let second = answers.lock().pop_back();
    let target = Target {
        kind: "pod",
        path: "/p".into(),
        labels: None,
        metadata_only: false,
        page: 2,
    };
    let again = async {
        server.exhausted.notified().await;
        answers.lock().extend(second);
        resync.send_modify(|number| *number += 1);
        server.exhausted.notified().await;
    };
    tokio::select! {
        () = follow(server.client(), target, &sink, receiver) => {}
        () = again => {}
    }
    assert_eq!(
        *sink.0.lock(),
        ["listing 10", "listed 10", "listing 12", "listed 12"]
    );
}

/// It was down for a while, and is busy since it is up.
#[tokio::test(start_paused = true)]
async fn a_list_that_brings_news_is_progress() {
    let down = std::iter::repeat_with(|| refusal(503)).take(12);
    let busy = [page(10, "", &["a"]), refusal(503)];
    let server = Server::new(down.chain(busy));
    let times = server.times.clone();
    server.follow().await;
    let times = times.lock();
    let pause = times[14] - times[13];
    assert!(pause <= BACKOFF.base, "virtual time: {pause:?}");
}

/// A server that lists and refuses to be watched is asked for fewer and fewer lists.
#[tokio::test(start_paused = true)]
async fn lists_for_refused_watches_are_no_progress() {
    let rounds = (10..16).flat_map(|version| {
        let refused = std::iter::repeat_with(|| refusal(403)).take(MAX_REFUSALS as usize);
        std::iter::once(page(version, "", &["a"])).chain(refused)
    });
    let server = Server::new(rounds);
    let times = server.times.clone();
    server.follow().await;
    let times = times.lock();
    let last = times[times.len() - 1] - times[times.len() - 2];
    assert!(last >= BACKOFF.max.mul_f64(0.75), "virtual time: {last:?}");
}

/// A server that makes a change every 170 ms, after ten quiet seconds, and that cuts every watch
/// after 100 ms.
#[derive(Clone)]
struct CuttingServer {
    start: Instant,
    watches: Arc<Mutex<u32>>,
}

impl CuttingServer {
    const CUT_AFTER: Duration = Duration::from_millis(100);
    const FIRST_VERSION: u32 = 11;
    const CHANGES: u32 = 100;

    /// When a change is made.
    fn time_of(&self, version: u32) -> Instant {
        let number = version - Self::FIRST_VERSION;
        self.start + Duration::from_secs(10) + number * Duration::from_millis(170)
    }

    /// The body of a watch: what has changed since a version, and what changes until it is cut.
    fn watch(self, since: u32) -> futures::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>> {
        *self.watches.lock() += 1;
        let cut = Instant::now() + Self::CUT_AFTER;
        let next = since.max(Self::FIRST_VERSION - 1) + 1;
        futures::stream::unfold(next, move |version| {
            let at = self.time_of(version);
            async move {
                if at > cut || version >= Self::FIRST_VERSION + Self::CHANGES {
                    tokio::time::sleep_until(cut).await;
                    return None;
                }
                tokio::time::sleep_until(at).await;
                let line = event("MODIFIED", "a", version);
                Some((Ok(Frame::data(Bytes::from(line))), version + 1))
            }
        })
        .boxed()
    }

    fn client(&self) -> kube::Client {
        let server = self.clone();
        let answer = move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let body = if query.contains("watch=true") {
                let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                let since = pairs.find(|(name, _)| *name == "resourceVersion").unwrap().1;
                StreamBody::new(server.clone().watch(since.parse().unwrap()))
            } else {
                let list = Frame::data(Bytes::from(page(10, "", &["a"]).1));
                StreamBody::new(futures::stream::once(async { Ok(list) }).boxed())
            };
            std::future::ready(Ok::<_, Infallible>(Response::new(body)))
        };
        kube::Client::new(tower::service_fn(answer), "default")
    }
}

/// Measures how late changes arrive.
struct Delays {
    server: CuttingServer,
    seen: Mutex<Vec<Duration>>,
    all_seen: tokio::sync::Notify,
}

impl Sink for Delays {
    fn listing(&self, _: Version) {}
    fn object(&self, json: &str, source: Source) -> Result<Version, serde_json::Error> {
        let pod: crate::slim::SlimMeta = serde_json::from_str(json)?;
        let version = pod.metadata.resource_version;
        if source == Source::Watch {
            let made = self.server.time_of(u32::try_from(version.0).unwrap());
            self.seen.lock().push(made.elapsed());
        }
        if self.seen.lock().len() == CuttingServer::CHANGES as usize {
            self.all_seen.notify_one();
        }
        Ok(version)
    }
    fn gone(&self, _: &str) -> Result<Version, serde_json::Error> {
        unreachable!("nothing is deleted")
    }
    fn listed(&self, _: Version, _: Instant) {}
    fn bookmark(&self, _: Version) {}
    fn interrupted(&self, _: Option<&Error>) {}
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_that_cuts_every_watch_is_heard_within_half_a_second() {
    let server = CuttingServer {
        start: Instant::now(),
        watches: Arc::default(),
    };
    let sink = Delays {
        server: server.clone(),
        seen: Mutex::default(),
        all_seen: tokio::sync::Notify::new(),
    };
    let target = Target {
        kind: "pod",
        path: "/api/v1/pods".into(),
        labels: None,
        metadata_only: false,
        page: 2,
    };
    let (_resync, receiver) = watch::channel(0);
    tokio::select! {
        () = follow(server.client(), target, &sink, receiver) => {}
        () = sink.all_seen.notified() => {}
    }
    let slowest = sink.seen.lock().iter().max().copied().unwrap();
    assert!(slowest < Duration::from_millis(500), "virtual time: {slowest:?}");
    // It is not asked without a pause either.
    let (watches, seconds) = (*server.watches.lock(), server.start.elapsed().as_secs());
    assert!(
        u64::from(watches) < 6 * seconds,
        "{watches} watches in {seconds} s"
    );
}
