//! `mpba.fbk.eu/v1` TFJob, of dl-operator: parameter servers and workers of TensorFlow.

use serde_json::Value;
use trainyard_api::{FieldError, FrameworkSpec};

use crate::{Converted, Kind, Purpose, dl};

pub const KIND: Kind = dl::kind("TFJob", "tfjobs", translate);

fn translate(
    object: &Value,
    purpose: Purpose,
    errors: &mut Vec<FieldError>,
) -> Result<Converted, Vec<FieldError>> {
    let framework = FrameworkSpec {
        name: "tensorflow".to_owned(),
        ..FrameworkSpec::default()
    };
    dl::translate(object, purpose, framework, errors)
}
