//! The volumes of a pod, as directories.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMapProjection, DownwardAPIVolumeFile, HostPathVolumeSource, KeyToPath, Pod, SecretProjection,
    Volume, VolumeProjection,
};

use super::env::{Configuration, Missing};
use super::fields;
use super::files::{self, Files};
use super::ownership::{self, Use};
use super::sub_path::{self, SubPathError};
use super::tokens::{self, Access, TokenSpec};

/// Where the volumes of a pod are, in its directory.
pub const VOLUMES: &str = "volumes";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One of its sources does not exist (yet).
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : {missing}")]
    Missing {
        volume: String,
        /// What.
        missing: Missing,
    },
    #[error("could not make volume \"{volume}\" at {path}: {source}")]
    Io {
        volume: String,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    #[error(
        "subPath \"{sub_path}\" of volume \"{volume}\" leads out of the volume through a symbolic link; remove the link, \
         or mount what it leads to as a volume of its own"
    )]
    Outside { volume: String, sub_path: String },
    #[error(
        "hostPath {} of volume \"{volume}\" leads out of {}, which is all that the job may mount; remove the link, or add \
         --allow-host-path if it may", path.display(), root.display()
    )]
    HostPath {
        volume: String,
        path: PathBuf,
        root: PathBuf,
    },
    #[error(
        "volume \"{0}\" is of a kind that the embedded cluster does not have; it has emptyDir, configMap, secret, \
         downwardAPI, projected, hostPath and persistentVolumeClaim"
    )]
    Unknown(String),
}

#[derive(Clone, Debug)]
pub struct VolumeDirectories {
    pub pod: PathBuf,
    pub claims: PathBuf,
    /// Where `hostPath` volumes must be; `None` if they may be anywhere.
    pub host_paths: Option<PathBuf>,
}

/// Creates or refreshes a volume. Returns its directory.
pub fn make(
    volume: &Volume,
    pod: &Pod,
    configuration: &Configuration,
    directories: &VolumeDirectories,
) -> Result<PathBuf, Error> {
    let path = directories.pod.join(&volume.name);
    let io = |source| Error::Io {
        volume: volume.name.clone(),
        path: path.clone(),
        source,
    };
    let group = ownership::group(pod);
    if let Some(host) = &volume.host_path {
        return host_path(&volume.name, host, directories.host_paths.as_deref());
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let path = directories.claims.join(namespace).join(&claim.claim_name);
        fs::create_dir_all(&path).map_err(io)?;
        // Once is enough: the volume may be large, and this is called often.
        let group =
            group.filter(|group| claim.read_only != Some(true) && !ownership::is_shared(&path, *group));
        if let Some(group) = group {
            ownership::share(&path, group, Use::Write).map_err(io)?;
        }
        return Ok(path);
    }
    if volume.empty_dir.is_some() || is_nothing(volume) {
        if path.is_dir() {
            return Ok(path);
        }
        fs::create_dir_all(&path).map_err(io)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).map_err(io)?;
        if let Some(group) = group {
            ownership::share(&path, group, Use::Write).map_err(io)?;
        }
        return Ok(path);
    }
    let missing = |missing| Error::Missing {
        volume: volume.name.clone(),
        missing,
    };
    let mut files = Files::new();
    for source in projections(volume).ok_or_else(|| Error::Unknown(volume.name.clone()))? {
        project(&source.0, source.1, pod, configuration, &mut files).map_err(missing)?;
    }
    files::write(&path, &files, group).map_err(io)?;
    Ok(path)
}

/// A file or directory of this machine, without symbolic links. Pods that run may have made some
/// since the job was checked.
fn host_path(volume: &str, host: &HostPathVolumeSource, root: Option<&Path>) -> Result<PathBuf, Error> {
    let path = Path::new(&host.path);
    let io = |source| Error::Io {
        volume: volume.to_owned(),
        path: path.to_owned(),
        source,
    };
    let is_made = host.type_.as_deref() == Some("DirectoryOrCreate");
    let Some(root) = root else {
        if is_made {
            fs::create_dir_all(path).map_err(io)?;
        }
        // What is not there can't be mounted, and the container says so.
        return Ok(path.canonicalize().unwrap_or_else(|_| path.to_owned()));
    };
    let missing = if is_made {
        sub_path::Missing::Make
    } else {
        sub_path::Missing::Refuse
    };
    sub_path::find_within(root, path, missing).map_err(|refusal| match refusal {
        SubPathError::Outside => Error::HostPath {
            volume: volume.to_owned(),
            path: path.to_owned(),
            root: root.to_owned(),
        },
        SubPathError::Io(source) => io(source),
    })
}

/// A volume without a source is an empty directory.
fn is_nothing(volume: &Volume) -> bool {
    let bare = Volume {
        name: volume.name.clone(),
        ..Volume::default()
    };
    *volume == bare
}

/// Every type of volume with files, as projections with their default mode.
fn projections(volume: &Volume) -> Option<Vec<(VolumeProjection, u32)>> {
    const DEFAULT: i32 = 0o644;
    let mode = |mode: Option<i32>| u32::try_from(mode.unwrap_or(DEFAULT)).unwrap_or(0o644);
    let mut projection = VolumeProjection::default();
    let mode = if let Some(source) = &volume.config_map {
        projection.config_map = Some(ConfigMapProjection {
            name: source.name.clone(),
            items: source.items.clone(),
            optional: source.optional,
        });
        mode(source.default_mode)
    } else if let Some(source) = &volume.secret {
        projection.secret = Some(SecretProjection {
            name: source.secret_name.clone().unwrap_or_default(),
            items: source.items.clone(),
            optional: source.optional,
        });
        mode(source.default_mode)
    } else if let Some(source) = &volume.downward_api {
        projection.downward_api = Some(k8s_openapi::api::core::v1::DownwardAPIProjection {
            items: source.items.clone(),
        });
        mode(source.default_mode)
    } else if let Some(source) = &volume.projected {
        let mode = mode(source.default_mode);
        return Some(
            source
                .sources
                .iter()
                .flatten()
                .map(|source| (source.clone(), mode))
                .collect(),
        );
    } else {
        return None;
    };
    Some(vec![(projection, mode)])
}

fn project(
    source: &VolumeProjection,
    mode: u32,
    pod: &Pod,
    configuration: &Configuration,
    files: &mut Files,
) -> Result<(), Missing> {
    let of_map = source.config_map.as_ref().map(|from| Keyed {
        kind: "configmap",
        name: &from.name,
        data: configuration.config_maps.get(&from.name).map(|map| {
            let text = map.data.iter().flatten();
            let text = text.map(|(key, value)| (key.clone(), value.clone().into_bytes()));
            text.chain(bytes(map.binary_data.as_ref())).collect()
        }),
        items: from.items.as_deref(),
        optional: from.optional == Some(true),
    });
    let of_secret = source.secret.as_ref().map(|from| Keyed {
        kind: "secret",
        name: &from.name,
        data: configuration
            .secrets
            .get(&from.name)
            .map(|secret| bytes(secret.data.as_ref()).collect()),
        items: from.items.as_deref(),
        optional: from.optional == Some(true),
    });
    for keyed in [of_map, of_secret].into_iter().flatten() {
        keyed.project(mode, files)?;
    }
    for item in source
        .downward_api
        .iter()
        .flat_map(|api| api.items.iter().flatten())
    {
        let content = downward(pod, item)?;
        let mode = item
            .mode
            .and_then(|mode| u32::try_from(mode).ok())
            .unwrap_or(mode);
        files.insert(
            PathBuf::from(&item.path),
            (content.into_bytes(), Access::all(mode)),
        );
    }
    if let Some(token) = &source.service_account_token {
        let issued = configuration.tokens.get(&TokenSpec::of(token)).cloned();
        let issued = issued.unwrap_or_else(|| Err("failed to fetch token: it was not asked for".to_owned()));
        let content = issued.map_err(Missing)?;
        let file = (content.into_bytes(), tokens::access(pod, mode));
        files.insert(PathBuf::from(&token.path), file);
    }
    Ok(())
}

fn bytes(data: Option<&BTreeMap<String, ByteString>>) -> impl Iterator<Item = (String, Vec<u8>)> {
    data.into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.0.clone()))
}

/// The files of a ConfigMap or Secret.
struct Keyed<'a> {
    kind: &'static str,
    name: &'a str,
    /// None: the object does not exist.
    data: Option<BTreeMap<String, Vec<u8>>>,
    items: Option<&'a [KeyToPath]>,
    optional: bool,
}

impl Keyed<'_> {
    fn project(self, mode: u32, files: &mut Files) -> Result<(), Missing> {
        let Some(data) = self.data else {
            return if self.optional {
                Ok(())
            } else {
                Err(Missing(format!("{} \"{}\" not found", self.kind, self.name)))
            };
        };
        let Some(items) = self.items.filter(|items| !items.is_empty()) else {
            files.extend(
                data.into_iter()
                    .map(|(key, content)| (PathBuf::from(key), (content, Access::all(mode)))),
            );
            return Ok(());
        };
        for item in items {
            let mode = item
                .mode
                .and_then(|mode| u32::try_from(mode).ok())
                .unwrap_or(mode);
            match data.get(&item.key) {
                Some(content) => {
                    files.insert(PathBuf::from(&item.path), (content.clone(), Access::all(mode)));
                }
                None if self.optional => {}
                None => {
                    return Err(Missing(format!(
                        "references non-existent config key: {}",
                        item.key
                    )));
                }
            }
        }
        Ok(())
    }
}

fn downward(pod: &Pod, item: &DownwardAPIVolumeFile) -> Result<String, Missing> {
    if let Some(field) = &item.field_ref {
        let found = fields::of_pod(pod, &field.field_path);
        return found.ok_or_else(|| Missing(format!("unsupported fieldPath: {}", field.field_path)));
    }
    let Some(field) = &item.resource_field_ref else {
        return Ok(String::new());
    };
    let containers = pod
        .spec
        .as_ref()
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    let found = containers
        .first()
        .and_then(|first| fields::of_resources(pod, first, field));
    found.ok_or_else(|| Missing(format!("unsupported container resource: {}", field.resource)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_belongs_to_the_group_of_its_pod() {
        let place = tempfile::tempdir().unwrap();
        let claim = place.path().join("claims/default/data");
        fs::create_dir_all(&claim).unwrap();
        fs::write(claim.join("file"), "").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set(&claim, 0o700);
        set(&claim.join("file"), 0o600);
        let group = fs::metadata(&claim).unwrap().gid();
        let pod = json!({
            "metadata": {"namespace": "default"},
            "spec": {"containers": [], "securityContext": {"fsGroup": group}},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let directories = VolumeDirectories {
            pod: place.path().join("pod"),
            claims: place.path().join("claims"),
            host_paths: None,
        };
        let modes = |read_only: bool| {
            let volume =
                json!({"name": "v", "persistentVolumeClaim": {"claimName": "data", "readOnly": read_only}});
            let volume = serde_json::from_value(volume).unwrap();
            make(&volume, &pod, &Configuration::default(), &directories).unwrap();
            [&claim, &claim.join("file")].map(|path| fs::metadata(path).unwrap().mode() & 0o7777)
        };
        assert_eq!(modes(true), [0o700, 0o600]);
        assert_eq!(modes(false), [0o2770, 0o660]);
    }

    /// A job names what does not exist yet; its first pod makes that a link.
    #[test]
    fn no_pod_makes_a_host_path_lead_out_of_the_working_directory() {
        let place = tempfile::tempdir().unwrap();
        let (work, outside) = (place.path().join("work"), place.path().join("outside"));
        fs::create_dir_all(work.join("own")).unwrap();
        fs::create_dir(&outside).unwrap();
        symlink(&outside, work.join("out")).unwrap();
        symlink(outside.join("lost"), work.join("lost")).unwrap();
        symlink("own", work.join("link")).unwrap();
        symlink(&work, place.path().join("alias")).unwrap();
        let find = |path: PathBuf, kind: &str, host_paths: Option<&PathBuf>| {
            let volume = json!({"name": "v", "hostPath": {"path": path, "type": kind}});
            let directories = VolumeDirectories {
                pod: place.path().join("pod"),
                claims: place.path().join("claims"),
                host_paths: host_paths.cloned(),
            };
            let volume = serde_json::from_value(volume).unwrap();
            make(&volume, &Pod::default(), &Configuration::default(), &directories)
        };
        for path in ["out", "out/made", "lost", "lost/made", "a/../../outside"] {
            for kind in ["", "DirectoryOrCreate"] {
                let found = find(work.join(path), kind, Some(&work));
                assert!(matches!(found, Err(Error::HostPath { .. })), "{path}: {found:?}");
            }
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        let real = work.canonicalize().unwrap();
        let found = |path: &str| find(work.join(path), "DirectoryOrCreate", Some(&work)).unwrap();
        assert_eq!(found("link"), real.join("own"));
        assert_eq!(found("a/b"), real.join("a/b"));
        assert!(work.join("a/b").is_dir());
        let by_alias = find(place.path().join("alias/own"), "", Some(&work)).unwrap();
        assert_eq!(by_alias, real.join("own"));
        let missing = find(work.join("none"), "", Some(&work));
        assert!(matches!(missing, Err(Error::Io { .. })), "{missing:?}");
        // Who may mount anything may mount that.
        let allowed = find(work.join("out"), "", None).unwrap();
        assert_eq!(allowed, outside.canonicalize().unwrap());
    }
}
