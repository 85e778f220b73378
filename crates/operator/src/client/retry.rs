//! Which requests are sent again, and after which pause.

use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use kube::client::Body;
use tower::BoxError;
use tower::retry::Policy;

const MAX_RETRIES: u32 = 3;
/// With [`MAX_RETRIES`] this bounds the delay of a write that was allowed to be sent: 3 s, less
/// than the 5 s after which another replica may have become the leader.
const MAX_PAUSE: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Sends a request again where that is safe and soon done.
///
/// - 429, so that the request was not processed: any request, after the time that the server names.
///   If that is more than a second, the answer goes to the caller, who has a backoff.
/// - 503 and 504: only reads. A write may have been carried out. Whether to repeat it must be
///   decided anew, from what is seen then.
/// - No answer: never, for the same reason.
#[derive(Clone, Debug, Default)]
pub(super) struct Retry {
    retries: u32,
}

impl Retry {
    fn pause(&self, headers: &http::HeaderMap) -> Option<Duration> {
        let named = headers
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let own = FIRST_PAUSE * 3_u32.saturating_pow(self.retries);
        let pause = named.map_or(own, |secs| own.max(Duration::from_secs(secs)));
        (pause <= MAX_PAUSE).then_some(pause)
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
        if !again || self.retries >= MAX_RETRIES {
            return None;
        }
        let pause = self.pause(response.headers())?;
        self.retries += 1;
        Some(tokio::time::sleep(pause))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        // A stream can't be sent twice. The operator sends none.
        let body = request.body().try_clone()?;
        let mut copy = Request::new(body);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        *copy.extensions_mut() = request.extensions().clone();
        Some(copy)
    }
}
