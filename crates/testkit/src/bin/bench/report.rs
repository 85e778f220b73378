//! What was measured against what was asked for: as a table, as Markdown and as JSON.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::machine::Machine;

#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub scenario: String,
    pub measure: String,
    pub value: f64,
    pub unit: &'static str,
    /// What it should not exceed.
    pub target: Option<f64>,
    /// Whether it is a count, which does not depend on the machine.
    pub exact: bool,
    /// How it came about.
    pub detail: String,
}

impl Figure {
    /// Whether it is as it should be.
    pub fn is_ok(&self) -> bool {
        self.target.is_none_or(|target| self.value <= target)
    }

    fn verdict(&self) -> String {
        match self.target {
            None => String::new(),
            Some(_) if self.is_ok() => "OK".to_owned(),
            Some(target) if target > 0.0 => {
                format!("missed by {:.0} %", (self.value / target - 1.0) * 100.0)
            }
            Some(target) => format!("missed by {}", number(self.value - target)),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub date: String,
    pub machine: Machine,
    /// How often each ratio was measured.
    pub rounds: usize,
    pub figures: Vec<Figure>,
    /// What they were computed from.
    pub raw: Vec<Value>,
}

/// A number with as many digits as it deserves.
fn number(value: f64) -> String {
    if value.fract().abs() < 1e-9 || value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else if value.abs() >= 0.1 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    if unit.is_empty() {
        number(value)
    } else {
        format!("{} {unit}", number(value))
    }
}

impl Report {
    pub fn table(&self) -> String {
        let rows: Vec<[String; 6]> = self.rows();
        let heads = HEADS.map(str::to_owned);
        let width = |column: usize| {
            let cells = rows.iter().chain([&heads]).map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: [usize; 6] = std::array::from_fn(width);
        let mut out = String::new();
        for row in std::iter::once(&heads).chain(&rows) {
            for (column, cell) in row.iter().enumerate() {
                let pad = if column == 5 {
                    0
                } else {
                    widths[column] - cell.chars().count() + 2
                };
                let _ = write!(out, "{cell}{}", " ".repeat(pad));
            }
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
        out
    }

    fn rows(&self) -> Vec<[String; 6]> {
        let row = |figure: &Figure| {
            [
                figure.scenario.clone(),
                figure.measure.clone(),
                with_unit(figure.value, figure.unit),
                figure.target.map_or(String::new(), |target| {
                    format!("<= {}", with_unit(target, figure.unit))
                }),
                figure.verdict(),
                figure.detail.clone(),
            ]
        };
        self.figures.iter().map(row).collect()
    }

    pub fn markdown(&self) -> String {
        let Machine {
            processor,
            cores,
            memory_mib,
            kernel,
            kubernetes,
            load_before,
        } = &self.machine;
        let mut out = format!(
            "# Benchmark of {}\n\n\
             {cores} cores ({processor}), {memory_mib} MiB memory, Linux {kernel}, Kubernetes {kubernetes}; the API \
             server, etcd, the benchmark and the operator share the cores. Load before: {load_before}. Ratios and \
             times are medians of {} rounds; `bench/README.md` says how each is measured.\n\n| {} |\n|{}\n",
            self.date,
            self.rounds,
            HEADS.join(" | "),
            "---|".repeat(HEADS.len()),
        );
        for row in self.rows() {
            let _ = writeln!(out, "| {} |", row.join(" | "));
        }
        out
    }

    /// Writes `latest.json` and `latest.md`.
    pub fn write(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory)?;
        fs::write(
            directory.join("latest.json"),
            serde_json::to_string_pretty(self)? + "\n",
        )?;
        fs::write(directory.join("latest.md"), self.markdown())?;
        Ok(())
    }

    /// Counts that are not as they should be.
    pub fn wrong_counts(&self) -> Vec<&Figure> {
        self.figures
            .iter()
            .filter(|figure| figure.exact && !figure.is_ok())
            .collect()
    }
}

const HEADS: [&str; 6] = ["Scenario", "Measure", "Value", "Target", "", "Detail"];

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64, target: Option<f64>) -> Figure {
        Figure {
            scenario: "a".into(),
            measure: "m".into(),
            value,
            unit: "s",
            target,
            exact: true,
            detail: String::new(),
        }
    }

    #[test]
    fn a_miss_says_by_how_much() {
        assert_eq!(figure(1.0, Some(1.0)).verdict(), "OK");
        assert_eq!(figure(1.2, Some(1.0)).verdict(), "missed by 20 %");
        assert_eq!(figure(3.0, Some(0.0)).verdict(), "missed by 3");
        assert_eq!(figure(3.0, None).verdict(), "");
    }

    #[test]
    fn numbers_have_the_digits_they_deserve() {
        for (value, expected) in [
            (0.0, "0"),
            (4.0, "4"),
            (123.4, "123"),
            (12.34, "12.3"),
            (1.234, "1.23"),
            (0.0123, "0.0123"),
        ] {
            assert_eq!(number(value), expected);
        }
    }
}
