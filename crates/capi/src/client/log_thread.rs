//! The thread that calls the application's log function with the engine's lines. The engine waits for a call, but not long: a
//! function that blocks delays other lines, and not the engine.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ottla_client::LogLine;

use crate::client::thread_count::Counted;

/// The longest wait of the engine for a call.
const CALL_WAIT: Duration = Duration::from_millis(100);
/// Lines that wait for the thread. Further ones hold up the engine: none is lost.
const LINES_MAX: usize = 10_000;

/// Passes a line to the application; returns `false` if no line can be passed any more.
pub(crate) type PassLine = Box<dyn FnMut(&LogLine) -> bool + Send>;

/// The thread, which starts with the first line.
#[derive(Default)]
pub(crate) struct LogThread {
    state: Mutex<State>,
    progress: Arc<Progress>,
}

#[derive(Default)]
enum State {
    #[default]
    Unstarted,
    Running(Running),
    /// The client ends, or the system has no thread.
    Ended,
}

struct Running {
    lines: SyncSender<LogLine>,
    thread: JoinHandle<()>,
    /// Lines that were handed over.
    count: u64,
}

impl LogThread {
    /// Hands a line to the thread, which starts with `pass`; returns the line if there is no other thread.
    pub(crate) fn take(&self, line: LogLine, pass: impl FnOnce() -> PassLine) -> Result<(), LogLine> {
        let mut state = lock(&self.state);
        if matches!(*state, State::Unstarted) {
            *state = start(pass(), &self.progress);
        }
        let State::Running(running) = &mut *state else { return Err(line) };
        if is_current(&running.thread) {
            return Err(line);
        }
        running.count += 1;
        let (lines, count) = (running.lines.clone(), running.count);
        // A full channel waits, and the end of the thread must not.
        drop(state);
        lines.send(line).map_err(|unsent| unsent.0)?;
        self.progress.wait(count);
        Ok(())
    }

    /// Waits until the application has received the lines so far. Without effect in the thread itself.
    pub(crate) fn end(&self) {
        let before = std::mem::replace(&mut *lock(&self.state), State::Ended);
        if let State::Running(Running { lines, thread, .. }) = before {
            drop(lines);
            if !is_current(&thread) {
                let _ = thread.join();
            }
        }
    }
}

/// The lines that the application has received.
#[derive(Default)]
struct Progress {
    calls: Mutex<Calls>,
    changed: Condvar,
}

#[derive(Default)]
struct Calls {
    returned: u64,
    /// A call took longer than the engine waits; until the thread has caught up, no line is waited for.
    is_late: bool,
}

impl Progress {
    /// Waits until so many calls have returned, at most for [`CALL_WAIT`].
    fn wait(&self, count: u64) {
        let mut calls = lock(&self.calls);
        calls.is_late &= calls.returned + 1 < count;
        if !calls.is_late {
            let waited = self.changed.wait_timeout_while(calls, CALL_WAIT, |calls| calls.returned < count);
            calls = waited.unwrap_or_else(PoisonError::into_inner).0;
            calls.is_late = calls.returned < count;
        }
    }

    fn returned(&self) {
        lock(&self.calls).returned += 1;
        self.changed.notify_all();
    }
}

fn start(pass: PassLine, progress: &Arc<Progress>) -> State {
    let (lines, waiting) = sync_channel(LINES_MAX);
    let progress = progress.clone();
    let thread = std::thread::Builder::new().name("rdk:log".into());
    let thread = thread.spawn(move || pass_each(pass, &waiting, &progress));
    thread.map_or(State::Ended, |thread| State::Running(Running { lines, thread, count: 0 }))
}

fn pass_each(mut pass: PassLine, lines: &Receiver<LogLine>, progress: &Progress) {
    let _counted = Counted::new();
    for line in lines {
        if !pass(&line) {
            return;
        }
        progress.returned();
    }
}

fn is_current(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() == std::thread::current().id()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
