//! Input and outputs of this program. They may be shared with others and must stay as they are,
//! that is, they may block: each has a thread of its own.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags};

use crate::shell::MAX_CHUNK;
use crate::shell::frame::{Stream, WINDOW};
use crate::shell::poll::wait;

/// What happens on this side.
#[derive(Debug)]
pub enum Event {
    /// Something was read.
    Input(Vec<u8>),
    /// There is no more to read.
    InputEnd,
    /// So many bytes were written.
    Wrote(Stream, usize),
    /// An output can't be written any more.
    Broken(io::Error),
    /// An output is not written to any more.
    Finished,
}

/// Where events go.
#[derive(Clone, Debug)]
pub struct Mailbox {
    sender: Sender<Event>,
    wakeup: Arc<UnixStream>,
}

/// Where events come from.
#[derive(Debug)]
pub struct Events {
    receiver: Receiver<Event>,
    wakeup: UnixStream,
}

/// A mailbox and its other end.
pub fn mailbox() -> io::Result<(Mailbox, Events)> {
    let (sender, receiver) = channel();
    let (writer, wakeup) = UnixStream::pair()?;
    writer.set_nonblocking(true)?;
    wakeup.set_nonblocking(true)?;
    let mailbox = Mailbox {
        sender,
        wakeup: Arc::new(writer),
    };
    Ok((mailbox, Events { receiver, wakeup }))
}

impl Mailbox {
    /// A byte written here wakes up whoever waits for events.
    pub fn wakeup(&self) -> &UnixStream {
        &self.wakeup
    }

    /// Tells what has happened.
    pub fn post(&self, event: Event) {
        // At the end of the program nobody receives it. If there is no room, a wakeup is pending.
        let _ = self.sender.send(event);
        let _ = (&*self.wakeup).write(&[0]);
    }
}

impl Events {
    /// The next event, if there is one.
    pub fn next(&self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }

    /// Forgets wakeups, before events are read: only what comes later wakes up again.
    pub fn clear_wakeups(&mut self) {
        let mut bytes = [0; 64];
        while matches!(self.wakeup.read(&mut bytes), Ok(count) if count == bytes.len()) {}
    }

    /// Waits for a wakeup, or for some time.
    pub fn wait(&mut self, time: Option<Duration>) -> io::Result<()> {
        wait(
            &mut [PollFd::from_borrowed_fd(self.wakeup.as_fd(), PollFlags::IN)],
            time,
        )?;
        self.clear_wakeups();
        Ok(())
    }
}

impl AsFd for Events {
    /// Something to poll: it can be read when there may be events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}

/// How much the other side has room for.
#[derive(Debug)]
pub struct Room {
    left: Mutex<usize>,
    more: Condvar,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            left: Mutex::new(WINDOW),
            more: Condvar::new(),
        }
    }
}

impl Room {
    /// Adds room.
    pub fn give(&self, count: usize) {
        let mut left = self.left.lock();
        *left = left.saturating_add(count);
        self.more.notify_one();
    }

    /// Waits until there is room, and takes at most `most` of it.
    fn take(&self, most: usize) -> usize {
        let mut left = self.left.lock();
        self.more.wait_while(&mut left, |left| *left == 0);
        let taken = most.min(*left);
        *left -= taken;
        taken
    }
}

/// Reads the input of this program, as fast as there is room for it.
pub fn read_input(room: Arc<Room>, mailbox: Mailbox) -> io::Result<()> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    if input.metadata().is_ok_and(|input| is_null(&input)) {
        // As launchers have it. It is not worth a thread.
        mailbox.post(Event::InputEnd);
        return Ok(());
    }
    let read = move || {
        loop {
            let mut data = vec![0; room.take(MAX_CHUNK)];
            let count = retry(&input, PollFlags::IN, || (&input).read(&mut data)).unwrap_or(0);
            if count == 0 {
                return mailbox.post(Event::InputEnd);
            }
            room.give(data.len() - count);
            data.truncate(count);
            mailbox.post(Event::Input(data));
        }
    };
    thread::Builder::new().spawn(read)?;
    Ok(())
}

/// Whether a file is `/dev/null`, by whatever name.
fn is_null(file: &Metadata) -> bool {
    const NULL: (u64, u64) = (1, 3);
    let device = file.rdev();
    file.file_type().is_char_device() && (device >> 8, device & 0xff) == NULL
}

/// Writes what comes to an output of this program, until there is no more to come.
pub fn write_output(stream: Stream, mailbox: Mailbox) -> io::Result<Sender<Vec<u8>>> {
    let output = match stream {
        Stream::Err => io::stderr().as_fd().try_clone_to_owned(),
        _ => io::stdout().as_fd().try_clone_to_owned(),
    };
    let output = File::from(output?);
    let (sender, receiver) = channel::<Vec<u8>>();
    let write = move || {
        'all: for data in receiver {
            let mut rest = &*data;
            while !rest.is_empty() {
                match retry(&output, PollFlags::OUT, || (&output).write(rest)) {
                    Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                    Err(error) => {
                        mailbox.post(Event::Broken(error));
                        break 'all;
                    }
                }
            }
            mailbox.post(Event::Wrote(stream, data.len()));
        }
        mailbox.post(Event::Finished);
    };
    thread::Builder::new().spawn(write)?;
    Ok(sender)
}

/// Does something that blocks, also where somebody else has made it not to block.
fn retry(file: &File, flags: PollFlags, mut action: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match action() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(&mut [PollFd::from_borrowed_fd(file.as_fd(), flags)], None)?;
            }
            other => return other,
        }
    }
}
