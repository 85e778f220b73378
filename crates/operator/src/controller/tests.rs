use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::*;
use crate::leader::LeadershipSetter;
use crate::metrics::{Kind, Outcome};

const SECOND: Duration = Duration::from_secs(1);
const BACKOFF: Backoff = Backoff {
    base: SECOND,
    max: Duration::from_secs(8),
};

/// A kind whose reconciles go on until the test lets them return.
struct Toys {
    keys: Mutex<Vec<&'static str>>,
    reconciles: mpsc::UnboundedSender<Running>,
    /// The times from which the caches were to catch up.
    terms: mpsc::UnboundedSender<Instant>,
    /// One permit for each time that the caches may catch up.
    caches: Semaphore,
}

/// A reconcile that is under way. It panics if this is dropped.
struct Running {
    key: &'static str,
    term: CancellationToken,
    result: oneshot::Sender<ReconcileResult>,
}

impl Running {
    fn returns(self, next: Requeue) {
        self.costs(next, Duration::ZERO);
    }

    fn costs(self, next: Requeue, cost: Duration) {
        let outcome = Outcome::Quiet;
        self.result.send(ReconcileResult { outcome, next, cost }).unwrap();
    }
}

impl Reconcile for Toys {
    type Key = &'static str;

    fn kind(&self) -> Subject {
        Kind::Other.into()
    }

    fn watch(&self, _: &Arc<Queue<&'static str>>) -> JoinSet<()> {
        JoinSet::new()
    }

    async fn catch_up(&self, began: Instant) {
        self.terms.send(began).unwrap();
        self.caches.acquire().await.unwrap().forget();
    }

    fn keys(&self) -> Vec<&'static str> {
        self.keys.lock().clone()
    }

    async fn reconcile(&self, key: &&'static str, term: &CancellationToken) -> ReconcileResult {
        let (result, returned) = oneshot::channel();
        let running = Running {
            key,
            term: term.clone(),
            result,
        };
        self.reconciles.send(running).unwrap();
        returned.await.unwrap()
    }
}

/// A controller that runs, and the lease that lets it lead.
struct Test {
    controller: Arc<Controller<Toys>>,
    reconciles: mpsc::UnboundedReceiver<Running>,
    terms: mpsc::UnboundedReceiver<Instant>,
    setter: LeadershipSetter,
    shutdown: CancellationToken,
    run: JoinHandle<()>,
}

impl Test {
    /// A controller of some objects that leads.
    fn leading(keys: &[&'static str]) -> Self {
        let mut test = Self::new(keys, 16);
        test.lead();
        test
    }

    fn new(keys: &[&'static str], concurrency: usize) -> Self {
        let (reconciles, running) = mpsc::unbounded_channel();
        let (terms, began) = mpsc::unbounded_channel();
        let toys = Toys {
            keys: Mutex::new(keys.to_vec()),
            reconciles,
            terms,
            caches: Semaphore::new(100),
        };
        let limits = Limits {
            concurrency,
            backoff: BACKOFF,
            drain_timeout: 10 * SECOND,
        };
        let (setter, shutdown) = (LeadershipSetter::new(), CancellationToken::new());
        let controller = Controller::new(toys, limits, setter.leadership(), Arc::default());
        Self {
            run: tokio::spawn(controller.clone().run(shutdown.clone())),
            controller,
            reconciles: running,
            terms: began,
            setter,
            shutdown,
        }
    }

    fn lead(&mut self) {
        let hours = Duration::from_hours(10);
        assert!(self.setter.renew(Instant::now(), Timestamp::now(), hours));
    }

    /// Waits for the next reconcile to begin.
    async fn next(&mut self) -> Running {
        self.reconciles.recv().await.unwrap()
    }

    /// Returns true if no reconcile begins within a time.
    async fn is_quiet(&mut self, during: Duration) -> bool {
        timeout(during, self.reconciles.recv()).await.is_err()
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_reconciled_twice_at_a_time() {
    let mut test = Test::leading(&["a"]);
    let first = test.next().await;
    for _ in 0..3 {
        test.controller.queue.add("a");
    }
    assert!(test.is_quiet(SECOND).await);
    first.returns(Requeue::Rest);
    test.next().await.returns(Requeue::Rest);
    assert!(test.is_quiet(SECOND).await, "once for all changes");
    test.controller.queue.add("a");
    assert_eq!(test.next().await.key, "a");
}

#[tokio::test(start_paused = true)]
async fn no_more_keys_are_reconciled_at_once_than_the_limit_says() {
    let mut test = Test::new(&["a", "b", "c"], 2);
    test.lead();
    let (a, b) = (test.next().await, test.next().await);
    assert!(test.is_quiet(SECOND).await);
    b.returns(Requeue::Again);
    let c = test.next().await;
    assert_eq!(c.key, "c", "it has waited longer than b");
    assert!(test.is_quiet(SECOND).await);
    a.returns(Requeue::Rest);
    assert_eq!(test.next().await.key, "b");
}

#[tokio::test(start_paused = true)]
async fn the_next_term_begins_with_all_keys_once_the_last_reconcile_of_the_former_has_returned() {
    let mut test = Test::leading(&["a", "b"]);
    let (a, b) = (test.next().await, test.next().await);
    assert!(!a.term.is_cancelled());
    let lost = Instant::now();
    test.setter.leave();
    a.term.cancelled().await;
    assert_eq!(lost.elapsed(), Duration::ZERO, "at once");
    a.returns(Requeue::Again);
    test.lead();
    assert!(test.is_quiet(100 * SECOND).await, "b is still under way");
    b.returns(Requeue::Retry(None));
    let (a, b) = (test.next().await, test.next().await);
    assert_eq!((a.key, b.key), ("a", "b"));
    assert!(!a.term.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn what_is_added_between_terms_is_dropped() {
    let mut test = Test::leading(&["a"]);
    test.next().await.returns(Requeue::At(Instant::now() + SECOND));
    test.setter.leave();
    tokio::task::yield_now().await;
    test.controller.queue.add("a");
    test.controller.queue.add("gone");
    assert!(test.is_quiet(10 * SECOND).await);
    test.lead();
    let a = test.next().await;
    assert_eq!(a.key, "a");
    assert!(
        test.is_quiet(10 * SECOND).await,
        "a term begins with the known keys alone"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_reconciled_before_the_caches_have_caught_up() {
    let mut test = Test::new(&["a"], 1);
    let begun = Instant::now();
    test.controller.reconciler.caches.forget_permits(100);
    tokio::time::sleep(SECOND / 2).await;
    test.lead();
    assert!(test.is_quiet(10 * SECOND).await);
    assert_eq!(test.terms.recv().await.unwrap(), begun + SECOND / 2);
    test.controller.reconciler.keys.lock().push("b");
    test.controller.queue.add("b");
    test.controller.reconciler.caches.add_permits(1);
    test.next().await.returns(Requeue::Rest);
    assert_eq!(test.next().await.key, "b");
}

/// A predecessor may have written until then.
#[tokio::test(start_paused = true)]
async fn the_caches_catch_up_with_the_beginning_of_a_later_term() {
    let mut test = Test::leading(&[]);
    let first = test.terms.recv().await.unwrap();
    tokio::time::sleep(10 * SECOND).await;
    test.setter.leave();
    tokio::time::sleep(10 * SECOND).await;
    test.lead();
    assert_eq!(test.terms.recv().await.unwrap(), first + 20 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_reconciles_return_and_cancels_those_that_take_too_long() {
    let mut test = Test::leading(&["a", "b", "c"]);
    let (a, b, c) = (test.next().await, test.next().await, test.next().await);
    test.shutdown.cancel();
    tokio::time::sleep(9 * SECOND).await;
    assert!(!a.term.is_cancelled());
    a.returns(Requeue::Again);
    tokio::time::sleep(2 * SECOND).await;
    assert!(b.term.is_cancelled());
    assert!(!test.run.is_finished());
    b.returns(Requeue::Rest);
    assert!(!test.run.is_finished());
    c.returns(Requeue::Rest);
    test.run.await.unwrap();
    assert!(test.reconciles.try_recv().is_err(), "nothing begins any more");
}

#[tokio::test(start_paused = true)]
async fn a_failure_delays_its_key_alone_and_longer_each_time() {
    let mut test = Test::leading(&["a", "b"]);
    let (a, b) = (test.next().await, test.next().await);
    b.returns(Requeue::Rest);
    let mut failing = a;
    for delay in [1, 2, 4, 8, 8] {
        failing.returns(Requeue::Retry(None));
        test.controller.queue.add("b");
        let begun = Instant::now();
        let b = test.next().await;
        assert_eq!((b.key, begun.elapsed()), ("b", Duration::ZERO));
        b.returns(Requeue::Rest);
        failing = test.next().await;
        assert_eq!(failing.key, "a");
        // The jitter takes off up to a quarter, and timers round up to a millisecond.
        let (least, most) = (delay * SECOND * 3 / 4, delay * SECOND + SECOND / 500);
        assert!((least..=most).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }
    failing.returns(Requeue::Rest);
    test.controller.queue.add("a");
    test.next().await.returns(Requeue::Retry(None));
    let begun = Instant::now();
    let failing = test.next().await;
    assert!(begun.elapsed() < 2 * SECOND, "a success begins anew");
    failing.returns(Requeue::Retry(Some(100 * SECOND)));
    assert!(test.is_quiet(99 * SECOND).await, "the server has asked for more");
    test.controller.queue.add("a");
    test.next().await.returns(Requeue::Stale);
    let begun = Instant::now();
    test.next().await;
    assert!(begun.elapsed() < SECOND, "a stale cache is soon up to date");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_costly_cools_down() {
    let mut test = Test::leading(&["a", "b"]);
    test.next().await.costs(Requeue::Again, SECOND / 10);
    test.next().await.costs(Requeue::Again, SECOND / 100_000);
    assert_eq!(test.next().await.key, "b", "its cost is not worth a timer");
    assert!(test.is_quiet(SECOND * 19 / 10).await);
    assert_eq!(test.next().await.key, "a");
}

/// Programs are built so that they end. Where they are not, other keys are still reconciled.
#[tokio::test(start_paused = true)]
async fn a_panic_frees_its_permit() {
    let mut test = Test::new(&["a", "b"], 1);
    test.lead();
    drop(test.next().await);
    assert_eq!(test.next().await.key, "b");
}

#[tokio::test(start_paused = true)]
async fn reconciles_are_counted_by_their_kind_and_outcome() {
    let mut test = Test::leading(&["a"]);
    test.next().await.returns(Requeue::Again);
    let _second = test.next().await;
    let rendered = test.controller.metrics.render();
    let line = "trainyard_reconciles_total{kind=\"other\",outcome=\"quiet\"} 1\n";
    assert!(rendered.contains(line), "{rendered}");
    assert!(
        rendered.contains("trainyard_reconcile_seconds_count 0\n"),
        "{rendered}"
    );
}
