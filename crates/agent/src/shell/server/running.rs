//! A command that runs, its pipes, and what is under way in them.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use crate::children::{End, Started};
use crate::shell::MAX_CHUNK;
use crate::shell::frame::{Frame, FrameError, Stream, WINDOW};
use crate::shell::link::{Link, MAX_BACKLOG};
use crate::shell::poll::wait;

use super::commands::{GRACE_PERIOD, Group};

/// How long outputs are listened to after the end of a command whose processes in the background
/// keep them open.
///
/// `ssh` waits for those until they have gone. A launcher that starts a daemon by the remote shell
/// waits for the end of the command, and the daemon, if it was not told otherwise, keeps its
/// output: both would wait for ever. But what the command has written last may still be with a
/// process that passes it on, such as `tee`, which needs a moment.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// The most that a pipe holds: more than that after the end of a command is not by the command.
const MAX_PIPE_SIZE: usize = 1024 * 1024;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A command that was started.
#[derive(Debug)]
pub struct Running {
    group: Group,
    end: End,
    /// The exit code and since when it is known.
    ended: Option<(u8, Instant)>,
    input: Input,
    outputs: [Output; 2],
}

#[derive(Debug)]
struct Input {
    pipe: Option<File>,
    waiting: Vec<u8>,
    is_complete: bool,
    /// What has gone into the pipe and was not told.
    taken: usize,
}

#[derive(Debug)]
struct Output {
    stream: Stream,
    pipe: Option<File>,
    /// How much the other side has room for.
    room: usize,
    /// There was nothing in it a moment ago.
    is_dry: bool,
    read_after_end: usize,
}

impl Running {
    /// Takes over a process that was just started.
    pub fn new(group: Group, mut started: Started) -> io::Result<Self> {
        let child = &mut started.child;
        let input = pipe(child.stdin.take())?;
        let out = pipe(child.stdout.take())?;
        let err = pipe(child.stderr.take())?;
        Ok(Self {
            group,
            end: started.end,
            ended: None,
            input: Input {
                pipe: input,
                waiting: Vec::new(),
                is_complete: false,
                taken: 0,
            },
            outputs: [Output::new(Stream::Out, out), Output::new(Stream::Err, err)],
        })
    }

    /// Handles a frame of the client.
    pub fn handle(&mut self, frame: Frame) -> Result<(), FrameError> {
        match frame {
            Frame::Heartbeat => {}
            Frame::Data(Stream::In, data) => {
                if self.input.is_complete || self.input.waiting.len() + data.len() > WINDOW {
                    return Err(FrameError::OutOfTurn("input"));
                }
                self.input.waiting.extend(data);
            }
            Frame::End(Stream::In) => self.input.is_complete = true,
            Frame::Taken(stream, count) => {
                let outputs = &mut self.outputs;
                let output = outputs.iter_mut().find(|output| output.stream == stream);
                let output = output.ok_or(FrameError::OutOfTurn("a receipt"))?;
                output.room = output.room.saturating_add(count as usize);
                if output.room > WINDOW {
                    return Err(FrameError::OutOfTurn("a receipt"));
                }
            }
            Frame::Signal(number) => {
                let signal = Signal::from_named_raw(number.into());
                self.group
                    .signal(signal.ok_or(FrameError::OutOfTurn("a signal"))?);
            }
            _ => return Err(FrameError::OutOfTurn("a frame")),
        }
        Ok(())
    }

    /// Moves what can be moved between the pipes and the client without waiting.
    pub fn transfer(&mut self, link: &mut Link) {
        self.input.feed();
        if self.input.taken >= WINDOW / 4 || (self.input.taken > 0 && self.input.waiting.is_empty()) {
            let taken = u32::try_from(self.input.taken).unwrap_or(u32::MAX);
            link.queue(&Frame::Taken(Stream::In, taken));
            self.input.taken = 0;
        }
        // Before the outputs are looked at: what it has written is there when it has ended.
        self.check_exit();
        for output in &mut self.outputs {
            let room = if link.backlog() < MAX_BACKLOG {
                output.room
            } else {
                0
            };
            if let Some(data) = output.read(room.min(MAX_CHUNK)) {
                output.room -= data.len();
                if self.ended.is_some() {
                    output.read_after_end += data.len();
                }
                link.queue(&Frame::Data(output.stream, data));
            }
        }
    }

    /// The exit code, when all that the command has written is under way.
    pub fn code(&self) -> Option<u8> {
        let (code, since) = self.ended?;
        let is_late = since.elapsed() >= OUTPUT_TIMEOUT;
        let is_done = |output: &Output| {
            output.pipe.is_none() || is_late && (output.is_dry || output.read_after_end > MAX_PIPE_SIZE)
        };
        self.outputs.iter().all(is_done).then_some(code)
    }

    /// When to look at it although nothing has happened.
    pub fn next_check(&self) -> Option<Instant> {
        // Later on, it has not ended only if there is something to read or to send, which can be
        // waited for.
        let late = self.ended.map(|(_, since)| since + OUTPUT_TIMEOUT);
        late.filter(|late| Instant::now() < *late)
    }

    /// What is to be waited for.
    pub fn awaited(&self, backlog: usize) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut awaited = Vec::with_capacity(4);
        if self.ended.is_none() {
            awaited.push((self.end.as_fd(), PollFlags::IN));
        }
        if let Some(pipe) = self
            .input
            .pipe
            .as_ref()
            .filter(|_| !self.input.waiting.is_empty())
        {
            awaited.push((pipe.as_fd(), PollFlags::OUT));
        }
        // A pipe that was closed is always ready: who does not want to read it must not wait for
        // it.
        for output in self
            .outputs
            .iter()
            .filter(|output| output.room > 0 && backlog < MAX_BACKLOG)
        {
            awaited.extend(output.pipe.as_ref().map(|pipe| (pipe.as_fd(), PollFlags::IN)));
        }
        awaited
    }

    /// Ends a command whose client has gone.
    pub fn terminate(mut self) {
        self.input.pipe = None;
        self.group.signal(Signal::TERM);
        let mut deadline = Some(Instant::now() + GRACE_PERIOD);
        loop {
            self.check_exit();
            // A process that can't get rid of its output does not end. Not all that is there is
            // read at once: there may be no end of it. What is left is there when it is waited for.
            for output in &mut self.outputs {
                output.read(MAX_CHUNK);
            }
            if self.ended.is_some() && !self.group.exists() {
                return;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.group.signal(Signal::KILL);
                if self.ended.is_some() {
                    return;
                }
                deadline = None;
            }
            // What else is in the group can't be waited for, only looked at.
            self.wait(Some(POLL_INTERVAL));
        }
    }

    /// Takes what processes in the background still write, until the last of them has gone: one
    /// that writes into a pipe that is closed would be ended for it.
    pub fn drain(mut self) {
        while self.outputs.iter().any(|output| output.pipe.is_some()) {
            self.wait(None);
            for output in &mut self.outputs {
                output.read(MAX_CHUNK);
            }
        }
    }

    fn wait(&self, time: Option<Duration>) {
        let end = self.ended.is_none().then_some(self.end.as_fd());
        let pipes = self.outputs.iter().filter_map(|output| output.pipe.as_ref());
        let mut fds: Vec<PollFd<'_>> = end
            .into_iter()
            .chain(pipes.map(AsFd::as_fd))
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // If it fails, there is nothing to do but to try again.
        let _ = wait(&mut fds, time);
    }

    fn check_exit(&mut self) {
        if self.ended.is_none() {
            self.ended = self.end.code().map(|code| (code, Instant::now()));
        }
    }
}

impl Input {
    fn feed(&mut self) {
        let Some(pipe) = &mut self.pipe else {
            // Nobody reads it: it is as good as taken.
            self.taken += self.waiting.len();
            self.waiting.clear();
            return;
        };
        while !self.waiting.is_empty() {
            match pipe.write(&self.waiting) {
                Ok(count) => {
                    self.waiting.drain(..count);
                    self.taken += count;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.pipe = None;
                    return self.feed();
                }
            }
        }
        if self.is_complete {
            self.pipe = None;
        }
    }
}

impl Output {
    fn new(stream: Stream, pipe: Option<File>) -> Self {
        Self {
            stream,
            pipe,
            room: WINDOW,
            is_dry: false,
            read_after_end: 0,
        }
    }

    /// Some of what is in it, if there is something.
    fn read(&mut self, room: usize) -> Option<Vec<u8>> {
        self.is_dry = false;
        let pipe = self.pipe.as_mut().filter(|_| room > 0)?;
        let mut data = vec![0; room];
        match pipe.read(&mut data) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                data.truncate(count);
                return Some(data);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_dry = true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.pipe = None,
        }
        None
    }
}

/// This end of a pipe never blocks; the other end is not concerned.
fn pipe(end: Option<impl Into<OwnedFd>>) -> io::Result<Option<File>> {
    end.map(|end| {
        let file = File::from(end.into());
        rustix::io::ioctl_fionbio(&file, true)?;
        Ok(file)
    })
    .transpose()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::shell::server::commands::Commands;
    use crate::shell::server::commands::tests::CHILDREN;

    #[test]
    fn who_ignores_the_end_and_never_stops_writing_is_killed() {
        let commands = Arc::new(Commands::new(CHILDREN.clone()));
        let line = b"trap '' TERM; echo ready; exec sleep 1000".to_vec();
        let (group, started) = commands
            .request_start(line, false)
            .unwrap()
            .end(true)
            .unwrap()
            .unwrap();
        let mut running = Running::new(group, started).unwrap();
        while running.outputs[0].read(MAX_CHUNK).is_none() {
            running.wait(None);
        }
        // There is always more of it, however fast it is read.
        running.outputs[0].pipe = Some(File::open("/dev/zero").unwrap());
        let deadline = Instant::now() + Duration::from_mins(1);
        let terminated = thread::spawn(move || running.terminate());
        while !terminated.is_finished() {
            assert!(Instant::now() < deadline, "it is there");
            CHILDREN.reap();
            thread::sleep(Duration::from_millis(5));
        }
    }
}
