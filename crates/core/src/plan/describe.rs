//! Describes the end of a pod, as a root cause and in words.

use trainyard_api::{Reason, RootCause, names};

use crate::assess::Ended;
use crate::job::Job;
use crate::restart::End;
use crate::status::{MAX_REASON, time, truncate};
use crate::view::PodRow;

const MAX_CAUSE: usize = 2_000;
const MAX_NODE: usize = 253;

/// The end of a pod as a root cause.
pub(super) fn root_cause(job: &Job<'_>, ended: &Ended<'_>) -> RootCause {
    let end = ended.row.and_then(|row| row.end.as_deref());
    let cut = |text: Option<&str>, max| {
        text.map(|text| {
            let mut text = text.to_owned();
            truncate(&mut text, max);
            text
        })
    };
    let reason = match ended.end {
        End::NodeDown => Some(Reason::PossibleNodeDown.as_str()),
        _ if ended.row.is_none() && !matches!(ended.end, End::DependencyFailed(_)) => {
            Some(Reason::PodMissing.as_str())
        }
        // The kubelet uses this reason for containers.
        End::Success => Some("Completed"),
        End::Disruption => {
            let reason = end.and_then(|end| end.reason.as_deref());
            Some(reason.unwrap_or(Reason::PodDisrupted.as_str()))
        }
        End::Failure(_) => end.and_then(|end| end.reason.as_deref()),
        End::DependencyFailed(_) => Some(Reason::DependencyFailed.as_str()),
        End::TemplateChanged => Some(Reason::TemplateChanged.as_str()),
        End::SecretMissing => Some(Reason::SecretMissing.as_str()),
    };
    RootCause {
        role: job
            .roles
            .get(ended.key.role)
            .map_or("", |role| role.name)
            .to_owned(),
        pod: job.pod_name(ended.key),
        node: cut(ended.row.and_then(|row| row.node.as_deref()), MAX_NODE),
        container: cut(end.and_then(|end| end.container.as_deref()), names::MAX_NAME),
        exit_code: match ended.end {
            End::Success => Some(0),
            _ => end.and_then(|end| end.exit_code),
        },
        signal: end.and_then(|end| end.signal),
        reason: cut(reason, MAX_REASON),
        message: cut(end.and_then(|end| end.message.as_deref()), MAX_CAUSE),
        time: end.and_then(|end| end.finished_at).map(time),
    }
}

/// Names the container that ended a pod, unless it is the main one.
fn container(job: &Job<'_>, ended: &Ended<'_>) -> String {
    let main = job.roles.get(ended.key.role).map(|role| &*role.main.name);
    let end = ended.row.and_then(|row| row.end.as_deref());
    let name = end.and_then(|end| end.container.as_deref());
    name.filter(|name| Some(*name) != main)
        .map(|name| format!(" container {name}:"))
        .unwrap_or_default()
}

/// The end of a pod in words: `worker-1 on node-a: exit code 137 (OOMKilled)`.
pub(super) fn describe(job: &Job<'_>, ended: &Ended<'_>) -> String {
    let pod = job.pod_name(ended.key);
    let on_node = |row: &PodRow| {
        row.node
            .as_deref()
            .map(|node| format!(" on {node}"))
            .unwrap_or_default()
    };
    if let End::DependencyFailed(awaited) = ended.end {
        let awaited = job.roles.get(awaited).map_or("?", |role| role.name);
        return format!("{pod} can't start: it waits for the role {awaited}, which has ended");
    }
    let Some(row) = ended.row else {
        return format!("{pod} is gone");
    };
    let end = row.end.as_deref();
    let why = end
        .and_then(|end| end.reason.as_deref())
        .map(|reason| format!(" ({reason})"))
        .unwrap_or_default();
    match ended.end {
        End::Success => format!("{pod}{} ended well", on_node(row)),
        End::Failure(None) => format!("{pod}{} failed{why}", on_node(row)),
        End::Failure(Some(code)) => format!(
            "{pod}{}:{} exit code {code}{why}",
            on_node(row),
            container(job, ended)
        ),
        End::NodeDown => format!("{pod}: its node{} is down", on_node(row).replacen(" on", "", 1)),
        End::TemplateChanged => format!("{pod}{} was made from another template", on_node(row)),
        End::SecretMissing => format!(
            "{pod}{} has a Secret that is gone: pods that are made now could not talk to it",
            on_node(row)
        ),
        End::Disruption if row.terminating => format!("{pod}{} is being removed{why}", on_node(row)),
        End::Disruption | End::DependencyFailed(_) => format!("{pod}{} was taken away{why}", on_node(row)),
    }
}
