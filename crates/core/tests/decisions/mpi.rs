//! What the pods of MPI jobs look like, and, in files of their own, which jobs and which variables
//! are refused.

mod places;
mod refusals;
mod variables;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use rstest::rstest;
use trainyard_api::{DependencyState, ProgressPolicy, RestartPolicy, TrainingJob};
use trainyard_core::job::Job;
use trainyard_core::model::Identity;
use trainyard_core::model::PodKey;
use trainyard_core::view::Settings;
use trainyard_core::{admission, build, exec};

use crate::jobs::{Change, mpi, with_agent, with_silent_agent, yaml};

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

#[test]
fn lists_of_jobs_that_roll_are_kept_current_by_a_container_beside_the_launcher() {
    let job = mpi(
        "launcherAsWorker: true, hostFiles: [{path: /job/hosts, format: MPICH}]",
        2,
    )
    .rolls();
    let launcher = pod(&job, LAUNCHER).spec.unwrap();
    let init = launcher.init_containers.unwrap();
    let names: Vec<&str> = init.iter().map(|container| &*container.name).collect();
    assert_eq!(names, ["trainyard-install", "trainyard-wait", "trainyard-hosts"]);
    assert_eq!(
        variable(&init[2], "TRAINYARD_HOSTS"),
        variable(&init[0], "TRAINYARD_INSTALL")
    );
    let agents = launcher
        .volumes
        .unwrap()
        .into_iter()
        .filter(|volume| volume.name == "trainyard-agent");
    assert_eq!(agents.count(), 1);
    insta::assert_yaml_snapshot!(init[2]);
    let of = |job: &TrainingJob, role, settings: &Settings| {
        let job = Job::parse(job).unwrap();
        let pod = build::pod(&job, settings, PodKey { role, index: 0 }).unwrap();
        let init = pod.spec.unwrap().init_containers.unwrap_or_default();
        init.iter()
            .filter(|container| container.name == "trainyard-hosts")
            .count()
    };
    assert_eq!(of(&job, WORKER, &with_agent()), 0);
    assert_eq!(
        of(&job, LAUNCHER, &with_silent_agent()),
        0,
        "nobody could tell it anything"
    );
    assert_eq!(
        of(&mpi("", 2), LAUNCHER, &with_agent()),
        0,
        "its workers never change"
    );
}

fn errors(job: &TrainingJob) -> Vec<String> {
    let mut defaulted = job.clone();
    admission::default(&mut defaulted);
    let errors = admission::validate(None, &defaulted);
    let without_webhooks = Job::parse(job).err().unwrap_or_default();
    assert_eq!(errors, without_webhooks, "also without the webhook");
    errors.iter().map(ToString::to_string).collect()
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

#[rstest]
#[case::openmpi("OpenMPI")]
#[case::mpich("MPICH")]
#[case::intel("Intel")]
fn pods_that_start_programs_through_the_api_server(#[case] implementation: &str) {
    let job = mpi(
        &format!("attach: Exec, implementation: {implementation}, slotsPerWorker: 2"),
        3,
    );
    let job = with_main(job, "worker", |main| main.command = None);
    let mut objects = [LAUNCHER, WORKER]
        .map(|role| serde_saphyr::to_string(&pod(&job, role)).unwrap())
        .to_vec();
    let job = Job::parse(&job).unwrap();
    objects.push(serde_saphyr::to_string(&exec::account(&job)).unwrap());
    objects.push(serde_saphyr::to_string(&exec::role(&job)).unwrap());
    let covered = exec::extent(&job, ["mnist-worker-0", "mnist-worker-7", "mnist-launcher-0"]).unwrap();
    objects.push(serde_saphyr::to_string(&exec::rules(&covered)).unwrap());
    objects.push(serde_saphyr::to_string(&exec::binding(&job)).unwrap());
    insta::assert_snapshot!(format!("exec_{implementation}"), objects.join("---\n"));
}

#[rstest]
#[case::neither(None, None, Some(&["/etc/mpi/trainyard-agent", "stay"][..]))]
#[case::command(Some("serve"), None, Some(&["serve"][..]))]
#[case::arguments(None, Some("--all"), None)]
fn with_exec_a_workers_program_is_its_own(
    #[case] command: Option<&str>,
    #[case] args: Option<&str>,
    #[case] expected: Option<&[&str]>,
) {
    let job = with_main(mpi("attach: Exec", 1), "worker", |main| {
        main.command = command.map(|word| words(&[word]));
        main.args = args.map(|word| words(&[word]));
    });
    assert_eq!(errors(&job), [""; 0]);
    let main = main_of(&job, WORKER);
    assert_eq!(main.command, expected.map(words));
    assert_eq!((main.readiness_probe, main.ports), (None, None));
}

/// None of the workers may reach others through the API server, or has an agent for its SSH.
#[rstest]
fn the_launcher_alone_starts_programs_however_many_workers_there_are(#[values("Exec", "Ssh")] attach: &str) {
    let width = |workers| {
        let main = main_of(&mpi(&format!("attach: {attach}"), workers), LAUNCHER);
        ["OMPI_MCA_routed_radix", "PRTE_MCA_rml_base_radix"].map(|name| variable(&main, name).unwrap())
    };
    assert_eq!(width(3), ["64", "64"]);
    assert_eq!(width(200), ["200", "200"]);
    assert_eq!(
        variable(&main_of(&mpi("", 200), LAUNCHER), "OMPI_MCA_routed_radix"),
        None
    );
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
      - {path: /opt/lists/processes, format: Hosts}
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
#[case::a_secret_of_the_users(
    "ssh_with_a_secret_of_the_users",
    ", sshAuthSecretName: my.keys, implementation: MPICH"
)]
fn pods_with_ssh(#[case] name: &str, #[case] options: &str) {
    let job = mpi(&format!("attach: Ssh{options}"), 2);
    let pods = [LAUNCHER, WORKER].map(|role| serde_saphyr::to_string(&pod(&job, role)).unwrap());
    insta::assert_snapshot!(name, pods.join("---\n"));
}

/// A Secret of the user's is where the one that is made would be, and nothing else is different.
#[rstest]
#[case::root("")]
#[case::another_user(", sshAuthMountPath: /home/mpiuser/.ssh")]
fn pods_with_a_secret_of_the_users(#[case] options: &str) {
    let made = mpi(&format!("attach: Ssh{options}"), 2);
    let given = mpi(&format!("attach: Ssh, sshAuthSecretName: my.keys{options}"), 2);
    assert_eq!(errors(&given), [""; 0]);
    for role in [LAUNCHER, WORKER] {
        let mut expected = pod(&made, role);
        let volumes = expected.spec.as_mut().unwrap().volumes.iter_mut().flatten();
        let mut secrets: Vec<_> = volumes.filter_map(|volume| volume.secret.as_mut()).collect();
        assert_eq!(secrets.len(), 1);
        assert_eq!(
            secrets[0].secret_name.replace("my.keys".to_owned()).as_deref(),
            Some("mnist-ssh")
        );
        assert_eq!(pod(&given, role), expected);
    }
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

/// Hosts are listed by names that only the cluster's DNS knows.
#[rstest]
#[case::of_the_node(Some(true), None, Some("ClusterFirstWithHostNet"))]
#[case::chosen(Some(true), Some("Default"), Some("Default"))]
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
