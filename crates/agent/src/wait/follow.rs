//! Listening to the observer for as long as it takes: whatever fails is tried again.

use std::ops::ControlFlow;
use std::time::Duration;

use trainyard_contract::start::Start;

use super::start_line;
use crate::backoff::Backoff;
use crate::observer::{ObserverClient, ObserverError};

/// What happens while the pod waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Start(Start),
    /// Why the observer can't be heard. It is asked again.
    Error(String),
}

/// Whether somebody still wants to hear more.
pub type Interest = ControlFlow<()>;

/// Listens on one connection until it fails, or nobody wants to hear more.
pub fn listen(
    observer: &ObserverClient,
    path: &str,
    hear: &mut dyn FnMut(Start) -> Interest,
) -> Result<(), ObserverError> {
    let mut answer = observer.ask(path)?;
    loop {
        let line = answer.next_line()?;
        let start = start_line::parse(&line).map_err(|problem| answer.nonsense(problem))?;
        if let Some(start) = start
            && hear(start).is_break()
        {
            return Ok(());
        }
    }
}

/// Listens on one connection after another until nobody wants to hear more. `pause` is called
/// between them, and `random` gives numbers from 0 to 1.
pub fn follow(
    mut listen: impl FnMut(&mut dyn FnMut(Start) -> Interest) -> Result<(), ObserverError>,
    mut tell: impl FnMut(Event) -> Interest,
    mut pause: impl FnMut(Duration),
    mut random: impl FnMut() -> f64,
) {
    let mut backoff = Backoff::default();
    loop {
        let mut was_heard = false;
        let result = listen(&mut |start| {
            was_heard = true;
            tell(Event::Start(start))
        });
        let Err(failure) = result else {
            return;
        };
        // A server that is reached but says nothing of use is not asked more often for that.
        if was_heard {
            backoff.reset();
        }
        if tell(Event::Error(failure.to_string())).is_break() {
            return;
        }
        pause(backoff.pause(failure.max_pause(), random()));
    }
}
