//! ConfigMaps and Secrets that a pod refers to.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

/// Names of ConfigMaps and Secrets.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct References {
    pub config_maps: BTreeSet<String>,
    pub secrets: BTreeSet<String>,
}

/// What a pod refers to in environments and volumes.
pub fn of(pod: &Pod) -> References {
    let mut found = References::default();
    let Some(spec) = &pod.spec else { return found };
    let (maps, secrets) = (&mut found.config_maps, &mut found.secrets);
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        let variables = container.env.iter().flatten();
        for source in variables.filter_map(|variable| variable.value_from.as_ref()) {
            maps.extend(source.config_map_key_ref.iter().map(|key| key.name.clone()));
            secrets.extend(source.secret_key_ref.iter().map(|key| key.name.clone()));
        }
        for source in container.env_from.iter().flatten() {
            maps.extend(source.config_map_ref.iter().map(|from| from.name.clone()));
            secrets.extend(source.secret_ref.iter().map(|from| from.name.clone()));
        }
    }
    for volume in spec.volumes.iter().flatten() {
        maps.extend(volume.config_map.iter().map(|from| from.name.clone()));
        secrets.extend(volume.secret.iter().filter_map(|from| from.secret_name.clone()));
        for source in volume
            .projected
            .iter()
            .flat_map(|projected| projected.sources.iter().flatten())
        {
            maps.extend(source.config_map.iter().map(|from| from.name.clone()));
            secrets.extend(source.secret.iter().map(|from| from.name.clone()));
        }
    }
    found
}
