//! Busybox with a script as users of et-operator have it in their images, where its own samples
//! look for it.

use std::path::PathBuf;

use anyhow::Result;

use super::{
    GROUP, ImageConfig, Layer, NOBODY, PASSWD, SCALER, busybox_layer, docker_archive, image, unpacked,
};
use crate::cluster_programs::Programs;

/// Notes what it is called with. Any user may write there, whatever the machine has in `/tmp`.
const SCRIPT: &str = "#!/bin/sh\necho \"$* $TEST1 $TEST2 $TEST3\" >>/var/scaled/said\n";

/// The archive of [`SCALER`].
pub fn scaler() -> Result<PathBuf> {
    let busybox = PathBuf::from(Programs::ensure(true)?.debian("bin/busybox"));
    image("scaler", &["1", SCRIPT], |_, archive| {
        let layer = busybox_layer(&busybox, Layer::new())?
            .bytes("etc/passwd", PASSWD, 0o644)
            .bytes("etc/group", GROUP, 0o644)
            .bytes("usr/local/bin/scaler.sh", SCRIPT, 0o755)
            .directory("var/scaled", 0o777)
            .directory("tmp", 0o1777);
        let config = ImageConfig {
            entrypoint: Vec::new(),
            env: vec!["PATH=/usr/local/bin:/bin".to_owned(), "HOME=/tmp".to_owned()],
            user: NOBODY.to_owned(),
            workdir: "/tmp".to_owned(),
        };
        docker_archive(archive, SCALER, &[layer], &config)
    })
}

/// The files of [`SCALER`], to run it without an archive.
pub fn scaler_root() -> Result<PathBuf> {
    unpacked("scaler", &scaler()?)
}
