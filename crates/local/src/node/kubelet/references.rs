//! What a pod refers to.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

/// Names of ConfigMaps and Secrets.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct References {
    /// ConfigMaps.
    pub config_maps: BTreeSet<String>,
    /// Secrets.
    pub secrets: BTreeSet<String>,
}

/// All that a pod refers to, in environments and volumes.
pub fn of(pod: &Pod) -> References {
    let mut found = References::default();
    let Some(spec) = &pod.spec else { return found };
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        for source in container
            .env
            .iter()
            .flatten()
            .filter_map(|variable| variable.value_from.as_ref())
        {
            found
                .config_maps
                .extend(source.config_map_key_ref.iter().map(|key| key.name.clone()));
            found
                .secrets
                .extend(source.secret_key_ref.iter().map(|key| key.name.clone()));
        }
        for source in container.env_from.iter().flatten() {
            found
                .config_maps
                .extend(source.config_map_ref.iter().map(|from| from.name.clone()));
            found
                .secrets
                .extend(source.secret_ref.iter().map(|from| from.name.clone()));
        }
    }
    for volume in spec.volumes.iter().flatten() {
        found
            .config_maps
            .extend(volume.config_map.iter().map(|from| from.name.clone()));
        found
            .secrets
            .extend(volume.secret.iter().filter_map(|from| from.secret_name.clone()));
        for source in volume
            .projected
            .iter()
            .flat_map(|projected| projected.sources.iter().flatten())
        {
            found
                .config_maps
                .extend(source.config_map.iter().map(|from| from.name.clone()));
            found
                .secrets
                .extend(source.secret.iter().map(|from| from.name.clone()));
        }
    }
    found
}
