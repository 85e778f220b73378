//! The command line of `trainyard run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use trainyard_local::yard::{Isolation, Network, YardOptions};

use super::show::OutputStreams;
use crate::output::Format;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IsolationArg {
    /// As well as this machine allows
    Auto,
    /// In namespaces, made by root
    Root,
    /// In namespaces that every user may make
    User,
    /// As processes like any other, on loopback
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NetworkArg {
    /// One of their own, which leads nowhere else
    Pod,
    /// That of this machine
    Host,
}

/// Train on this machine, without a cluster.
///
/// Runs a TrainingJob as processes of this machine, with the same operator that runs it on
/// Kubernetes. Shows its logs and phases while it runs, and at the end how it went and why.
///
/// What the job's containers print goes to the standard output, all else to the standard error.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "they are flags, and not a state")]
#[command(group(clap::ArgGroup::new("what").required(true).args(["file", "command"])))]
#[command(after_help = "\
Exit codes:
    0  the job has succeeded
    1  the job has failed
    2  the command line or the manifest is wrong
    3  --timeout was over before the job's end
    4  this machine can't run it
  130  it was interrupted

Examples:
  trainyard run job.yaml
  trainyard run job.yaml --set roles.worker.replicas=4 --timeout 10m
  trainyard run -n 4 -- python3 train.py --epochs 3
  trainyard run --framework-file my-framework.yaml job.yaml
  trainyard run -n 4 --print -- python3 train.py > job.yaml
  trainyard run job.yaml --output json > summary.json")]
pub struct Args {
    /// A file with one TrainingJob, and what it needs, such as a ConfigMap; `-` is the standard
    /// input.
    #[arg(value_name = "FILE")]
    pub file: Option<String>,

    /// Instead of a file: a command line that every worker runs.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,

    /// How many workers run the command.
    #[arg(
        short = 'n',
        long,
        value_name = "NUMBER",
        conflicts_with = "file",
        default_value_t = 1
    )]
    pub replicas: u16,

    /// The framework whose environment the command finds.
    #[arg(long, value_name = "NAME", conflicts_with = "file", default_value = "pytorch")]
    pub framework: String,

    /// A file with Frameworks that the job may name. Those in the job's own file are known, too.
    /// May be given several times.
    #[arg(long, value_name = "FILE")]
    pub framework_file: Vec<String>,

    /// The job's name; without it, made from the command.
    #[arg(long, conflicts_with = "file")]
    pub name: Option<String>,

    /// Change a field, such as `roles.worker.replicas=4`. Items of lists go by name or position.
    /// May be given several times.
    #[arg(long, value_name = "PATH=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,

    /// Set an environment variable of every container. May be given several times.
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = pair)]
    pub env: Vec<(String, String)>,

    /// Print the manifest that would run, and stop.
    #[arg(long, conflicts_with_all = ["timeout", "output", "quiet", "keep"])]
    pub print: bool,

    /// Stop the job if it has not ended after this time, such as `90s`, `10m` or `1h30m`.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,

    /// Print a summary on the standard output at the end; logs then go to the standard error.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Format>,

    /// Print only what the job prints, and what went wrong.
    #[arg(short, long)]
    pub quiet: bool,

    /// Leave what there is at the end: here the logs and volumes of all pods, with `--remote` the
    /// job and its pods.
    #[arg(long)]
    pub keep: bool,

    /// Let `hostPath` volumes of the job be anywhere on this machine. Without it they must be in
    /// the working directory, which pods have anyway.
    #[arg(long, conflicts_with = "remote")]
    pub allow_host_path: bool,

    /// Run it on the cluster of the current kubeconfig, where Trainyard is installed.
    #[arg(long)]
    pub remote: bool,

    /// How many nodes this machine plays.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = nodes(), conflicts_with = "remote")]
    pub nodes: usize,

    /// Where the files of an image are: a root directory, or a Python virtual environment, from
    /// where `-C` leads to. May be given several times.
    #[arg(long, value_name = "NAME=DIRECTORY", value_parser = image, conflicts_with = "remote")]
    pub image: Vec<(String, PathBuf)>,

    /// How pods are kept apart; `trainyard doctor` says what this machine allows.
    #[arg(long, value_enum, default_value_t = IsolationArg::Auto, conflicts_with = "remote")]
    pub isolation: IsolationArg,

    /// The network of pods: a job that downloads something needs `host`.
    #[arg(long, value_enum, default_value_t = NetworkArg::Pod, conflicts_with = "remote")]
    pub network: NetworkArg,

    /// Work in this directory, as if trainyard had been started there.
    #[arg(short = 'C', long, value_name = "DIRECTORY")]
    pub directory: Option<PathBuf>,
}

impl Args {
    pub fn yard(&self) -> YardOptions {
        YardOptions {
            isolation: match self.isolation {
                IsolationArg::Auto => None,
                IsolationArg::Root => Some(Isolation::Root),
                IsolationArg::User => Some(Isolation::User),
                IsolationArg::Plain => Some(Isolation::Plain),
            },
            network: match self.network {
                NetworkArg::Pod => Network::Pod,
                NetworkArg::Host => Network::Host,
            },
            // Who types a manifest presses keys for that.
            keys: self.file.as_deref() != Some("-")
                && OutputStreams::detect().is_live(self.output.is_some())
                && !self.quiet,
        }
    }
}

/// Parses a name and a value.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it with a name, `=` and a value".to_owned()),
    }
}

/// More nodes than this take longer to simulate than jobs take to train.
fn nodes() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1000)
}

fn image(text: &str) -> Result<(String, PathBuf), String> {
    pair(text).map(|(name, directory)| (name, directory.into()))
}

/// Parses a time such as `5m`, which is longer than nothing.
pub fn duration(text: &str) -> Result<Duration, String> {
    let hint = "write a number with its unit, as in 90s, 10m or 1h30m";
    let span: jiff::SignedDuration = text.trim().parse().map_err(|_| hint.to_owned())?;
    match Duration::try_from(span) {
        Ok(span) if !span.is_zero() => Ok(span),
        _ => Err("it must be longer than nothing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, String> {
        Program::try_parse_from(std::iter::once("run").chain(line.split_whitespace()))
            .map(|program| program.args)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_is_enough() {
        let args = parse("job.yaml").unwrap();
        assert_eq!((args.file.as_deref(), args.command.len()), (Some("job.yaml"), 0));
        assert!(!args.quiet && !args.print && args.timeout.is_none());
    }

    #[test]
    fn a_command_takes_all_that_follows() {
        let args = parse("-n 4 --framework custom -- python3 -u train.py --set a=b -n 3").unwrap();
        assert_eq!(args.command.join(" "), "python3 -u train.py --set a=b -n 3");
        assert_eq!((args.replicas, args.framework.as_str()), (4, "custom"));
        assert!(args.set.is_empty());
    }

    #[test]
    fn it_is_either_a_file_or_a_command() {
        for line in [
            "",
            "job.yaml -- python3 train.py",
            "job.yaml -n 4",
            "job.yaml --name a",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn changes_are_pairs_and_values_may_hold_anything() {
        let args = parse("job.yaml --set a.b=c=d --set e= -e X=1").unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(args.set, [pair("a.b", "c=d"), pair("e", "")]);
        assert_eq!(args.env, [pair("X", "1")]);
        assert!(parse("job.yaml --set replicas").is_err());
        assert!(parse("job.yaml --set =4").is_err());
    }

    #[test]
    fn spans_of_time_have_units() {
        let seconds = |text| duration(text).map(|span| span.as_secs());
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("10m"), Ok(600));
        assert_eq!(seconds("1h30m"), Ok(5400));
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1500)));
        for bad in ["", "10", "m", "-5s", "0s", "ten minutes", "5 parsecs"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
