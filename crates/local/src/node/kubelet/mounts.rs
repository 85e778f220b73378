//! Mounts of containers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::sub_path::{self, SubPathError};
use super::volumes::Error;
use crate::node::runtime::Mount;

/// The prefix of volumes that the API adds.
pub(super) const AUTOMATIC: &str = "kube-api-access-";

/// The mounts of a container, given the directories of its volumes.
pub fn of(
    pod: &Pod,
    container: &Container,
    volumes: &BTreeMap<String, PathBuf>,
    env: &[(String, String)],
) -> Result<Vec<Mount>, Error> {
    let mut made = Vec::new();
    // Volumes that the kubelet refreshes are read-only.
    let is_kept = |name: &str| {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        volumes.filter(|volume| volume.name == name).any(|volume| {
            volume.config_map.is_some()
                || volume.secret.is_some()
                || volume.downward_api.is_some()
                || volume.projected.is_some()
        })
    };
    let is_of_host = |name: &str| {
        let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        volumes.any(|volume| volume.name == name && volume.host_path.is_some())
    };
    for mount in container.volume_mounts.iter().flatten() {
        let Some(volume) = volumes.get(&mount.name) else {
            return Err(Error::Unknown(mount.name.clone()));
        };
        let sub = match (&mount.sub_path, &mount.sub_path_expr) {
            (Some(path), _) => path.clone(),
            (None, Some(expression)) => super::env::expand(expression, env),
            (None, None) => String::new(),
        };
        let mut source = volume.clone();
        if !sub.is_empty() {
            source = sub_path::find(volume, Path::new(&sub)).map_err(|refusal| match refusal {
                SubPathError::Outside => Error::Outside {
                    volume: mount.name.clone(),
                    sub_path: sub.clone(),
                },
                SubPathError::Io(source) => Error::Io {
                    volume: mount.name.clone(),
                    path: volume.join(&sub),
                    source,
                },
            })?;
        }
        made.push(Mount {
            source,
            is_resolved: !sub.is_empty() || is_of_host(&mount.name),
            target: PathBuf::from(&mount.mount_path),
            read_only: mount.read_only == Some(true) || is_kept(&mount.name),
            // It is automatic: a container starts without it where the user may not create the
            // mount point.
            optional: mount.name.starts_with(AUTOMATIC),
        });
    }
    Ok(made)
}
