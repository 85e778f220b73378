//! `mpba.fbk.eu/v1` MXJob, of dl-operator: a scheduler, servers and workers of MXNet.

use serde_json::Value;
use trainyard_api::{FieldError, FrameworkSpec, MxnetOptions};

use crate::{Converted, Kind, Purpose, dl};

pub const KIND: Kind = dl::kind("MXJob", "mxjobs", translate);

fn translate(
    object: &Value,
    purpose: Purpose,
    errors: &mut Vec<FieldError>,
) -> Result<Converted, Vec<FieldError>> {
    let framework = FrameworkSpec {
        name: "mxnet".to_owned(),
        mxnet: Some(MxnetOptions {
            port: Some(9000),
            verbosity: Some(2),
        }),
        ..FrameworkSpec::default()
    };
    dl::translate(object, purpose, framework, errors)
}
