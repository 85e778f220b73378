//! The keys of the live view.

use futures::{Stream, StreamExt};
use trainyard_local::yard::Keys;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeKey {
    /// `+`: one pod more.
    More,
    /// `-`: one pod fewer.
    Fewer,
}

impl SizeKey {
    fn of(key: u8) -> Option<Self> {
        match key {
            b'+' => Some(Self::More),
            b'-' => Some(Self::Fewer),
            _ => None,
        }
    }
}

/// The keys that ask for something; none without a keyboard.
pub fn size_keys(keyboard: Option<Keys>) -> impl Stream<Item = SizeKey> {
    let keys = futures::stream::unfold(keyboard, |keyboard| async {
        let mut keyboard = keyboard?;
        let key = keyboard.next().await?;
        Some((SizeKey::of(key), Some(keyboard)))
    });
    keys.filter_map(std::future::ready)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_keys_ask_for_nothing() {
        let asked = b"x+ -\n=".map(SizeKey::of);
        let more_and_fewer = [Some(SizeKey::More), Some(SizeKey::Fewer)];
        assert_eq!([asked[1], asked[3]], more_and_fewer);
        assert_eq!(asked.iter().flatten().count(), 2);
    }
}
