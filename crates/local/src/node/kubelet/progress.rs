//! Reads the progress files of pods, which `TRAINYARD_PROGRESS` names. The listener parses the
//! lines; see docs/progress.md.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{MissedTickBehavior, interval};
use trainyard_contract::environment::PROGRESS;

use super::volumes::VOLUMES;
use crate::node::runtime::Mount;

/// Receives the lines, each with the name of its pod.
pub type Listener = UnboundedSender<(String, String)>;

/// The path of the file in a container: in a directory where every container may write.
const MOUNT_PATH: &str = "/dev/trainyard-progress";
const READ_INTERVAL: Duration = Duration::from_millis(100);
/// Of a program that writes more per interval, only the latest is read.
const MAX_READ: u64 = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct Reader {
    offset: u64,
    /// The beginning of an incomplete line.
    begun: Vec<u8>,
}

impl Reader {
    /// The lines that were completed since the last call.
    fn read(&mut self, path: &Path) -> io::Result<Vec<String>> {
        // In a volume of the pod it may be anything, such as a link to a file of this machine.
        let metadata = fs::symlink_metadata(path)?;
        if !metadata.is_file() {
            return Ok(Vec::new());
        }
        let size = metadata.size();
        if size < self.offset {
            // The file was truncated.
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
        let mut file = File::options()
            .read(true)
            .custom_flags(O_NOFOLLOW | O_NONBLOCK)
            .open(path)?;
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
        // If something was skipped, the first line is incomplete.
        Ok(lines.skip(usize::from(skips)).collect())
    }
}

/// The file that a pod names for progress, as its volume and the path in it. None if it names none,
/// or one that is not in an emptyDir volume.
fn named_by(pod: &Pod) -> Option<(&str, &Path)> {
    let spec = pod.spec.as_ref()?;
    let is_own = |name: &str| {
        let mut volumes = spec.volumes.iter().flatten();
        volumes.any(|volume| volume.name == name && volume.empty_dir.is_some())
    };
    spec.containers.iter().find_map(|container| {
        let mut env = container.env.iter().flatten();
        let path = Path::new(env.find(|one| one.name == PROGRESS)?.value.as_deref()?);
        let mut mounts = container.volume_mounts.iter().flatten();
        mounts.find_map(|mount| {
            let rest = path.strip_prefix(&mount.mount_path).ok()?;
            let is_whole = mount.sub_path.is_none() && mount.sub_path_expr.is_none();
            let is_inside = rest.components().all(|part| matches!(part, Component::Normal(_)));
            (is_whole && is_inside && is_own(&mount.name)).then_some((&*mount.name, rest))
        })
    })
}

#[derive(Debug)]
pub(super) struct ProgressFile {
    file: PathBuf,
    /// Whether the pod has named the file itself, in one of its volumes.
    is_of_pod: bool,
    pod: String,
    listener: Listener,
    reader: Mutex<Reader>,
}

impl ProgressFile {
    /// The file of a pod whose files are in this directory: the one that it writes for its agent,
    /// or else one of its own.
    pub fn new(pod: &Pod, directory: &Path, listener: Listener) -> Self {
        let of_pod = named_by(pod).map(|(volume, rest)| directory.join(VOLUMES).join(volume).join(rest));
        Self {
            is_of_pod: of_pod.is_some(),
            file: of_pod.unwrap_or_else(|| directory.join("progress")),
            pod: pod.metadata.name.clone().unwrap_or_default(),
            listener,
            reader: Mutex::default(),
        }
    }

    /// The variable with the path of the file: that in the container, or on this machine if the
    /// container has no file system of its own. None if the pod has it.
    pub fn variable(&self, has_own_files: bool) -> Option<(String, String)> {
        if self.is_of_pod {
            return None;
        }
        let path = if has_own_files {
            MOUNT_PATH.to_owned()
        } else {
            self.file.display().to_string()
        };
        Some((PROGRESS.to_owned(), path))
    }

    /// The mount of the file, for all containers of the pod. None if it can't be written, or the
    /// pod has a volume for it.
    pub fn mount(&self) -> Option<Mount> {
        if self.is_of_pod {
            return None;
        }
        let source = self.file.clone();
        if !source.exists() {
            drop(fs::create_dir_all(source.parent()?));
            fs::write(&source, "").ok()?;
            // Any user of a container may write it.
            drop(fs::set_permissions(&source, fs::Permissions::from_mode(0o666)));
        }
        Some(Mount {
            source,
            target: PathBuf::from(MOUNT_PATH),
            ..Mount::default()
        })
    }

    /// Passes lines on until it is dropped.
    pub async fn follow(&self) {
        let mut ticks = interval(READ_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.pass_on();
        }
    }

    /// Passes all new lines on.
    pub fn pass_on(&self) {
        let mut reader = self.reader.lock();
        // Without the file, no container has started yet.
        for line in reader.read(&self.file).unwrap_or_default() {
            // Fails at the end of the run.
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

    #[test]
    fn a_file_in_a_volume_of_the_pod_is_read_where_the_volume_is() {
        let pod = |path: &str, volume: serde_json::Value| -> Pod {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "mnist-worker-0"},
                "spec": {"volumes": [volume], "containers": [{
                    "name": "main",
                    "env": [{"name": PROGRESS, "value": path}],
                    "volumeMounts": [{"name": "said", "mountPath": "/said"}],
                }]},
            }))
            .unwrap()
        };
        let own = || serde_json::json!({"name": "said", "emptyDir": {}});
        let place = tempfile::tempdir().unwrap();
        let (listener, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let file = ProgressFile::new(&pod("/said/lines", own()), place.path(), listener.clone());
        assert!(file.variable(true).is_none() && file.mount().is_none());
        let volume = place.path().join("volumes/said");
        fs::create_dir_all(&volume).unwrap();
        append(&volume.join("lines"), "step=1\n");
        file.pass_on();
        let line = ("mnist-worker-0".to_owned(), "step=1".to_owned());
        assert_eq!(heard.try_recv(), Ok(line));

        // A link would lead out of the volume.
        let other = place.path().join("other");
        append(&other, "step=1\nstep=2\nstep=3\n");
        fs::remove_file(volume.join("lines")).unwrap();
        std::os::unix::fs::symlink(&other, volume.join("lines")).unwrap();
        file.pass_on();
        assert!(heard.try_recv().is_err());

        let map = serde_json::json!({"name": "said", "configMap": {"name": "map"}});
        for pod in [
            pod("/elsewhere/lines", own()),
            pod("/said/../../lines", own()),
            pod("/said/lines", map),
        ] {
            let file = ProgressFile::new(&pod, place.path(), listener.clone());
            assert!(file.variable(true).is_some());
        }
    }
}
