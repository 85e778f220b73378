//! Checks that the modules of every crate depend on each other in one direction only.
//!
//! At every level of the module tree, siblings form a graph: one depends on another if something in
//! it, or below it, names something in the other, or below it. What a module and its own parent
//! share does not count: a parent declares its children and may hold what they have in common. A
//! cycle among siblings is an error, and is printed with a file and a name for each of its edges.
//!
//! ```text
//! cargo run -p trainyard-modules             # check all crates
//! cargo run -p trainyard-modules -- --graph  # print the graphs too
//! ```

mod graph;
mod source;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use graph::{Cycle, Graph};
use source::Crate;

/// Check that the modules of every crate depend on each other in one direction only.
#[derive(Parser)]
struct Arguments {
    /// Print which module depends on which.
    #[arg(long)]
    graph: bool,
    /// The directory that holds the crates.
    #[arg(default_value = "crates")]
    crates: PathBuf,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut cycles = 0;
    for root in roots(&arguments.crates)? {
        let read = Crate::read(&root)?;
        for graph in Graph::levels(&read) {
            if arguments.graph {
                print!("{graph}");
            }
            for cycle in graph.cycles() {
                cycles += 1;
                report(&graph, &cycle);
            }
        }
    }
    Ok(if cycles == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn report(graph: &Graph, cycle: &Cycle) {
    eprintln!("{}: modules depend on each other in a circle:", graph.parent());
    for edge in cycle {
        eprintln!("  {edge}");
    }
}

/// The root files of all crates.
fn roots(crates: &PathBuf) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(crates).with_context(|| format!("reading {}", crates.display()))?;
    let mut roots = Vec::new();
    for entry in entries {
        let source = entry?.path().join("src");
        roots.extend(["lib.rs", "main.rs"].map(|name| source.join(name)));
    }
    roots.retain(|root| root.is_file());
    roots.sort();
    Ok(roots)
}
