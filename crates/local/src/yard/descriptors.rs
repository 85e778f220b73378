//! Files that whoever started this program had open: none of them is for pods.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::close;

/// Those before are the input and the outputs.
const FIRST: RawFd = 3;

/// Keeps what was inherited from the programs that this process will start, and leaves it to this
/// process by its name in `/dev/fd`, as which a shell may have passed a manifest. To be called
/// before there is a second thread.
pub(crate) fn keep_to_ourselves() -> io::Result<()> {
    for number in inherited()? {
        // What has no safe way to be marked is replaced by something that is marked from the start.
        let again = open_again(number);
        close(number)?;
        if let Some(again) = again {
            fcntl(&again, FcntlArg::F_DUPFD_CLOEXEC(number))?;
        }
    }
    Ok(())
}

/// Closes what was inherited. To be called before anything is opened by those who do not care
/// whether it is inherited.
pub(crate) fn close_inherited() -> io::Result<()> {
    for number in inherited()? {
        close(number)?;
    }
    Ok(())
}

/// Only what can be opened without any effect.
fn open_again(number: RawFd) -> Option<File> {
    let path = format!("/proc/self/fd/{number}");
    let kind = fs::metadata(&path).ok()?.file_type();
    if !kind.is_file() && !kind.is_fifo() {
        return None;
    }
    // A pipe must not make us wait for who writes to it.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits());
    options.open(path).ok()
}

/// What a program that is executed by this one would have open.
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
