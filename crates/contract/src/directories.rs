//! Where files are in pods.
//!
//! Each directory has the `names` of its files, for whoever is told where the directory is, and
//! their `paths`.

macro_rules! directories {
    ($(
        $(#[$about:meta])*
        $module:ident = $directory:literal { $( $(#[$doc:meta])* $file:ident = $name:literal; )* }
    )*) => {$(
        $(#[$about])*
        pub mod $module {
            /// The directory itself.
            pub const DIRECTORY: &str = $directory;

            /// The names of its files.
            pub mod names {
                $( $(#[$doc])* pub const $file: &str = $name; )*
            }

            /// The paths of its files.
            pub mod paths {
                $( $(#[$doc])* pub const $file: &str = concat!($directory, "/", $name); )*
            }
        }
    )*};
}

directories! {
    /// What the kubelet tells an agent that asks the operator.
    agent = "/var/run/trainyard" {
        /// The token by which the operator knows the pod.
        TOKEN = "token";
        /// The annotations of the pod.
        ANNOTATIONS = "annotations";
    }

    /// Where programs say how far they are.
    progress = "/var/run/trainyard-progress" {
        /// The file to which they append lines.
        LINES = "lines";
    }

    /// How a program is told to leave a job that goes on, and says how far it is.
    drain = "/var/run/trainyard-drain" {
        /// The agent makes it: the program is to leave. It contains until when, if that is known.
        LEAVE = "leave";
        /// The program makes it: it knows.
        ACKNOWLEDGED = "acknowledged";
        /// The program makes it: its checkpoint is written. It may contain the step.
        CHECKPOINT = "checkpoint";
    }

    /// The credentials by which the pods of a job know each other, or the API server knows them.
    identity = "/var/run/trainyard-identity" {
        /// Whom to trust, as PEM.
        AUTHORITY = "ca.crt";
        /// The certificate of the job, as PEM.
        CERTIFICATE = "tls.crt";
        /// Its private key, as PEM.
        KEY = "tls.key";
        /// The token of the pod's service account, where the API server starts programs.
        TOKEN = "token";
    }

    /// What the agent puts into a pod: itself, by several names, and lists of hosts. horovodrun
    /// leaves out its own checks only for a shell in this very place.
    mpi = "/etc/mpi" {
        /// The agent, which does what its arguments say.
        PROGRAM = "trainyard-agent";
        /// The agent as a remote shell, called as `ssh` would be. Horovod takes no other name.
        SHELL = "kubexec.sh";
        /// The agent as `pdsh`, if a job asks for it.
        PDSH = "pdsh";
        /// The agent as a remote shell, if a job asks for it by this name.
        SSH = "ssh";
        /// The agent as what prints the hosts that can be used now.
        DISCOVERY = "discover_hosts.sh";
        /// The list that it prints.
        USABLE = "discover_hosts";
        /// The list of hosts that every job has.
        HOST_FILE = "hostfile";
        /// The directories with host files of users.
        FILES = "files";
    }
}
