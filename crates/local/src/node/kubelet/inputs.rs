//! The files, variables and volumes of containers.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Volume};
use kube::Api;
use tokio::time::sleep;

use super::env::Configuration;
use super::mounts::AUTOMATIC;
use super::progress::ProgressFile;
use super::tokens::{self, Tokens};
use super::volumes::{self, VolumeDirectories};
use super::worker::PodWorker;
use crate::node::names;
use crate::node::runtime::Mount;

const VOLUME_REFRESH_INTERVAL: Duration = Duration::from_millis(500);
/// For the automatic volume: only its token changes, which lasts for an hour.
const TOKEN_REFRESH_INTERVAL: Duration = Duration::from_mins(1);

impl PodWorker {
    /// Refreshes the volumes while the pod runs.
    pub(super) async fn refresh_volumes(&self) {
        let pod = self.pod();
        let changes = |volume: &Volume| {
            volume.config_map.is_some()
                || volume.secret.is_some()
                || volume.downward_api.is_some()
                || volume.projected.is_some()
        };
        let volumes = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.volumes.clone())
            .unwrap_or_default();
        if !volumes.iter().any(changes) {
            return;
        }
        let asked_for = |volume: &Volume| !volume.name.starts_with(AUTOMATIC);
        let pause = if volumes.iter().any(|volume| changes(volume) && asked_for(volume)) {
            VOLUME_REFRESH_INTERVAL
        } else {
            TOKEN_REFRESH_INTERVAL
        };
        loop {
            sleep(pause).await;
            if let Err(error) = self.volumes().await {
                tracing::debug!(pod = self.description(), %error, "a volume was not brought up to date");
            }
        }
    }

    /// The directories of the mounted volumes, refreshed.
    pub(super) async fn volumes(&self) -> Result<BTreeMap<String, PathBuf>, volumes::Error> {
        self.volumes_from(self.configuration().await).await
    }

    /// The same, from this configuration.
    pub(super) async fn volumes_from(
        &self,
        mut configuration: Configuration,
    ) -> Result<BTreeMap<String, PathBuf>, volumes::Error> {
        configuration.tokens = self.tokens().await;
        let pod = self.pod_with_addresses();
        let directories = VolumeDirectories {
            pod: self.directory.join(volumes::VOLUMES),
            claims: self.shared.options.claims_directory.clone(),
            host_paths: self.shared.options.host_paths.clone(),
        };
        let volumes = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.volumes.as_deref())
            .unwrap_or_default();
        let mounted = volumes.iter().filter(|volume| is_mounted(&pod, &volume.name));
        let made = mounted.map(|volume| {
            let path = volumes::make(volume, &pod, &configuration, &directories)?;
            Ok((volume.name.clone(), path))
        });
        made.collect()
    }

    async fn tokens(&self) -> Tokens {
        let pod = self.pod();
        let mut issued_tokens = Tokens::new();
        for wanted in tokens::of(&pod) {
            let kept = self.tokens.lock().get(&wanted).cloned();
            let now = self.shared.environment.now();
            let token = match kept {
                Some(kept) if !kept.is_due(now) => Ok(kept.token),
                kept => match tokens::request(self.shared.client.clone(), &pod, &wanted, now).await {
                    Ok(issued) => {
                        let token = issued.token.clone();
                        self.tokens.lock().insert(wanted.clone(), issued);
                        Ok(token)
                    }
                    // The current token is still valid for a while.
                    Err(error) => kept
                        .filter(|kept| now < kept.until)
                        .map(|kept| kept.token)
                        .ok_or_else(|| format!("failed to fetch token: {error}")),
                },
            };
            issued_tokens.insert(wanted, token);
        }
        issued_tokens
    }

    /// The existing ConfigMaps and Secrets that the pod refers to.
    pub(super) async fn configuration(&self) -> Configuration {
        let pod = self.pod();
        let wanted = super::references::of(&pod);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let client = &self.shared.client;
        let mut configuration = Configuration::default();
        let config_maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        for name in wanted.config_maps {
            if let Ok(Some(found)) = config_maps.get_opt(&name).await {
                configuration.config_maps.insert(name, found);
            }
        }
        let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
        for name in wanted.secrets {
            if let Ok(Some(found)) = secrets.get_opt(&name).await {
                configuration.secrets.insert(name, found);
            }
        }
        configuration
    }

    pub(super) fn system_files(&self) -> Vec<Mount> {
        let Some(sandbox) = self.sandbox() else {
            return Vec::new();
        };
        let place = self.directory.join("etc");
        drop(fs::create_dir_all(&place));
        let has_names = self.shared.has_names();
        let files = names::files(&self.pod(), sandbox.address(), has_names);
        let written = files.into_iter().filter_map(|(name, content)| {
            let source = place.join(name);
            fs::write(&source, content).ok()?;
            Some(Mount {
                source,
                target: PathBuf::from("/etc").join(name),
                ..Mount::default()
            })
        });
        let progress = self.progress.as_ref().and_then(ProgressFile::mount);
        written.chain(progress).collect()
    }

    /// The variables that a runtime sets where the container does not.
    pub(super) fn runtime_environment(&self, image: Option<&PathBuf>) -> Vec<(String, String)> {
        let mut path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
        let home = std::env::var("HOME").unwrap_or_else(|_| "/root".to_owned());
        let mut made = vec![
            ("HOSTNAME".to_owned(), names::hostname(&self.pod())),
            ("HOME".to_owned(), home),
        ];
        if let Some(environment) = image.filter(|image| image.join("pyvenv.cfg").exists()) {
            path = format!("{}:{path}", environment.join("bin").display());
            made.push(("VIRTUAL_ENV".to_owned(), environment.display().to_string()));
        }
        made.insert(0, ("PATH".to_owned(), path));
        let has_own_files = self.shared.runtime.has_own_files();
        made.extend(
            self.progress
                .as_ref()
                .and_then(|progress| progress.variable(has_own_files)),
        );
        made
    }
}

/// Whether a container mounts the volume.
fn is_mounted(pod: &Pod, volume: &str) -> bool {
    let spec = pod.spec.as_ref();
    let containers = spec
        .into_iter()
        .flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let mut mounts = containers.flat_map(|container| container.volume_mounts.iter().flatten());
    mounts.any(|mount| mount.name == volume)
}
