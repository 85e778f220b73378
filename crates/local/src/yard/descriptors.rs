//! Inherited file descriptors, which pods must not get.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::close;

/// After the standard streams.
const FIRST: RawFd = 3;

/// Marks inherited descriptors as close-on-exec. They stay in `/dev/fd`, because a shell may have
/// passed a manifest there. Must be called before there is a second thread.
pub(crate) fn keep_to_ourselves() -> io::Result<()> {
    for number in inherited()? {
        // There is no safe way to set the flag, so the descriptor is replaced by a new one.
        let again = open_again(number);
        close(number)?;
        if let Some(again) = again {
            fcntl(&again, FcntlArg::F_DUPFD_CLOEXEC(number))?;
        }
    }
    Ok(())
}

/// Closes inherited descriptors. Must be called before libraries open files that may be inherited.
pub(crate) fn close_inherited() -> io::Result<()> {
    for number in inherited()? {
        close(number)?;
    }
    Ok(())
}

/// Only files that can be opened without an effect.
fn open_again(number: RawFd) -> Option<File> {
    let path = format!("/proc/self/fd/{number}");
    let kind = fs::metadata(&path).ok()?.file_type();
    if !kind.is_file() && !kind.is_fifo() {
        return None;
    }
    // Opening a pipe must not block.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits());
    options.open(path).ok()
}

/// Descriptors without close-on-exec.
fn inherited() -> io::Result<Vec<RawFd>> {
    let entries = fs::read_dir("/proc/self/fd")?.flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers
        .filter(|number| *number >= FIRST && is_inheritable(*number))
        .collect())
}

fn is_inheritable(number: RawFd) -> bool {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & OFlag::O_CLOEXEC.bits() == 0)
}
