//! Results of runs of MPI, and the table in the documentation that is written from them and checked
//! against them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

const BEGIN: &str = "<!-- seen: begin; written by `testcluster seen --write` -->";
const END: &str = "<!-- seen: end -->";
const YES: &str = "yes";
const NO: &str = "no";
/// The columns of the table, and what their results are called.
const BACKENDS: [(&str, &str); 2] = [("Kubernetes", "real"), ("`trainyard run`", "embedded")];

/// One run that ended as it should.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Run {
    implementation: String,
    attach: String,
}

/// Where the results of a back end are.
fn results_file(results_dir: &Path, backend: &str) -> PathBuf {
    results_dir.join(format!("mpi-seen-{backend}.jsonl"))
}

/// Where cargo has tests keep files, seen from a program that was built beside them.
pub fn results_dir() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.parent().and_then(Path::parent);
    Ok(target
        .context("this program is not where cargo builds")?
        .join("tmp"))
}

/// Removes the results of a back end, `real` or `embedded`, when a suite begins. Runs only add
/// results: a retried test is another process and must not remove those of others.
pub fn begin(backend: &str) -> Result<()> {
    begin_in(&results_dir()?, backend)
}

fn begin_in(results_dir: &Path, backend: &str) -> Result<()> {
    fs::create_dir_all(results_dir)?;
    // The file tells a suite without results from one that did not run.
    File::create(results_file(results_dir, backend)).context("there is no place for what is seen")?;
    Ok(())
}

/// Records, in the temporary directory of tests, that a run ended as expected.
///
/// # Panics
/// If that is not possible.
#[allow(
    clippy::expect_used,
    reason = "this is the vocabulary of tests, which fail by panicking"
)]
pub fn record(results_dir: &Path, implementation: &str, attach: &str, is_embedded: bool) {
    let backend = if is_embedded { "embedded" } else { "real" };
    let file = results_file(results_dir, backend);
    let run = Run {
        implementation: implementation.to_owned(),
        attach: attach.to_owned(),
    };
    let mut line = serde_json::to_string(&run).expect("JSON");
    line.push('\n');
    let mut options = File::options();
    let mut file = options.create(true).append(true).open(file).expect("the results");
    // In one write, because other processes append, too.
    file.write_all(line.as_bytes()).expect("the results");
}

/// The results of the last suite on a back end; None if there was none.
fn read_results(results_dir: &Path, backend: &str) -> Result<Option<BTreeSet<Run>>> {
    let Ok(text) = fs::read_to_string(results_file(results_dir, backend)) else {
        return Ok(None);
    };
    let runs: Result<_, _> = text.lines().map(serde_json::from_str).collect();
    runs.map(Some).context("the results of a run can't be read")
}

/// A row of the table: a run, and what is said of it for each back end.
type Row = (Run, [String; 2]);

fn rows(page: &str) -> Result<Vec<Row>> {
    let (_, rest) = page.split_once(BEGIN).context("the page has no table of runs")?;
    let (table, _) = rest.split_once(END).context("the table of runs does not end")?;
    let lines = table.lines().filter(|line| line.starts_with('|')).skip(2);
    lines
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [implementation, attach, real, embedded] = cells[..] else {
                bail!("a line of the table has not four cells: {line}");
            };
            let run = Run {
                implementation: implementation.to_owned(),
                attach: attach.trim_matches('`').to_owned(),
            };
            Ok((run, [real.to_owned(), embedded.to_owned()]))
        })
        .collect()
}

/// Claims of the table that the results do not support, for back ends that ran.
fn unfounded(rows: &[Row], shown: &[Option<BTreeSet<Run>>; 2]) -> Vec<String> {
    let mut claims = Vec::new();
    for (run, cells) in rows {
        for ((cell, shown), (backend, _)) in cells.iter().zip(shown).zip(BACKENDS) {
            if cell == YES && shown.as_ref().is_some_and(|shown| !shown.contains(run)) {
                claims.push(format!("{} with {} on {backend}", run.implementation, run.attach));
            }
        }
    }
    claims
}

/// The page with a table of the results. Columns of back ends that did not run are kept.
fn with_table(page: &str, shown: &[Option<BTreeSet<Run>>; 2]) -> Result<String> {
    let mut rows = rows(page)?;
    for run in shown.iter().flatten().flatten() {
        if rows.iter().all(|(known, _)| known != run) {
            rows.push((run.clone(), [NO.to_owned(), NO.to_owned()]));
        }
    }
    rows.sort();
    let mut table = format!(
        "| Implementation | `attach` | {} | {} |\n|---|---|---|---|\n",
        BACKENDS[0].0, BACKENDS[1].0
    );
    for (run, cells) in &mut rows {
        for (cell, shown) in cells.iter_mut().zip(shown) {
            if let Some(shown) = shown {
                (if shown.contains(run) { YES } else { NO }).clone_into(cell);
            }
        }
        let Run {
            implementation,
            attach,
        } = run;
        let [real, embedded] = cells;
        let _ = writeln!(table, "| {implementation} | `{attach}` | {real} | {embedded} |");
    }
    let (before, rest) = page.split_once(BEGIN).context("the page has no table of runs")?;
    let (_, after) = rest.split_once(END).context("the table of runs does not end")?;
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

/// Writes the table of a page from the results, or fails if it claims more. `only` restricts this
/// to one back end, because the results of another may be incomplete.
pub fn table(page: &Path, write: bool, only: Option<&str>) -> Result<()> {
    let results_dir = results_dir()?;
    let shown = BACKENDS.map(|(_, backend)| {
        let counts = only.is_none_or(|only| only == backend);
        if counts {
            read_results(&results_dir, backend)
        } else {
            Ok(None)
        }
    });
    let [real, embedded] = shown;
    let shown = [real?, embedded?];
    let text = fs::read_to_string(page).with_context(|| format!("can't read {}", page.display()))?;
    if write {
        return Ok(fs::write(page, with_table(&text, &shown)?)?);
    }
    let claims = unfounded(&rows(&text)?, &shown);
    if !claims.is_empty() {
        bail!(
            "{} claims what the last run did not show: {}; run the suite as a whole, and then `testcluster seen --write`",
            page.display(),
            claims.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(implementation: &str, attach: &str) -> Run {
        Run {
            implementation: implementation.to_owned(),
            attach: attach.to_owned(),
        }
    }

    fn page(rows: &str) -> String {
        format!("# x\n\n{BEGIN}\n| a | b | c | d |\n|---|---|---|---|\n{rows}{END}\n\nmore\n")
    }

    #[test]
    fn claims_that_were_not_seen_are_told_for_back_ends_that_ran() {
        let page = page("| A | `Agent` | yes | yes |\n| B | `Exec` | yes | no |\n");
        let shown = [Some(BTreeSet::from([run("A", "Agent")])), None];
        let claims = unfounded(&rows(&page).unwrap(), &shown);
        assert_eq!(claims, ["B with Exec on Kubernetes"]);
        assert_eq!(unfounded(&rows(&page).unwrap(), &[None, None]), [""; 0]);
    }

    #[test]
    fn what_other_programs_of_the_suite_have_shown_stays() {
        let results_dir = tempfile::tempdir().unwrap();
        let shown = || read_results(results_dir.path(), "real").unwrap();
        assert_eq!(shown(), None);
        begin_in(results_dir.path(), "real").unwrap();
        assert_eq!(shown(), Some(BTreeSet::new()), "a suite that has shown nothing");
        // By another program: this one has not recorded anything yet.
        let line = serde_json::to_string(&run("A", "Agent")).unwrap();
        fs::write(results_file(results_dir.path(), "real"), format!("{line}\n")).unwrap();
        record(results_dir.path(), "B", "Exec", false);
        record(results_dir.path(), "B", "Exec", true);
        assert_eq!(
            shown(),
            Some(BTreeSet::from([run("A", "Agent"), run("B", "Exec")]))
        );
        begin_in(results_dir.path(), "real").unwrap();
        assert_eq!(shown(), Some(BTreeSet::new()), "the next suite");
        let other = super::read_results(results_dir.path(), "embedded").unwrap();
        assert_eq!(other, Some(BTreeSet::from([run("B", "Exec")])));
    }

    #[test]
    fn the_table_is_what_was_seen() {
        let page = page("| A | `Agent` | yes | yes |\n");
        let shown = [Some(BTreeSet::from([run("B", "Ssh")])), None];
        let written = with_table(&page, &shown).unwrap();
        assert!(
            written.contains(
                "\n| A | `Agent` | no | yes |\n| B | `Ssh` | yes | no |\n<!-- seen: end -->\n\nmore\n"
            ),
            "{written}"
        );
        assert_eq!(unfounded(&rows(&written).unwrap(), &shown), [""; 0]);
    }
}
