//! Types of conditions and the reasons they, the roles and the events carry. Programs match on
//! these words.

use crate::words::words;

words! {
    /// The types of conditions a job has in `status.conditions`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum ConditionType {
        /// The job is valid and its names are free; False says why it is not run.
        Accepted,
        /// All roles run (or are done) and the job has not ended.
        Running,
        /// Pods of an elastic job are joining or leaving.
        Scaling,
        /// The user has suspended the job and it holds no pods any more.
        Suspended,
        /// The job has ended well. Final.
        Succeeded,
        /// The job has ended badly. Final.
        Failed,
    }
}

words! {
    /// Why something is as it is: the reason of a condition, a role's state or an event.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Reason {
        /// The job is valid.
        Valid,
        /// The job breaks a rule; the message lists every one with its field.
        Invalid,
        /// The job needs something that this operator does not have.
        Unsupported,
        /// An object that the job needs to create exists and belongs to somebody else.
        OwnershipConflict,
        /// The Secret by which the job's pods know each other was deleted, and pods are to be
        /// replaced.
        SecretMissing,
        /// Pods are created or not yet all running.
        Starting,
        /// All roles run.
        AllRolesRunning,
        /// Pods that ended are being replaced.
        Restarting,
        /// The number of pods is changing.
        Scaling,
        /// Pods are to leave nodes that are about to go.
        Draining,
        /// The number of pods has changed.
        Scaled,
        /// A change of the number of pods was refused.
        SizeRefused,
        /// An elastic job has fewer pods than it needs to train, and waits for more.
        Paused,
        /// An elastic job was paused for longer than `pauseTimeoutSeconds`.
        PauseTimeoutExceeded,
        /// A pod was made from another template.
        TemplateChanged,
        /// The user suspended the job, and its pods are being removed.
        Suspending,
        /// The user suspended the job.
        Suspended,
        /// The user resumed the job.
        Resumed,
        /// The job's rule for success holds.
        RolesSucceeded,
        /// The job's rule for failure holds.
        RolesFailed,
        /// More pods failed than `backoffLimit` allows.
        BackoffLimitExceeded,
        /// The job took longer than `activeDeadlineSeconds`.
        DeadlineExceeded,
        /// A pod failed for good.
        PodFailed,
        /// A pod was evicted, preempted or removed.
        PodDisrupted,
        /// A pod has left a node that is about to go.
        NodeDrained,
        /// A pod that had been running is gone.
        PodMissing,
        /// A pod's node is down.
        PossibleNodeDown,
        /// The job has not ended yet.
        NotFinished,
        /// The job has ended.
        Finished,
        /// A pod was replaced.
        PodReplaced,
        /// A pod could not be created.
        CreateFailed,
        /// The role waits for others.
        WaitingForRoles,
        /// A role that is waited for can't come to what it should any more.
        DependencyFailed,
    }
}
