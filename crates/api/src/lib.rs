//! The vocabulary of Trainyard: what a user may write and what the operator answers.
//!
//! This crate holds the types of the group `trainyard.dev`, their schema, their defaults and the
//! rules a single object must obey. It knows nothing of any framework, of clients, of the time or
//! of the network; rules that depend on a framework live in `trainyard-core`, which calls
//! [`validate()`] first.
//!
//! The way in: [`TrainingJob`], [`ScaleIn`], [`ScaleOut`] and [`DeclaredFramework`] for the types,
//! [`crd`] for the generated definitions, [`default()`] and [`validate()`] for admission.

pub mod accepted;
pub mod completion;
pub mod crd;
pub mod declaration;
pub mod default;
pub mod elastic;
pub mod framework;
pub mod job;
pub mod launchers;
pub mod names;
pub mod quantity;
pub mod reason;
pub mod role;
pub mod run_policy;
pub mod scale_request;
pub mod status;
pub mod validate;
mod words;

pub use accepted::{Accepted, AcceptedRole, AcceptedRules, Fingerprint};
pub use completion::{Completion, RoleSet};
pub use declaration::{DeclaredFramework, FrameworkDeclaration, FrameworkStatus};
pub use default::default;
pub use elastic::{Elastic, Refill, RigidPolicy, StartAt, ValidSizes};
pub use framework::{
    BaguaOptions, DaskOptions, FrameworkSpec, JaxOptions, MasterService, MxnetOptions, PaddleOptions,
    PytorchOptions, TensorflowOptions, XgboostOptions,
};
pub use job::{Dialect, ProgressPolicy, TrainingJob, TrainingJobSpec};
pub use launchers::{
    HorovodController, HostFile, HostFileFormat, LauncherOptions, MpiAttach, MpiImplementation,
    RemoteShellName,
};
pub use reason::{ConditionType, Reason};
pub use role::{
    CreatePolicy, Dependency, DependencyState, NodeDownPolicy, Placement, PodQuorum, RestartPolicy,
    RestartScope, RoleSpec, Spread,
};
pub use run_policy::{CleanPodPolicy, RunPolicy, UpdatePolicy};
pub use scale_request::{
    JobRef, ScaleIn, ScaleInSpec, ScaleKind, ScaleOut, ScaleOutSpec, ScalePhase, ScalePolicy, ScaleReason,
    ScaleRequestRef, ScaleRequestStatus, ScriptStatus, ScriptVariable, ToAdd, ToDelete,
};
pub use status::{
    Checkpoint, EndedPods, GroupRestart, Incident, JobPhase, JobResult, PendingReplacement, Progress,
    RestartCause, RestartRecord, RestartedRole, Restarts, RoleAttempt, RolePhase, RoleStatus, RootCause,
    Scaling, ScalingStep, TrainingJobStatus,
};
pub use validate::{FieldError, validate};

/// The API group of every kind of Trainyard's.
pub const GROUP: &str = "trainyard.dev";
/// The version of the vocabulary.
pub const VERSION: &str = "v1alpha1";
/// The value of `spec.managedBy` that means this operator; an absent value means the same.
pub const MANAGED_BY_TRAINYARD: &str = "trainyard.dev/operator";
