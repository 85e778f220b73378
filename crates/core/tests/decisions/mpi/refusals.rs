//! Which MPI jobs are refused, and what is said then.

use super::*;

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

#[rstest]
#[case::without_ssh(
    "",
    "keys",
    "there is a key only with attach Ssh: remove this, or set attach to Ssh"
)]
#[case::with_exec(
    "attach: Exec, ",
    "keys",
    "there is a key only with attach Ssh: remove this, or set attach to Ssh"
)]
#[case::no_name(
    "attach: Ssh, ",
    "Keys",
    "must consist of at most 253 lower-case letters, digits, '-' and '.', and start and end with a letter or digit, as must \
     each part between dots, of at most 63"
)]
fn a_secret_of_the_users_is_checked(#[case] options: &str, #[case] name: &str, #[case] said: &str) {
    let job = mpi(&format!("{options}sshAuthSecretName: {name}"), 1);
    assert_eq!(
        errors(&job),
        [format!("spec.framework.mpi.sshAuthSecretName: {said}")]
    );
}

#[rstest]
#[case("keys", true)]
#[case("0.keys-of.team", true)]
#[case("''", false)]
#[case("keys.", false)]
#[case("a/b", false)]
#[case("../keys", false)]
#[case(&"k".repeat(64), false)]
#[case(&["k"; 127].join("."), true)]
#[case(&["k"; 128].join("."), false)]
fn a_secret_of_the_users_has_a_name_that_a_secret_can_have(#[case] name: &str, #[case] is_one: bool) {
    let job = mpi(&format!("attach: Ssh, sshAuthSecretName: {name}"), 1);
    assert_eq!(errors(&job).is_empty(), is_one, "{:?}", errors(&job));
}

#[rstest]
#[case("''", "give a directory, such as the .ssh of a user, or leave it out")]
#[case(
    "/usr/bin",
    "a volume in the place of /usr/bin would hide what programs need: give a directory of its own, such as the .ssh of a user"
)]
#[case(
    "/dev/keys",
    "a volume in the place of /dev/keys would hide what programs need: give a directory of its own, such as the .ssh of a user"
)]
#[case(
    "/etc/mpi/keys",
    "/etc/mpi is for what MPI needs: give the directory .ssh of a user"
)]
fn the_key_takes_the_place_of_nothing(#[case] path: &str, #[case] said: &str) {
    let job = mpi(&format!("attach: Ssh, sshAuthMountPath: {path}"), 1);
    assert_eq!(
        errors(&job),
        [format!("spec.framework.mpi.sshAuthMountPath: {said}")]
    );
}

#[test]
fn a_launcher_that_never_succeeds_is_refused() {
    let mut job = mpi("", 1);
    job.spec.roles[0].restart_policy = Some(trainyard_api::RestartPolicy::Always);
    assert_eq!(
        errors(&job),
        [
            "spec.roles[0].restartPolicy: the job succeeds when the launcher does, and one that restarts always never does: give \
             OnFailure, or leave it out"
        ]
    );
}

#[test]
fn with_exec_no_other_container_finds_the_token() {
    let mut job = mpi("attach: Exec", 1);
    let launcher = job.spec.roles[0].template.spec.as_mut().unwrap();
    launcher.automount_service_account_token = Some(true);
    let errors = errors(&job);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].starts_with("spec.roles[0].template.spec.automountServiceAccountToken: with attach Exec"),
        "{errors:?}"
    );
}

#[test]
fn with_exec_the_launcher_has_no_account_of_somebody_else() {
    let said = "with attach Exec the launcher has an account of this job alone, and to give another one the same right would be to \
                give it to all who use that: remove it, or set attach to Agent";
    let name = |pod: &mut PodSpec| pod.service_account_name = Some("mine".to_owned());
    let job = with_pod(mpi("attach: Exec", 1), "launcher", name);
    assert_eq!(
        errors(&job),
        [format!("spec.roles[0].template.spec.serviceAccountName: {said}")]
    );
    let job = with_pod(mpi("attach: Exec", 1), "launcher", |pod| {
        pod.service_account = Some("mine".to_owned());
    });
    assert_eq!(
        errors(&job),
        [format!("spec.roles[0].template.spec.serviceAccount: {said}")]
    );
    assert_eq!(errors(&with_pod(mpi("attach: Exec", 1), "worker", name)), [""; 0]);
    assert_eq!(errors(&with_pod(mpi("", 1), "launcher", name)), [""; 0]);
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
#[case::the_agent_as_ssh(
    "hostFiles: [{path: /etc/mpi/ssh, format: MPICH}]",
    "hostFiles[0].path: /etc/mpi/ssh is a name by which the agent itself is called: give another path"
)]
#[case::the_agent_as_pdsh(
    "hostFiles: [{path: /etc/mpi/x, format: MPICH}, {path: /etc/mpi/pdsh, format: MPICH}]",
    "hostFiles[1].path: /etc/mpi/pdsh is a name by which the agent itself is called: give another path"
)]
#[case::a_file_that_the_agent_is_making(
    "hostFiles: [{path: /etc/mpi/.hostfile.trainyard-new, format: MPICH}]",
    "hostFiles[0].path: give a name of at most 240 bytes that does not end in .trainyard-new, as those do under which the agent \
     makes files"
)]
#[case::a_name_that_the_agent_can_not_make(
    &format!("hostFiles: [{{path: /job/{}, format: MPICH}}]", "x".repeat(241)),
    "hostFiles[0].path: give a name of at most 240 bytes that does not end in .trainyard-new, as those do under which the agent \
     makes files"
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
#[case::a_list_without_end(
    "slotsPerWorker: 50001, hostFiles: [{path: /job/a, format: MPICH}, {path: /job/b, format: Hosts}]",
    "hostFiles[1].format: a list of 50001 lines, one for each process, is too long: at most 50000 are possible; give a format \
     that says how many processes a host may have"
)]
fn options_are_checked(#[case] options: &str, #[case] said: &str) {
    assert_eq!(errors(&mpi(options, 1)), [format!("spec.framework.mpi.{said}")]);
}

/// Of hosts that are listed once for each process.
#[rstest]
#[case::said("slotsPerWorker: 50", 1000, true)]
#[case::too_many("slotsPerWorker: 51", 1000, false)]
#[case::with_the_launcher("slotsPerWorker: 50, launcherAsWorker: true", 1000, false)]
#[case::by_accelerators("", 6250, true)]
#[case::too_many_accelerators("", 6251, false)]
fn a_list_is_as_long_as_the_agent_can_write(
    #[case] options: &str,
    #[case] workers: i32,
    #[case] is_possible: bool,
) {
    let job = mpi(
        &format!("hostFiles: [{{path: /job/a, format: Hosts}}], {options}"),
        workers,
    );
    let job = with_main(job, "worker", |main| {
        main.resources = Some(serde_saphyr::from_str("{limits: {amd.com/gpu: 8}}").unwrap());
    });
    assert_eq!(errors(&job).is_empty(), is_possible, "{:?}", errors(&job));
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

#[test]
fn args_alone_can_not_be_wrapped() {
    let job = with_main(mpi("", 1), "worker", |main| main.args = Some(words(&["x"])));
    let said = "spec.roles[1].template.spec.containers[0].args: the agent starts the worker's program, and can't know the \
                command that is in its image: give command too, or remove args, and the worker only waits for what is \
                started in it";
    assert_eq!(errors(&job), [said]);
    // What is beside it is not wrapped.
    let job = with_pod(mpi("", 1), "worker", |pod| {
        pod.containers
            .push(serde_saphyr::from_str("{name: side, image: i, args: [x]}").unwrap());
    });
    assert_eq!(errors(&job), [""; 0]);
}

/// Workers serve until the launcher ends, unless they have a program of their own.
#[test]
fn a_job_does_not_succeed_when_its_workers_do() {
    let job = mpi("", 1).succeeded_when(&[&["launcher", "worker"]]);
    let at = "spec.completion.succeededWhen[0].allOf[1]";
    let always = format!(
        "{at}: the role \"worker\" has restartPolicy Always, given or by default, and never succeeds, nor would the job by this \
         rule: leave it out, or give another spec.roles[1].restartPolicy"
    );
    let serves = format!(
        "{at}: workers without a command of their own serve until the launcher ends, and never succeed: name the launcher \
         instead, or give them a command"
    );
    // Who does what the first says is not refused again for what the second does.
    assert_eq!(errors(&job), [&*always, &*serves]);
    let job = job.role("worker", |role| {
        role.restart_policy = Some(RestartPolicy::OnFailure);
    });
    assert_eq!(errors(&job), [serves]);
    let job = with_main(job, "worker", |main| main.command = Some(words(&["/compute"])));
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
            "spec.roles[0].dependsOn: launcher waits for worker waits for launcher: these roles would wait for each other for \
             ever; remove one of the dependencies"
        ]
    );
    let job = job.role("launcher", |role| role.depends_on = Some(Vec::new()));
    assert_eq!(errors(&job), [""; 0]);
}

/// Also where no webhook has written down how workers restart.
#[test]
fn a_launcher_that_would_wait_for_workers_to_succeed_is_refused() {
    let job = mpi("", 1).waits("launcher", "worker", DependencyState::Succeeded);
    assert_eq!(
        errors(&job),
        [
            "spec.roles[0].dependsOn[0].state: the role \"worker\" has restartPolicy Always, given or by default, and \
             never succeeds: wait for Running or Ready, or give another spec.roles[1].restartPolicy",
            TOGETHER
        ]
    );
    let job = job.role("worker", |role| {
        role.restart_policy = Some(RestartPolicy::OnFailure);
    });
    assert_eq!(errors(&job), [TOGETHER]);
}

const TOGETHER: &str = "spec.roles[0].dependsOn[0].state: the roles of mpi jobs train together, so that \"worker\" can't \
                        succeed while \"launcher\" waits for it: use Running or Ready";
