//! Labels, each with a fixed list of values.

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// An enum whose variants are the only values of a label.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            pub(crate) const fn as_str(self) -> &'static str {
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
    /// What a request does, by the verbs of the API.
    Verb {
        Get = "get",
        List = "list",
        Watch = "watch",
        Create = "create",
        Update = "update",
        Patch = "patch",
        Delete = "delete",
        DeleteCollection = "deletecollection",
        Other = "other",
    }
}

label! {
    /// The kind of object that a request is about. Writes of a status are counted apart.
    Kind {
        TrainingJob = "TrainingJob",
        TrainingJobStatus = "TrainingJob/status",
        Framework = "Framework",
        FrameworkStatus = "Framework/status",
        ScaleIn = "ScaleIn",
        ScaleInStatus = "ScaleIn/status",
        ScaleOut = "ScaleOut",
        ScaleOutStatus = "ScaleOut/status",
        /// Requests of both kinds, which are reconciled together.
        ScaleRequest = "ScaleRequest",
        Pod = "Pod",
        Service = "Service",
        ConfigMap = "ConfigMap",
        Secret = "Secret",
        Node = "Node",
        PodDisruptionBudget = "PodDisruptionBudget",
        /// Of either group.
        Event = "Event",
        Lease = "Lease",
        MutatingWebhookConfiguration = "MutatingWebhookConfiguration",
        ValidatingWebhookConfiguration = "ValidatingWebhookConfiguration",
        CustomResourceDefinition = "CustomResourceDefinition",
        /// Other kinds, other subresources, discovery, health.
        Other = "other",
    }
}

label! {
    /// How a reconcile ended.
    Outcome {
        Quiet = "quiet",
        Acted = "acted",
        /// It waits until the index shows its own writes.
        Waiting = "waiting",
        /// Somebody else has written the object meanwhile.
        Conflict = "conflict",
        /// A request failed.
        Error = "error",
    }
}

label! {
    /// The answer to an admission request.
    Review {
        /// Allowed without a change.
        Allowed = "allowed",
        /// Allowed with defaults filled in.
        Patched = "patched",
        Denied = "denied",
        /// It was no admission request, or did not arrive completely.
        Unreadable = "unreadable",
    }
}
