//! Labels, each with a fixed list of values.

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// An enum whose variants are the only values of a label.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The value as it appears in the output.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
                EncodeLabelValue::encode(&self.as_str(), encoder)
            }
        }
    };
}

label! {
    /// What a request does, in the words of the API.
    Verb {
        /// Read one object.
        Get = "get",
        /// Read all objects of a kind.
        List = "list",
        /// Follow the changes of a kind.
        Watch = "watch",
        /// Create an object.
        Create = "create",
        /// Replace an object.
        Update = "update",
        /// Change part of an object.
        Patch = "patch",
        /// Delete an object.
        Delete = "delete",
        /// Delete all objects of a kind.
        DeleteCollection = "deletecollection",
        /// Anything else.
        Other = "other",
    }
}

label! {
    /// What a request is about. Status is told apart, because its writes are counted against a budget.
    Kind {
        /// A job.
        TrainingJob = "TrainingJob",
        /// A job's status.
        TrainingJobStatus = "TrainingJob/status",
        /// A pod.
        Pod = "Pod",
        /// A Service.
        Service = "Service",
        /// A `ConfigMap`.
        ConfigMap = "ConfigMap",
        /// A Secret.
        Secret = "Secret",
        /// A node.
        Node = "Node",
        /// An event, of either group.
        Event = "Event",
        /// A lease.
        Lease = "Lease",
        /// A configuration of mutating webhooks.
        MutatingWebhookConfiguration = "MutatingWebhookConfiguration",
        /// A configuration of validating webhooks.
        ValidatingWebhookConfiguration = "ValidatingWebhookConfiguration",
        /// A definition of a kind.
        CustomResourceDefinition = "CustomResourceDefinition",
        /// Anything else: other kinds, other subresources, discovery, health.
        Other = "other",
    }
}

label! {
    /// How a reconcile ended.
    Outcome {
        /// There was nothing to do.
        Quiet = "quiet",
        /// Something was written.
        Acted = "acted",
        /// It waited until its own earlier writes are seen.
        Waiting = "waiting",
        /// Somebody else was faster; it will look again.
        Conflict = "conflict",
        /// A request failed; it will be tried again.
        Error = "error",
    }
}

label! {
    /// What became of a request for admission.
    Review {
        /// Let through as it was.
        Allowed = "allowed",
        /// Let through with defaults.
        Patched = "patched",
        /// Refused.
        Denied = "denied",
        /// It was no such request, or did not arrive as a whole.
        Unreadable = "unreadable",
    }
}
