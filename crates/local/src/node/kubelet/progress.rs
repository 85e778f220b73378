//! How far the programs of a pod are, as they say themselves: lines that they append to the file
//! which `TRAINYARD_PROGRESS` names. What the lines mean is for whoever listens; see
//! docs/progress.md.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{MissedTickBehavior, interval};
use trainyard_contract::environment::PROGRESS;

use crate::node::runtime::Mount;

/// Who hears the lines, each with the name of its pod.
pub type Listener = UnboundedSender<(String, String)>;

/// Where the file is in a container: beside that of the termination message, where every container
/// may write.
const MOUNT_PATH: &str = "/dev/trainyard-progress";
/// How often it is read.
const READ_INTERVAL: Duration = Duration::from_millis(100);
/// As much is read at a time: of a program that writes faster, only the latest is of interest.
const MAX_READ: u64 = 64 * 1024;

/// Reads what is appended to a file.
#[derive(Debug, Default)]
pub(super) struct Reader {
    offset: u64,
    /// The beginning of a line whose end is not written yet.
    begun: Vec<u8>,
}

impl Reader {
    /// The lines that have been completed since the last time.
    fn read(&mut self, path: &Path) -> io::Result<Vec<String>> {
        let size = fs::metadata(path)?.size();
        if size < self.offset {
            // Somebody has begun it anew.
            *self = Self::default();
        }
        if size == self.offset {
            return Ok(Vec::new());
        }
        let skips = size - self.offset > MAX_READ;
        if skips {
            self.offset = size - MAX_READ;
            self.begun.clear();
        }
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut new = Vec::new();
        file.take(size - self.offset).read_to_end(&mut new)?;
        self.offset += u64::try_from(new.len()).unwrap_or_default();
        self.begun.extend(new);
        let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.begun.split_off(end + 1);
        let complete = std::mem::replace(&mut self.begun, rest);
        let lines = String::from_utf8_lossy(&complete);
        let lines = lines.lines().map(str::to_owned);
        // Where something was passed over, the first line lacks its beginning.
        Ok(lines.skip(usize::from(skips)).collect())
    }
}

/// The file that the programs of one pod write to, and who hears of it.
#[derive(Debug)]
pub(super) struct Progress {
    file: PathBuf,
    /// The name of the pod.
    pod: String,
    listener: Listener,
    reader: Mutex<Reader>,
}

impl Progress {
    /// The file is in the pod's own directory.
    pub fn new(directory: &Path, pod: String, listener: Listener) -> Self {
        Self {
            file: directory.join("progress"),
            pod,
            listener,
            reader: Mutex::default(),
        }
    }

    /// The variable by which a program finds the file. A container without files of its own finds
    /// it where it is on this machine.
    pub fn variable(&self, has_own_files: bool) -> (String, String) {
        let path = if has_own_files {
            MOUNT_PATH.to_owned()
        } else {
            self.file.display().to_string()
        };
        (PROGRESS.to_owned(), path)
    }

    /// The file itself, the same for all containers of the pod. None if it can't be written.
    pub fn mount(&self) -> Option<Mount> {
        let source = self.file.clone();
        if !source.exists() {
            drop(fs::create_dir_all(source.parent()?));
            fs::write(&source, "").ok()?;
            // Whoever the container runs as may write it.
            drop(fs::set_permissions(&source, fs::Permissions::from_mode(0o666)));
        }
        Some(Mount {
            source,
            target: PathBuf::from(MOUNT_PATH),
            ..Mount::default()
        })
    }

    /// Passes on what the pod's programs write, for as long as it is polled.
    pub async fn follow(&self) {
        let mut ticks = interval(READ_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.pass_on();
        }
    }

    /// Passes on what the pod's programs have written up to now.
    pub fn pass_on(&self) {
        let mut reader = self.reader.lock();
        // Without a file no container has started yet.
        for line in reader.read(&self.file).unwrap_or_default() {
            // Nobody listens any more: the run is at its end.
            let _ = self.listener.send((self.pod.clone(), line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn append(path: &Path, text: &str) {
        let mut file = File::options().append(true).create(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn only_what_is_new_and_complete_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress");
        let mut reader = Reader::default();
        assert!(reader.read(&path).is_err());
        append(&path, "step=1\nste");
        assert_eq!(reader.read(&path).unwrap(), ["step=1"]);
        assert_eq!(reader.read(&path).unwrap(), [""; 0]);
        append(&path, "p=2\nstep=3\n");
        assert_eq!(reader.read(&path).unwrap(), ["step=2", "step=3"]);
    }

    #[test]
    fn a_file_that_is_begun_anew_is_read_from_its_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress");
        let mut reader = Reader::default();
        append(&path, "step=100\nstep=101\nst");
        reader.read(&path).unwrap();
        fs::write(&path, "step=7\n").unwrap();
        assert_eq!(reader.read(&path).unwrap(), ["step=7"]);
    }

    #[test]
    fn of_too_much_the_latest_is_read_in_whole_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress");
        let mut reader = Reader::default();
        let all: Vec<String> = (0..20_000).map(|step| format!("step={step}")).collect();
        append(&path, &format!("{}\n", all.join("\n")));
        let read = reader.read(&path).unwrap();
        assert_eq!(read.last().map(String::as_str), Some("step=19999"));
        assert!(read.len() < 10_000, "{}", read.len());
        assert!(
            read.iter()
                .all(|line| line.starts_with("step=1") && line.len() == 10),
            "{:?}",
            read.first()
        );
    }
}
