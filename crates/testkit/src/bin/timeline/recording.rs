//! What watches told of a job that shrinks: when each thing began to be so, in seconds.

use std::collections::BTreeMap;

use serde_json::Value;
use trainyard_testkit::lab::Change;

/// Something that was so from a time on.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Seconds since the start of the recording.
    pub begin: f64,
    /// What it was.
    pub state: String,
}

/// Spans of one thing, in their order. Each ends when the next one begins.
pub type Track = Vec<Span>;

/// A job that shrinks, as its watches told it.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// `spec.elastic.replicas`.
    pub target: Track,
    /// The phase of the request.
    pub request: Track,
    /// The step of `status.scaling`; empty without one.
    pub scaling: Track,
    /// What pods are, by name.
    pub pods: BTreeMap<String, Track>,
    /// When it was over.
    pub end: f64,
}

fn change(track: &mut Track, begin: f64, state: &str) {
    if track.last().is_none_or(|last| last.state != state) {
        let state = state.to_owned();
        track.push(Span { begin, state });
    }
}

impl Recording {
    pub fn job(&mut self, at: f64, change_of_job: &Change) {
        let (Change::Applied(job) | Change::Deleted(job)) = change_of_job;
        change(
            &mut self.target,
            at,
            &job["spec"]["elastic"]["replicas"].to_string(),
        );
        let step = job["status"]["scaling"]["step"].as_str();
        change(&mut self.scaling, at, step.unwrap_or_default());
    }

    pub fn request(&mut self, at: f64, change_of_request: &Change) {
        let (Change::Applied(request) | Change::Deleted(request)) = change_of_request;
        let phase = request["status"]["phase"].as_str();
        change(&mut self.request, at, phase.unwrap_or("new"));
    }

    pub fn pod(&mut self, at: f64, change_of_pod: &Change) {
        let (pod, state) = match change_of_pod {
            Change::Applied(pod) => (pod, state(pod)),
            Change::Deleted(pod) => (pod, "Deleted"),
        };
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        change(self.pods.entry(name.to_owned()).or_default(), at, state);
    }

    /// When each step of the removal was, in their order.
    pub fn steps(&self) -> Vec<(&'static str, f64)> {
        let first = |track: &Track, state: &str| {
            let span = track.iter().find(|span| span.state == state);
            span.map(|span| span.begin)
        };
        let of_pods = |state: &str| {
            let times = self.pods.values().filter_map(|track| first(track, state));
            times.reduce(f64::min)
        };
        let steps = [
            ("Requested", first(&self.scaling, "Requested")),
            ("Acknowledged", first(&self.scaling, "Acknowledged")),
            ("CheckpointDone", first(&self.scaling, "CheckpointDone")),
            ("Left", of_pods("Left")),
            ("Deleted", of_pods("Deleted")),
        ];
        steps
            .into_iter()
            .filter_map(|(name, at)| Some((name, at?)))
            .collect()
    }
}

fn state(pod: &Value) -> &'static str {
    let containers = pod["status"]["containerStatuses"]
        .as_array()
        .into_iter()
        .flatten();
    let mut ended = containers.map(|container| container["state"]["terminated"].is_object());
    if ended.any(|ended| ended) {
        return "Left";
    }
    match pod["status"]["phase"].as_str() {
        Some("Running") => "Running",
        Some("Succeeded" | "Failed") => "Left",
        _ => "Pending",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_step_has_the_time_when_it_was_first_seen() {
        let mut recording = Recording::default();
        let job = |step: Option<&str>| {
            let mut job = json!({"spec": {"elastic": {"replicas": 3}}});
            job["status"]["scaling"] = step.map_or(Value::Null, |step| json!({"step": step}));
            Change::Applied(job)
        };
        for (at, step) in [
            (0.0, None),
            (1.0, Some("Requested")),
            (2.0, Some("Requested")),
            (3.0, Some("CheckpointDone")),
            (5.0, None),
        ] {
            recording.job(at, &job(step));
        }
        let pod = |ended: bool| {
            let state = if ended { "terminated" } else { "running" };
            json!({"metadata": {"name": "p"}, "status": {"phase": "Running",
                "containerStatuses": [{"state": {state: {}}}]}})
        };
        recording.pod(0.0, &Change::Applied(pod(false)));
        recording.pod(4.0, &Change::Applied(pod(true)));
        recording.pod(6.0, &Change::Deleted(pod(true)));
        let steps = [
            ("Requested", 1.0),
            ("CheckpointDone", 3.0),
            ("Left", 4.0),
            ("Deleted", 6.0),
        ];
        assert_eq!(recording.steps(), steps);
        assert_eq!(recording.scaling.len(), 4, "{recording:?}");
    }
}
