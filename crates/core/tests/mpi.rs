//! What the pods of MPI jobs look like, and which jobs are refused.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail tests")]

#[path = "common/jobs.rs"]
#[allow(dead_code, reason = "each suite uses its own part")]
mod jobs;

use std::collections::BTreeMap;

use jobs::{Change, mpi, with_agent, with_silent_agent, yaml};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use rstest::rstest;
use trainyard_api::{DependencyState, TrainingJob};
use trainyard_core::frameworks::Identity;
use trainyard_core::job::Job;
use trainyard_core::plan::PodKey;
use trainyard_core::view::Settings;
use trainyard_core::{admission, build};

const LAUNCHER: usize = 0;
const WORKER: usize = 1;

fn pod(job: &TrainingJob, role: usize) -> Pod {
    let job = Job::parse(job).unwrap();
    build::pod(&job, &with_agent(), PodKey { role, index: 0 }).unwrap()
}

fn main_of(job: &TrainingJob, role: usize) -> Container {
    pod(job, role).spec.unwrap().containers[0].clone()
}

/// Changes the pod of a role.
fn with_pod(job: TrainingJob, role: &str, change: impl FnOnce(&mut PodSpec)) -> TrainingJob {
    job.role(role, |role| change(role.template.spec.as_mut().unwrap()))
}

fn with_main(job: TrainingJob, role: &str, change: impl FnOnce(&mut Container)) -> TrainingJob {
    with_pod(job, role, |pod| change(&mut pod.containers[0]))
}

fn variable(container: &Container, name: &str) -> Option<String> {
    let found = container.env.iter().flatten().find(|var| var.name == name);
    found.map(|var| var.value.clone().unwrap_or_default())
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[rstest]
#[case::openmpi("OpenMPI")]
#[case::mpich("MPICH")]
#[case::intel("Intel")]
fn pods(#[case] implementation: &str) {
    let job = mpi(&format!("implementation: {implementation}, slotsPerWorker: 2"), 3);
    let pods = [LAUNCHER, WORKER].map(|role| serde_saphyr::to_string(&pod(&job, role)).unwrap());
    insta::assert_snapshot!(implementation, pods.join("---\n"));
}

#[test]
fn everything_at_once() {
    let job = yaml(
        "
metadata: {name: train}
spec:
  framework:
    name: mpi
    mpi:
      launcherAsWorker: true
      hostFiles:
      - {path: /job/hostfile, format: DeepSpeed}
      - {path: /etc/mpi/hosts.mpich, format: MPICH}
      - {path: /job/hosts, format: Intel}
      - {path: /opt/lists/hosts, format: OpenMPI}
  roles:
  - name: launcher
    container: main
    template:
      spec:
        securityContext: {runAsUser: 0}
        initContainers: [{name: data, image: example/data:1}]
        containers: [{name: log, image: example/log:1}, {name: main, image: example/ds:1, command: [deepspeed]}]
  - name: worker
    replicas: 2
    template:
      spec:
        containers:
        - name: main
          image: example/ds:1
          command: [watch]
          args: [everything]
          resources: {limits: {nvidia.com/gpu: 8}}
          readinessProbe: {exec: {command: [ready]}}
",
    );
    let pods = [LAUNCHER, WORKER].map(|role| serde_saphyr::to_string(&pod(&job, role)).unwrap());
    insta::assert_snapshot!(pods.join("---\n"));
}

#[rstest]
#[case::root("ssh", "")]
#[case::another_user(
    "ssh_of_another_user",
    ", sshAuthMountPath: /home/mpiuser/.ssh, implementation: Intel"
)]
fn pods_with_ssh(#[case] name: &str, #[case] options: &str) {
    let job = mpi(&format!("attach: Ssh{options}"), 2);
    let pods = [LAUNCHER, WORKER].map(|role| serde_saphyr::to_string(&pod(&job, role)).unwrap());
    insta::assert_snapshot!(name, pods.join("---\n"));
}

#[test]
fn the_program_of_a_worker_with_ssh_is_its_own_affair() {
    let server = Some(words(&["/usr/sbin/sshd", "-De"]));
    let cases = [
        (None, None, server),
        (None, Some(words(&["-p", "2222"])), None),
        (Some(words(&["sshd"])), None, Some(words(&["sshd"]))),
    ];
    for (command, args, becomes) in cases {
        let job = with_main(mpi("attach: Ssh", 1), "worker", |main| {
            (main.command, main.args) = (command, args.clone());
        });
        assert_eq!(errors(&job), [""; 0]);
        let main = main_of(&job, WORKER);
        assert_eq!((main.command, main.args), (becomes, args));
    }
}

#[rstest]
#[case::without_ssh("", "there is a key only with attach Ssh: remove this, or set attach to Ssh")]
#[case::relative(
    "attach: Ssh, ",
    "\"x/.ssh\" is no absolute path: begin it with '/', such as /job/hostfile"
)]
fn where_the_key_is_is_checked(#[case] options: &str, #[case] said: &str) {
    let job = mpi(&format!("{options}sshAuthMountPath: x/.ssh"), 1);
    assert_eq!(
        errors(&job),
        [format!("spec.framework.mpi.sshAuthMountPath: {said}")]
    );
}

/// Hosts are listed by names that only the cluster's DNS knows.
#[rstest]
#[case::of_the_node(Some(true), None, Some("ClusterFirstWithHostNet"))]
#[case::chosen(Some(true), Some("None"), Some("None"))]
#[case::of_its_own(None, None, None)]
fn pods_on_the_network_of_the_node_know_names(
    #[case] host_network: Option<bool>,
    #[case] given: Option<&str>,
    #[case] becomes: Option<&str>,
) {
    let job = with_pod(mpi("", 1), "launcher", |pod| {
        (pod.host_network, pod.dns_policy) = (host_network, given.map(str::to_owned));
    });
    let policy = pod(&job, LAUNCHER).spec.unwrap().dns_policy;
    assert_eq!(policy.as_deref(), becomes);
}

#[test]
fn secret() {
    let job = mpi("", 1);
    let job = Job::parse(&job).unwrap();
    let content = BTreeMap::from([("tls.key".to_owned(), ByteString(b"made elsewhere".to_vec()))]);
    insta::assert_yaml_snapshot!(build::secret(&job, Identity::Certificate, content));
}

#[rstest]
#[case::nothing(None, None, &["/etc/mpi/trainyard-agent", "serve"], None)]
#[case::empty_lists(Some(words(&[])), Some(words(&[])), &["/etc/mpi/trainyard-agent", "serve"], Some(words(&[])))]
#[case::a_command(Some(words(&["sleep", "1"])), None, &["/etc/mpi/trainyard-agent", "run", "--serve", "--", "sleep", "1"], None)]
#[case::both(Some(words(&["sh", "-c"])), Some(words(&["x"])), &["/etc/mpi/trainyard-agent", "run", "--serve", "--", "sh", "-c"], Some(words(&["x"])))]
fn a_worker_serves_whatever_its_command_is(
    #[case] command: Option<Vec<String>>,
    #[case] args: Option<Vec<String>>,
    #[case] becomes: &[&str],
    #[case] with: Option<Vec<String>>,
) {
    let job = with_main(mpi("", 1), "worker", |main| {
        (main.command, main.args) = (command, args);
    });
    let main = main_of(&job, WORKER);
    assert_eq!((main.command, main.args), (Some(words(becomes)), with));
}

#[test]
fn a_launcher_is_called_as_it_is() {
    let job = with_main(mpi("", 1), "launcher", |main| {
        (main.command, main.args) = (None, Some(words(&["x"])));
    });
    let main = main_of(&job, LAUNCHER);
    assert_eq!(
        (main.command, main.args, main.readiness_probe),
        (None, Some(words(&["x"])), None)
    );
}

#[rstest]
#[case::said("slotsPerWorker: 4", "nvidia.com/gpu", 4)]
#[case::by_accelerators("", "nvidia.com/gpu", 8)]
#[case::one("", "example.com/other", 1)]
fn slots_of_a_worker(#[case] options: &str, #[case] resource: &str, #[case] slots: i32) {
    let job = with_main(mpi(options, 2), "worker", |main| {
        let resources = format!("{{limits: {{{resource}: 8}}}}");
        main.resources = Some(serde_saphyr::from_str(&resources).unwrap());
    });
    let launcher = main_of(&job, LAUNCHER);
    assert_eq!(
        variable(&launcher, "OMPI_MCA_orte_set_default_slots"),
        Some(slots.to_string())
    );
}

#[rstest]
#[case::that_works("launcherAsWorker: true", "", None)]
#[case::that_has_its_own("", "nvidia.com/gpu: 1", None)]
#[case::that_only_launches("", "", Some(String::new()))]
fn devices_are_hidden_from_a_launcher(
    #[case] options: &str,
    #[case] limits: &str,
    #[case] visible: Option<String>,
) {
    let job = with_main(mpi(options, 1), "launcher", |main| {
        main.resources = Some(serde_saphyr::from_str(&format!("{{limits: {{{limits}}}}}")).unwrap());
    });
    let main = main_of(&job, LAUNCHER);
    assert_eq!(variable(&main, "NVIDIA_VISIBLE_DEVICES"), visible);
    assert_eq!(variable(&main, "NVIDIA_DRIVER_CAPABILITIES"), visible);
    assert_eq!(variable(&main_of(&job, WORKER), "NVIDIA_VISIBLE_DEVICES"), None);
}

#[test]
fn an_agent_that_nobody_tells_anything_is_installed_and_does_not_wait() {
    let job = mpi("", 1);
    let job = Job::parse(&job).unwrap();
    let key = PodKey {
        role: LAUNCHER,
        index: 0,
    };
    let pod = build::pod(&job, &with_silent_agent(), key).unwrap();
    let init = pod.spec.unwrap().init_containers.unwrap();
    assert_eq!(
        init.iter().map(|c| &*c.name).collect::<Vec<_>>(),
        ["trainyard-install"]
    );
    assert!(
        build::pod(&job, &Settings::default(), key).is_none(),
        "no half of a pod"
    );
}

fn errors(job: &TrainingJob) -> Vec<String> {
    let mut defaulted = job.clone();
    admission::default(&mut defaulted);
    let errors = |job: &TrainingJob| -> Vec<String> {
        let errors = admission::validate(None, job);
        errors.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        errors(job).is_empty(),
        errors(&defaulted).is_empty(),
        "also without the webhook"
    );
    errors(job)
}

#[test]
fn a_job_needs_both_roles_and_no_other() {
    let role = |name: &str, replicas: i32| {
        let container = "{name: m, image: i}";
        format!(
            "  - {{name: {name}, replicas: {replicas}, template: {{spec: {{containers: [{container}]}}}}}}\n"
        )
    };
    let job = |roles: &[(&str, i32)]| {
        let roles: String = roles
            .iter()
            .map(|(name, replicas)| role(name, *replicas))
            .collect();
        yaml(&format!(
            "metadata: {{name: j}}\nspec:\n  framework: {{name: mpi}}\n  roles:\n{roles}"
        ))
    };
    assert_eq!(errors(&job(&[("launcher", 1), ("worker", 1)])), [""; 0]);
    assert_eq!(
        errors(&job(&[("launcher", 1)])),
        ["spec.roles: mpi jobs need a role \"worker\": add it"]
    );
    assert_eq!(
        errors(&job(&[("worker", 1)])),
        ["spec.roles: mpi jobs need a role \"launcher\": add it"]
    );
    assert_eq!(
        errors(&job(&[("launcher", 2), ("worker", 1)])),
        ["spec.roles[0].replicas: mpi jobs have at most 1 \"launcher\" pod: set replicas to 1"]
    );
    assert_eq!(
        errors(&job(&[("launcher", 1), ("worker", 0)])),
        [
            "spec.roles[1].replicas: 0 pods: give at least 1, or remove the role; to stop a job, set spec.suspend"
        ]
    );
    assert_eq!(
        errors(&job(&[("launcher", 1), ("worker", 1), ("ps", 1)])),
        ["spec.roles[2].name: mpi has no role \"ps\": use launcher or worker"]
    );
}

#[rstest]
#[case::zero_slots(
    "slotsPerWorker: 0",
    "slotsPerWorker: 0 processes can't train: give at least 1, or leave it out"
)]
#[case::a_relative_path(
    "hostFiles: [{path: job/hosts, format: MPICH}]",
    "hostFiles[0].path: \"job/hosts\" is no absolute path: begin it with '/', such as /job/hostfile"
)]
#[case::a_way_out(
    "hostFiles: [{path: /job/../etc/passwd, format: MPICH}]",
    "hostFiles[0].path: \"/job/../etc/passwd\" has a step that is empty, '.' or '..': write the path of a file without them"
)]
#[case::a_directory(
    "hostFiles: [{path: /job/, format: MPICH}]",
    "hostFiles[0].path: \"/job/\" has a step that is empty, '.' or '..': write the path of a file without them"
)]
#[case::ours(
    "hostFiles: [{path: /etc/mpi/hostfile, format: MPICH}]",
    "hostFiles[0].path: /etc/mpi/hostfile is there already, made by the operator: give another path"
)]
#[case::the_shell(
    "hostFiles: [{path: /etc/mpi/kubexec.sh, format: MPICH}]",
    "hostFiles[0].path: /etc/mpi/kubexec.sh is there already, made by the operator: give another path"
)]
#[case::below_ours(
    "hostFiles: [{path: /etc/mpi/files/0/x, format: MPICH}]",
    "hostFiles[0].path: /etc/mpi has no directories for host files: put it into /etc/mpi itself, or elsewhere"
)]
#[case::twice(
    "hostFiles: [{path: /job/a, format: MPICH}, {path: /job/a, format: OpenMPI}]",
    "hostFiles[1].path: there is a host file /job/a already: give each its own path"
)]
#[case::one_in_the_other(
    "hostFiles: [{path: /job/a, format: MPICH}, {path: /job/b/c, format: OpenMPI}]",
    "hostFiles[1].path: /job/b and /job have host files, and one is inside of the other: use one directory, or two side by \
     side"
)]
#[case::a_directory_of_the_image(
    "hostFiles: [{path: /etc/hosts, format: MPICH}]",
    "hostFiles[0].path: the directory of host files replaces that of the image, which programs need: give a directory of its \
     own, such as /job/hosts"
)]
#[case::the_root(
    "hostFiles: [{path: /hosts, format: MPICH}]",
    "hostFiles[0].path: the directory of host files replaces that of the image, which programs need: give a directory of its \
     own, such as /job/hosts"
)]
#[case::over_the_identity(
    "hostFiles: [{path: /var/run/hosts, format: MPICH}]",
    "hostFiles[0].path: the directory of host files replaces that of the image, which programs need: give a directory of its \
     own, such as /job/hosts"
)]
fn options_are_checked(#[case] options: &str, #[case] said: &str) {
    assert_eq!(errors(&mpi(options, 1)), [format!("spec.framework.mpi.{said}")]);
}

#[test]
fn too_many_host_files_are_refused() {
    let files = (0..9)
        .map(|n| format!("{{path: /job/{n}, format: MPICH}}"))
        .collect::<Vec<_>>();
    let job = mpi(&format!("hostFiles: [{}]", files.join(", ")), 1);
    assert_eq!(
        errors(&job),
        ["spec.framework.mpi.hostFiles: at most 8 files are possible"]
    );
}

#[test]
fn options_belong_to_their_framework() {
    let mut job = mpi("", 1);
    job.spec.framework.pytorch = Some(trainyard_api::PytorchOptions::default());
    assert_eq!(
        errors(&job),
        ["spec.framework.pytorch: these are options of pytorch, but the framework is \"mpi\": remove them"]
    );
    job.spec.framework.name = "custom".to_owned();
    job.spec.framework.pytorch = None;
    assert_eq!(
        errors(&job),
        ["spec.framework.mpi: these are options of mpi, but the framework is \"custom\": remove them"]
    );
}

#[rstest]
#[case("OMPI_MCA_plm_rsh_agent")]
#[case("OMPI_MCA_orte_default_hostfile")]
#[case("OMPI_MCA_orte_keep_fqdn_hostnames")]
#[case("PRTE_MCA_plm_ssh_agent")]
#[case("PRTE_MCA_plm_rsh_agent")]
#[case("PRTE_MCA_prte_default_hostfile")]
#[case("PRTE_MCA_prte_keep_fqdn_hostnames")]
#[case("HYDRA_HOST_FILE")]
#[case("HYDRA_LAUNCHER")]
#[case("HYDRA_LAUNCHER_EXEC")]
#[case("I_MPI_HYDRA_HOST_FILE")]
#[case("I_MPI_HYDRA_BOOTSTRAP")]
#[case("I_MPI_HYDRA_BOOTSTRAP_EXEC")]
#[case("TRAINYARD_SHELL_PORT")]
#[case("TRAINYARD_IDENTITY")]
#[case("TRAINYARD_JOB")]
fn env_that_would_break_rendezvous_is_refused(#[case] name: &str) {
    let job = with_main(mpi("", 1), "worker", |main| {
        main.env = Some(
            serde_saphyr::from_str(&format!("[{{name: A, value: b}}, {{name: {name}, value: x}}]")).unwrap(),
        );
    });
    let said = format!(
        "spec.roles[1].template.spec.containers[0].env[1].name: {name} is set by the operator for mpi; another value would \
         keep the pods from finding each other: remove it"
    );
    assert_eq!(errors(&job), [said]);
}

#[test]
fn other_variables_are_the_users() {
    let job = with_main(mpi("", 1), "launcher", |main| {
        let env = "[{name: OMPI_MCA_orte_set_default_slots, value: \"9\"}, {name: OMPI_MCA_btl, value: tcp}]";
        main.env = Some(serde_saphyr::from_str(env).unwrap());
    });
    let main = main_of(&job, LAUNCHER);
    assert_eq!(
        variable(&main, "OMPI_MCA_orte_set_default_slots").as_deref(),
        Some("9")
    );
}

#[test]
fn args_alone_can_not_be_wrapped() {
    let job = with_main(mpi("", 1), "worker", |main| main.args = Some(words(&["x"])));
    let said = "spec.roles[1].template.spec.containers[0].args: the agent starts the worker's program, and can't know the \
                command that is in its image: give command too, or remove args, and the worker only waits for what mpirun \
                starts in it";
    assert_eq!(errors(&job), [said]);
    // What is beside it is not wrapped.
    let job = with_pod(mpi("", 1), "worker", |pod| {
        pod.containers
            .push(serde_saphyr::from_str("{name: side, image: i, args: [x]}").unwrap());
    });
    assert_eq!(errors(&job), [""; 0]);
}

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
#[case::around_a_host_file(
    "/job",
    "launcher",
    0,
    "the host file /job/lists/hosts (spec.framework.mpi.hostFiles[0]) would be in the same place: mount the volume somewhere else, or give the file another path"
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

#[test]
fn our_port_is_taken() {
    let job = with_main(mpi("", 1), "worker", |main| {
        main.ports = Some(serde_saphyr::from_str("[{containerPort: 7522}]").unwrap());
    });
    let said = "spec.roles[1].template.spec.containers[0].ports[0].containerPort: the agent listens on port 7522: give \
                another one";
    assert_eq!(errors(&job), [said]);
}

#[test]
fn names_have_63_characters_at_most() {
    let mut job = mpi("", 1);
    job.metadata.name = Some("x".repeat(63 - "-launcher-0".len()));
    assert_eq!(errors(&job), [""; 0]);
    job.metadata.name = Some("x".repeat(60));
    let said = errors(&job);
    assert!(
        said.iter()
            .any(|said| said.starts_with("metadata.name: the Secret name \"xxx")),
        "{said:?}"
    );
}

#[test]
fn roles_that_would_wait_for_each_other_are_refused() {
    let job = mpi("", 1).waits("worker", "launcher", DependencyState::Running);
    assert_eq!(
        errors(&job),
        [
            "spec.roles[1].dependsOn[0].role: the launcher waits for the workers, and they would wait for each other for ever: \
          remove it, or give the launcher an empty dependsOn"
        ]
    );
    let job = job.role("launcher", |role| role.depends_on = Some(Vec::new()));
    assert_eq!(errors(&job), [""; 0]);
}
