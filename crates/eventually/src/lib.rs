//! Waiting in tests: until something holds, or until nothing changes any more.
//!
//! A test does not know how fast its machine is or who else uses it, so it never waits for a number
//! of seconds. It looks again and again, and gives up when it has seen the same for
//! [`NO_PROGRESS_TIMEOUT`]. That is time in which the test could have got a core: where five
//! processes want to run on each core, a second counts for a fifth. Where something still changes,
//! a wait goes on. A test that changes for ever is ended by the test runner.
//!
//! [`eventually`] and [`eventually_async`] poll, [`within`] and [`receive`] await a single event,
//! and [`Wait`] is for loops of another shape. This crate may know nothing of Trainyard: all crates
//! use it in their tests.

#![allow(
    clippy::panic,
    reason = "this is the vocabulary of tests, which fail by panicking"
)]

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two looks.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(25);

/// How long looks may see the same on a machine that does nothing else.
pub const NO_PROGRESS_TIMEOUT: Duration = Duration::from_mins(3);

/// For waits in which no look is possible, such as those of the kernel for a socket: longer than
/// anything takes.
pub const HANG_LIMIT: Duration = Duration::from_mins(10);

/// No look counts for more, so that a machine that stood still takes nobody's patience.
const MAX_CHECK_DURATION: Duration = Duration::from_millis(500);

/// Calls `attempt` until it succeeds, and returns what it returned.
///
/// An attempt that fails says what it saw instead. The more that tells, the better progress is
/// noticed.
///
/// # Panics
/// When nothing has changed for too long, with what was last seen and since when.
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let mut wait = Wait::new(what);
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(seen) => wait.see(seen),
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Awaits what `attempt` returns until that is a success, and returns that.
///
/// # Panics
/// As [`eventually`] does.
pub async fn eventually_async<T, A>(what: &str, mut attempt: impl FnMut() -> A) -> T
where
    A: Future<Output = Result<T, String>>,
{
    let mut wait = Wait::new(what);
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(seen) => wait.see(seen),
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Awaits one event, which has no stages between which progress could be seen.
///
/// # Panics
/// If it does not come within [`NO_PROGRESS_TIMEOUT`].
pub async fn within<T>(what: &str, event: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        value = event => value,
        never = give_up(what) => match never {},
    }
}

async fn give_up(what: &str) -> std::convert::Infallible {
    let mut wait = Wait::new(what);
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        wait.see(String::new());
    }
}

/// Waits for a value from another thread, and returns it.
///
/// Returns `None` if there are no senders any more.
///
/// # Panics
/// If none comes within [`NO_PROGRESS_TIMEOUT`].
pub fn receive<T>(what: &str, values: &Receiver<T>) -> Option<T> {
    let mut wait = Wait::new(what);
    loop {
        match values.recv_timeout(LOOK_INTERVAL) {
            Ok(value) => return Some(value),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => wait.see(String::new()),
        }
    }
}

/// What a loop has seen so far, and since when it sees the same.
#[derive(Debug)]
pub struct Wait {
    what: String,
    begun: Instant,
    last_look: Instant,
    seen: String,
    sign: String,
    changed: Instant,
    unchanged_looks: u32,
    idle_time: Duration,
    processes_per_core: f64,
}

impl Wait {
    /// Begins to wait for something.
    pub fn new(what: impl Into<String>) -> Self {
        let now = Instant::now();
        Self {
            what: what.into(),
            begun: now,
            last_look: now,
            seen: String::new(),
            sign: String::new(),
            changed: now,
            unchanged_looks: 0,
            idle_time: Duration::ZERO,
            processes_per_core: 1.0,
        }
    }

    /// Records what a look saw. The caller pauses for [`LOOK_INTERVAL`] after it.
    ///
    /// # Panics
    /// When nothing has changed for too long.
    pub fn see(&mut self, seen: String) {
        assert!(self.has_patience(seen), "{self}");
    }

    /// Records what a look saw. Returns false when nothing has changed for too long; then `Display`
    /// tells what is known.
    pub fn has_patience(&mut self, seen: String) -> bool {
        let since_last_look = self.last_look.elapsed();
        self.last_look = Instant::now();
        // The kernel itself looks every five seconds.
        if self.unchanged_looks.is_multiple_of(40) {
            self.processes_per_core = processes_per_core();
        }
        self.count_look(seen, since_last_look, self.processes_per_core);
        self.idle_time < NO_PROGRESS_TIMEOUT
    }

    /// Records another sign of life, which is not worth telling but counts as progress when it
    /// changes.
    pub fn note_sign(&mut self, sign: String) {
        if self.sign != sign {
            self.sign = sign;
            self.restart();
        }
    }

    /// How many looks in a row have seen the same.
    pub fn unchanged_looks(&self) -> u32 {
        self.unchanged_looks
    }

    fn count_look(&mut self, seen: String, time: Duration, processes_per_core: f64) {
        if self.seen != seen {
            self.seen = seen;
            return self.restart();
        }
        self.unchanged_looks += 1;
        // At least the pause: where a test has stopped the clock, looks would take no time at all.
        let time = time.clamp(LOOK_INTERVAL, MAX_CHECK_DURATION);
        self.idle_time += time.div_f64(processes_per_core.max(1.0));
    }

    fn restart(&mut self) {
        self.unchanged_looks = 0;
        self.idle_time = Duration::ZERO;
        self.changed = Instant::now();
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, unchanged) = (self.begun.elapsed(), self.changed.elapsed());
        write!(f, "{}: not after {} s", self.what, all.as_secs())?;
        write!(
            f,
            ", and nothing has changed for {} s ({:.1} processes per core)",
            unchanged.as_secs(),
            self.processes_per_core
        )?;
        if self.seen.is_empty() {
            return Ok(());
        }
        write!(f, "; last seen: {}", self.seen)
    }
}

/// How many processes wanted to run on each core in the last minute; 1 if the kernel does not say.
fn processes_per_core() -> f64 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Option<f64> = load.split(' ').next().and_then(|load| load.parse().ok());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    load.map_or(1.0, |load| load / f64::from(cores))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::cell::Cell;
    use std::sync::mpsc;

    /// What a panic says of a wait that must fail.
    fn complaint(wait: impl FnOnce() + std::panic::UnwindSafe) -> String {
        let panic = std::panic::catch_unwind(wait).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    }

    #[test]
    fn a_wait_ends_when_it_has_what_it_wants() {
        let looks = Cell::new(0);
        let found = eventually("three", || {
            looks.set(looks.get() + 1);
            if looks.get() == 3 {
                Ok("three")
            } else {
                Err("less".to_owned())
            }
        });
        assert_eq!((found, looks.get()), ("three", 3));
    }

    #[test]
    fn what_still_changes_is_waited_for_however_long_it_takes() {
        let mut wait = Wait::new("the last stage");
        for stage in 0..5 {
            // It changes just in time, again and again.
            for _ in 0..NO_PROGRESS_TIMEOUT.as_millis() / MAX_CHECK_DURATION.as_millis() {
                assert!(wait.idle_time < NO_PROGRESS_TIMEOUT);
                wait.count_look(format!("stage {stage}"), MAX_CHECK_DURATION, 1.0);
            }
        }
    }

    #[test]
    fn who_sees_the_same_for_too_long_says_what_and_since_when() {
        let mut wait = Wait::new("the pod runs");
        wait.see("Pending".to_owned());
        wait.see("ImagePullBackOff".to_owned());
        wait.idle_time = NO_PROGRESS_TIMEOUT;
        let words = complaint(move || wait.see("ImagePullBackOff".to_owned()));
        assert!(
            words.starts_with("the pod runs: not after 0 s, and nothing has changed for 0 s ("),
            "{words}"
        );
        assert!(
            words.ends_with(" processes per core); last seen: ImagePullBackOff"),
            "{words}"
        );
    }

    #[test]
    fn a_second_on_a_busy_machine_counts_for_less() {
        let spent = |time: u64, processes_per_core: f64| {
            let mut wait = Wait::new("");
            wait.count_look(String::new(), Duration::from_millis(time), processes_per_core);
            wait.idle_time
        };
        assert_eq!(spent(100, 0.3), Duration::from_millis(100));
        assert_eq!(spent(100, 5.0), Duration::from_millis(20));
        assert_eq!(
            spent(3_600_000, 1.0),
            MAX_CHECK_DURATION,
            "the machine stood still"
        );
        assert_eq!(spent(0, 1.0), LOOK_INTERVAL, "the clock stands still");
    }

    #[test]
    fn another_sign_of_life_counts() {
        let mut wait = Wait::new("the end");
        wait.idle_time = NO_PROGRESS_TIMEOUT;
        wait.note_sign("pod 7".to_owned());
        wait.see(String::new());
        assert_eq!(wait.unchanged_looks(), 1);
        wait.idle_time = NO_PROGRESS_TIMEOUT;
        wait.note_sign("pod 7".to_owned());
        assert!(!wait.has_patience(String::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_never_comes_is_given_up() {
        let task = tokio::spawn(within("an answer", std::future::pending::<()>()));
        let panic = task.await.unwrap_err().into_panic();
        let words = panic.downcast_ref::<String>().unwrap();
        assert!(words.starts_with("an answer: not after "), "{words}");
        assert_eq!(within("an answer", async { 7 }).await, 7);
    }

    #[test]
    fn values_of_other_threads_are_received_until_there_are_no_senders() {
        let (sender, receiver) = mpsc::channel();
        let other = thread::spawn(move || sender.send(7).unwrap());
        assert_eq!(receive("a number", &receiver), Some(7));
        other.join().unwrap();
        assert_eq!(receive("another", &receiver), None);
    }
}
