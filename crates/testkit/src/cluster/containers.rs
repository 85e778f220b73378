//! The containers of a node, seen as processes of this machine.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// Kills all containers of the runtime that listens on `socket`, and their shims.
pub(super) fn kill(socket: &Path) -> Result<()> {
    let parents = parents();
    let socket = socket.display().to_string();
    let is_shim = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line
            .split(|byte| *byte == 0)
            .map(String::from_utf8_lossy)
            .collect();
        let is_shim = words
            .first()
            .is_some_and(|program| program.contains("containerd-shim"));
        is_shim && words.iter().any(|word| *word == socket)
    };
    let shims: Vec<i32> = parents.keys().copied().filter(is_shim).collect();
    ensure!(!shims.is_empty(), "no container runs there");
    let of_shim = |pid: i32| {
        let mut ancestors = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
        ancestors.any(|pid| shims.contains(&pid))
    };
    // The shims first, so that they report no exit codes.
    let mut targets: Vec<i32> = parents.keys().copied().filter(|pid| of_shim(*pid)).collect();
    targets.sort_by_key(|pid| !shims.contains(pid));
    for pid in targets.into_iter().filter_map(Pid::from_raw) {
        // It may have ended with its parent.
        let _ = kill_process(pid, Signal::KILL);
    }
    Ok(())
}

/// The parent of every process.
fn parents() -> HashMap<i32, i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let parent = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before the parenthesis may contain anything.
        let (_, rest) = stat.rsplit_once(')')?;
        rest.split_whitespace().nth(1)?.parse().ok()
    };
    processes
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect()
}
