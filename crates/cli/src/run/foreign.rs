//! Jobs of other operators, which run as TrainingJobs.

use serde_json::Value;
use trainyard_api::FieldError;
use trainyard_compat::Recognized;

use crate::convert;

/// Converts a job of another operator, with a note that says so. Other objects are returned as they
/// are.
pub fn converted(object: Value) -> Result<(Value, Option<String>), Vec<FieldError>> {
    if matches!(
        trainyard_compat::recognize(&object),
        Recognized::Other | Recognized::Request
    ) {
        return Ok((object, None));
    }
    let origin = convert::origin(&object);
    let job = trainyard_compat::convert(&object).map_err(trainyard_compat::ConvertError::into_errors)?;
    let job = serde_json::to_value(job.job)
        .map_err(|error| vec![FieldError::new("spec", format!("can't be written: {error}"))])?;
    let note = format!("converted from {origin}: `trainyard convert` says what is different");
    Ok((job, Some(note)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::manifest;
    use super::*;

    #[test]
    fn a_note_says_what_was_converted() {
        let template = json!({"spec": {"containers": [{"name": "a", "image": "b", "command": ["c"]}]}});
        let job = json!({
            "apiVersion": "batch.test.bdap.com/v1",
            "kind": "MPIJob",
            "metadata": {"name": "tiny"},
            "spec": {"numWorkers": 2, "launcherTemplate": template, "workerTemplate": template},
        });
        let manifest = manifest::parse("-", &job.to_string()).unwrap();
        let (job, note) = converted(job).unwrap();
        assert_eq!(job["kind"], "TrainingJob");
        assert_eq!(
            note.as_deref(),
            Some(
                "converted from MPIJob of batch.test.bdap.com/v1: `trainyard convert` says what is different"
            )
        );
        assert_eq!((&manifest.job, &manifest.notes), (&job, &Vec::from_iter(note)));
        assert_eq!(converted(job.clone()), Ok((job, None)));
    }
}
