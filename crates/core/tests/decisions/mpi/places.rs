//! Which places volumes of users may have beside what the operator mounts, and what is said of
//! others.

use super::*;

#[rstest]
#[case::our_directory(
    "/etc/mpi/",
    "launcher",
    0,
    "/etc/mpi is where the operator puts what MPI needs: mount the volume somewhere else"
)]
#[case::in_other_words(
    "etc//x/.././mpi",
    "launcher",
    0,
    "/etc/mpi is where the operator puts what MPI needs: mount the volume somewhere else"
)]
#[case::inside_of_it(
    "/etc/mpi/x",
    "worker",
    1,
    "/etc/mpi is where the operator puts what MPI needs: mount the volume somewhere else"
)]
#[case::the_identity(
    "/var/run/trainyard-identity",
    "worker",
    1,
    "/var/run/trainyard-identity is where the operator puts what MPI needs: mount the volume somewhere else"
)]
#[case::the_identity_where_the_link_leads(
    "/run/trainyard-identity/x",
    "worker",
    1,
    "/var/run/trainyard-identity is where the operator puts what MPI needs: mount the volume somewhere else"
)]
#[case::around_a_host_file(
    "/job",
    "launcher",
    0,
    "the host file /job/lists/hosts (spec.framework.mpi.hostFiles[0]) would be inside of the volume, which may hide it or have \
     no place for it: mount the volume somewhere else, or give the file another path"
)]
#[case::beside_a_host_file(
    "/job/lists/more",
    "launcher",
    0,
    "the host file /job/lists/hosts (spec.framework.mpi.hostFiles[0]) would be in the same place: mount the volume somewhere else, or give the file another path"
)]
fn volumes_keep_out_of_the_way(
    #[case] path: &str,
    #[case] role: &str,
    #[case] position: usize,
    #[case] said: &str,
) {
    let job = mpi("hostFiles: [{path: /job/lists/hosts, format: MPICH}]", 1);
    let job = with_pod(job, role, |pod| {
        pod.volumes = Some(serde_saphyr::from_str("[{name: data, emptyDir: {}}]").unwrap());
        let mounts = format!("[{{name: data, mountPath: {path}}}]");
        pod.containers[0].volume_mounts = Some(serde_saphyr::from_str(&mounts).unwrap());
    });
    let at = format!("spec.roles[{position}].template.spec.containers[0].volumeMounts[0].mountPath");
    assert_eq!(errors(&job), [format!("{at}: {said}")]);
}

/// A job with a volume in one of its containers: the main one, one beside it or one before it.
fn with_volume(job: TrainingJob, role: &str, container: &str, path: &str) -> TrainingJob {
    with_pod(job, role, |pod| {
        pod.volumes = Some(serde_saphyr::from_str("[{name: data, emptyDir: {}}]").unwrap());
        let beside = serde_saphyr::from_str("{name: beside, image: i}").unwrap();
        let before = serde_saphyr::from_str("{name: before, image: i}").unwrap();
        pod.containers.push(beside);
        pod.init_containers = Some(vec![before]);
        let all = pod
            .init_containers
            .iter_mut()
            .flatten()
            .chain(&mut pod.containers);
        for container in all.filter(|found| found.name == container) {
            let mounts = format!("[{{name: data, mountPath: {path}}}]");
            container.volume_mounts = Some(serde_saphyr::from_str(&mounts).unwrap());
        }
    })
}

/// Who has something of ours has no volume in its place, below it or above it.
#[rstest]
#[case::above_the_agent("", "launcher", "/etc", "main beside before")]
#[case::the_whole_container("", "worker", "/", "main beside before")]
#[case::the_agent("", "worker", "/etc/mpi", "main beside before")]
#[case::no_agent("attach: Ssh", "worker", "/etc/mpi", "")]
#[case::the_agent_of_a_launcher("attach: Ssh", "launcher", "/etc/mpi", "main beside before")]
#[case::above_the_identity("", "worker", "/var/run", "main")]
#[case::above_where_the_link_leads("", "worker", "/run", "main")]
#[case::above_the_link("", "worker", "/var", "main")]
#[case::the_identity_where_the_link_leads("", "worker", "/run/trainyard-identity", "main")]
#[case::beside_the_identity("", "worker", "/run/trainyard-identity-of-mine", "")]
#[case::no_such_link("", "worker", "/var/run2/trainyard-identity", "")]
#[case::the_key_where_the_link_leads(
    "attach: Ssh, sshAuthMountPath: /run/keys",
    "worker",
    "/var/run/keys/x",
    "main"
)]
#[case::the_token("attach: Exec", "launcher", "/var/run", "main")]
#[case::no_token("attach: Exec", "worker", "/var/run/trainyard-identity", "")]
#[case::above_the_key("attach: Ssh", "worker", "/root", "main")]
#[case::below_the_key(
    "attach: Ssh, sshAuthMountPath: /home/me/.ssh",
    "worker",
    "/home/me/.ssh/x",
    "main"
)]
#[case::beside_the_key("attach: Ssh, sshAuthMountPath: /home/me/.ssh", "worker", "/root/.ssh", "")]
#[case::a_host_file(
    "hostFiles: [{path: /job/x, format: MPICH}]",
    "launcher",
    "/job",
    "main beside before"
)]
#[case::ours_as_well("hostFiles: [{path: /etc/mpi/x, format: MPICH}]", "launcher", "/etc/mp", "")]
fn volumes_hide_nothing(#[case] options: &str, #[case] role: &str, #[case] path: &str, #[case] who: &str) {
    for container in ["main", "beside", "before"] {
        let said = errors(&with_volume(mpi(options, 1), role, container, path));
        let is_refused = who.split(' ').any(|name| name == container);
        assert_eq!(said.len(), usize::from(is_refused), "{container}: {said:?}");
        let position = usize::from(role == "worker");
        let at = match container {
            "before" => "initContainers[0]",
            "beside" => "containers[1]",
            _ => "containers[0]",
        };
        let at = format!("spec.roles[{position}].template.spec.{at}.volumeMounts[0].mountPath: ");
        assert!(said.iter().all(|said| said.starts_with(&at)), "{said:?}");
    }
}

/// What is above ours is mounted before it by the runtimes that are known, and hides nothing there.
/// But ours needs a place in it, which a volume that is read-only does not have; and no rule says
/// in which order a runtime mounts.
#[test]
fn what_would_be_inside_of_a_volume_is_named() {
    let job = with_volume(mpi("", 1), "launcher", "main", "/etc/");
    assert_eq!(
        errors(&job),
        [
            "spec.roles[0].template.spec.containers[0].volumeMounts[0].mountPath: /etc/mpi, which is where the operator puts \
             what MPI needs, would be inside of the volume, which may hide it or have no place for it: mount the volume somewhere \
             else"
        ]
    );
}

const IN_PLACE: &str = " is where programs report their progress";
const AROUND: &str = ", which is where programs report their progress, would be inside of the volume, which may hide it or have no \
                      place for it";

/// Main containers find the file for their progress in a volume.
#[rstest]
#[case("/var/run/trainyard-progress", IN_PLACE)]
#[case("/var/run/trainyard-progress/mine", IN_PLACE)]
#[case("/run/trainyard-progress/mine", IN_PLACE)]
#[case("/var", AROUND)]
#[case("/run", AROUND)]
fn volumes_keep_clear_of_the_progress(#[case] path: &str, #[case] taken: &str) {
    let custom = crate::jobs::custom(&[("worker", 1)]);
    let job = with_volume(custom, "worker", "main", path);
    assert_eq!(errors(&job), [""; 0], "it reports nothing");
    let reports = |job: TrainingJob| job.spec(|spec| spec.progress = Some(ProgressPolicy::Report));
    let said = format!(
        "spec.roles[0].template.spec.containers[0].volumeMounts[0].mountPath: /var/run/trainyard-progress{taken}: mount the \
         volume somewhere else, or leave spec.progress out"
    );
    assert_eq!(errors(&reports(job)), [said]);
    for other in ["beside", "before"] {
        let custom = crate::jobs::custom(&[("worker", 1)]);
        assert_eq!(
            errors(&reports(with_volume(custom, "worker", other, path))),
            [""; 0]
        );
    }
}

#[rstest]
#[case(
    "hostFiles: [{path: /var/run/trainyard-progress/hosts, format: MPICH}]",
    "hostFiles[0].path"
)]
#[case(
    "hostFiles: [{path: /run/trainyard-progress/hosts, format: MPICH}]",
    "hostFiles[0].path"
)]
#[case(
    "attach: Ssh, sshAuthMountPath: /var/run/trainyard-progress",
    "sshAuthMountPath"
)]
#[case("attach: Ssh, sshAuthMountPath: /run/trainyard-progress", "sshAuthMountPath")]
fn nothing_else_of_ours_is_where_the_progress_is(#[case] options: &str, #[case] field: &str) {
    let job = mpi(options, 1);
    assert_eq!(errors(&job), [""; 0], "it reports nothing");
    let job = job.spec(|spec| spec.progress = Some(ProgressPolicy::Report));
    assert_eq!(
        errors(&job),
        [format!(
            "spec.framework.mpi.{field}: /var/run/trainyard-progress is where programs report their progress: give another \
             directory, or leave spec.progress out"
        )]
    );
}

#[test]
fn workers_have_no_host_files() {
    let job = mpi("hostFiles: [{path: /job/hosts, format: MPICH}]", 1);
    let job = with_pod(job, "worker", |pod| {
        pod.volumes = Some(serde_saphyr::from_str("[{name: data, emptyDir: {}}]").unwrap());
        pod.containers[0].volume_mounts = Some(
            serde_saphyr::from_str("[{name: data, mountPath: /job}, {name: data, mountPath: /etc/mpi2}]")
                .unwrap(),
        );
    });
    assert_eq!(errors(&job), [""; 0]);
}
