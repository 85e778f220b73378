//! The scale subresource.

use serde_json::{Map, Value, json};

use super::patch::Patch;
use super::update::{Change, Changed, Part};
use super::{Target, WriteOptions};
use crate::api::error::{FieldError, StatusError};
use crate::api::kinds::Scale;
use crate::api::meta;
use crate::api::status;
use crate::api::store::{Object, Stored};

pub(crate) fn read(scale: &Scale, stored: &Stored) -> Result<Value, StatusError> {
    let object = stored.object();
    let number = |path: &[String]| at(&object, path).and_then(Value::as_i64);
    let Some(replicas) = number(&scale.spec_replicas) else {
        let path = scale.spec_replicas.join(".");
        return Err(status::internal(format!(
            "the spec replicas field \".{path}\" does not exist"
        )));
    };
    let mut of_status = json!({"replicas": number(&scale.status_replicas).unwrap_or(0)});
    let selector = scale
        .selector
        .as_deref()
        .and_then(|path| at(&object, path)?.as_str());
    if let Some(selector) = selector {
        of_status["selector"] = selector.into();
    }
    let metadata = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"]
        .into_iter()
        .map(|name| (name.to_owned(), Value::from(meta::text(&object, name))))
        .filter(|(_, value)| value != "");
    Ok(json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata.collect::<Map<_, _>>(),
        "spec": {"replicas": replicas},
        "status": of_status,
    }))
}

impl Target<'_> {
    pub(crate) fn set_scale(
        &self,
        name: &str,
        scale: &Scale,
        change: &Change<'_>,
        options: WriteOptions,
    ) -> Result<Value, StatusError> {
        let stored = self.stored(name)?;
        let wanted = match change {
            Change::Put(text) => serde_json::from_slice(text)
                .map_err(|error| status::bad_request(format!("the body is no Scale: {error}")))?,
            Change::Patch(patch) => patch.apply(read(scale, &stored)?)?,
        };
        let replicas = wanted
            .pointer("/spec/replicas")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        if replicas < 0 {
            let why = "must be greater than or equal to 0";
            let error = FieldError::invalid("spec.replicas", &replicas.into(), why);
            return Err(status::invalid_named(
                "Scale.autoscaling",
                "autoscaling",
                "Scale",
                name,
                &[error],
            ));
        }
        let mut patch = json!({});
        // A resourceVersion in a Scale is a precondition.
        if let (Change::Put(_), Some(version)) = (change, wanted.pointer("/metadata/resourceVersion")) {
            patch["metadata"] = json!({"resourceVersion": version});
        }
        let nested = scale
            .spec_replicas
            .iter()
            .rev()
            .fold(Value::from(replicas), |value, name| json!({name: value}));
        json_patch::merge(&mut patch, &nested);
        let patch = Patch::Merge(patch);
        let Changed { stored, .. } = self.update(name, Part::Whole, &Change::Patch(&patch), options)?;
        read(scale, &stored)
    }
}

fn at<'a>(object: &'a Object, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(object.get(first)?, |value, name| value.get(name))
}
