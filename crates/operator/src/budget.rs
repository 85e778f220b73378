//! How the memory limit that the operator is installed with is divided. What strangers can make it
//! take is bounded here; the rest is for the index, and for what a job costs while it is planned.

/// The limit that `trainyard install` sets.
pub const LIMIT: usize = 512 * MIB;

/// The bodies of all reviews that are read or wait to be answered.
pub(crate) const REVIEW_BODIES: usize = 64 * MIB;
/// How many requests for reviews are read and answered at once.
pub(crate) const MAX_REQUESTS: usize = 32;
/// How many reviews are decoded at once.
pub(crate) const MAX_REVIEWS: usize = 4;
/// What the largest review takes while it is decoded and answered, besides its body; a test
/// measures it.
pub(crate) const REVIEW: usize = 8 * MIB;

/// The answers of all reviews that nobody has read yet, and the most bytes of one of them.
pub(crate) const ANSWERS: usize = 16 * MIB;
pub(crate) const ANSWER: usize = 256 * KIB;

/// How many connections to the webhooks are kept. What HTTP/2 may keep for each: bodies that nobody
/// has read yet, and heads of requests that wait.
pub(crate) const WEBHOOK_CONNECTIONS: usize = 64;
pub(crate) const WEBHOOK_WINDOW: usize = 256 * KIB;
pub(crate) const WEBHOOK_STREAMS: usize = 128;
pub(crate) const WEBHOOK_HEAD: usize = 4 * KIB;

/// What all connections to the observer may take on which nobody has shown a token.
pub(crate) const UNAUTHENTICATED: usize = 48 * MIB;
/// What each of them takes at most: an incomplete record of TLS, the head of a request, and the
/// state of both; tests measure it.
pub(crate) const UNAUTHENTICATED_CONNECTION: usize = 52 * KIB;

/// How many connections are kept by the server of probes and metrics, and by the observer of
/// `AresOperator`. What each of them takes at most: the head of a request, an answer that nobody
/// reads, and the state of both; a test measures it.
pub(crate) const PLAIN_CONNECTIONS: usize = 256;
pub(crate) const PLAIN_CONNECTION: usize = 32 * KIB;
const PLAIN_SERVERS: usize = 2;

pub(crate) const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

// Strangers get half of it at most.
const _: () = assert!(
    REVIEW_BODIES
        + MAX_REVIEWS * REVIEW
        + ANSWERS
        + MAX_REQUESTS * ANSWER
        + WEBHOOK_CONNECTIONS * (WEBHOOK_WINDOW + WEBHOOK_STREAMS * WEBHOOK_HEAD)
        + PLAIN_SERVERS * PLAIN_CONNECTIONS * PLAIN_CONNECTION
        + UNAUTHENTICATED
        <= LIMIT / 2
);

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use peak_alloc::PeakAlloc;
    use trainyard_core::bounds;
    use trainyard_eventually::eventually_async;

    /// Counts what is allocated. What the kernel says of a process has pages of its program in it,
    /// too: a megabyte more or less, as the machine likes.
    #[global_allocator]
    static ALLOCATED: PeakAlloc = PeakAlloc;

    /// By how many bytes more than before this process has allocated at its peak, while it does
    /// something. Each test has a process of its own.
    pub(crate) fn peak_growth<R>(work: impl FnOnce() -> R) -> (usize, R) {
        ALLOCATED.reset_peak_usage();
        let before = ALLOCATED.current_usage();
        let result = work();
        (ALLOCATED.peak_usage().saturating_sub(before), result)
    }

    /// How many bytes are under way between the sockets of this machine that have a port.
    fn under_way(port: u16) -> u64 {
        let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
        let port = format!(":{port:04X}");
        let queues = sockets.lines().skip(1).filter_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let is_meant = fields.next()?.ends_with(&port) | fields.next()?.ends_with(&port);
            let (unsent, unread) = fields.nth(1)?.split_once(':')?;
            let number = |hex| u64::from_str_radix(hex, 16).unwrap();
            is_meant.then(|| number(unsent) + number(unread))
        });
        queues.sum()
    }

    /// Waits until all is read that clients in this process have sent to a port.
    pub(crate) async fn all_is_read(port: u16) {
        let read = eventually_async("all is read", async || match under_way(port) {
            0 => Ok(()),
            bytes => Err(bytes.to_string()),
        });
        read.await;
    }

    /// Specs of jobs that are as large as they may be, each in the way that takes the most memory
    /// for what it is; and some that are larger.
    pub(crate) fn hostile_specs() -> Vec<(&'static str, String)> {
        let many = |item: &str, count: usize| vec![item; count].join(",");
        let pod = |fields: &str| {
            format!(
                r#"{{"framework":{{"name":"custom"}},"roles":[{{"name":"a","template":{{"spec":{{{fields}}}}}}}]}}"#
            )
        };
        let container = r#""containers":[{"name":"a","image":"i"}]"#;
        let containers = |count| pod(&format!(r#""containers":[{}]"#, many(r#"{"name":"a"}"#, count)));
        let list = |name: &str, count| {
            let items = many(r#"{"name":"a"}"#, count);
            pod(&format!(r#"{container},"{name}":[{items}]"#))
        };
        let ephemeral = |count| list("ephemeralContainers", count);
        let volumes = |count| list("volumes", count);
        let sources = |count| {
            let sources = many("{}", count);
            pod(&format!(
                r#"{container},"volumes":[{{"name":"v","projected":{{"sources":[{sources}]}}}}]"#
            ))
        };
        let long = |count| pod(&format!(r#"{container},"nodeName":"{}""#, "x".repeat(count)));
        vec![
            ("containers", largest(&containers)),
            ("ephemeral", largest(&ephemeral)),
            ("volumes", largest(&volumes)),
            ("sources", largest(&sources)),
            ("long", long(500_000)),
            ("too many containers", containers(2450)),
            ("too many ephemeral", ephemeral(2450)),
            ("too many volumes", volumes(2450)),
            ("too many sources", sources(100_000)),
            ("too long", long(1_400_000)),
        ]
    }

    /// The largest of some specs that is not too large.
    fn largest(spec: &dyn Fn(usize) -> String) -> String {
        let is_too_large = |count: &usize| {
            let object = format!(r#"{{"metadata":{{}},"spec":{}}}"#, spec(*count));
            bounds::excess(&object).is_some()
        };
        let counts: Vec<usize> = (1..5000).collect();
        spec(counts.partition_point(|count| !is_too_large(count)))
    }
}
