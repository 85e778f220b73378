//! Control groups that runs leave on the machine. The tests of the command line look for them, too.

use std::fs;
use std::path::PathBuf;

/// Control groups of runs, by their names.
pub fn groups(runs: &[String]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name();
                if runs.iter().any(|run| name == *format!("trainyard-{run}")) {
                    found.push(entry.path());
                }
                left.push(entry.path());
            }
        }
    }
    found
}
