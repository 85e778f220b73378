use std::time::Duration;

use super::*;

fn queue() -> (Core<&'static str>, Instant) {
    let mut core = Core::default();
    core.open([]);
    (core, Instant::now())
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn keys_come_once_and_in_order() {
    let (mut core, now) = queue();
    core.add("a");
    core.add("b");
    core.add("a");
    assert_eq!(core.depth(), 2);
    assert_eq!(
        (core.pop(now), core.pop(now), core.pop(now)),
        (Some("a"), Some("b"), None)
    );
}

#[test]
fn a_key_that_is_processed_comes_back_only_when_done() {
    let (mut core, now) = queue();
    core.add("a");
    assert_eq!(core.pop(now), Some("a"));
    core.add("a");
    core.add("a");
    assert_eq!(core.pop(now), None);
    core.done(&"a", None);
    assert_eq!(core.pop(now), Some("a"));
    core.done(&"a", None);
    assert_eq!(core.pop(now), None);
    assert!(
        core.entries.is_empty(),
        "nothing is remembered of a key that is at rest"
    );
}

#[test]
fn the_earliest_deadline_wins_and_fires_once() {
    let (mut core, now) = queue();
    core.add_at("a", now + 5 * SECOND);
    core.add_at("a", now + 2 * SECOND);
    core.add_at("a", now + 9 * SECOND);
    assert_eq!(core.pop(now + SECOND), None);
    assert_eq!(core.next_due(), Some(now + 2 * SECOND));
    assert_eq!(core.pop(now + 2 * SECOND), Some("a"));
    core.done(&"a", None);
    assert_eq!(core.pop(now + 10 * SECOND), None);
}

#[test]
fn a_deadline_set_while_processing_holds_and_an_event_before_it_replaces_it() {
    let (mut core, now) = queue();
    core.add("a");
    core.pop(now);
    core.add_at("a", now + 5 * SECOND);
    core.done(&"a", None);
    core.add("a");
    assert_eq!(
        core.pop(now),
        Some("a"),
        "an event does not wait for the deadline"
    );
    core.done(&"a", None);
    assert_eq!(
        core.pop(now + 6 * SECOND),
        None,
        "whoever looked last did not ask to look again"
    );
}

#[test]
fn a_deadline_that_fires_while_processing_is_not_lost() {
    let (mut core, now) = queue();
    core.add("a");
    core.pop(now);
    core.add_at("a", now + SECOND);
    assert_eq!(core.pop(now + 2 * SECOND), None);
    core.done(&"a", None);
    assert_eq!(core.pop(now + 2 * SECOND), Some("a"));
}

#[test]
fn a_key_that_cools_down_is_handed_out_once_for_all_that_happens_meanwhile() {
    let (mut core, now) = queue();
    core.add("a");
    core.pop(now);
    core.done(&"a", Some(now + SECOND));
    core.add("a");
    core.add("a");
    core.add_at("a", now + SECOND / 2);
    assert_eq!(core.pop(now + SECOND / 2), None);
    assert_eq!(core.pop(now + SECOND), Some("a"));
    core.done(&"a", Some(now + 2 * SECOND));
    assert_eq!(core.pop(now + 3 * SECOND), None, "nothing happened");
    assert!(core.entries.is_empty());
}

#[test]
fn failures_are_counted_until_success() {
    let (mut core, now) = queue();
    core.add("a");
    core.pop(now);
    assert_eq!((core.failed(&"a"), core.failed(&"a")), (1, 2));
    core.done(&"a", None);
    assert_eq!(core.failed(&"a"), 3);
    core.succeeded(&"a");
    assert_eq!(core.failed(&"a"), 1);
}

#[test]
fn a_closed_queue_forgets_and_takes_nothing_but_knows_what_is_processed() {
    let (mut core, now) = queue();
    core.add("busy");
    core.pop(now);
    core.add("waiting");
    core.add_at("later", now + SECOND);
    core.close();
    core.add("b");
    core.add_at("b", now);
    assert_eq!(core.pop(now + 2 * SECOND), None);
    core.open(["busy", "c"]);
    assert_eq!(core.pop(now), Some("c"));
    assert_eq!(core.pop(now), None, "still processed");
    core.done(&"busy", None);
    assert_eq!(core.pop(now), Some("busy"));
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_a_key_or_a_deadline() {
    let queue = Queue::default();
    queue.with(|core| core.open([]));
    let start = Instant::now();
    queue.with(|core| core.add_at("later", start + 5 * SECOND));
    assert_eq!(queue.next().await, "later");
    assert_eq!(Instant::now(), start + 5 * SECOND);
    let (key, ()) = tokio::join!(queue.next(), async { queue.add("now") });
    assert_eq!(key, "now");
}

#[test]
fn timers_that_are_out_of_date_do_not_pile_up() {
    let (mut core, now) = queue();
    core.add_at("b", now + SECOND);
    for look in 0..10_000_u32 {
        core.add("a");
        assert_eq!(core.pop(now), Some("a"));
        core.add_at("a", now + 100 * SECOND + look * Duration::from_nanos(50));
        core.done(&"a", None);
    }
    assert!(core.timers.len() < 100, "{}", core.timers.len());
    assert_eq!((core.pop(now), core.pop(now + SECOND)), (None, Some("b")));
    assert_eq!(core.pop(now + 100 * SECOND), None);
    assert_eq!(core.pop(now + 101 * SECOND), Some("a"));
}

#[test]
fn cooldowns_are_kept_when_timers_are_collected_anew() {
    let (mut core, now) = queue();
    core.add("c");
    assert_eq!(core.pop(now), Some("c"));
    core.done(&"c", Some(now + SECOND));
    core.add("c");
    for look in 0..1_000_u32 {
        core.add("a");
        assert_eq!(core.pop(now), Some("a"));
        core.add_at("a", now + 100 * SECOND + look * SECOND);
        core.done(&"a", None);
    }
    assert_eq!((core.pop(now), core.pop(now + SECOND)), (None, Some("c")));
}
