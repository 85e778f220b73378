//! `trainyard completion`: completion of the command line in a shell.

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::output;

/// Print a script that teaches a shell to complete trainyard's command line.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  source <(trainyard completion bash)
  trainyard completion zsh > \"${fpath[1]}/_trainyard\"
  trainyard completion fish > ~/.config/fish/completions/trainyard.fish")]
pub struct Args {
    /// The shell that is to complete.
    shell: Shell,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "trainyard", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
