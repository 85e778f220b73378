//! Prints a definition that the types make: that of `TrainingJob`, which
//! `crates/api/src/crd/training_job.json` holds, or with the argument `framework` that of
//! `Framework`, which `crates/api/src/crd/framework.json` holds.

fn main() -> Result<(), serde_json::Error> {
    let definition = match std::env::args().nth(1).as_deref() {
        Some("framework") => trainyard_api::crd::generate_framework()?,
        _ => trainyard_api::crd::generate()?,
    };
    println!("{definition}");
    Ok(())
}
