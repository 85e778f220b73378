//! Which answers are asked again, and how long that may take.

use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use kube::client::Body;
use tower::BoxError;
use tower::retry::Policy;

/// How often a request is sent again.
const TRIES: u32 = 3;
/// The longest pause before a try. With [`TRIES`] it bounds the delay of a write that was allowed to go: 3 s, less
/// than the 5 s after which somebody else may have become the leader.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Asks again where that is safe and soon done with; everything else is the caller's to decide.
///
/// - 429 (the request was not looked at): any request, after the time the server names. If that is more than a
///   second the answer goes to the caller, who has a backoff of its own.
/// - 503 and 504: only reads. A write may have been carried out; whether to repeat it must be decided anew, from what
///   is then seen.
/// - No answer at all: never, for the same reason.
#[derive(Clone, Debug, Default)]
pub struct Retry {
    tries: u32,
}

impl Retry {
    fn pause(&self, headers: &http::HeaderMap) -> Option<Duration> {
        let named = headers
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let own = FIRST_PAUSE * 3_u32.saturating_pow(self.tries);
        let pause = named.map_or(own, |secs| own.max(Duration::from_secs(secs)));
        (pause <= LONGEST_PAUSE).then_some(pause)
    }
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for Retry {
    type Future = tokio::time::Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        let response = result.as_ref().ok()?;
        let again = match response.status() {
            StatusCode::TOO_MANY_REQUESTS => true,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => request.method() == Method::GET,
            _ => false,
        };
        if !again || self.tries >= TRIES {
            return None;
        }
        let pause = self.pause(response.headers())?;
        self.tries += 1;
        Some(tokio::time::sleep(pause))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        // Streams can't be sent twice; requests of a controller are never streams.
        let body = request.body().try_clone()?;
        let mut copy = Request::new(body);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        *copy.extensions_mut() = request.extensions().clone();
        Some(copy)
    }
}
