//! Reads what is appended to a file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// The most that is read per interval. Of a program that writes more, only the latest is read.
const MAX_READ: u64 = 64 * 1024;

/// Reads what is appended to a file.
#[derive(Debug, Default)]
pub(super) struct Reader {
    offset: u64,
    /// The beginning of an incomplete line.
    begun: Vec<u8>,
}

impl Reader {
    /// The lines that were completed since the last call; with `last`, also an incomplete one.
    pub(super) fn read(&mut self, path: &Path, last: bool) -> io::Result<Vec<String>> {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        if size < self.offset {
            // The file was truncated.
            *self = Self::default();
        }
        let skips = size - self.offset > MAX_READ;
        if skips {
            self.offset = size - MAX_READ;
            self.begun.clear();
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut new = Vec::new();
        file.take(size - self.offset).read_to_end(&mut new)?;
        self.offset += new.len() as u64;
        self.begun.extend(new);
        let end = self
            .begun
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map(|end| end + 1);
        let end = if last { Some(self.begun.len()) } else { end };
        let Some(end) = end else {
            return Ok(Vec::new());
        };
        let rest = self.begun.split_off(end);
        let complete = std::mem::replace(&mut self.begun, rest);
        let lines = String::from_utf8_lossy(&complete);
        // If something was skipped, the first line is incomplete.
        Ok(lines
            .lines()
            .skip(usize::from(skips))
            .map(str::to_owned)
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_are_read_once_they_are_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        let mut reader = Reader::default();
        assert!(reader.read(&path, false).is_err(), "it is not there yet");
        let append = |text: &str| {
            let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        append("step=1\nst");
        assert_eq!(reader.read(&path, false).unwrap(), ["step=1"]);
        append("ep=2\n");
        assert_eq!(reader.read(&path, false).unwrap(), ["step=2"]);
        append("step=3");
        assert_eq!(reader.read(&path, false).unwrap(), [""; 0]);
        assert_eq!(reader.read(&path, true).unwrap(), ["step=3"]);
        fs::write(&path, "a=1\n").unwrap();
        assert_eq!(reader.read(&path, false).unwrap(), ["a=1"], "it was begun anew");
        append(&"x=1\n".repeat(100_000));
        append("step=9\n");
        let lines = reader.read(&path, false).unwrap();
        assert!(lines.len() < 20_000);
        assert_eq!(lines.last().unwrap(), "step=9");
    }
}
