//! Finds a host that may not be there yet.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, Connection};

use crate::backoff::Backoff;
use crate::shell::error::LinkError;
use crate::shell::identity::server_name;
use crate::shell::link::Link;
use crate::shell::wire::Tls;

use super::api::Api;
use super::dial::{ConnectError, Timeouts, dial};

/// The longest pause between attempts.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// How other pods are reached.
#[derive(Debug)]
pub enum Transport {
    /// The agent listens there.
    Agent {
        /// On which port.
        port: u16,
        /// By what both sides know each other.
        tls: Arc<ClientConfig>,
    },
    /// The Kubernetes API starts the agent there.
    Exec(Api),
}

/// Connects, and makes sure that the host is of this job. Pods that are about to start are waited
/// for.
pub fn connect(host: &str, transport: &Transport, timeouts: &Timeouts) -> Result<Link, ConnectError> {
    retry(timeouts, || match transport {
        Transport::Agent { port, tls } => attempt(host, *port, tls, timeouts),
        Transport::Exec(api) => api.attempt(host, timeouts),
    })
}

/// Repeats an attempt until it succeeds, fails for good, or takes too long.
///
/// If the Kubernetes API forbids an attempt, that is the error, even if later ones fail otherwise:
/// that the network failed in the end would be no help.
pub fn retry<T>(
    timeouts: &Timeouts,
    attempt: impl FnMut() -> Result<T, ConnectError>,
) -> Result<T, ConnectError> {
    retry_by_clock(&mut SystemClock, timeouts, attempt)
}

trait Clock {
    fn now(&self) -> Instant;
    fn sleep(&mut self, time: Duration);
}

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&mut self, time: Duration) {
        thread::sleep(time);
    }
}

fn retry_by_clock<T>(
    clock: &mut impl Clock,
    timeouts: &Timeouts,
    mut attempt: impl FnMut() -> Result<T, ConnectError>,
) -> Result<T, ConnectError> {
    let begun = clock.now();
    let mut backoff = Backoff::default();
    let mut refused: Option<(Instant, ConnectError)> = None;
    loop {
        let error = match attempt() {
            Ok(found) => return Ok(found),
            Err(error) if !error.is_transient() => return Err(error),
            Err(error) => error,
        };
        let next = clock.now() + backoff.pause(MAX_PAUSE, fastrand::f64());
        let (last, since) = match (error.is_permitted(), refused.take()) {
            (Some(true), _) | (None, None) => (error, None),
            (Some(false), earlier) => (error, Some(earlier.map_or(clock.now(), |(since, _)| since))),
            (None, Some((since, refusal))) => (refusal, Some(since)),
        };
        let ends = [
            Some((begun, timeouts.total)),
            since.map(|since| (since, timeouts.forbidden)),
        ];
        let over = ends
            .into_iter()
            .flatten()
            .filter(|(from, time)| next >= *from + *time);
        // The next attempt may be too late for both.
        if let Some((_, total)) = over.min_by_key(|(from, time)| *from + *time) {
            let last = Box::new(last);
            return Err(ConnectError::TooLong { last, total });
        }
        refused = since.map(|since| (since, last));
        clock.sleep(next.saturating_duration_since(clock.now()));
    }
}

fn attempt(
    host: &str,
    port: u16,
    tls: &Arc<ClientConfig>,
    timeouts: &Timeouts,
) -> Result<Link, ConnectError> {
    let tcp = dial(host, port, timeouts)?;
    let deadline = Instant::now() + timeouts.handshake;
    server_name()
        .map_err(LinkError::Io)
        .and_then(|name| ClientConnection::new(tls.clone(), name).map_err(LinkError::Tls))
        .and_then(|tls| Tls::open(Connection::Client(tls), tcp, deadline))
        .and_then(|tls| Link::new(tls, timeouts.idle))
        .map_err(ConnectError::Link)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::TcpListener;

    use rstest::rstest;
    use rustls::crypto::ring;
    use rustls::{AlertDescription, CertificateError, RootCertStore};

    use super::*;

    fn nobody() -> Arc<ClientConfig> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        Arc::new(config)
    }

    fn problem(listener: &TcpListener, host: &str) -> String {
        let timeouts = Timeouts {
            total: Duration::from_secs(1),
            handshake: Duration::from_millis(100),
            ..Timeouts::default()
        };
        let port = listener.local_addr().unwrap().port();
        let transport = Transport::Agent { port, tls: nobody() };
        connect(host, &transport, &timeouts).unwrap_err().to_string()
    }

    #[test]
    fn a_host_that_takes_no_connections_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Another address of this machine, where nobody listens.
        let problem = problem(&listener, "127.0.0.77");
        assert_eq!(
            problem,
            "it can't be connected to: Connection refused (os error 111); given up after 1 s"
        );
    }

    #[test]
    fn a_host_that_says_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let problem = problem(&listener, "127.0.0.1");
        assert_eq!(
            problem,
            "the connection failed: the handshake took too long; given up after 1 s"
        );
    }

    /// What the API answers; 0 if it can't be reached.
    fn answered(code: u16) -> ConnectError {
        let why = "of course".to_owned();
        match code {
            0 => ConnectError::Refused(io::ErrorKind::TimedOut.into()),
            code => ConnectError::Link(LinkError::Answered { code, why }),
        }
    }

    /// A clock on which only sleep takes time, so that the words do not depend on how busy the
    /// machine is.
    struct Sleeper(Instant);

    impl Clock for Sleeper {
        fn now(&self) -> Instant {
            self.0
        }

        fn sleep(&mut self, time: Duration) {
            self.0 += time;
        }
    }

    /// After how many attempts it is given up if one after the other fails like this, and with
    /// which words.
    fn given_up(mut error: impl FnMut(usize) -> ConnectError) -> (usize, String) {
        let timeouts = Timeouts {
            total: Duration::from_millis(600),
            forbidden: Duration::from_millis(200),
            ..Timeouts::default()
        };
        let mut attempts = 0;
        let fail = || {
            attempts += 1;
            Err::<(), _>(error(attempts))
        };
        let problem = retry_by_clock(&mut Sleeper(Instant::now()), &timeouts, fail)
            .unwrap_err()
            .to_string();
        (attempts, problem)
    }

    #[rstest]
    #[case(&[403], "the server answers 403: of course; given up after 0.2 s")]
    #[case(&[401], "the server answers 401: of course; given up after 0.2 s")]
    #[case::where_the_network_is_bad(&[0, 403, 0], "the server answers 403: of course; given up after 0.2 s")]
    #[case::who_may_after_a_moment(&[403, 404], "the server answers 404: of course; given up after 0.6 s")]
    #[case(&[0], "it can't be connected to: timed out; given up after 0.6 s")]
    fn who_may_not_is_told_so(#[case] answers: &[u16], #[case] expected: &str) {
        let answer = |attempt: usize| answers.get(attempt - 1).or(answers.last()).copied();
        let (_, problem) = given_up(|attempt| answered(answer(attempt).unwrap()));
        assert_eq!(problem, expected);
    }

    fn shown(problem: CertificateError) -> LinkError {
        LinkError::Tls(rustls::Error::InvalidCertificate(problem))
    }

    fn alert(alert: AlertDescription) -> LinkError {
        LinkError::Tls(rustls::Error::AlertReceived(alert))
    }

    #[rstest]
    #[case::of_another_job(|| shown(CertificateError::UnknownIssuer), true)]
    #[case::of_a_former_job(|| shown(CertificateError::BadSignature), true)]
    #[case::of_somebody_else(|| shown(CertificateError::NotValidForName), true)]
    #[case::of_another_attempt(|| alert(AlertDescription::NoApplicationProtocol), true)]
    #[case::too_old(|| shown(CertificateError::Expired), false)]
    #[case::too_new(|| shown(CertificateError::NotValidYet), false)]
    #[case::this_side_is_not_known(|| alert(AlertDescription::UnknownCA), false)]
    #[case::this_side_is_too_old(|| alert(AlertDescription::CertificateExpired), false)]
    #[case::nonsense(|| LinkError::Tls(rustls::Error::DecryptError), false)]
    #[case::without_a_token(|| LinkError::Refused("no token".to_owned()), false)]
    #[case::closed(|| LinkError::Closed, true)]
    fn a_stranger_may_give_way_to_who_is_meant(#[case] error: fn() -> LinkError, #[case] passes: bool) {
        let (attempts, problem) = given_up(|_| ConnectError::Link(error()));
        assert_eq!(attempts > 1, passes, "{problem}");
        assert_eq!(problem.contains("given up after"), passes, "{problem}");
    }
}
