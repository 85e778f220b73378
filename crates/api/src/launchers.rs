//! Options of the frameworks whose launcher starts processes in workers: `mpi`, `horovod` and
//! `deepspeed`.

use kube::KubeSchema;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Options of `mpi`, `horovod` and `deepspeed`. The schema of each framework has those fields that
/// it knows, described in its own words; the others are never given.
///
/// The fields stay in this order: it is that of the JSON of which running jobs have fingerprints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LauncherOptions {
    /// By what the processes agree on what to do next. MPI: they are started by mpirun, which
    /// horovodrun calls or the launcher itself; the image has an MPI. Gloo: horovodrun starts them,
    /// called with --gloo; the image needs no MPI, and the pods get no variables of MPI but the one
    /// by which horovodrun finds the agent. Default: MPI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HorovodController")]
    pub controller: Option<HorovodController>,

    /// Whose mpirun the launcher calls: OpenMPI, MPICH or Intel. It decides the variables that the
    /// launcher finds, and the format of /etc/mpi/hostfile. Default: OpenMPI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MpiImplementation")]
    pub implementation: Option<MpiImplementation>,

    /// How many processes mpirun may start in each worker. Default: the number of accelerators that
    /// the worker's main container asks for, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub slots_per_worker: Option<i32>,

    /// How mpirun starts processes in workers. Agent: through the operator's agent, which is put
    /// into the pods, over mutual TLS with an identity of this job alone; images need neither an
    /// SSH server nor keys. Ssh: through the SSH server and client of the image, with a key of this
    /// job alone. Exec: through the API server, as `kubectl exec` would, with an account of this
    /// job alone that may do that in its workers and nothing else; the operator must be installed
    /// with --exec. Default: Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MpiAttach")]
    pub attach: Option<MpiAttach>,

    /// Where the main containers find the key with attach Ssh: the directory `.ssh` of the user
    /// that they run as. Default: /root/.ssh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 255))]
    pub ssh_auth_mount_path: Option<String>,

    /// With attach Ssh: a Secret of yours with the key, in its entries `ssh-privatekey` and
    /// `ssh-publickey`, such as one of type kubernetes.io/ssh-auth. It is never changed or deleted;
    /// pods wait as long as it is not there. Default: the operator makes a key for this job alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub ssh_auth_secret_name: Option<String>,

    /// True: the launcher is the first in the list of hosts, and mpirun starts processes there too.
    /// Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher_as_worker: Option<bool>,

    /// Lists of the job's hosts that the launcher finds besides /etc/mpi/hostfile, for programs
    /// that want them in a certain place or format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".into()]))]
    pub host_files: Option<Vec<HostFile>>,

    /// Further names by which programs of the launcher call the agent, in the place of programs of
    /// the image. Ssh: /usr/local/bin/ssh. Pdsh: /usr/local/bin/pdsh. Not with attach Ssh.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub remote_shells: Option<Vec<RemoteShellName>>,
}

/// A program that starts others on other hosts, as which the agent may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RemoteShellName {
    /// `ssh`.
    Ssh,
    /// `pdsh`.
    Pdsh,
}

/// By what the processes of Horovod agree on what to do next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HorovodController {
    /// MPI, by processes that mpirun has started.
    #[default]
    MPI,
    /// Gloo, by processes that horovodrun has started.
    Gloo,
}

/// An implementation of MPI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MpiImplementation {
    /// Open MPI 4 and 5.
    #[default]
    OpenMPI,
    /// MPICH, and others that start processes with Hydra.
    MPICH,
    /// Intel MPI.
    Intel,
}

/// How mpirun starts processes in workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MpiAttach {
    /// Through the operator's agent.
    #[default]
    Agent,
    /// Through the image's own SSH.
    Ssh,
    /// Through the API server.
    Exec,
}

/// A file with the hosts of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostFile {
    /// Where the launcher's containers find it: an absolute path. Its directory holds host files
    /// and nothing else.
    #[schemars(length(min = 2, max = 255))]
    pub path: String,

    /// How hosts are written. OpenMPI and DeepSpeed: `host slots=N`. MPICH and Intel: `host:N`.
    /// Hosts: `host` alone, on as many lines as it may have processes.
    pub format: HostFileFormat,
}

/// How a file lists hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HostFileFormat {
    /// `host slots=N`.
    #[default]
    OpenMPI,
    /// `host:N`.
    MPICH,
    /// `host:N`.
    Intel,
    /// `host slots=N`.
    DeepSpeed,
    /// `host`, N times, each on a line of its own.
    Hosts,
}

/// The schema of the options of `mpi`. The descriptions of the fields are its own.
pub(crate) fn of_mpi(schema: &mut Schema) {
    leave_out(schema, &["controller"]);
}

/// The schema of the options of `horovod`.
pub(crate) fn of_horovod(schema: &mut Schema) {
    describe(
        schema,
        &[
            (
                "implementation",
                "Whose mpirun is called: OpenMPI, MPICH or Intel. Only with the controller MPI. Default: OpenMPI.",
            ),
            (
                "slotsPerWorker",
                "How many processes may be started in each worker. Default: the number of accelerators that the worker's main \
                 container asks for, else 1.",
            ),
            (
                "attach",
                "How processes are started in workers, as for the framework mpi. Default: Agent.",
            ),
            (
                "launcherAsWorker",
                "True: the launcher is the first in the list of hosts, and gets processes too. Default: false.",
            ),
        ],
    );
}

/// The schema of the options of `deepspeed`. Whose mpirun is called, if any, is said on its command
/// line, and it always has an `ssh` and a `pdsh`.
pub(crate) fn of_deepspeed(schema: &mut Schema) {
    leave_out(
        schema,
        &["controller", "implementation", "launcherAsWorker", "remoteShells"],
    );
    describe(
        schema,
        &[
            (
                "slotsPerWorker",
                "How many processes are started in each worker. Default: the number of accelerators that the worker's main \
                 container asks for, else 1.",
            ),
            (
                "attach",
                "How processes are started in workers, as for the framework mpi. With Agent the launcher finds an `ssh` and a \
                 `pdsh` that are the operator's agent; with Ssh they are those of the image. Default: Agent.",
            ),
            (
                "hostFiles",
                "Lists of the job's hosts that the launcher finds besides /job/hostfile, for programs that want them in a \
                 certain place or format.",
            ),
        ],
    );
}

fn leave_out(schema: &mut Schema, fields: &[&str]) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.retain(|name, _| !fields.contains(&name.as_str()));
    }
}

fn describe(schema: &mut Schema, fields: &[(&str, &str)]) {
    for (name, text) in fields {
        if let Some(field) = schema.pointer_mut(&format!("/properties/{name}/description")) {
            *field = json!(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_the_order_of_which_there_are_fingerprints() {
        let text = concat!(
            r#"{"controller":"MPI","implementation":"MPICH","slotsPerWorker":2,"attach":"Ssh","#,
            r#""sshAuthMountPath":"/home/a/.ssh","sshAuthSecretName":"key","launcherAsWorker":true,"#,
            r#""hostFiles":[{"path":"/job/hosts","format":"Hosts"}],"remoteShells":["Ssh","Pdsh"]}"#
        );
        let options: LauncherOptions = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&options).unwrap(), text);
    }
}
