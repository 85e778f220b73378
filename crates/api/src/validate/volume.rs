//! The rules for the volumes of a pod.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Volume;

use super::at::At;
use super::{FieldError, object_name_problem, reserved, resources};

/// The names of the volumes, after a look at each.
pub(super) fn check<'a>(
    at: &At<'_>,
    volumes: &'a [Volume],
    errors: &mut Vec<FieldError>,
) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (i, volume) in volumes.iter().enumerate() {
        let at = at.index(i);
        if let Some(problem) = object_name_problem(&volume.name) {
            errors.push(at.field("name").error(format!("the volume's name {problem}")));
        } else if !seen.insert(volume.name.as_str()) {
            errors.push(at.field("name").error(format!(
                "there is a volume {:?} already: give each its own name",
                volume.name
            )));
        }
        reserved::check_name(&at, "volume", &volume.name, errors);
        if let Some(limit) = volume.empty_dir.as_ref().and_then(|dir| dir.size_limit.as_ref()) {
            resources::amount(&at.field("emptyDir").field("sizeLimit"), limit, errors);
        }
        // None at all is an emptyDir.
        let sources = sources(volume);
        if sources.len() > 1 {
            errors.push(at.error(format!(
                "may not specify more than 1 volume type, and this has {}: keep one of them, or make two volumes",
                sources.join(" and ")
            )));
        }
    }
    seen
}

/// What a volume is of, by the names of the fields.
fn sources(volume: &Volume) -> Vec<&'static str> {
    let all = [
        ("awsElasticBlockStore", volume.aws_elastic_block_store.is_some()),
        ("azureDisk", volume.azure_disk.is_some()),
        ("azureFile", volume.azure_file.is_some()),
        ("cephfs", volume.cephfs.is_some()),
        ("cinder", volume.cinder.is_some()),
        ("configMap", volume.config_map.is_some()),
        ("csi", volume.csi.is_some()),
        ("downwardAPI", volume.downward_api.is_some()),
        ("emptyDir", volume.empty_dir.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
        ("fc", volume.fc.is_some()),
        ("flexVolume", volume.flex_volume.is_some()),
        ("flocker", volume.flocker.is_some()),
        ("gcePersistentDisk", volume.gce_persistent_disk.is_some()),
        ("gitRepo", volume.git_repo.is_some()),
        ("glusterfs", volume.glusterfs.is_some()),
        ("hostPath", volume.host_path.is_some()),
        ("image", volume.image.is_some()),
        ("iscsi", volume.iscsi.is_some()),
        ("nfs", volume.nfs.is_some()),
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some()),
        ("photonPersistentDisk", volume.photon_persistent_disk.is_some()),
        ("portworxVolume", volume.portworx_volume.is_some()),
        ("projected", volume.projected.is_some()),
        ("quobyte", volume.quobyte.is_some()),
        ("rbd", volume.rbd.is_some()),
        ("scaleIO", volume.scale_io.is_some()),
        ("secret", volume.secret.is_some()),
        ("storageos", volume.storageos.is_some()),
        ("vsphereVolume", volume.vsphere_volume.is_some()),
    ];
    let given = all.into_iter().filter(|(_, given)| *given);
    given.map(|(name, _)| name).collect()
}
