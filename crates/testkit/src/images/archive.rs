//! Container images without a container engine: deterministic docker-archive tars.
//!
//! The same content gives the same bytes, whatever the order on disk, the clock or the user:
//! entries are sorted, times are zero, owners are root. So an image's digest says what is in it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::hex::hex;

/// What a container engine needs to know to start the image.
#[derive(Debug, Clone, Default)]
pub struct ImageConfig {
    /// The program and its first arguments, when the pod names no command.
    pub entrypoint: Vec<String>,
    /// Environment variables as `NAME=value`.
    pub env: Vec<String>,
    /// `uid:gid`; numeric, so that a restricted pod can be checked against it.
    pub user: String,
    /// The directory that the program starts in.
    pub workdir: String,
}

/// Where the content of one path in the image comes from.
#[derive(Debug, Clone)]
enum Source {
    Directory,
    File(PathBuf),
    Bytes(Vec<u8>),
    Symlink(PathBuf),
}

#[derive(Debug, Clone)]
struct Entry {
    mode: u32,
    source: Source,
}

/// The files of an image, keyed by their path in it.
#[derive(Debug, Clone, Default)]
pub struct Layer {
    entries: BTreeMap<PathBuf, Entry>,
}

impl Layer {
    /// An empty layer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the file `source` of this machine at `path` of the image.
    #[must_use]
    pub fn file(mut self, path: impl AsRef<Path>, source: impl Into<PathBuf>, mode: u32) -> Self {
        self.put(path.as_ref(), mode, Source::File(source.into()));
        self
    }

    /// Adds a file with the given content.
    #[must_use]
    pub fn bytes(mut self, path: impl AsRef<Path>, content: impl Into<Vec<u8>>, mode: u32) -> Self {
        self.put(path.as_ref(), mode, Source::Bytes(content.into()));
        self
    }

    /// Adds a directory.
    #[must_use]
    pub fn directory(mut self, path: impl AsRef<Path>, mode: u32) -> Self {
        self.put(path.as_ref(), mode, Source::Directory);
        self
    }

    /// Adds a symbolic link at `path` that points to `target`.
    #[must_use]
    pub fn symlink(mut self, path: impl AsRef<Path>, target: impl Into<PathBuf>) -> Self {
        self.put(path.as_ref(), 0o777, Source::Symlink(target.into()));
        self
    }

    /// Adds everything below `root`. Device nodes, sockets and pipes are left out: no image of ours
    /// needs them. Everything becomes readable by everybody, since a pod may run the image as any
    /// user.
    pub fn tree(mut self, root: &Path) -> Result<Self> {
        self.add_tree(root, Path::new(""))
            .with_context(|| format!("cannot read the root file system {}", root.display()))?;
        Ok(self)
    }

    fn add_tree(&mut self, root: &Path, below: &Path) -> Result<()> {
        for item in fs::read_dir(root.join(below))? {
            let item = item?;
            let path = below.join(item.file_name());
            let meta = item.metadata()?;
            let mode = meta.permissions().mode() & 0o1777;
            if meta.is_dir() {
                self.put(&path, mode | 0o555, Source::Directory);
                self.add_tree(root, &path)?;
            } else if meta.is_symlink() {
                self.put(&path, 0o777, Source::Symlink(fs::read_link(item.path())?));
            } else if meta.is_file() {
                let run = if mode & 0o100 == 0 { 0 } else { 0o111 };
                self.put(&path, mode | 0o444 | run, Source::File(item.path()));
            }
        }
        Ok(())
    }

    fn put(&mut self, path: &Path, mode: u32, source: Source) {
        let path = path.strip_prefix("/").unwrap_or(path).to_path_buf();
        if path.as_os_str().is_empty() {
            return;
        }
        let mut parent = path.parent();
        while let Some(dir) = parent.filter(|dir| !dir.as_os_str().is_empty()) {
            let above = Entry {
                mode: 0o755,
                source: Source::Directory,
            };
            self.entries.entry(dir.to_path_buf()).or_insert(above);
            parent = dir.parent();
        }
        self.entries.insert(path, Entry { mode, source });
    }

    fn write(&self, out: impl Write) -> Result<()> {
        let mut tar = Builder::new(out);
        for (path, entry) in &self.entries {
            let mut header = header(entry.mode);
            match &entry.source {
                Source::Directory => {
                    header.set_entry_type(EntryType::Directory);
                    tar.append_data(&mut header, path, io::empty())?;
                }
                Source::Symlink(target) => {
                    header.set_entry_type(EntryType::Symlink);
                    tar.append_link(&mut header, path, target)?;
                }
                Source::Bytes(content) => {
                    header.set_size(content.len() as u64);
                    tar.append_data(&mut header, path, content.as_slice())?;
                }
                Source::File(source) => {
                    let file = File::open(source)
                        .with_context(|| format!("cannot read {} for the image", source.display()))?;
                    let size = file.metadata()?.size();
                    header.set_size(size);
                    // A file that grows meanwhile would shift everything behind it.
                    tar.append_data(&mut header, path, file.take(size))?;
                }
            }
        }
        tar.finish()?;
        Ok(())
    }
}

fn header(mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

/// Hashes what passes through, so that a layer is read once.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
    length: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(data)?;
        self.hash.update(&data[..written]);
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes the image `reference` to the docker-archive `output`, which appears only when it is
/// complete. A node keeps a layer once, however many images begin with it.
pub fn docker_archive(output: &Path, reference: &str, layers: &[Layer], config: &ImageConfig) -> Result<()> {
    if !reference
        .rsplit('/')
        .next()
        .is_some_and(|name| name.contains(':'))
    {
        bail!("the image reference {reference:?} has no tag; write it as name:tag");
    }
    let unfinished = Unfinished::new(output)?;
    write_archive(&unfinished, reference, layers, config)
        .with_context(|| format!("cannot write the image {}", output.display()))?;
    fs::rename(&unfinished.archive, output)
        .with_context(|| format!("cannot put the image at {}", output.display()))?;
    Ok(())
}

/// Temporary files of an archive, removed on failure.
struct Unfinished {
    layers: PathBuf,
    archive: PathBuf,
}

impl Unfinished {
    fn new(output: &Path) -> Result<Self> {
        let directory = output
            .parent()
            .filter(|dir| !dir.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        let name = format!(".{name}-{}", std::process::id());
        Ok(Self {
            layers: directory.join(format!("{name}.layers")),
            archive: directory.join(format!("{name}.tar")),
        })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After success the archive has its final name and only the layers are left.
        let _ = fs::remove_file(&self.layers);
        let _ = fs::remove_file(&self.archive);
    }
}

/// A layer in a file.
struct WrittenLayer {
    diff_id: String,
    length: u64,
}

/// Writes layers into a file, one after the other. Returns the file at its beginning.
fn write_layers(path: &Path, layers: &[Layer]) -> Result<(File, Vec<WrittenLayer>)> {
    let mut options = File::options();
    let mut file = options
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(path)?;
    let mut written = Vec::new();
    for layer in layers {
        let mut hashing = Hashing {
            inner: BufWriter::new(&mut file),
            hash: Sha256::new(),
            length: 0,
        };
        layer.write(&mut hashing)?;
        hashing.flush()?;
        written.push(WrittenLayer {
            diff_id: hex(&hashing.hash.finalize()),
            length: hashing.length,
        });
    }
    file.seek(SeekFrom::Start(0))?;
    Ok((file, written))
}

fn image_config(layers: &[WrittenLayer], config: &ImageConfig) -> Result<Vec<u8>> {
    let diff_ids: Vec<String> = layers
        .iter()
        .map(|layer| format!("sha256:{}", layer.diff_id))
        .collect();
    let history: Vec<_> = layers
        .iter()
        .map(|_| json!({"created": "1970-01-01T00:00:00Z", "created_by": "trainyard"}))
        .collect();
    Ok(serde_json::to_vec(&json!({
        "architecture": architecture(),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Entrypoint": config.entrypoint,
            "Env": config.env,
            "User": config.user,
            "WorkingDir": config.workdir,
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": history,
    }))?)
}

fn write_archive(to: &Unfinished, reference: &str, layers: &[Layer], config: &ImageConfig) -> Result<()> {
    let (mut file, layers) = write_layers(&to.layers, layers)?;
    let image = image_config(&layers, config)?;
    let config_name = format!("{}.json", hex(&Sha256::digest(&image)));
    let layer_name = |layer: &WrittenLayer| format!("{}/layer.tar", layer.diff_id);
    let manifest = serde_json::to_vec(&json!([{
        "Config": config_name,
        "RepoTags": [reference],
        "Layers": layers.iter().map(layer_name).collect::<Vec<_>>(),
    }]))?;

    let mut tar = Builder::new(BufWriter::new(File::create(&to.archive)?));
    for (name, content) in [(&config_name, &image), (&"manifest.json".to_owned(), &manifest)] {
        let mut header = header(0o644);
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, name, content.as_slice())?;
    }
    for layer in &layers {
        let mut header = header(0o644);
        header.set_size(layer.length);
        tar.append_data(&mut header, layer_name(layer), (&mut file).take(layer.length))?;
    }
    tar.into_inner()?.flush()?;
    Ok(())
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ImageConfig {
        ImageConfig {
            entrypoint: vec!["/trainyard".into()],
            user: "65532:65532".into(),
            workdir: "/".into(),
            ..ImageConfig::default()
        }
    }

    fn files(archive: &Path) -> BTreeMap<String, Vec<u8>> {
        let mut tar = tar::Archive::new(File::open(archive).unwrap());
        tar.entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                (entry.path().unwrap().display().to_string(), content)
            })
            .collect()
    }

    #[test]
    fn the_same_content_gives_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one.tar"), dir.path().join("two.tar"));
        let layer = Layer::new().bytes("/b", "b", 0o755).bytes("/etc/a", "a", 0o644);
        let other = Layer::new().bytes("/etc/a", "a", 0o644).bytes("b", "b", 0o755);
        docker_archive(&one, "example/one:1", &[layer], &config()).unwrap();
        docker_archive(&two, "example/one:1", &[other], &config()).unwrap();
        assert_eq!(fs::read(one).unwrap(), fs::read(two).unwrap());
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            2,
            "nothing unfinished is left"
        );
    }

    #[test]
    fn a_tree_is_readable_by_everybody_and_keeps_its_links() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::write(root.join("bin/tool"), "x").unwrap();
        fs::set_permissions(root.join("bin/tool"), fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink("tool", root.join("bin/alias")).unwrap();
        let archive = dir.path().join("image.tar");
        docker_archive(
            &archive,
            "example/tree:1",
            &[Layer::new().tree(&root).unwrap()],
            &config(),
        )
        .unwrap();

        let files = files(&archive);
        let layer = files
            .iter()
            .find(|(name, _)| name.ends_with("layer.tar"))
            .unwrap()
            .1;
        let mut tar = tar::Archive::new(layer.as_slice());
        let seen: Vec<_> = tar
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let link = entry.link_name().unwrap().map(|link| link.display().to_string());
                (
                    entry.path().unwrap().display().to_string(),
                    entry.header().mode().unwrap(),
                    link,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("bin".into(), 0o755, None),
                ("bin/alias".into(), 0o777, Some("tool".into())),
                ("bin/tool".into(), 0o755, None)
            ]
        );
    }

    #[test]
    fn the_manifest_names_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let archive = dir.path().join("image.tar");
        docker_archive(
            &archive,
            "example/one:1",
            &["a", "b"].map(|name| Layer::new().bytes(name, name, 0o644)),
            &config(),
        )
        .unwrap();
        let files = files(&archive);
        let manifest: serde_json::Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], "example/one:1");
        let image: serde_json::Value =
            serde_json::from_slice(&files[manifest[0]["Config"].as_str().unwrap()]).unwrap();
        for (number, name) in ["a", "b"].into_iter().enumerate() {
            let layer = &files[manifest[0]["Layers"][number].as_str().unwrap()];
            let expected = format!("sha256:{}", hex(&Sha256::digest(layer)));
            assert_eq!(image["rootfs"]["diff_ids"][number], expected);
            let mut tar = tar::Archive::new(layer.as_slice());
            let entry = tar.entries().unwrap().next().unwrap().unwrap();
            assert_eq!(entry.path().unwrap(), Path::new(name));
        }
        assert_eq!(image["config"]["User"], "65532:65532");
    }

    #[test]
    fn a_reference_needs_a_tag() {
        let dir = tempfile::tempdir().unwrap();
        let archive = dir.path().join("image.tar");
        let refused = docker_archive(&archive, "localhost:5000/one", &[], &config());
        assert!(refused.unwrap_err().to_string().contains("no tag"));
    }
}
