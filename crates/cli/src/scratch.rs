//! Where the embedded cluster keeps its files.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;
use trainyard_local::cluster;

use crate::validate;

/// A directory of this user's, which nobody else can look into. It is made if it is not there.
pub fn directory() -> Result<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let cache = set("TRAINYARD_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("trainyard")))
        .or_else(|| Some(set("HOME")?.join(".cache/trainyard")))
        // Without a home, as in some containers.
        .unwrap_or_else(|| std::env::temp_dir().join("trainyard"));
    let directory = cluster::base_directory(&cache);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .with_context(|| {
            format!(
                "cannot keep files in {}: set TRAINYARD_CACHE to a directory that you may write to",
                directory.display()
            )
        })?;
    Ok(directory)
}

/// Where a job's logs and volumes are kept: beside those of earlier runs, which stay until the user removes them.
pub fn kept(job: &Value) -> Result<PathBuf> {
    let name = validate::text(job, "/metadata/name").unwrap_or("job");
    let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S");
    // Two runs may begin in the same second.
    let place = format!("{name}-{now}-{}", std::process::id());
    Ok(directory()?.join("kept").join(place))
}
