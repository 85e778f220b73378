//! Follows what the observer tells, on one connection after another.

use std::io::{self, Write};
use std::sync::mpsc::Sender;
use std::thread;

use super::{ObserverClient, ObserverError};
use crate::backoff::Backoff;
use crate::mode::PROGRAM;

/// How a line is read.
type Read<T> = fn(&[u8]) -> Result<T, String>;

impl ObserverClient {
    /// Passes on what lines of a path say, until nobody wants to hear more. Troubles are told on
    /// standard error, each once.
    pub(crate) fn follow<T>(&self, path: &str, read: Read<T>, tell: &Sender<T>) {
        let (mut backoff, mut logged) = (Backoff::default(), String::new());
        loop {
            let mut heard = false;
            let Err(failure) = self.listen(path, read, &mut heard, tell) else {
                return;
            };
            if heard {
                backoff.reset();
            }
            let trouble = failure.to_string();
            if trouble != logged && !failure.is_elsewhere() {
                let _ = writeln!(io::stderr(), "{PROGRAM}: {trouble}; trying again");
                logged = trouble;
            }
            thread::sleep(backoff.pause(failure.max_pause(), fastrand::f64()));
        }
    }

    /// Listens on one connection until it fails, or nobody wants to hear more.
    fn listen<T>(
        &self,
        path: &str,
        read: Read<T>,
        heard: &mut bool,
        tell: &Sender<T>,
    ) -> Result<(), ObserverError> {
        let mut answer = self.ask(path)?;
        loop {
            let line = answer.next_line()?;
            *heard = true;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let said = read(&line).map_err(|problem| answer.nonsense(problem))?;
            if tell.send(said).is_err() {
                return Ok(());
            }
        }
    }
}
