//! Prints a definition that the types make: that of `TrainingJob`, which
//! `crates/api/src/crd/training_job.json` holds, or with the argument `framework`, `scale-in` or
//! `scale-out` that of `Framework`, `ScaleIn` or `ScaleOut`, which the files beside it hold.

use trainyard_api::ScaleKind;

fn main() -> Result<(), serde_json::Error> {
    let definition = match std::env::args().nth(1).as_deref() {
        Some("scale-in") => trainyard_api::crd::generate_request(ScaleKind::ScaleIn)?,
        Some("scale-out") => trainyard_api::crd::generate_request(ScaleKind::ScaleOut)?,
        Some("framework") => trainyard_api::crd::generate_framework()?,
        _ => trainyard_api::crd::generate()?,
    };
    println!("{definition}");
    Ok(())
}
