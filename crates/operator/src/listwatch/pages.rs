//! A page of a list, taken apart while it arrives: a page of thousands of objects never is in local as a whole.

use serde::Deserialize;

/// What a list says of itself.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMeta {
    /// The version that it shows.
    #[serde(default)]
    pub(super) resource_version: String,
    /// What to ask for the next page with.
    #[serde(default, rename = "continue")]
    pub(super) more: Option<String>,
}

#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    metadata: ListMeta,
}

/// Takes a page apart.
#[derive(Default)]
pub(super) struct Splitter {
    /// Everything but the objects.
    frame: Vec<u8>,
    /// The object that is arriving.
    object: Vec<u8>,
    /// Objects that came before the metadata, which servers do not do.
    early: Vec<u8>,
    place: Place,
    depth: u32,
    string: InString,
    /// Where in the frame the last string of the outermost level began and ended.
    last: (usize, usize),
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
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
    /// Takes some bytes in, and writer every object that is complete to `each`, with the metadata of the list.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(&ListMeta, &[u8]),
        metadata: &mut Option<ListMeta>,
    ) -> Result<(), serde_json::Error> {
        for byte in bytes {
            match self.place {
                Place::Frame => self.frame.push(*byte),
                Place::Object => self.object.push(*byte),
                Place::Items => {}
            }
            if self.within_string(*byte) {
                continue;
            }
            match byte {
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.place == Place::Items {
                        self.place = Place::Object;
                        self.object.push(*byte);
                    } else if *byte == b'['
                        && self.place == Place::Frame
                        && self.depth == 2
                        && self.is_items()
                    {
                        self.place = Place::Items;
                        *metadata = self.metadata()?;
                    }
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.place == Place::Object && self.depth == 2 {
                        self.place = Place::Items;
                        match metadata {
                            Some(metadata) => each(metadata, &self.object),
                            None => self.keep(),
                        }
                        self.object.clear();
                    } else if self.place == Place::Items {
                        self.place = Place::Frame;
                        self.frame.push(*byte);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a byte is part of a string, its quotes included.
    fn within_string(&mut self, byte: u8) -> bool {
        let outermost = self.place == Place::Frame && self.depth == 1;
        self.string = match (self.string, byte) {
            (InString::No, b'"') => {
                if outermost {
                    self.last.0 = self.frame.len();
                }
                InString::Yes
            }
            (InString::No, _) => return false,
            (InString::Yes, b'\\') => InString::Escaped,
            (InString::Yes, b'"') => {
                if outermost {
                    self.last.1 = self.frame.len().saturating_sub(1);
                }
                InString::No
            }
            (InString::Yes | InString::Escaped, _) => InString::Yes,
        };
        true
    }

    fn is_items(&self) -> bool {
        self.frame.get(self.last.0..self.last.1) == Some(b"items")
    }

    /// The metadata, if it has come before the objects.
    fn metadata(&self) -> Result<Option<ListMeta>, serde_json::Error> {
        let Frame { metadata } = serde_json::from_slice(&[&self.frame[..], b"]}"].concat())?;
        Ok(Some(metadata).filter(|metadata| !metadata.resource_version.is_empty()))
    }

    fn keep(&mut self) {
        self.early.append(&mut self.object);
        self.early.push(b'\n');
    }

    /// The page is complete: its metadata. Fails if it is not.
    pub(super) fn finish(
        self,
        each: &mut dyn FnMut(&ListMeta, &[u8]),
    ) -> Result<ListMeta, serde_json::Error> {
        let Frame { metadata } = serde_json::from_slice(&self.frame)?;
        // Each was kept on a line of its own; within JSON, as servers write it, there is no other end of a line.
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
            assert_eq!(metadata.more.as_deref(), Some("c\"{["));
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
