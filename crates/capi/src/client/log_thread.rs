//! The thread that calls the application's log function with the engine's lines. The engine waits for a call, but not long: a
//! function that blocks delays other lines, and not the engine.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
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
pub(crate) type PassLine<L> = Box<dyn FnMut(&L) -> bool + Send>;

/// The thread, which starts with the first line. In tests, lines have another type.
pub(crate) struct LogThread<L = LogLine> {
    state: Mutex<State<L>>,
    progress: Arc<Progress>,
    /// [`LINES_MAX`], except in tests.
    lines_max: usize,
}

enum State<L> {
    Unstarted,
    Running(Running<L>),
    /// The system has no thread.
    Missing,
    /// The client ends.
    Ended,
}

struct Running<L> {
    lines: SyncSender<L>,
    thread: JoinHandle<()>,
    /// Lines that were handed over.
    count: u64,
}

impl<L: Send + 'static> Default for LogThread<L> {
    fn default() -> Self {
        Self::with_lines_max(LINES_MAX)
    }
}

impl<L: Send + 'static> LogThread<L> {
    fn with_lines_max(lines_max: usize) -> Self {
        Self { state: Mutex::new(State::Unstarted), progress: Arc::default(), lines_max }
    }

    /// Hands a line to the thread, which starts with `pass`; returns the line if there is no other thread. Drops it after the end.
    pub(crate) fn take(&self, line: L, pass: impl FnOnce() -> PassLine<L>) -> Result<(), L> {
        let mut state = lock(&self.state);
        if matches!(*state, State::Unstarted) {
            *state = start(pass(), self.lines_max, &self.progress);
        }
        let running = match &mut *state {
            State::Running(running) => running,
            State::Missing => return Err(line),
            State::Unstarted | State::Ended => return Ok(()),
        };
        if is_current(&running.thread) {
            return Err(line);
        }
        running.count += 1;
        let (lines, count) = (running.lines.clone(), running.count);
        // A full channel waits, and the end of the thread must not.
        drop(state);
        self.progress.send(&lines, line)?;
        self.progress.wait(count);
        Ok(())
    }

    /// Runs a function that waits for the engine. In the thread itself, lines that wait for room are dropped meanwhile: the engine waits
    /// with them.
    pub(crate) fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let is_inside = matches!(&*lock(&self.state), State::Running(running) if is_current(&running.thread));
        if !is_inside {
            return wait();
        }
        self.progress.stop();
        let result = wait();
        self.progress.resume();
        result
    }

    /// Waits until the application has received the lines so far. In the thread itself, lines that wait for room are dropped.
    pub(crate) fn end(&self) {
        let before = std::mem::replace(&mut *lock(&self.state), State::Ended);
        if let State::Running(Running { lines, thread, .. }) = before {
            drop(lines);
            if is_current(&thread) {
                // The application is in its function and waits for the engine, which waits for room until the function returns.
                self.progress.stop();
            } else {
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
    /// The channel has room for another line, or the thread stops.
    has_room: Condvar,
}

#[derive(Default)]
struct Calls {
    /// Calls that have begun; each has made room for a line.
    begun: u64,
    returned: u64,
    /// A call took longer than the engine waits; until the thread has caught up, no line is waited for.
    is_late: bool,
    /// No line waits for room.
    is_stopped: bool,
}

impl Progress {
    /// Sends a line, and waits while the channel is full. A line that waits when the thread stops is dropped.
    fn send<L>(&self, lines: &SyncSender<L>, mut line: L) -> Result<(), L> {
        loop {
            let begun = lock(&self.calls).begun;
            match lines.try_send(line) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(unsent)) => return Err(unsent),
                Err(TrySendError::Full(unsent)) => line = unsent,
            }
            let is_full = |calls: &mut Calls| calls.begun == begun && !calls.is_stopped;
            let waited = self.has_room.wait_while(lock(&self.calls), is_full);
            let mut calls = waited.unwrap_or_else(PoisonError::into_inner);
            if calls.is_stopped {
                // No call follows, and none is waited for.
                calls.returned += 1;
                return Ok(());
            }
        }
    }

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

    /// The thread has taken a line, and makes room for another.
    fn begun(&self) {
        lock(&self.calls).begun += 1;
        self.has_room.notify_all();
    }

    fn returned(&self) {
        lock(&self.calls).returned += 1;
        self.changed.notify_all();
    }

    fn stop(&self) {
        lock(&self.calls).is_stopped = true;
        self.has_room.notify_all();
    }

    fn resume(&self) {
        lock(&self.calls).is_stopped = false;
    }
}

fn start<L: Send + 'static>(pass: PassLine<L>, lines_max: usize, progress: &Arc<Progress>) -> State<L> {
    let (lines, waiting) = sync_channel(lines_max);
    let progress = progress.clone();
    let thread = std::thread::Builder::new().name("rdk:log".into());
    let thread = thread.spawn(move || pass_each(pass, &waiting, &progress));
    thread.map_or(State::Missing, |thread| State::Running(Running { lines, thread, count: 0 }))
}

fn pass_each<L>(mut pass: PassLine<L>, lines: &Receiver<L>, progress: &Progress) {
    let _counted = Counted::new();
    for line in lines {
        progress.begun();
        if !pass(&line) {
            break;
        }
        progress.returned();
    }
    progress.stop();
}

fn is_current(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() == std::thread::current().id()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    fn no_second_thread() -> PassLine<u32> {
        panic!("the thread was started before")
    }

    /// The line waited for the application's function, which destroyed its client and so waited for the line's sender.
    #[test]
    fn an_end_in_the_thread_ends_the_wait_of_a_line_for_room() {
        let log: Arc<LogThread<u32>> = Arc::new(LogThread::with_lines_max(1));
        let (go, waiting) = channel::<()>();
        let ending = log.clone();
        let pass = move |line: &u32| {
            if *line == 1 && waiting.recv().is_ok() {
                ending.end();
                // The call does not return before the test has ended.
                let _ = waiting.recv();
            }
            true
        };
        assert_eq!(log.take(1, || Box::new(pass)), Ok(()));
        // Fills the channel.
        assert_eq!(log.take(2, no_second_thread), Ok(()));
        let sending = std::thread::spawn({
            let log = log.clone();
            move || log.take(3, no_second_thread)
        });
        while !matches!(&*lock(&log.state), State::Running(running) if running.count == 3) {
            std::thread::yield_now();
        }
        go.send(()).expect("the thread waits in its first call");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !sending.is_finished() {
            assert!(Instant::now() < deadline, "the line still waits for room");
            std::thread::yield_now();
        }
        assert_eq!(sending.join().expect("no panic"), Ok(()), "the line is dropped");
        drop(go);
    }

    /// The line waited for the application's function, which waited for the end of its processor and so for the line's sender.
    #[test]
    fn a_function_that_waits_for_the_engine_ends_the_wait_of_a_line_for_room() {
        let log: Arc<LogThread<u32>> = Arc::new(LogThread::with_lines_max(1));
        let (sent, waiting) = channel::<()>();
        let (done, outcome) = channel();
        let inner = log.clone();
        let pass = move |line: &u32| {
            if *line == 1 {
                let wait = || waiting.recv_timeout(Duration::from_secs(60)).is_ok();
                let _ = done.send(inner.while_waiting(wait));
            }
            true
        };
        assert_eq!(log.take(1, || Box::new(pass)), Ok(()));
        // Fills the channel.
        assert_eq!(log.take(2, no_second_thread), Ok(()));
        assert_eq!(log.take(3, no_second_thread), Ok(()), "the line is dropped");
        let _ = sent.send(());
        assert_eq!(outcome.recv(), Ok(true), "the line waited as long as the function");
        log.end();
    }
}
