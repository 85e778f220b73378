//! Where a container has its volumes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::volumes::{Error, inside};
use crate::node::runtime::Mount;

/// How the names of volumes begin that the API adds by itself.
pub(super) const AUTOMATIC: &str = "kube-api-access-";

/// The mounts of a container, given where volumes are.
pub fn of(
    pod: &Pod,
    container: &Container,
    volumes: &BTreeMap<String, PathBuf>,
    env: &[(String, String)],
) -> Result<Vec<Mount>, Error> {
    let mut made = Vec::new();
    // What the kubelet keeps current is not the container's to change.
    let is_kept = |name: &str| {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        volumes.filter(|volume| volume.name == name).any(|volume| {
            volume.config_map.is_some()
                || volume.secret.is_some()
                || volume.downward_api.is_some()
                || volume.projected.is_some()
        })
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
            source = volume.join(inside(Path::new(&sub)));
            if !source.exists() {
                fs::create_dir_all(&source).map_err(|error| Error::Io {
                    volume: mount.name.clone(),
                    path: source.clone(),
                    source: error,
                })?;
            }
            // A link in the volume must not lead out of it.
            let real = source.canonicalize().unwrap_or_else(|_| source.clone());
            let root = volume.canonicalize().unwrap_or_else(|_| volume.clone());
            if !real.starts_with(&root) {
                return Err(Error::Unknown(mount.name.clone()));
            }
            source = real;
        }
        made.push(Mount {
            source,
            target: PathBuf::from(&mount.mount_path),
            read_only: mount.read_only == Some(true) || is_kept(&mount.name),
            // Nobody asked for it: it must not keep a container from starting where a user may not make its place.
            optional: mount.name.starts_with(AUTOMATIC),
        });
    }
    Ok(made)
}
