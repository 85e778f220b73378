//! Which frameworks were shown to work, and the table in the documentation that is written from
//! that and checked against it.
//!
//! A cell of the table names the command that shows it, or says why nothing does.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use trainyard_core::frameworks::FRAMEWORKS;
use trainyard_core::job::Framework;

const BEGIN: &str = "<!-- frameworks: begin; written by `testcluster seen --write` -->";
const END: &str = "<!-- frameworks: end -->";
/// What a cell begins with that says why nothing shows it.
const REASON: &str = "no: ";
/// A cell that nothing shows and that has no reason yet.
const UNKNOWN: &str = "";
/// The commands that run trainings; the second runs those of the first, too.
pub const COMMANDS: [&str; 2] = ["test", "test-frameworks"];

/// What was shown of a framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Proof {
    /// Pods find all that they are promised, and reach all that they are told of.
    Contract,
    /// A real training has learnt what its pods could learn only together.
    Training,
}

/// The columns of the table: their headings, what results of the back end are called, and what
/// they show.
const COLUMNS: [(&str, &str, Proof); 4] = [
    ("Kubernetes: contract", "real", Proof::Contract),
    ("Kubernetes: trained", "real", Proof::Training),
    ("`trainyard run`: contract", "embedded", Proof::Contract),
    ("`trainyard run`: trained", "embedded", Proof::Training),
];

/// One thing that was shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Shown {
    framework: String,
    proof: Proof,
}

/// What a command has shown on a back end.
struct Results {
    command: String,
    shown: BTreeSet<Shown>,
}

/// A framework, and what its cells say.
type Row = (String, [String; 4]);

fn results_file(results_dir: &Path, backend: &str) -> PathBuf {
    results_dir.join(format!("frameworks-seen-{backend}.jsonl"))
}

/// Removes the results of a back end, because a command begins to run its trainings there.
pub fn begin(results_dir: &Path, backend: &str, command: &str) -> Result<()> {
    fs::create_dir_all(results_dir)?;
    let text = format!("{}\n", serde_json::to_string(command)?);
    fs::write(results_file(results_dir, backend), text).context("there is no place for results")
}

/// Records, in the temporary directory of tests, that something was shown of a framework.
///
/// # Panics
/// If that is not possible.
#[allow(
    clippy::expect_used,
    reason = "this is the vocabulary of tests, which fail by panicking"
)]
pub fn record(results_dir: &Path, framework: &str, proof: Proof, is_embedded: bool) {
    let backend = if is_embedded { "embedded" } else { "real" };
    let shown = Shown {
        framework: framework.to_owned(),
        proof,
    };
    let mut line = serde_json::to_string(&shown).expect("JSON");
    line.push('\n');
    let path = results_file(results_dir, backend);
    // A test that is run by itself has no suite to record it for.
    let Ok(mut file) = File::options().append(true).open(path) else {
        return;
    };
    // In one write, because other processes append, too.
    file.write_all(line.as_bytes()).expect("the results");
}

/// The results of the last command on a back end; None if there was none.
fn read_results(results_dir: &Path, backend: &str) -> Result<Option<Results>> {
    let Ok(text) = fs::read_to_string(results_file(results_dir, backend)) else {
        return Ok(None);
    };
    let mut lines = text.lines();
    let first = lines.next().context("results without their command")?;
    let shown: Result<_, _> = lines.map(serde_json::from_str).collect();
    Ok(Some(Results {
        command: serde_json::from_str(first)?,
        shown: shown.context("the results of trainings can't be read")?,
    }))
}

/// How a cell names a command.
fn by(command: &str) -> String {
    format!("`make {command}`")
}

fn split(page: &str) -> Result<(&str, &str, &str)> {
    let (before, rest) = page
        .split_once(BEGIN)
        .context("the page has no table of frameworks")?;
    let (table, after) = rest
        .split_once(END)
        .context("the table of frameworks does not end")?;
    Ok((before, table, after))
}

/// The rows of the table, one for each framework in the order in which they are listed to users.
/// Those that the page lacks have unknown cells.
fn rows(page: &str) -> Result<Vec<Row>> {
    let (_, table, _) = split(page)?;
    let mut found: Vec<Row> = Vec::new();
    for line in table.lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [framework, cells @ ..] = &cells[..] else {
            bail!("a line of the table has no cells: {line}");
        };
        let Ok(cells) = <[&str; 4]>::try_from(cells) else {
            bail!("a line of the table has not five cells: {line}");
        };
        found.push((framework.trim_matches('`').to_owned(), cells.map(str::to_owned)));
    }
    let names = FRAMEWORKS.iter().map(Framework::name);
    let row = |name: &str| found.iter().find(|(known, _)| known == name).cloned();
    let unknown = |name: &str| (name.to_owned(), [UNKNOWN; 4].map(str::to_owned));
    Ok(names
        .map(|name| row(name).unwrap_or_else(|| unknown(name)))
        .collect())
}

/// What is wrong with the table: cells that say nothing, and cells that claim what a command did
/// not show.
fn errors(rows: &[Row], results: &[Option<Results>; 4]) -> Vec<String> {
    let mut errors = Vec::new();
    for (framework, cells) in rows {
        for ((cell, (heading, _, proof)), results) in cells.iter().zip(COLUMNS).zip(results) {
            let is_claim = COMMANDS.iter().any(|command| *cell == by(command));
            if !is_claim && !cell.starts_with(REASON) {
                errors.push(format!(
                    "{framework}, {heading}: {cell:?} is no command and no reason"
                ));
            }
            let Some(results) = results else { continue };
            let shown = Shown {
                framework: framework.clone(),
                proof,
            };
            if *cell == by(&results.command) && !results.shown.contains(&shown) {
                errors.push(format!("{framework}, {heading}: the last run did not show it"));
            }
        }
    }
    errors
}

/// What a cell says after a command has run.
fn updated(cell: &str, command: &str, is_shown: bool) -> String {
    let is_shown_by_less = command != COMMANDS[0] && cell == by(COMMANDS[0]);
    match (is_shown, cell == by(command)) {
        (true, _) if !is_shown_by_less => by(command),
        (false, true) => UNKNOWN.to_owned(),
        _ => cell.to_owned(),
    }
}

/// The page with a table of the results. Columns of back ends that did not run are kept, and
/// reasons.
fn with_table(page: &str, results: &[Option<Results>; 4]) -> Result<String> {
    let mut table = String::from("| Framework |");
    for (heading, ..) in COLUMNS {
        let _ = write!(table, " {heading} |");
    }
    table.push_str("\n|---|---|---|---|---|\n");
    for (framework, cells) in rows(page)? {
        let _ = write!(table, "| `{framework}` |");
        for ((cell, (_, _, proof)), results) in cells.iter().zip(COLUMNS).zip(results) {
            let shown = Shown {
                framework: framework.clone(),
                proof,
            };
            let cell = results.as_ref().map_or(cell.clone(), |results| {
                updated(cell, &results.command, results.shown.contains(&shown))
            });
            let _ = write!(table, " {cell} |");
        }
        table.push('\n');
    }
    let (before, _, after) = split(page)?;
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

/// Writes the table of a page from the results, or fails if it claims more or leaves a cell
/// without a reason. `only` restricts this to one back end, because the results of another may be
/// incomplete.
pub fn table(results_dir: &Path, page: &Path, write: bool, only: Option<&str>) -> Result<()> {
    let mut results = [const { None }; 4];
    for (result, (_, backend, _)) in results.iter_mut().zip(COLUMNS) {
        if only.is_none_or(|only| only == backend) {
            *result = read_results(results_dir, backend)?;
        }
    }
    let text = fs::read_to_string(page).with_context(|| format!("can't read {}", page.display()))?;
    if write {
        return Ok(fs::write(page, with_table(&text, &results)?)?);
    }
    let errors = errors(&rows(&text)?, &results);
    if !errors.is_empty() {
        bail!(
            "the table of {}: {}; run the suite as a whole, and then `testcluster seen --write`",
            page.display(),
            errors.join("; ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(command: &str, shown: &[(&str, Proof)]) -> Results {
        let shown = shown.iter().map(|(framework, proof)| Shown {
            framework: (*framework).to_owned(),
            proof: *proof,
        });
        Results {
            command: command.to_owned(),
            shown: shown.collect(),
        }
    }

    /// On the real cluster, where both columns have the same results.
    fn real(command: &str, shown: &[(&str, Proof)]) -> [Option<Results>; 4] {
        [
            Some(results(command, shown)),
            Some(results(command, shown)),
            None,
            None,
        ]
    }

    fn page(rows: &str) -> String {
        format!("before\n{BEGIN}\n| F | a | b | c | d |\n|---|---|---|---|---|\n{rows}{END}\nafter\n")
    }

    fn row_of(page: &str, framework: &str) -> [String; 4] {
        let rows = rows(page).unwrap();
        rows.into_iter().find(|(name, _)| name == framework).unwrap().1
    }

    const JAX: &str = "| `jax` | `make test` | `make test-frameworks` | no: reason | `make test` |\n";

    #[test]
    fn a_command_sets_what_it_has_shown_and_keeps_the_rest() {
        let both = [("jax", Proof::Contract), ("jax", Proof::Training)];
        let table = |results| with_table(&page(JAX), &results).unwrap();
        let cells = |page: String| row_of(&page, "jax");
        let kept = ["no: reason".to_owned(), by("test")];
        assert_eq!(
            cells(table(real("test", &both))),
            [by("test"), by("test"), kept[0].clone(), kept[1].clone()]
        );
        assert_eq!(
            cells(table(real("test-frameworks", &both)))[..2],
            [by("test"), by("test-frameworks")]
        );
        assert_eq!(
            cells(table(real("test", &[])))[..2],
            [UNKNOWN.to_owned(), by("test-frameworks")]
        );
        assert!(table(real("test", &both)).starts_with("before\n"));
        assert!(table(real("test", &both)).ends_with("\nafter\n"));
    }

    #[test]
    fn every_framework_has_a_row_and_every_cell_a_claim_or_a_reason() {
        let written = with_table(&page(""), &[const { None }; 4]).unwrap();
        let rows = rows(&written).unwrap();
        assert_eq!(rows.len(), FRAMEWORKS.len());
        assert_eq!(errors(&rows, &[const { None }; 4]).len(), 4 * FRAMEWORKS.len());
    }

    #[test]
    fn a_claim_that_its_command_did_not_show_is_an_error() {
        let rows: Vec<Row> = rows(&page(JAX))
            .unwrap()
            .into_iter()
            .filter(|(name, _)| name == "jax")
            .collect();
        assert_eq!(errors(&rows, &real("test", &[("jax", Proof::Contract)])), [""; 0]);
        assert_eq!(
            errors(&rows, &real("test", &[("jax", Proof::Training)])),
            ["jax, Kubernetes: contract: the last run did not show it"]
        );
        assert_eq!(
            errors(&rows, &real("test-frameworks", &[])),
            ["jax, Kubernetes: trained: the last run did not show it"]
        );
    }
}
