//! Which events are the same, and which are too many. Pure: the time is handed in.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use jiff::{SignedDuration, Timestamp};

use super::{Kind, Source, Told};

/// So many sentences may be said for one reason before they are taken for the same.
const SIMILAR: usize = 10;
/// After so long a silence it is a new matter.
const SILENCE: SignedDuration = SignedDuration::from_mins(10);
/// So much may be said about an object at once.
const BURST: i64 = 25;
/// Then once in so long a time.
const PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// How much is remembered.
const MEMORY: usize = 4096;

/// What there is of an event already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) name: String,
    /// How often it was said, this time included.
    pub(super) count: i32,
    pub(super) first: Timestamp,
}

/// What an event is about, and in what sense.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Matter {
    source: Source,
    uid: Option<String>,
    part: Option<String>,
    kind: Kind,
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

/// Remembers what was said.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    known: HashMap<(Matter, String), (Known, Timestamp)>,
    similar: HashMap<Matter, Similar>,
    allowances: HashMap<(Source, Option<String>), Allowance>,
    last_name: i128,
}

impl Correlator {
    /// What to write of something that is said now; none if that was said often enough.
    pub(super) fn take(&mut self, mut told: Told, now: Timestamp) -> Option<(Told, Known)> {
        let matter = Matter {
            source: told.source.clone(),
            uid: told.regarding.uid.clone(),
            part: told.regarding.field_path.clone(),
            kind: told.kind,
            reason: told.reason,
        };
        if !self.allows(&matter, now) {
            return None;
        }
        let key = if self.is_one_of_many(&matter, &told.message, now) {
            told.message = format!("(combined from similar events): {}", told.message);
            // Whatever it says, it is the same event.
            (matter, String::new())
        } else {
            (matter, told.message.clone())
        };
        let known = match self.known.remove(&key) {
            Some((known, _)) => {
                let count = known.count.saturating_add(1);
                Known { count, ..known }
            }
            None => Known {
                name: self.name(&told, now),
                count: 1,
                first: now,
            },
        };
        forget_oldest(&mut self.known, |(_, last)| *last);
        self.known.insert(key, (known.clone(), now));
        Some((told, known))
    }

    fn allows(&mut self, matter: &Matter, now: Timestamp) -> bool {
        forget_oldest(&mut self.allowances, |allowance| allowance.since);
        let about = (matter.source.clone(), matter.uid.clone());
        let allowance = self.allowances.entry(about).or_insert(Allowance {
            left: BURST,
            since: now,
        });
        let earned = now.duration_since(allowance.since).as_secs() / PAUSE.as_secs();
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

    fn is_one_of_many(&mut self, matter: &Matter, message: &str, now: Timestamp) -> bool {
        forget_oldest(&mut self.similar, |similar| similar.last);
        let similar = self.similar.entry(matter.clone()).or_insert_with(|| Similar {
            last: now,
            messages: BTreeSet::new(),
        });
        if now.duration_since(similar.last) > SILENCE {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(message.to_owned());
        if similar.messages.len() < SIMILAR {
            return false;
        }
        // One more than enough is as good as all.
        if similar.messages.len() > SIMILAR {
            similar.messages.pop_first();
        }
        true
    }

    /// A name that no other event of the object has.
    fn name(&mut self, told: &Told, now: Timestamp) -> String {
        self.last_name = now.as_nanosecond().max(self.last_name + 1);
        let object = told.regarding.name.as_deref().unwrap_or_default();
        format!("{object}.{:016x}", self.last_name)
    }
}

/// Makes room for one more.
fn forget_oldest<K: Eq + Hash, V>(map: &mut HashMap<K, V>, last: impl Fn(&V) -> Timestamp) {
    if map.len() < MEMORY {
        return;
    }
    // A half at a time, so that this is seldom.
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

    fn told(pod: &str, reason: &'static str, message: &str) -> Told {
        Told {
            source: Source::Kubelet {
                node: "one".to_owned(),
            },
            regarding: ObjectReference {
                name: Some(pod.to_owned()),
                uid: Some(format!("uid of {pod}")),
                ..ObjectReference::default()
            },
            kind: Kind::Normal,
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
        let mut take = |told, second| {
            let (_, known) = correlator.take(told, at(second)).unwrap();
            (known.name, known.count, known.first)
        };
        let first = take(told("p", "A", "x"), 1);
        assert_eq!((first.1, first.2), (1, at(1)));
        assert_eq!(take(told("p", "A", "x"), 2), (first.0.clone(), 2, at(1)));
        for other in [told("p", "A", "y"), told("p", "B", "x"), told("q", "A", "x")] {
            let other = take(other, 2);
            assert_eq!(other.1, 1);
            assert_ne!(other.0, first.0);
        }
        assert_eq!(take(told("p", "A", "x"), 3), (first.0, 3, at(1)));
    }

    #[test]
    fn many_sentences_for_one_reason_become_one_event() {
        let mut correlator = Correlator::default();
        let mut names = BTreeSet::new();
        let mut last = String::new();
        for number in 0..20 {
            let (told, known) = correlator
                .take(told("p", "A", &number.to_string()), at(number))
                .unwrap();
            names.insert(known.name);
            last = told.message;
        }
        assert_eq!(
            (names.len(), last.as_str()),
            (10, "(combined from similar events): 19")
        );
        let later = at(20 + SILENCE.as_secs() + 1);
        let (told, _) = correlator.take(told("p", "A", "new"), later).unwrap();
        assert_eq!(told.message, "new");
    }

    #[test]
    fn about_one_object_not_too_much_is_said() {
        let mut correlator = Correlator::default();
        let mut written = |pod: &str, second| correlator.take(told(pod, "A", "x"), at(second)).is_some();
        let first = (0..100).filter(|_| written("p", 0)).count();
        assert_eq!(first, 25);
        assert!(written("q", 0));
        assert!(!written("p", PAUSE.as_secs() - 1));
        assert!(written("p", PAUSE.as_secs()) && !written("p", PAUSE.as_secs()));
    }

    #[test]
    fn what_is_remembered_has_an_end() {
        let mut correlator = Correlator::default();
        for number in 0..3 * MEMORY {
            let second = i64::try_from(number).unwrap();
            correlator
                .take(told(&number.to_string(), "A", "x"), at(second))
                .unwrap();
        }
        assert!(correlator.known.len() <= MEMORY && correlator.similar.len() <= MEMORY);
        assert!(correlator.allowances.len() <= MEMORY);
        let (_, known) = correlator
            .take(told(&(3 * MEMORY - 1).to_string(), "A", "x"), at(99_999))
            .unwrap();
        assert_eq!(known.count, 2, "the newest are remembered");
    }
}
