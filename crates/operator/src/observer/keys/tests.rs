use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use kube::client::Body;
use rstest::rstest;
use tower::service_fn;

use super::*;

const KEYS: &str = r#"{"keys": [{"kty": "RSA", "kid": "k1", "n": "AQAB", "e": "AQAB"}]}"#;

/// What an API server does when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Answers,
    Refuses,
    Hangs,
}

/// An API server, how often it was asked, and who asks it.
struct World {
    mood: Arc<Mutex<Mood>>,
    asked: Arc<AtomicUsize>,
    keys: ClusterKeys,
}

impl World {
    fn new(mood: Mood) -> Self {
        let mood = Arc::new(Mutex::new(mood));
        let asked = Arc::new(AtomicUsize::new(0));
        let (state, count) = (mood.clone(), asked.clone());
        let server = service_fn(move |_: http::Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            let mood = *state.lock();
            async move {
                let (status, text) = match mood {
                    Mood::Answers => (200, KEYS),
                    Mood::Refuses => (503, "{}"),
                    Mood::Hangs => std::future::pending().await,
                };
                let answer = http::Response::builder().status(status);
                Ok::<_, Infallible>(answer.body(Body::from(text.as_bytes().to_vec())).unwrap())
            }
        });
        Self {
            mood,
            asked,
            keys: ClusterKeys::new(kube::Client::new(server, "default")),
        }
    }

    fn becomes(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// How many keys there are of a name, if that is known.
    async fn count(&self, id: &str) -> Option<usize> {
        self.keys.get(Some(id)).await.ok().map(|keys| keys.len())
    }
}

#[tokio::test(start_paused = true)]
async fn they_are_read_once_and_again_when_they_may_have_changed() {
    let world = World::new(Mood::Answers);
    assert_eq!(world.count("k1").await, Some(1));
    assert_eq!(world.count("k1").await, Some(1));
    // A name that is not known may be new, but not that soon.
    assert_eq!(world.count("k2").await, Some(0));
    assert_eq!(world.asked(), 1);
    tokio::time::advance(REFETCH_INTERVAL).await;
    assert_eq!(world.count("k2").await, Some(0));
    assert_eq!(world.asked(), 2);
    tokio::time::advance(MAX_AGE).await;
    assert_eq!(world.count("k1").await, Some(1));
    assert_eq!(world.asked(), 3);
}

#[rstest]
#[case(Mood::Refuses)]
#[case(Mood::Hangs)]
#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_locks_nobody_out_who_is_known(#[case] mood: Mood) {
    let world = World::new(Mood::Answers);
    world.count("k1").await;
    world.becomes(mood);
    tokio::time::advance(MAX_AGE).await;
    let begun = Instant::now();
    let all = join_all((0..1000).map(|_| world.count("k1"))).await;
    assert!(all.iter().all(|count| *count == Some(1)), "{all:?}");
    assert!(begun.elapsed() <= REQUEST_TIMEOUT, "{:?}", begun.elapsed());
    assert_eq!(world.asked(), 2);
}

#[rstest]
#[case(Mood::Refuses)]
#[case(Mood::Hangs)]
#[tokio::test(start_paused = true)]
async fn names_that_somebody_makes_up_are_not_asked_for_one_by_one(#[case] mood: Mood) {
    let world = World::new(mood);
    let names: Vec<String> = (0..1000).map(|number| format!("made up {number}")).collect();
    let begun = Instant::now();
    let all = join_all(names.iter().map(|name| world.count(name))).await;
    assert!(all.iter().all(Option::is_none), "{all:?}");
    assert!(begun.elapsed() <= 2 * REQUEST_TIMEOUT, "{:?}", begun.elapsed());
    assert!(world.asked() <= 2, "{}", world.asked());
    // And it is not for ever.
    world.becomes(Mood::Answers);
    tokio::time::advance(REFETCH_INTERVAL).await;
    assert_eq!(world.count("k1").await, Some(1));
}
