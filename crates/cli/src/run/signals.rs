//! Signals that stop a run.

use std::io;

use futures::Stream;
use futures::stream::SelectAll;
use tokio::signal::unix::{SignalKind, signal};
use trainyard_local::yard;

/// One item for each SIGINT, SIGTERM and SIGHUP. A signal that was ignored when this program
/// started, as `nohup` does it, stays ignored.
pub fn interrupts() -> io::Result<impl Stream<Item = ()>> {
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let mut all = SelectAll::new();
    for kind in kinds
        .into_iter()
        .filter(|kind| !yard::is_ignored(kind.as_raw_value()))
    {
        let signals = futures::stream::unfold(signal(kind)?, |mut signal| async {
            signal.recv().await.map(|()| ((), signal))
        });
        all.push(Box::pin(signals));
    }
    Ok(all)
}
