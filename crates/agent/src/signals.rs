//! Being told to end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_shutdown;

/// What a shell adds to the number of the signal that ended a program.
const ENDED_BY_SIGNAL: i32 = 128;

/// SIGTERM and SIGINT end the process at once, whatever it is doing.
///
/// The first process of a container has no handlers, and without one the kernel drops these signals. The handler itself
/// ends the process, so that a call that can't be interrupted, such as a lookup of a name, does not delay the end.
pub fn end_when_told() -> io::Result<()> {
    for signal in [SIGTERM, SIGINT] {
        register_conditional_shutdown(signal, ENDED_BY_SIGNAL + signal, Arc::new(AtomicBool::new(true)))?;
    }
    Ok(())
}
