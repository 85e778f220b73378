//! Stages: processes for which this program executes itself again.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::node::runtime::unisolated;
#[cfg(target_os = "linux")]
use crate::node::runtime::{isolated, user_ns_entry};
use crate::yard::{STAGE, STAGE_FAILED};
#[cfg(target_os = "linux")]
use crate::yard::{probe, stages};

/// Runs this process as a stage if this crate started it. Must be called at the very start of
/// `main`, before there is a second thread; `None` means that the user started this process.
pub fn reenter(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != STAGE {
        return None;
    }
    let stage = arguments.next().unwrap_or_default();
    let rest: Vec<_> = arguments.collect();
    Some(run_stage(&stage.to_string_lossy(), &rest))
}

#[cfg(target_os = "linux")]
fn run_stage(stage: &str, rest: &[OsString]) -> ExitCode {
    let result = match stage {
        "door" => stages::door(rest),
        "init" => stages::init(rest),
        "probe" => probe::run(rest),
        "probe-proc" => probe::proc_can_be_mounted(),
        "container" => isolated::container_stage(),
        "beside" => user_ns_entry::run(rest),
        "pause" => isolated::pause_stage(),
        "plain" => unisolated::stage(),
        _ => {
            eprintln!("{STAGE} {stage} is not for people; see --help");
            return ExitCode::from(2);
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("trainyard: {error}");
        ExitCode::from(STAGE_FAILED)
    })
}

#[cfg(not(target_os = "linux"))]
fn run_stage(stage: &str, _: &[OsString]) -> ExitCode {
    if stage == "plain" {
        return unisolated::stage().unwrap_or_else(|error| {
            eprintln!("trainyard: {error}");
            ExitCode::from(STAGE_FAILED)
        });
    }
    eprintln!("{STAGE} {stage} is not for people; see --help");
    ExitCode::from(2)
}
