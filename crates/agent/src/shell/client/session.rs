//! One command on another host.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::shell::error::LinkError;
use crate::shell::frame::{Frame, FrameError, PROTOCOL, Stream, WINDOW};
use crate::shell::link::Link;
use crate::signals::{ExitSignals, PendingSignals};
use crate::text::one_line;

use super::arguments::Call;
use super::stdio::{Event, Events, Mailbox, Room, mailbox, read_input, write_output};

/// How long outputs may take to be written after a failure or a signal.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// Why there is no exit code.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The connection is over.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The other side is of another release.
    #[error(
        "its agent is of the release {release}, which speaks the protocol {protocol} and not {PROTOCOL}; all pods of a job \
         must have the same agent"
    )]
    Version {
        /// What it speaks.
        protocol: u32,
        /// What it is.
        release: String,
    },
    /// The other side has said no.
    #[error("it refuses: {0}")]
    Refused(String),
    /// Nobody takes the outputs.
    #[error("its output can't be written: {0}")]
    Output(io::Error),
    /// The system does not let this program work.
    #[error("{0}")]
    System(io::Error),
}

/// Runs the command. Returns its exit code when all of its outputs are written.
pub fn run(mut link: Link, call: &Call, signals: ExitSignals) -> Result<u8, SessionError> {
    let mut session = Session::start(call, signals).map_err(SessionError::System)?;
    link.queue(&Frame::hello());
    link.queue(&Frame::Command {
        has_input: call.has_input,
        line: call.line.clone(),
    });
    let result = session.relay(&mut link);
    drop(link);
    let has_deadline = result.is_err() || session.was_signalled;
    session.finish(has_deadline).and(result)
}

struct Session {
    mailbox: Mailbox,
    events: Events,
    signals: PendingSignals,
    room: Arc<Room>,
    outputs: [Output; 2],
    /// The other side has said who it is.
    is_known: bool,
    was_signalled: bool,
}

struct Output {
    stream: Stream,
    /// The writer, started with the first output. Most commands of launchers have none.
    writer: Option<Sender<Vec<u8>>>,
    /// Bytes that are not written yet.
    waiting: usize,
    /// Bytes that were written and not acknowledged yet.
    taken: usize,
}

impl Session {
    fn start(call: &Call, signals: ExitSignals) -> io::Result<Self> {
        let (mailbox, events) = mailbox()?;
        let signals = signals.collect(mailbox.wakeup())?;
        let room = Arc::new(Room::default());
        if call.has_input {
            read_input(room.clone(), mailbox.clone())?;
        }
        let output = |stream| Output {
            stream,
            writer: None,
            waiting: 0,
            taken: 0,
        };
        Ok(Self {
            mailbox,
            events,
            signals,
            room,
            outputs: [output(Stream::Out), output(Stream::Err)],
            is_known: false,
            was_signalled: false,
        })
    }

    /// Relays everything until the command has ended. Returns its exit code.
    fn relay(&mut self, link: &mut Link) -> Result<u8, SessionError> {
        loop {
            while let Some(frame) = link.next_frame()? {
                if let Some(code) = self.handle_frame(frame)? {
                    return Ok(code);
                }
            }
            while let Some(event) = self.events.next() {
                self.handle_event(event, link)?;
            }
            while let Some(signal) = self.signals.take() {
                self.was_signalled = true;
                link.queue(&Frame::Signal(u8::try_from(signal).unwrap_or(0)));
            }
            link.turn(&[(self.events.as_fd(), PollFlags::IN)], None)?;
            self.events.clear_wakeups();
        }
    }

    /// Handles a frame of the other side. Returns the exit code if the frame has it.
    fn handle_frame(&mut self, frame: Frame) -> Result<Option<u8>, SessionError> {
        match frame {
            Frame::Hello {
                protocol: PROTOCOL, ..
            } => self.is_known = true,
            Frame::Hello { protocol, release } => {
                let release = one_line(&release);
                return Err(SessionError::Version { protocol, release });
            }
            Frame::Refused(reason) => return Err(SessionError::Refused(one_line(&reason))),
            Frame::Heartbeat => {}
            Frame::Data(stream, data) if self.is_known => {
                let outputs = &mut self.outputs;
                let output = outputs.iter_mut().find(|output| output.stream == stream);
                let output = output.ok_or(out_of_turn("output"))?;
                output.waiting += data.len();
                if output.waiting + output.taken > WINDOW {
                    return Err(out_of_turn("output"));
                }
                output.write(data, &self.mailbox).map_err(SessionError::System)?;
            }
            Frame::Taken(Stream::In, count) if self.is_known => self.room.give(count as usize),
            Frame::Exit(code) if self.is_known => return Ok(Some(code)),
            _ => return Err(out_of_turn("a frame")),
        }
        Ok(None)
    }

    /// Tells the other side what happened here.
    fn handle_event(&mut self, event: Event, link: &mut Link) -> Result<(), SessionError> {
        match event {
            Event::Input(data) => link.queue(&Frame::Data(Stream::In, data)),
            Event::InputEnd => link.queue(&Frame::End(Stream::In)),
            Event::Wrote(stream, count) => {
                let outputs = self.outputs.iter_mut();
                for output in outputs.filter(|output| output.stream == stream) {
                    output.waiting -= count;
                    output.taken += count;
                    if output.taken >= WINDOW / 4 || output.waiting == 0 {
                        let taken = u32::try_from(output.taken).unwrap_or(u32::MAX);
                        link.queue(&Frame::Taken(stream, taken));
                        output.taken = 0;
                    }
                }
            }
            Event::Broken(error) => return Err(SessionError::Output(error)),
            Event::Finished => {}
        }
        Ok(())
    }

    /// Waits until all outputs are written.
    fn finish(self, has_deadline: bool) -> Result<(), SessionError> {
        let Self {
            mut events,
            signals,
            outputs,
            ..
        } = self;
        let deadline = has_deadline.then(|| Instant::now() + OUTPUT_TIMEOUT);
        let mut left = outputs.iter().filter(|output| output.writer.is_some()).count();
        drop(outputs);
        loop {
            while let Some(event) = events.next() {
                match event {
                    Event::Finished => left -= 1,
                    Event::Broken(error) => return Err(SessionError::Output(error)),
                    _ => {}
                }
            }
            let time = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // A second signal ends the wait.
            if left == 0 || time.is_some_and(|time| time.is_zero()) || signals.take().is_some() {
                return Ok(());
            }
            events.wait(time).map_err(SessionError::System)?;
        }
    }
}

impl Output {
    fn write(&mut self, data: Vec<u8>, mailbox: &Mailbox) -> io::Result<()> {
        if self.writer.is_none() {
            self.writer = Some(write_output(self.stream, mailbox.clone())?);
        }
        // A failed writer has reported its error.
        drop(self.writer.as_ref().map(|writer| writer.send(data)));
        Ok(())
    }
}

fn out_of_turn(what: &'static str) -> SessionError {
    SessionError::Link(FrameError::OutOfTurn(what).into())
}
