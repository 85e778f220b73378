//! What the pods of Horovod's and `DeepSpeed`'s jobs look like, and which jobs are refused. What
//! they have of `mpi` is tested there.

use k8s_openapi::api::core::v1::{Container, Pod};
use rstest::rstest;
use trainyard_api::{RestartPolicy, TrainingJob};
use trainyard_core::job::Job;
use trainyard_core::model::{Identity, PodKey, PodNames};
use trainyard_core::{admission, build, exec};

use crate::jobs::{Change, with_agent, yaml};

const LAUNCHER: usize = 0;
const WORKER: usize = 1;

/// A job of a framework with options, whose launcher calls something.
fn job(framework: &str, options: &str, workers: i32, command: &str) -> TrainingJob {
    yaml(&format!(
        "metadata: {{name: mnist}}\nspec:\n  framework: {{name: {framework}, {framework}: {{{options}}}}}\n  roles:\n  \
         - {{name: launcher, template: {{spec: {{containers: [{{name: main, image: example/train:1, command: \
         [{command}]}}]}}}}}}\n  \
         - {{name: worker, replicas: {workers}, template: {{spec: {{containers: [{{name: main, image: \
         example/train:1}}]}}}}}}\n"
    ))
}

fn horovod(options: &str) -> TrainingJob {
    job("horovod", options, 3, "horovodrun")
}

fn deepspeed(options: &str) -> TrainingJob {
    job("deepspeed", options, 2, "deepspeed, train.py")
}

fn pod(job: &TrainingJob, role: usize) -> Pod {
    let job = Job::parse(job).unwrap();
    build::pod(&job, &with_agent(), PodKey { role, index: 0 }).unwrap()
}

fn main_of(job: &TrainingJob, role: usize) -> Container {
    pod(job, role).spec.unwrap().containers[0].clone()
}

fn variables(job: &TrainingJob, role: usize) -> Vec<String> {
    let main = main_of(job, role);
    main.env.unwrap().into_iter().map(|var| var.name).collect()
}

fn with_main(mut job: TrainingJob, role: usize, text: &str) -> TrainingJob {
    let container = &mut job.spec.roles[role].template.spec.as_mut().unwrap().containers[0];
    *container = serde_saphyr::from_str(text).unwrap();
    job
}

fn errors(job: &TrainingJob) -> Vec<String> {
    let mut defaulted = job.clone();
    admission::default(&mut defaulted);
    let errors = admission::validate(None, &defaulted);
    let without_webhooks = Job::parse(job).err().unwrap_or_default();
    assert_eq!(errors, without_webhooks);
    errors.iter().map(ToString::to_string).collect()
}

#[rstest]
#[case::horovod_over_mpi("horovod_mpi", horovod("slotsPerWorker: 2, launcherAsWorker: true"))]
#[case::horovod_over_gloo(
    "horovod_gloo",
    horovod("controller: Gloo, hostFiles: [{path: /job/hosts, format: MPICH}]")
)]
#[case::deepspeed("deepspeed", deepspeed("slotsPerWorker: 8"))]
#[case::deepspeed_with_ssh("deepspeed_ssh", deepspeed("attach: Ssh"))]
#[case::horovod_with_exec("horovod_exec", horovod("attach: Exec"))]
#[case::horovod_with_ssh("horovod_ssh", horovod("attach: Ssh"))]
#[case::gloo_with_ssh("horovod_gloo_ssh", horovod("controller: Gloo, attach: Ssh"))]
#[case::deepspeed_with_exec("deepspeed_exec", deepspeed("attach: Exec"))]
fn pods(#[case] name: &str, #[case] job: TrainingJob) {
    assert_eq!(errors(&job), [""; 0]);
    let pods = [LAUNCHER, WORKER].map(|role| serde_saphyr::to_string(&pod(&job, role)).unwrap());
    insta::assert_snapshot!(name, pods.join("---\n"));
}

#[rstest]
#[case::horovod(horovod(""))]
#[case::deepspeed(deepspeed(""))]
fn the_launcher_decides_and_waits_for_workers(#[case] object: TrainingJob) {
    let job = Job::parse(&object).unwrap();
    let framework = job.framework;
    assert_eq!(framework.restart_policy("launcher"), RestartPolicy::OnFailure);
    assert_eq!(framework.restart_policy("worker"), RestartPolicy::Always);
    assert_eq!(framework.succeeded_when(&job.roles), [[LAUNCHER]]);
    assert_eq!(
        framework.dependencies("launcher", &["launcher", "worker"]).len(),
        1
    );
    let credentials = framework.credentials(&object).unwrap();
    assert_eq!(credentials.identity, Identity::Certificate);
    assert!(framework.services(&job).is_empty());
}

/// Bug: the launcher had no account and no right, and reached no worker.
#[rstest]
#[case::horovod(horovod("attach: Exec"), 3)]
#[case::gloo(horovod("attach: Exec, controller: Gloo"), 3)]
#[case::deepspeed(deepspeed("attach: Exec"), 2)]
fn with_exec_the_launcher_has_the_right_to_it(#[case] object: TrainingJob, #[case] workers: i32) {
    assert_eq!(errors(&object), [""; 0]);
    let job = Job::parse(&object).unwrap();
    let owned = [
        "mnist-worker-0",
        "mnist-launcher-0",
        "mnist-worker-9",
        "other-worker-1",
    ];
    let covered = exec::extent(&job, owned).unwrap();
    assert_eq!(
        &*covered,
        ["mnist-worker-0".into()],
        "of {workers} workers, the one that exists"
    );
    assert_eq!(
        exec::rules(&covered)[0].resource_names.as_deref(),
        Some(&["mnist-worker-0".to_owned()][..])
    );
    assert_eq!(exec::rules(&PodNames::default()), []);
    assert!(job.framework.credentials(&object).is_none());
    let account = |role| pod(&object, role).spec.unwrap().service_account_name;
    assert_eq!(account(LAUNCHER).as_deref(), Some("mnist-mpi"));
    assert_eq!(account(WORKER), None);
    assert!(variables(&object, LAUNCHER).contains(&"TRAINYARD_EXEC".to_owned()));
    let mut own = object;
    own.spec.roles[LAUNCHER]
        .template
        .spec
        .as_mut()
        .unwrap()
        .service_account_name = Some("mine".to_owned());
    assert!(
        errors(&own)[0].contains("serviceAccountName"),
        "{:?}",
        errors(&own)
    );
}

/// Whoever has the token of such an account may run commands in the workers of its job.
#[rstest]
#[case::of_another_job("serviceAccountName", "mnist-mpi", true)]
#[case::in_the_old_field("serviceAccount", "mnist-mpi", true)]
#[case::of_the_user("serviceAccountName", "trainer", false)]
#[case::of_nobody("serviceAccountName", "-mpi", false)]
fn no_job_may_name_the_account_of_another(#[case] field: &str, #[case] name: &str, #[case] refused: bool) {
    let other = yaml(&format!(
        "metadata: {{name: other}}\nspec:\n  framework: {{name: custom}}\n  roles:\n  - {{name: worker, template: {{spec: \
         {{{field}: {name}, containers: [{{name: main, image: example/train:1}}]}}}}}}\n"
    ));
    let errors = errors(&other);
    let at = format!("spec.roles[0].template.spec.{field}");
    assert_eq!(
        errors.iter().any(|error| error.starts_with(&at)),
        refused,
        "{errors:?}"
    );
}

/// Workers have no right to start anything in others.
#[rstest]
#[case::horovod(horovod("attach: Exec"), &["OMPI_MCA_routed_radix"])]
#[case::deepspeed(deepspeed("attach: Exec"), &["OMPI_MCA_routed_radix", "I_MPI_HYDRA_BRANCH_COUNT"])]
fn with_exec_the_launcher_starts_everything_by_itself(#[case] job: TrainingJob, #[case] told: &[&str]) {
    let flat = |role| {
        let of_width = |name: &String| told.contains(&name.as_str());
        variables(&job, role).into_iter().filter(of_width).count()
    };
    assert_eq!((flat(LAUNCHER), flat(WORKER)), (told.len(), 0));
}

/// What horovodrun looks for is there with every implementation, but not where SSH is to be used.
#[rstest]
#[case("", true)]
#[case("implementation: MPICH", true)]
#[case("implementation: Intel", true)]
#[case("controller: Gloo", true)]
#[case("attach: Ssh", false)]
#[case("attach: Ssh, implementation: MPICH", false)]
#[case("attach: Ssh, controller: Gloo", false)]
fn horovodrun_finds_the_agent(#[case] options: &str, #[case] is_there: bool) {
    let job = horovod(options);
    for role in [LAUNCHER, WORKER] {
        let main = main_of(&job, role);
        let mut found = main
            .env
            .iter()
            .flatten()
            .filter(|var| var.name == "OMPI_MCA_plm_rsh_agent");
        let value = found.next().and_then(|var| var.value.as_deref());
        assert_eq!(value, is_there.then_some("/etc/mpi/kubexec.sh"));
        assert_eq!(found.count(), 0, "once");
    }
}

#[rstest]
#[case(horovod("attach: Ssh, sshAuthSecretName: keys"))]
#[case(horovod("attach: Ssh, sshAuthSecretName: keys, controller: Gloo"))]
#[case(deepspeed("attach: Ssh, sshAuthSecretName: keys"))]
fn the_key_may_be_in_a_secret_of_the_users(#[case] object: TrainingJob) {
    assert_eq!(errors(&object), [""; 0]);
    let job = Job::parse(&object).unwrap();
    let credentials = job.framework.credentials(&object).unwrap();
    assert_eq!(
        (credentials.made(), &*credentials.secret_name("mnist")),
        (None, "keys")
    );
    for role in [LAUNCHER, WORKER] {
        let volumes = pod(&object, role).spec.unwrap().volumes.unwrap();
        let names: Vec<_> = volumes
            .into_iter()
            .filter_map(|volume| volume.secret?.secret_name)
            .collect();
        assert_eq!(names, ["keys"]);
    }
}

/// horovodrun calls the image's own ssh then, and mpirun has to reach the same places in the same
/// way.
#[rstest]
#[case("OpenMPI", &["K_MPI_JOB_ROLE", "OMPI_MCA_plm_rsh_args", "OMPI_MCA_orte_keep_fqdn_hostnames", "PRTE_MCA_plm_ssh_args", "PRTE_MCA_prte_keep_fqdn_hostnames"], &["OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_set_default_slots", "PRTE_MCA_prte_default_hostfile"])]
#[case("MPICH", &["K_MPI_JOB_ROLE", "HYDRA_LAUNCHER", "HYDRA_LAUNCH_EXTRA_ARGS", "MPIR_CVAR_CH4_CMA_ENABLE"], &["HYDRA_HOST_FILE"])]
#[case("Intel", &["K_MPI_JOB_ROLE", "I_MPI_HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"], &["I_MPI_HYDRA_HOST_FILE", "I_MPI_PERHOST"])]
fn with_ssh_horovodrun_is_told_nothing_of_the_agent(
    #[case] implementation: &str,
    #[case] both: &[&str],
    #[case] launcher: &[&str],
) {
    let job = horovod(&format!(
        "attach: Ssh, launcherAsWorker: true, implementation: {implementation}"
    ));
    let ours = [
        "TRAINYARD_JOB",
        "TRAINYARD_ROLE",
        "TRAINYARD_INDEX",
        "TRAINYARD_ATTEMPT",
    ];
    let more = ["TRAINYARD_PROCESSES", "HOROVOD_START_TIMEOUT"];
    assert_eq!(variables(&job, WORKER), [&ours[..], both].concat());
    assert_eq!(
        variables(&job, LAUNCHER),
        [&ours[..], both, launcher, &more[..]].concat()
    );
}

#[test]
fn without_mpi_there_is_nothing_of_it() {
    let gloo = horovod("controller: Gloo, launcherAsWorker: true");
    let expected = [
        "TRAINYARD_SHELL_PORT",
        "TRAINYARD_IDENTITY",
        "TRAINYARD_JOB",
        "TRAINYARD_ROLE",
        "TRAINYARD_INDEX",
        "TRAINYARD_ATTEMPT",
        "K_MPI_JOB_ROLE",
        "OMPI_MCA_plm_rsh_agent",
    ];
    assert_eq!(variables(&gloo, WORKER), expected);
    assert_eq!(
        variables(&gloo, LAUNCHER),
        [&expected[..], &["TRAINYARD_PROCESSES", "HOROVOD_START_TIMEOUT"]].concat()
    );
}

#[test]
fn a_user_may_wait_longer_or_less_long() {
    let job = with_main(
        horovod(""),
        LAUNCHER,
        "{name: main, image: i, env: [{name: HOROVOD_START_TIMEOUT, value: \"9\"}]}",
    );
    let main = main_of(&job, LAUNCHER);
    let mut found = main
        .env
        .iter()
        .flatten()
        .filter(|var| var.name == "HOROVOD_START_TIMEOUT");
    assert_eq!(found.next().unwrap().value.as_deref(), Some("9"));
    assert_eq!(found.count(), 0);
}

#[rstest]
#[case::zero_slots(
    horovod("slotsPerWorker: 0"),
    "spec.framework.horovod.slotsPerWorker: 0 processes can't train: give at least 1, or leave it out"
)]
#[case::zero_slots_of_deepspeed(
    deepspeed("slotsPerWorker: 0"),
    "spec.framework.deepspeed.slotsPerWorker: 0 processes can't train: give at least 1, or leave it out"
)]
#[case::an_mpi_that_is_not_used(
    horovod("controller: Gloo, implementation: OpenMPI"),
    "spec.framework.horovod.implementation: there is no MPI with the controller Gloo: remove this, or set controller to MPI"
)]
#[case::a_host_file_that_is_ours(
    horovod("hostFiles: [{path: /etc/mpi/hostfile, format: MPICH}]"),
    "spec.framework.horovod.hostFiles[0].path: /etc/mpi/hostfile is there already, made by the operator: give another path"
)]
#[case::the_host_file_of_deepspeed(
    deepspeed("hostFiles: [{path: /job/hostfile, format: MPICH}]"),
    "spec.framework.deepspeed.hostFiles[0].path: there is a host file /job/hostfile already: give each its own path"
)]
#[case::a_host_file_below_it(
    deepspeed("hostFiles: [{path: /job/more/hosts, format: MPICH}]"),
    "spec.framework.deepspeed.hostFiles[0].path: /job/more and /job have host files, and one is inside of the other: use one \
     directory, or two side by side"
)]
#[case::a_key_without_ssh(
    deepspeed("sshAuthMountPath: /root/.ssh"),
    "spec.framework.deepspeed.sshAuthMountPath: there is a key only with attach Ssh: remove this, or set attach to Ssh"
)]
#[case::a_secret_without_ssh(
    horovod("attach: Exec, sshAuthSecretName: keys"),
    "spec.framework.horovod.sshAuthSecretName: there is a key only with attach Ssh: remove this, or set attach to Ssh"
)]
#[case::shells_of_the_image(
    horovod("attach: Ssh, remoteShells: [Pdsh]"),
    "spec.framework.horovod.remoteShells: with attach Ssh these are programs of the image: remove this, or set attach to Agent"
)]
#[case::one_worker(
    job("deepspeed", "", 1, "deepspeed, train.py"),
    "spec.roles[1].replicas: deepspeed trains in the launcher itself when there is one worker: call it with --force_multi, or \
     have more workers"
)]
fn options_are_checked(#[case] job: TrainingJob, #[case] said: &str) {
    assert_eq!(errors(&job), [said]);
}

/// Workers serve until the launcher ends.
#[rstest]
#[case(horovod(""))]
#[case(deepspeed("attach: Exec"))]
fn a_job_does_not_succeed_when_its_workers_do(#[case] job: TrainingJob) {
    let by = |sets: &[&[&str]]| errors(&job.clone().succeeded_when(sets));
    assert_eq!(by(&[&["launcher"]]), [""; 0]);
    assert_eq!(
        by(&[&["launcher"], &["worker"]]),
        [
            "spec.completion.succeededWhen[1].allOf[0]: the role \"worker\" has restartPolicy Always, given or by default, and never \
             succeeds, nor would the job by this rule: leave it out, or give another spec.roles[1].restartPolicy",
            "spec.completion.succeededWhen[1].allOf[0]: workers without a command of their own serve until the launcher ends, and \
             never succeed: name the launcher instead, or give them a command"
        ]
    );
}

#[rstest]
#[case("deepspeed, --force_multi, train.py")]
#[case("sh, -c, 'exec deepspeed --force_multi train.py'")]
#[case("/run.sh")]
fn one_worker_is_possible(#[case] command: &str) {
    assert_eq!(errors(&job("deepspeed", "", 1, command)), [""; 0]);
}

#[rstest]
#[case("horovod")]
#[case("deepspeed")]
fn a_job_needs_both_roles_and_no_other(#[case] framework: &str) {
    let mut job = job(framework, "", 2, "x");
    job.spec.roles[WORKER].name = "ps".to_owned();
    job.spec.roles[LAUNCHER].replicas = Some(2);
    assert_eq!(
        errors(&job),
        [
            format!("spec.roles: {framework} jobs need a role \"worker\": add it"),
            format!(
                "spec.roles[0].replicas: {framework} jobs have at most 1 \"launcher\" pod: set replicas to 1"
            ),
            format!("spec.roles[1].name: {framework} has no role \"ps\": use launcher or worker"),
        ]
    );
}

#[rstest]
#[case("horovod", "mpi")]
#[case("mpi", "horovod")]
#[case("horovod", "deepspeed")]
fn options_belong_to_their_framework(#[case] framework: &str, #[case] other: &str) {
    let mut job = job(other, "", 2, "x");
    job.spec.framework.name = framework.to_owned();
    assert_eq!(
        errors(&job),
        [format!(
            "spec.framework.{other}: these are options of {other}, but the framework is {framework:?}: remove them"
        )]
    );
}

#[rstest]
#[case::the_shell("horovod", "OMPI_MCA_plm_rsh_agent", "is set by the operator for horovod")]
#[case::the_rank("horovod", "HOROVOD_RANK", "is what horovodrun gives each process")]
#[case::the_controller("horovod", "HOROVOD_CONTROLLER", "they would train each for itself")]
#[case::ours("deepspeed", "TRAINYARD_IDENTITY", "is set by the operator for deepspeed")]
fn env_that_would_break_a_job_is_refused(#[case] framework: &str, #[case] name: &str, #[case] said: &str) {
    let job = with_main(
        job(framework, "", 2, "x"),
        WORKER,
        &format!("{{name: main, image: i, env: [{{name: A, value: b}}, {{name: {name}, value: x}}]}}"),
    );
    let errors = errors(&job);
    let at = format!("spec.roles[1].template.spec.containers[0].env[1].name: {name}");
    assert!(
        errors.len() == 1 && errors[0].starts_with(&at) && errors[0].contains(said),
        "{errors:?}"
    );
}

/// They are ours where the launcher is told to reach all workers itself, and elsewhere the user's.
#[rstest]
#[case::horovod(horovod("attach: Exec"), true)]
#[case::deepspeed(deepspeed("attach: Exec"), true)]
#[case::horovod_with_ssh(horovod("attach: Ssh"), false)]
#[case::deepspeed_with_ssh(deepspeed("attach: Ssh"), false)]
#[case::horovod_with_the_agent(horovod(""), false)]
#[case::deepspeed_with_the_agent(deepspeed(""), false)]
fn how_many_workers_are_reached_from_the_launcher_may_be_said(
    #[case] job: TrainingJob,
    #[case] is_ours: bool,
) {
    let told = variables(&job, LAUNCHER).contains(&"OMPI_MCA_routed_radix".to_owned());
    assert_eq!(told, is_ours);
    let command = "command: [deepspeed, train.py], env: [{name: OMPI_MCA_routed_radix, value: \"8\"}]";
    let job = with_main(job, LAUNCHER, &format!("{{name: main, image: i, {command}}}"));
    let errors = errors(&job);
    let refused = "env[0].name: OMPI_MCA_routed_radix is set by the operator";
    assert_eq!(
        (
            errors.len(),
            errors.iter().filter(|error| error.contains(refused)).count()
        ),
        (usize::from(is_ours), usize::from(is_ours)),
        "{errors:?}"
    );
}

const AROUND_PDSH: &str = "/usr/local/bin/pdsh, which is put there by the operator, would be inside of the volume, which may hide it \
                           or have no place for it";

#[rstest]
#[case::the_programs("/usr/local/bin", AROUND_PDSH)]
#[case::around_them("/usr/local/", AROUND_PDSH)]
#[case::one_of_them("/usr/local/bin/ssh", "/usr/local/bin/ssh is put there by the operator")]
#[case::the_host_file("/job", "/job is put there by the operator")]
fn volumes_keep_out_of_the_way(#[case] path: &str, #[case] taken: &str) {
    let with_volume = |role| {
        let text = format!("{{name: main, image: i, volumeMounts: [{{name: data, mountPath: {path}}}]}}");
        let mut job = with_main(deepspeed(""), role, &text);
        let pod = job.spec.roles[role].template.spec.as_mut().unwrap();
        pod.volumes = Some(serde_saphyr::from_str("[{name: data, emptyDir: {}}]").unwrap());
        errors(&job)
    };
    let at = "spec.roles[0].template.spec.containers[0].volumeMounts[0].mountPath";
    let said = format!("{at}: {taken}: mount the volume somewhere else");
    assert_eq!(with_volume(LAUNCHER), [said]);
    assert_eq!(with_volume(WORKER), [""; 0], "there is nothing in workers");
}

/// Programs that call `ssh` or `pdsh` themselves, of images that have neither.
#[rstest]
#[case::none("", "", &[])]
#[case::one("remoteShells: [Ssh]", r#""programs":["ssh"]"#, &["/usr/local/bin/ssh"])]
#[case::both(
    "attach: Exec, remoteShells: [Ssh, Pdsh]", r#""programs":["pdsh","ssh"]"#,
    &["/usr/local/bin/pdsh", "/usr/local/bin/ssh"]
)]
fn the_agent_has_the_names_that_are_asked_for(
    #[values("mpi", "horovod")] framework: &str,
    #[case] options: &str,
    #[case] installed: &str,
    #[case] paths: &[&str],
) {
    let job = job(framework, options, 2, "train");
    assert_eq!(errors(&job), [""; 0]);
    let programs = |role| {
        let mounts = main_of(&job, role).volume_mounts.unwrap_or_default();
        let paths = mounts.into_iter().map(|mount| mount.mount_path);
        paths.filter(|path| path.starts_with("/usr")).collect::<Vec<_>>()
    };
    assert_eq!(programs(LAUNCHER), paths);
    assert_eq!(programs(WORKER), [""; 0], "they start nothing elsewhere");
    let install = pod(&job, LAUNCHER)
        .spec
        .unwrap()
        .init_containers
        .unwrap()
        .remove(0);
    let plan = install.env.unwrap().remove(0).value.unwrap();
    assert!(plan.contains(installed), "{plan}");
    assert_eq!(plan.contains("programs"), !paths.is_empty(), "{plan}");
}

/// A job of Horovod whose workers come and go.
fn elastic_horovod(options: &str, elastic: &str) -> TrainingJob {
    horovod(options).spec(|spec| {
        spec.roles[WORKER].replicas = None;
        spec.elastic = Some(serde_saphyr::from_str(elastic).unwrap());
    })
}

#[test]
fn the_launcher_of_an_elastic_horovod_job_knows_its_bounds_and_follows_its_workers() {
    let job = elastic_horovod(
        "controller: Gloo, slotsPerWorker: 2",
        "{replicas: 3, minReplicas: 2, maxReplicas: 5}",
    );
    let launcher = main_of(&job, LAUNCHER).env.unwrap();
    let value = |name: &str| {
        let found = launcher.iter().find(|var| var.name == name);
        found.and_then(|var| var.value.as_deref())
    };
    assert_eq!(value("TRAINYARD_PROCESSES"), Some("6"));
    assert_eq!(value("TRAINYARD_MIN_PROCESSES"), Some("4"));
    assert_eq!(value("TRAINYARD_MAX_PROCESSES"), Some("10"));
    let agents = |role: usize| {
        let containers = pod(&job, role).spec.unwrap().init_containers.unwrap();
        containers.into_iter().map(|agent| agent.name).collect::<Vec<_>>()
    };
    assert_eq!(
        agents(LAUNCHER),
        ["trainyard-install", "trainyard-wait", "trainyard-hosts"]
    );
    assert_eq!(agents(WORKER), ["trainyard-install", "trainyard-drain"]);
    assert!(variables(&job, WORKER).contains(&"TRAINYARD_DRAIN".to_owned()));
    assert_eq!(errors(&job), [""; 0]);
}

#[rstest]
#[case(
    "",
    "{replicas: 2}",
    "spec.framework.horovod.controller: over MPI the number of processes can't change: set controller to Gloo, or remove spec.elastic"
)]
#[case(
    "controller: Gloo, attach: Ssh",
    "{replicas: 2}",
    "spec.framework.horovod.attach: only the agent knows when nothing runs any more in a worker that leaves: remove this, or spec.elastic"
)]
fn elastic_horovod_jobs_are_refused(#[case] options: &str, #[case] elastic: &str, #[case] error: &str) {
    assert_eq!(errors(&elastic_horovod(options, elastic)), [error]);
}

#[test]
fn a_role_of_one_pod_is_not_elastic() {
    let job = horovod("controller: Gloo").spec(|spec| {
        spec.elastic = Some(serde_saphyr::from_str("{replicas: 2, role: launcher}").unwrap());
        spec.roles[LAUNCHER].replicas = None;
    });
    let role = "spec.elastic.role: horovod jobs have at most 1 \"launcher\" pod: give another role";
    assert!(errors(&job).contains(&role.to_owned()), "{:?}", errors(&job));
}
