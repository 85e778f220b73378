//! The variables by which the operator tells the agent, and programs beside it, what they have to
//! know.

/// Where the operator is asked: `https://name:port`.
pub const OBSERVER: &str = "TRAINYARD_OBSERVER";
/// The certificate authorities by which it is known, as PEM.
pub const AUTHORITY: &str = "TRAINYARD_AUTHORITY";
/// The namespace of the job.
pub const NAMESPACE: &str = "TRAINYARD_NAMESPACE";
/// The name of the job.
pub const JOB: &str = "TRAINYARD_JOB";
/// The role of the pod.
pub const ROLE: &str = "TRAINYARD_ROLE";
/// How often the pods of that role have started anew together, where they do.
pub const ATTEMPT: &str = "TRAINYARD_ATTEMPT";

/// What to put into the pod: an [`Installation`](crate::installation::Installation).
pub const INSTALL: &str = "TRAINYARD_INSTALL";
/// Which lists of hosts to keep current: what [`INSTALL`] was.
pub const HOSTS: &str = "TRAINYARD_HOSTS";
/// The file to which programs append their progress, for the agent.
pub const PROGRESS_FILE: &str = "TRAINYARD_PROGRESS_FILE";
/// The same file, for the programs.
pub const PROGRESS: &str = "TRAINYARD_PROGRESS";

/// The [directory](crate::directories::drain) in which a program is told to leave, for the agent.
pub const DRAIN_DIRECTORY: &str = "TRAINYARD_DRAIN_DIRECTORY";
/// The same directory, for the programs.
pub const DRAIN: &str = "TRAINYARD_DRAIN";
/// If set, the remote shell does not say that a pod knows that it should leave: the programs that
/// are started in it say so themselves.
pub const DRAIN_SILENTLY: &str = "TRAINYARD_DRAIN_SILENTLY";

/// The directory with the [credentials](crate::directories::identity).
pub const IDENTITY: &str = "TRAINYARD_IDENTITY";
/// The port of the remote shell; [`PORT`](crate::shell::PORT) if it is not set.
pub const SHELL_PORT: &str = "TRAINYARD_SHELL_PORT";
/// How often all pods of the job have started anew together; not set before they have. Both sides
/// of the remote shell must be of the same attempt.
pub const SHELL_ATTEMPT: &str = "TRAINYARD_SHELL_ATTEMPT";
/// After how many seconds of silence one side of the remote shell gives the other up. Users may set
/// it, within [`IDLE_TIMEOUT_SECONDS`](crate::shell::IDLE_TIMEOUT_SECONDS).
pub const SHELL_IDLE_TIMEOUT: &str = "TRAINYARD_SHELL_SILENCE_SECONDS";
/// The path of the API server by which a program is started in a pod; see
/// [`exec_path`](crate::shell::exec_path).
pub const EXEC: &str = "TRAINYARD_EXEC";
/// The SSH client that the remote shell leaves everything to.
pub const SSH: &str = "TRAINYARD_SSH";

/// Set where the agent that runs the command of a container also runs
/// [scripts](crate::script).
pub const SCRIPTS: &str = "TRAINYARD_SCRIPTS";
