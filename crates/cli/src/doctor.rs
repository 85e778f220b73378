//! `trainyard doctor`: what this machine allows `trainyard run` to do.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use trainyard_local::yard::{self, Isolation, Network, Report, Yard};

use crate::{output, scratch};

/// Say how well this machine can keep pods apart, and why not better.
///
/// `trainyard run` uses the best that works: namespaces with files and a network of each pod's own,
/// as root or as an ordinary user, or else plain processes. Everything is tried, and nothing is
/// left behind.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  trainyard doctor
  trainyard doctor --output json")]
pub struct Args {
    /// Print a document instead of text.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<output::Format>,
}

#[derive(Serialize)]
struct MachineReport<'a> {
    isolation: Isolation,
    abilities: Vec<AbilityReport<'a>>,
    /// What differs from a real cluster here.
    differences: Vec<String>,
}

#[derive(Serialize)]
struct AbilityReport<'a> {
    name: &'a str,
    possible: bool,
    /// Why not, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let scratch = scratch::directory()?;
    let report = yard::isolation(&scratch);
    let differences = differences(&report, scratch);
    if let Some(format) = args.output {
        let document = MachineReport {
            isolation: report.isolation,
            abilities: report.abilities().into_iter().map(ability_report).collect(),
            differences,
        };
        output::print_document(format, &document)?;
    } else {
        let notes: Vec<String> = differences.iter().map(|note| format!("note: {note}\n")).collect();
        output::say(&format!("{report}{}", notes.concat()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn ability_report<'a>((name, ability): (&'a str, &'a yard::Ability)) -> AbilityReport<'a> {
    AbilityReport {
        name,
        possible: ability.reason().is_none(),
        reason: ability.reason(),
    }
}

fn differences(report: &Report, scratch: PathBuf) -> Vec<String> {
    let network = match report.network.reason() {
        None => Network::Pod,
        Some(_) => Network::Host,
    };
    let yard = Yard {
        isolation: report.isolation,
        network,
        report: report.clone(),
        scratch,
        program: None,
        has_keys: false,
    };
    yard.notes()
}
