//! Files and directories that a framework gives main containers.
//!
//! A file is an annotation of its pod, which the kubelet mounts: it needs no object of its own, is
//! there before the pod is, and goes with it.

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, DownwardAPIVolumeSource, ObjectFieldSelector, Volume, VolumeMount,
};

use crate::job::{Directory, File};

/// What names of annotations begin with, before the position of the file.
const ANNOTATION: &str = "trainyard.dev/file-";
/// The volume with all files.
const FILES: &str = "trainyard-files";

/// Mounts files and directories into a container. Returns the volumes and annotations that the pod
/// needs for it.
pub(crate) fn add(
    main: &mut Container,
    files: &[File],
    directories: Vec<Directory>,
) -> (Vec<Volume>, Vec<(String, String)>) {
    let (mut volumes, mut annotations, mut items) = (Vec::new(), Vec::new(), Vec::new());
    for (position, file) in files.iter().enumerate() {
        let annotation = format!("{ANNOTATION}{position}");
        items.push(item(position, &annotation));
        annotations.push((annotation, file.content.clone()));
        mount(main, FILES, &file.path, Some(position.to_string()));
    }
    if !items.is_empty() {
        volumes.push(Volume {
            name: FILES.to_owned(),
            downward_api: Some(DownwardAPIVolumeSource {
                items: Some(items),
                default_mode: None,
            }),
            ..Volume::default()
        });
    }
    for (position, directory) in directories.into_iter().enumerate() {
        let name = format!("trainyard-directory-{position}");
        mount(main, &name, &directory.path, None);
        volumes.push(Volume {
            name,
            ..directory.volume
        });
    }
    (volumes, annotations)
}

fn item(position: usize, annotation: &str) -> DownwardAPIVolumeFile {
    DownwardAPIVolumeFile {
        path: position.to_string(),
        field_ref: Some(ObjectFieldSelector {
            api_version: None,
            field_path: format!("metadata.annotations['{annotation}']"),
        }),
        ..DownwardAPIVolumeFile::default()
    }
}

/// A file is mounted alone, so that what else its directory has is seen.
fn mount(main: &mut Container, volume: &str, path: &str, file: Option<String>) {
    main.volume_mounts.get_or_insert_default().push(VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: file.is_some().then_some(true),
        sub_path: file,
        ..VolumeMount::default()
    });
}
