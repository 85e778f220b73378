//! The table of modes, and the command line that chooses one of them.

use std::ffi::{OsStr, OsString};
use std::io::Write;

use crate::alias::Alias;
use crate::mode::{Mode, PROGRAM, report_misuse};
use crate::shell::{client, server};
use crate::{drain, hosts, idle_init, install, pdsh, progress, run, wait};

/// Everything that the program can do. A new mode is a module of its own and a line here.
pub const MODES: &[Mode] = &[
    wait::MODE,
    install::MODE,
    hosts::MODE,
    progress::MODE,
    drain::MODE,
    server::MODE,
    client::MODE,
    client::ssh::MODE,
    pdsh::MODE,
    run::MODE,
    server::serve_stdio::MODE,
    idle_init::MODE,
];

/// Runs the mode that the program's name stands for, or else the one that the first argument names.
/// Returns the exit code.
pub fn call(name: &OsStr, args: &[OsString], out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    match Alias::of(name) {
        Some(Alias::RemoteShell) => (client::MODE.run)(args, out, err),
        Some(Alias::Pdsh) => (pdsh::MODE.run)(args, out, err),
        Some(Alias::DiscoverHosts) => hosts::print(out, err),
        None => dispatch(args, out, err),
    }
}

/// Runs the mode that the first argument names. Returns the exit code.
pub fn dispatch(args: &[OsString], out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let Some((first, rest)) = args.split_first() else {
        return report_misuse(err, "say what to do");
    };
    let first = first.to_string_lossy();
    match &*first {
        "-h" | "--help" | "help" => say(out, &help()),
        "-V" | "--version" => say(out, &format!("{PROGRAM} {}\n", env!("CARGO_PKG_VERSION"))),
        option if option.starts_with('-') => report_misuse(err, &format!("there is no option {option:?}")),
        name => match MODES.iter().find(|mode| mode.name == name) {
            Some(mode) if rest.first().is_some_and(|word| word == "-h" || word == "--help") => {
                say(out, mode.help)
            }
            Some(mode) => (mode.run)(rest, out, err),
            None => report_misuse(err, &format!("there is no mode {name:?}")),
        },
    }
}

/// A closed output is no error.
fn say(out: &mut dyn Write, text: &str) -> u8 {
    let _ = out.write_all(text.as_bytes());
    0
}

fn help() -> String {
    use std::fmt::Write as _;
    let mut modes = String::new();
    for mode in MODES {
        let _ = writeln!(modes, "  {:<14} {}", mode.name, mode.summary);
    }
    format!(
        "What Trainyard does inside of pods.

Usage: {PROGRAM} MODE

Modes:
{modes}
Options:
  -h, --help     Print this; after a mode, print what there is to know about it
  -V, --version  Print the version

The operator adds this program to the pods that need it and sets everything it has to know. There is nothing to call
by hand.
"
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn call(line: &str) -> (u8, String, String) {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = dispatch(&args, &mut out, &mut err);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (code, text(out), text(err))
    }

    #[rstest]
    #[case("--help", "Usage: trainyard-agent MODE")]
    #[case("-h", "  wait           Wait until")]
    #[case("help", "--version")]
    #[case("--version", concat!("trainyard-agent ", env!("CARGO_PKG_VERSION"), "\n"))]
    #[case("-V", "trainyard-agent ")]
    #[case("wait --help", "TRAINYARD_OBSERVER")]
    #[case("wait -h", "Exit codes")]
    #[case("install --help", "TRAINYARD_INSTALL")]
    #[case("hosts --help", "TRAINYARD_HOSTS")]
    #[case("progress --help", "TRAINYARD_PROGRESS_FILE")]
    #[case("serve --help", "TRAINYARD_IDENTITY")]
    #[case("run --help", "run [--serve] -- command [arguments...]")]
    #[case("attend --help", "standard input and output")]
    #[case("stay --help", "first process of a container")]
    #[case("rsh --help", "kubexec.sh [options] host command...")]
    #[case("connect --help", "ProxyUseFdpass")]
    #[case("pdsh --help", "pdsh [options] -w host,host... command...")]
    fn answers(#[case] line: &str, #[case] expected: &str) {
        let (code, out, err) = call(line);
        assert_eq!((code, &*err), (0, ""));
        assert!(out.contains(expected), "{out}");
        assert!(out.lines().all(|line| line.chars().count() <= 120), "{out}");
    }

    #[rstest]
    #[case("", "say what to do")]
    #[case("sleep", r#"there is no mode "sleep""#)]
    #[case("--loud", r#"there is no option "--loud""#)]
    #[case("run", "`run` wants `--` and a command")]
    #[case("run --serve", "`run` wants `--` and a command")]
    #[case("run --", "`run` wants a command after `--`")]
    #[case("run sleep", r#"`run` wants `--` before the command, and there is "sleep""#)]
    #[case("serve me", r#"`serve` takes no words after it, and there is "me""#)]
    #[case("hosts now", r#"`hosts` takes no words after it, and there is "now""#)]
    #[case("attend me", r#"`attend` takes no words after it, and there is "me""#)]
    #[case("connect w-0", "`connect` wants a host and a port")]
    #[case("connect w-0 ssh", r#"`connect` wants a port, and there is "ssh""#)]
    #[case("stay here", r#"`stay` takes no words after it, and there is "here""#)]
    #[case("install now", r#"`install` takes no words after it, and there is "now""#)]
    #[case("wait for me", r#"`wait` takes no words after it, and there is "for""#)]
    fn refuses(#[case] line: &str, #[case] expected: &str) {
        let (code, out, err) = call(line);
        assert_eq!((code, &*out), (2, ""));
        assert_eq!(
            err,
            format!("trainyard-agent: {expected}; see `trainyard-agent --help`\n")
        );
    }
}
