//! `picture`: runs a command on a terminal of its own and draws what it showed, as an animated SVG.
//!
//! `make picture` draws the README's with it.

mod recording;
mod svg;

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use recording::{Output, Recording, Size};

/// Draws a command as it was seen on a terminal.
#[derive(Parser)]
struct Cli {
    /// The file to write.
    file: PathBuf,
    /// The width of the terminal in characters.
    #[arg(long, default_value_t = 92)]
    columns: u16,
    /// Its height in lines.
    #[arg(long, default_value_t = 22)]
    rows: u16,
    /// What seems to be typed, if not the command itself.
    #[arg(long)]
    typed: Option<String>,
    /// The command.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let size = Size {
        columns: cli.columns,
        rows: cli.rows,
    };
    let outputs = record(&cli.command, size)?;
    let typed = cli.typed.unwrap_or_else(|| cli.command.join(" "));
    let recording = Recording::of(&typed, &outputs, size);
    std::fs::write(&cli.file, svg::draw(&recording, size))
        .with_context(|| format!("cannot write {}", cli.file.display()))?;
    println!("{}: {} pictures", cli.file.display(), recording.frames.len());
    Ok(ExitCode::SUCCESS)
}

/// Runs a command on a terminal of its own. Returns its output with times.
fn record(command: &[String], size: Size) -> Result<Vec<Output>> {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("no terminal can be made")?;
    grantpt(&controller)?;
    unlockpt(&controller)?;
    let name = ptsname(&controller, Vec::new())?;
    let terminal = File::from(open(
        name.as_c_str(),
        OFlags::RDWR | OFlags::NOCTTY,
        Mode::empty(),
    )?);
    let window = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, window)?;
    let (program, arguments) = command.split_first().context("there is no command")?;
    let begun = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .stdin(Stdio::from(terminal.try_clone()?))
        .stdout(Stdio::from(terminal.try_clone()?))
        .stderr(Stdio::from(terminal))
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let mut output = File::from(controller);
    let mut outputs = Vec::new();
    let mut buffer = [0; 16 * 1024];
    // Reading fails when the last process has closed the terminal.
    while let Ok(count @ 1..) = output.read(&mut buffer) {
        outputs.push(Output {
            at: begun.elapsed(),
            bytes: buffer[..count].to_vec(),
        });
    }
    let status = child.wait()?;
    ensure!(
        status.success(),
        "the command ended with {status}: {}",
        String::from_utf8_lossy(
            &outputs
                .iter()
                .flat_map(|output| output.bytes.clone())
                .collect::<Vec<_>>()
        )
    );
    Ok(outputs)
}
