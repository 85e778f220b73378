//! Waiting for several file descriptors at once.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, Timespec, poll};

/// Waits until one of them is ready, or for some time. Signals that were handled meanwhile may end
/// it early.
pub fn wait(fds: &mut [PollFd<'_>], time: Option<Duration>) -> io::Result<()> {
    // The system counts in milliseconds, and must not wake up before it is time.
    let time = time.map(|time| time + Duration::from_millis(1));
    let time = time.and_then(|time| Timespec::try_from(time).ok());
    match poll(fds, time.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
