//! What tells us to stop.

use std::io;

use futures::Stream;
use tokio::signal::unix::{SignalKind, signal};

/// Ctrl-C, a request to end, and a terminal that is closed: each is one item.
pub fn interrupts() -> io::Result<impl Stream<Item = ()>> {
    let interrupt = signal(SignalKind::interrupt())?;
    let terminate = signal(SignalKind::terminate())?;
    let hang_up = signal(SignalKind::hangup())?;
    Ok(futures::stream::unfold(
        (interrupt, terminate, hang_up),
        |mut signals| async {
            tokio::select! {
                _ = signals.0.recv() => {}
                _ = signals.1.recv() => {}
                _ = signals.2.recv() => {}
            }
            Some(((), signals))
        },
    ))
}
