//! The delay before the next attempt, which grows with every failure in a row.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;
pub(crate) use trainyard_core::backoff::Backoff;

/// The delay between attempts to watch. It stays short, so that an outage of a minute costs little
/// more.
pub(crate) const WATCH_BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(100),
    max: Duration::from_secs(10),
};

/// A watch of kube's that fails later than this after it was tried again was served.
const SERVED_AFTER: Duration = Duration::from_secs(1);

/// `WATCH_BACKOFF` for watches of kube's, whose own waits for up to 30 s.
#[derive(Debug, Default)]
pub struct WatchBackoff {
    failures: u32,
    /// When the last pause ends.
    tried_again_at: Option<Instant>,
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let served = |at: Instant| now.saturating_duration_since(at) > SERVED_AFTER;
        if self.tried_again_at.is_none_or(served) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let pause = WATCH_BACKOFF.pause(self.failures, jitter());
        self.tried_again_at = Some(now + pause);
        Some(pause)
    }
}

impl kube::runtime::utils::Backoff for WatchBackoff {
    /// Does nothing: kube asks for it before every list, also before one that fails.
    fn reset(&mut self) {}
}

/// Returns a random number from 0 to 1.
#[expect(
    clippy::cast_precision_loss,
    reason = "a random number has no precision to lose"
)]
pub(crate) fn jitter() -> f64 {
    // The standard library seeds every such hasher differently. No other randomness is needed here.
    let random = RandomState::new().hash_one(0_u8);
    random as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use http::{Request, Response};
    use http_body_util::Full;
    use hyper::body::Bytes;
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::Body;
    use kube::runtime::{WatchStreamExt, watcher};
    use kube::{Api, Client};

    use super::*;

    /// A server that is down is asked ever less often, though kube begins anew every time.
    #[tokio::test(start_paused = true)]
    async fn a_watch_of_kubes_waits_longer_until_it_is_served() {
        let down = tower::service_fn(|_: Request<Body>| async {
            let body = Full::new(Bytes::from_static(b"{}"));
            Response::builder().status(503).body(body)
        });
        let pods: Api<Pod> = Api::all(Client::new(down, "default"));
        let watch = watcher(pods, watcher::Config::default()).backoff(WatchBackoff::default());
        let failures = watch.filter(|event| std::future::ready(event.is_err()));
        let mut failures = std::pin::pin!(failures);
        failures.next().await;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let before = Instant::now();
            failures.next().await;
            pauses.push(before.elapsed());
        }
        let millisecond = Duration::from_millis(1);
        assert!(pauses[0] <= WATCH_BACKOFF.base + millisecond, "{pauses:?}");
        assert!(pauses.is_sorted(), "{pauses:?}");
        let longest = WATCH_BACKOFF.max.mul_f64(0.75)..=WATCH_BACKOFF.max + millisecond;
        assert!(longest.contains(&pauses[7]), "{pauses:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_of_kubes_that_was_served_waits_as_after_the_first_failure() {
        let mut backoff = WatchBackoff::default();
        let pause = backoff.by_ref().take(9).last().unwrap();
        tokio::time::sleep(pause + SERVED_AFTER * 2).await;
        assert!(backoff.next().unwrap() <= WATCH_BACKOFF.base);
    }
}
