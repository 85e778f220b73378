//! What pods must not reach.

use std::path::Path;

use super::cluster::Cluster;
use super::pods::once;

pub async fn root_directory(cluster: Cluster) {
    let script = "pwd; echo x > /trainyard-wrote-this; cat /trainyard-wrote-this; \
                  for d in /dev/kmsg /dev/mem /dev/loop-control; do test ! -e $d || echo sees $d; done; \
                  grep -q '^sysfs /sys sysfs ro' /proc/mounts || echo can write to /sys";
    cluster.create("pod", once(script)).await;
    cluster.until_phase("pod", "Succeeded").await;
    let wrote = Path::new("/trainyard-wrote-this");
    let is_written = wrote.exists();
    drop(std::fs::remove_file(wrote));
    assert!(!is_written, "the pod has written to the machine");
    assert_eq!(cluster.log("pod").await, "/\nx\n");
}
