//! What tells us to stop.

use std::io;

use futures::Stream;
use futures::stream::SelectAll;
use tokio::signal::unix::{SignalKind, signal};
use trainyard_local::yard;

/// Ctrl-C, a request to end, and a terminal that is closed: each is one item. Who starts us may have decided that one of
/// them is ignored, as `nohup` does, and it stays so.
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
