//! Prints the definition of `TrainingJob` that the types make: what
//! `crates/api/src/crd/training_job.json` holds.

fn main() -> Result<(), serde_json::Error> {
    println!("{}", trainyard_api::crd::generate()?);
    Ok(())
}
