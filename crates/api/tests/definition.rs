//! The generated definition is fit for every way of applying it.

use trainyard_api::crd;

#[test]
fn it_fits_into_the_annotation_of_client_side_apply() {
    let json = serde_json::to_string(&crd::training_job().unwrap()).unwrap();
    assert!(json.len() < crd::CLIENT_SIDE_APPLY_LIMIT, "{} bytes", json.len());
    if let Ok(path) = std::env::var("CRD_OUT") {
        std::fs::write(path, json).unwrap();
    }
}
