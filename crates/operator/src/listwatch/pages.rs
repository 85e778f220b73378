//! Splits a page of a list into objects while it arrives: a page of thousands of objects is never
//! in memory as a whole.

use serde::Deserialize;

/// The metadata of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMeta {
    #[serde(default)]
    pub(super) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(super) continue_token: Option<String>,
}

#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    metadata: ListMeta,
}

#[derive(Default)]
pub(super) struct Splitter {
    /// The page without the objects.
    frame: Vec<u8>,
    /// The object that is arriving.
    object: Vec<u8>,
    /// Objects that came before the metadata, one a line. API servers send the metadata first.
    early: Vec<u8>,
    position: Position,
    depth: u32,
    string: InString,
    /// Where the last string of the outermost level is in the frame.
    last_key: (usize, usize),
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Position {
    #[default]
    Frame,
    /// Between the objects.
    Items,
    /// Within an object.
    Object,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum InString {
    #[default]
    No,
    Yes,
    /// After a backslash.
    Escaped,
}

impl Splitter {
    /// Takes some bytes, and hands every complete object to `each`, with the metadata of the list.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(&ListMeta, &[u8]),
        metadata: &mut Option<ListMeta>,
    ) -> Result<(), serde_json::Error> {
        for byte in bytes {
            match self.position {
                Position::Frame => self.frame.push(*byte),
                Position::Object => self.object.push(*byte),
                Position::Items => {}
            }
            if self.within_string(*byte) {
                continue;
            }
            match byte {
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.position == Position::Items {
                        self.position = Position::Object;
                        self.object.push(*byte);
                    } else if *byte == b'['
                        && self.position == Position::Frame
                        && self.depth == 2
                        && self.is_items()
                    {
                        self.position = Position::Items;
                        *metadata = self.metadata()?;
                    }
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.position == Position::Object && self.depth == 2 {
                        self.position = Position::Items;
                        match metadata {
                            Some(metadata) => each(metadata, &self.object),
                            None => self.keep_early(),
                        }
                        self.object.clear();
                    } else if self.position == Position::Items {
                        self.position = Position::Frame;
                        self.frame.push(*byte);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns true if a byte is part of a string or one of its quotes.
    fn within_string(&mut self, byte: u8) -> bool {
        let outermost = self.position == Position::Frame && self.depth == 1;
        self.string = match (self.string, byte) {
            (InString::No, b'"') => {
                if outermost {
                    self.last_key.0 = self.frame.len();
                }
                InString::Yes
            }
            (InString::No, _) => return false,
            (InString::Yes, b'\\') => InString::Escaped,
            (InString::Yes, b'"') => {
                if outermost {
                    self.last_key.1 = self.frame.len().saturating_sub(1);
                }
                InString::No
            }
            (InString::Yes | InString::Escaped, _) => InString::Yes,
        };
        true
    }

    fn is_items(&self) -> bool {
        self.frame.get(self.last_key.0..self.last_key.1) == Some(b"items")
    }

    /// Returns the metadata, if it came before the objects.
    fn metadata(&self) -> Result<Option<ListMeta>, serde_json::Error> {
        let Frame { metadata } = serde_json::from_slice(&[&self.frame[..], b"]}"].concat())?;
        Ok(Some(metadata).filter(|metadata| !metadata.resource_version.is_empty()))
    }

    fn keep_early(&mut self) {
        self.early.append(&mut self.object);
        self.early.push(b'\n');
    }

    /// Ends the page and returns its metadata. Fails if the page is not complete.
    pub(super) fn finish(
        self,
        each: &mut dyn FnMut(&ListMeta, &[u8]),
    ) -> Result<ListMeta, serde_json::Error> {
        let Frame { metadata } = serde_json::from_slice(&self.frame)?;
        // Within an object there is no newline, as servers write JSON.
        let early = self
            .early
            .split(|byte| *byte == b'\n')
            .filter(|object| !object.is_empty());
        early.for_each(|object| each(&metadata, object));
        Ok(metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a page that arrives in pieces of a size.
    fn split(page: &str, size: usize) -> Result<(Vec<String>, ListMeta), serde_json::Error> {
        let mut splitter = Splitter::default();
        let mut objects = Vec::new();
        let mut metadata = None;
        let mut each = |metadata: &ListMeta, object: &[u8]| {
            objects.push(format!(
                "{} {}",
                metadata.resource_version,
                String::from_utf8_lossy(object)
            ));
        };
        for piece in page.as_bytes().chunks(size) {
            splitter.feed(piece, &mut each, &mut metadata)?;
        }
        let metadata = splitter.finish(&mut each)?;
        Ok((objects, metadata))
    }

    #[test]
    fn objects_are_found_however_the_page_arrives() {
        let page = concat!(
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c\"{["},"#,
            r#""items":[{"a":"}]\\\"","b":[{"items":[1]}]},{"ü":{}}]}"#
        );
        for size in [1, 2, 3, 7, 1000] {
            let (objects, metadata) = split(page, size).unwrap();
            assert_eq!(
                objects,
                [r#"7 {"a":"}]\\\"","b":[{"items":[1]}]}"#, r#"7 {"ü":{}}"#]
            );
            assert_eq!(metadata.continue_token.as_deref(), Some("c\"{["));
        }
    }

    #[test]
    fn a_list_may_be_empty_or_null_or_have_its_metadata_last() {
        for (page, count) in [
            (r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#, 0),
            (r#"{"metadata":{"resourceVersion":"7"},"items":null}"#, 0),
            (r#"{"metadata":{"resourceVersion":"7"}}"#, 0),
            (
                r#"{"items":[{"a":1}, {"b":2}],"metadata":{"resourceVersion":"7"}}"#,
                2,
            ),
        ] {
            let (objects, metadata) = split(page, 5).unwrap();
            assert_eq!(
                (objects.len(), metadata.resource_version.as_str()),
                (count, "7"),
                "{page}"
            );
            assert!(objects.iter().all(|object| object.starts_with("7 {")));
        }
    }

    #[test]
    fn a_page_that_breaks_off_is_an_error() {
        let page = r#"{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":2}]}"#;
        for length in 1..page.len() {
            assert!(split(&page[..length], 1000).is_err(), "{}", &page[..length]);
        }
    }
}
