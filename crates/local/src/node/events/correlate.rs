//! Aggregates and limits events. Pure.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use jiff::{SignedDuration, Timestamp};

use super::{EventType, PodEvent, Source};

/// Different messages for one reason beyond which events are aggregated.
const MAX_SIMILAR: usize = 10;
/// Aggregation ends after so long without an event.
const SIMILAR_INTERVAL: SignedDuration = SignedDuration::from_mins(10);
/// Events about an object at once.
const BURST: i64 = 25;
/// Then one event per interval.
const REFILL_INTERVAL: SignedDuration = SignedDuration::from_mins(5);
const MAX_REMEMBERED: usize = 4096;

/// An event with its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Occurrences {
    pub(super) name: String,
    /// How often it occurred, this time included.
    pub(super) count: i32,
    pub(super) first: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EventKey {
    source: Source,
    uid: Option<String>,
    part: Option<String>,
    kind: EventType,
    reason: &'static str,
}

#[derive(Debug)]
struct Similar {
    last: Timestamp,
    messages: BTreeSet<String>,
}

#[derive(Debug)]
struct Allowance {
    left: i64,
    since: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct Correlator {
    occurrences: HashMap<(EventKey, String), (Occurrences, Timestamp)>,
    similar: HashMap<EventKey, Similar>,
    allowances: HashMap<(Source, Option<String>), Allowance>,
    last_name: i128,
}

impl Correlator {
    /// What to write for an event; None if there were too many.
    pub(super) fn take(
        &mut self,
        mut pod_event: PodEvent,
        now: Timestamp,
    ) -> Option<(PodEvent, Occurrences)> {
        let event_key = EventKey {
            source: pod_event.source.clone(),
            uid: pod_event.regarding.uid.clone(),
            part: pod_event.regarding.field_path.clone(),
            kind: pod_event.kind,
            reason: pod_event.reason,
        };
        if !self.allows(&event_key, now) {
            return None;
        }
        let key = if self.is_one_of_many(&event_key, &pod_event.message, now) {
            pod_event.message = format!("(combined from similar events): {}", pod_event.message);
            // Aggregated: the message does not matter.
            (event_key, String::new())
        } else {
            (event_key, pod_event.message.clone())
        };
        let occurrences = match self.occurrences.remove(&key) {
            Some((occurrences, _)) => {
                let count = occurrences.count.saturating_add(1);
                Occurrences { count, ..occurrences }
            }
            None => Occurrences {
                name: self.name(&pod_event, now),
                count: 1,
                first: now,
            },
        };
        forget_oldest(&mut self.occurrences, |(_, last)| *last);
        self.occurrences.insert(key, (occurrences.clone(), now));
        Some((pod_event, occurrences))
    }

    fn allows(&mut self, event_key: &EventKey, now: Timestamp) -> bool {
        forget_oldest(&mut self.allowances, |allowance| allowance.since);
        let about = (event_key.source.clone(), event_key.uid.clone());
        let allowance = self.allowances.entry(about).or_insert(Allowance {
            left: BURST,
            since: now,
        });
        let earned = now.duration_since(allowance.since).as_secs() / REFILL_INTERVAL.as_secs();
        if earned > 0 {
            allowance.left = (allowance.left + earned).min(BURST);
            allowance.since = now;
        }
        allowance.left -= 1;
        if allowance.left < 0 {
            allowance.left = 0;
            return false;
        }
        true
    }

    fn is_one_of_many(&mut self, event_key: &EventKey, message: &str, now: Timestamp) -> bool {
        forget_oldest(&mut self.similar, |similar| similar.last);
        let similar = self.similar.entry(event_key.clone()).or_insert_with(|| Similar {
            last: now,
            messages: BTreeSet::new(),
        });
        if now.duration_since(similar.last) > SIMILAR_INTERVAL {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(message.to_owned());
        if similar.messages.len() < MAX_SIMILAR {
            return false;
        }
        // No more messages are needed to know that there are too many.
        if similar.messages.len() > MAX_SIMILAR {
            similar.messages.pop_first();
        }
        true
    }

    fn name(&mut self, pod_event: &PodEvent, now: Timestamp) -> String {
        self.last_name = now.as_nanosecond().max(self.last_name + 1);
        let object = pod_event.regarding.name.as_deref().unwrap_or_default();
        format!("{object}.{:016x}", self.last_name)
    }
}

fn forget_oldest<K: Eq + Hash, V>(map: &mut HashMap<K, V>, last: impl Fn(&V) -> Timestamp) {
    if map.len() < MAX_REMEMBERED {
        return;
    }
    // Half of the entries, so that this is rare.
    let mut times: Vec<_> = map.values().map(&last).collect();
    let middle = times.len() / 2;
    let (_, middle, _) = times.select_nth_unstable(middle);
    let middle = *middle;
    map.retain(|_, value| last(value) > middle);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    fn pod_event(pod: &str, reason: &'static str, message: &str) -> PodEvent {
        PodEvent {
            source: Source::Kubelet {
                node: "one".to_owned(),
            },
            regarding: ObjectReference {
                name: Some(pod.to_owned()),
                uid: Some(format!("uid of {pod}")),
                ..ObjectReference::default()
            },
            kind: EventType::Normal,
            reason,
            message: message.to_owned(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn what_is_said_again_is_counted() {
        let mut correlator = Correlator::default();
        let mut take = |pod_event, second| {
            let (_, occurrences) = correlator.take(pod_event, at(second)).unwrap();
            (occurrences.name, occurrences.count, occurrences.first)
        };
        let first = take(pod_event("p", "A", "x"), 1);
        assert_eq!((first.1, first.2), (1, at(1)));
        assert_eq!(take(pod_event("p", "A", "x"), 2), (first.0.clone(), 2, at(1)));
        for other in [
            pod_event("p", "A", "y"),
            pod_event("p", "B", "x"),
            pod_event("q", "A", "x"),
        ] {
            let other = take(other, 2);
            assert_eq!(other.1, 1);
            assert_ne!(other.0, first.0);
        }
        assert_eq!(take(pod_event("p", "A", "x"), 3), (first.0, 3, at(1)));
    }

    #[test]
    fn many_sentences_for_one_reason_become_one_event() {
        let mut correlator = Correlator::default();
        let mut names = BTreeSet::new();
        let mut last = String::new();
        for number in 0..20 {
            let (pod_event, occurrences) = correlator
                .take(pod_event("p", "A", &number.to_string()), at(number))
                .unwrap();
            names.insert(occurrences.name);
            last = pod_event.message;
        }
        assert_eq!(
            (names.len(), last.as_str()),
            (10, "(combined from similar events): 19")
        );
        let later = at(20 + SIMILAR_INTERVAL.as_secs() + 1);
        let (pod_event, _) = correlator.take(pod_event("p", "A", "new"), later).unwrap();
        assert_eq!(pod_event.message, "new");
    }

    #[test]
    fn about_one_object_not_too_much_is_said() {
        let mut correlator = Correlator::default();
        let mut written = |pod: &str, second| correlator.take(pod_event(pod, "A", "x"), at(second)).is_some();
        let first = (0..100).filter(|_| written("p", 0)).count();
        assert_eq!(first, 25);
        assert!(written("q", 0));
        assert!(!written("p", REFILL_INTERVAL.as_secs() - 1));
        assert!(written("p", REFILL_INTERVAL.as_secs()) && !written("p", REFILL_INTERVAL.as_secs()));
    }

    #[test]
    fn what_is_remembered_has_an_end() {
        let mut correlator = Correlator::default();
        for number in 0..3 * MAX_REMEMBERED {
            let second = i64::try_from(number).unwrap();
            correlator
                .take(pod_event(&number.to_string(), "A", "x"), at(second))
                .unwrap();
        }
        assert!(correlator.occurrences.len() <= MAX_REMEMBERED && correlator.similar.len() <= MAX_REMEMBERED);
        assert!(correlator.allowances.len() <= MAX_REMEMBERED);
        let (_, occurrences) = correlator
            .take(
                pod_event(&(3 * MAX_REMEMBERED - 1).to_string(), "A", "x"),
                at(99_999),
            )
            .unwrap();
        assert_eq!(occurrences.count, 2, "the newest are remembered");
    }
}
