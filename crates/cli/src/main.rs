//! `trainyard`: the command line of Trainyard, and the operator itself.

mod agent;
mod completion;
mod convert;
mod doctor;
mod install;
mod operator;
mod output;
mod run;
mod scale;
mod scratch;
mod uninstall;
mod validate;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The operator's memory is mostly short-lived JSON, on several threads; jemalloc gives it back to
/// the system.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The exit code for "could not do what was asked"; clap uses the same for a bad command line.
const EXIT_ERROR: u8 = 2;

/// One Kubernetes operator for every distributed training framework.
///
/// `trainyard run` trains and shows how it goes, `trainyard scale` makes a job larger or smaller
/// while it trains, `trainyard install` prints the manifests of the operator, `trainyard validate`
/// checks jobs before they are applied, `trainyard convert` makes jobs of other operators ours, and
/// `trainyard operator` is the operator. A job is an object of kind `TrainingJob`: apply it with
/// kubectl and watch it with `kubectl get tj -w`.
#[derive(Parser)]
#[command(
    name = "trainyard",
    version,
    arg_required_else_help = true,
    max_term_width = 100
)]
#[command(
    after_help = "Exit codes: 0 done, 1 the answer is no (validate, convert, run, scale), 2 it could not be done; see also `run --help`."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::Args>),
    Scale(scale::Args),
    Doctor(doctor::Args),
    Install(install::Args),
    Uninstall(uninstall::Args),
    Validate(validate::Args),
    Convert(convert::Args),
    Operator(Box<operator::Args>),
    Completion(completion::Args),
}

/// Reads the words of the call. A complaint about them repeats them, and they may be names that
/// others have chosen.
fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        let is_hostile = |word: OsString| word.to_string_lossy().chars().any(output::is_obeyed);
        if error.use_stderr() && std::env::args_os().any(is_hostile) {
            output::warn(error.render());
            std::process::exit(error.exit_code());
        }
        error.exit()
    })
}

fn main() -> ExitCode {
    // The embedded cluster starts this program again for its own processes, before there is a
    // second thread.
    if let Some(code) = trainyard_local::reenter(std::env::args_os()) {
        return code;
    }
    if let Some(code) = agent::reenter(std::env::args_os()) {
        return code;
    }
    let result = match parse().command {
        Command::Run(args) => run::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Install(args) => install::run(&args),
        Command::Uninstall(args) => uninstall::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Operator(args) => operator::run(*args),
        Command::Completion(args) => completion::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::warn(output::explain(&error));
            ExitCode::from(EXIT_ERROR)
        }
    }
}
