//! Running other programs and saying well what went wrong with them.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use trainyard_eventually::{LOOK_INTERVAL, Wait};

/// Runs a program to its end and returns what it wrote to its output; an exit code other than 0 is
/// an error that carries what it wrote to its error output.
pub fn run(command: &mut Command) -> Result<String> {
    run_with_input(command, None)
}

/// As [`run`], with `input` on the program's standard input.
pub fn run_with_input(command: &mut Command, input: Option<&[u8]>) -> Result<String> {
    let name = describe(command);
    let mut child = command
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{name}`; is it installed?"))?;
    let writer = child
        .stdin
        .take()
        .zip(input.map(<[u8]>::to_vec))
        .map(|(mut pipe, input)| {
            // On a thread of its own: a program may write much before it has read all.
            thread::spawn(move || pipe.write_all(&input))
        });
    let output = child
        .wait_with_output()
        .with_context(|| format!("cannot wait for `{name}`"))?;
    if let Some(writer) = writer {
        // A program may close its input early; its exit code says whether that was meant.
        let _ = writer.join();
    }
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("`{name}` failed ({}): {}", output.status, tail(&error, 20));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command from words that are separated by blanks. Only for words without blanks.
pub fn words(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// Asks `done` until it says yes. An error of `done` ends the wait, and so does a yes that does not
/// come.
pub fn wait_until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let mut wait = Wait::new(what);
    while !done()? {
        if !wait.has_patience(String::new()) {
            bail!("{wait}");
        }
        thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.trim_end().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn describe(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args().take(8) {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_carries_what_the_program_said() {
        let error = run(Command::new("sh").args(["-c", "echo the reason >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("the reason"), "{error}");
    }

    #[test]
    fn input_reaches_the_program() {
        assert_eq!(
            run_with_input(&mut Command::new("cat"), Some(b"hello")).unwrap(),
            "hello"
        );
    }

    #[test]
    fn a_tail_is_the_end() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
    }
}
