//! SIGINT, SIGTERM and SIGHUP: as in Apache Kafka, each ends a command in an orderly way.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::connect::runtime;
use crate::failure::Failure;

/// Resolves with the signal's number when the command receives SIGINT, SIGTERM or SIGHUP.
///
/// The handlers are installed when this function returns, in the context of a runtime. A signal before the first poll
/// does not end the process.
pub(crate) fn interrupted() -> impl Future<Output = Result<u8, Failure>> {
    let signals = Signals::handle();
    async move { Ok(signals?.next().await) }
}

/// SIGINT, SIGTERM and SIGHUP of a command for which the second signal has another meaning than the first.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` if SIGHUP is left as it is.
    hangup: Option<Signal>,
}

impl Signals {
    /// Installs the handlers, in the context of a runtime.
    pub(crate) fn handle() -> Result<Self, Failure> {
        let install = || -> io::Result<Self> {
            let hangup = if may_handle_hangup() { Some(signal(SignalKind::hangup())?) } else { None };
            let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            Ok(Self { terminate, interrupt, hangup })
        };
        install().map_err(|error| Failure::failed(format!("cannot handle signals: {error}")))
    }

    /// Waits for the next signal and returns its number. Cancel safe.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.terminate.recv() => TERM,
            _ = self.interrupt.recv() => INT,
            () = hung_up(&mut self.hangup) => HUP,
        }
    }
}

async fn hung_up(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => {
            hangup.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Returns `true` if SIGHUP is not ignored: a command under `nohup` continues when its terminal is closed. Only Linux has the file.
fn may_handle_hangup() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| !ignores_hangup(&status))
}

fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_none_or(|mask| (mask >> (HUP - 1)) & 1 == 1)
}

/// Ends the process at the first signal until it is dropped, for work that blocks its thread and may be interrupted at any step.
#[derive(Debug)]
pub(crate) struct EndAtSignal {
    _until: oneshot::Sender<()>,
}

impl EndAtSignal {
    /// Installs the handlers, and starts the thread that waits for a signal.
    pub(crate) fn start() -> Result<Self, Failure> {
        let runtime = runtime()?;
        let mut signals = {
            let _context = runtime.enter();
            Signals::handle()?
        };
        let (until, dropped) = oneshot::channel();
        let watch = move || {
            runtime.block_on(async move {
                tokio::select! {
                    biased;
                    _ = dropped => {}
                    signal = signals.next() => std::process::exit(128 + i32::from(signal)),
                }
            });
        };
        let spawned = std::thread::Builder::new().name("ottla-signals".into()).spawn(watch);
        spawned.map_err(|error| Failure::failed(format!("cannot start the signal thread: {error}")))?;
        Ok(Self { _until: until })
    }
}

/// Remembers the first signal, for loops that check it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    signal: Arc<AtomicU8>,
}

impl Interrupt {
    /// Starts to handle signals. The second signal ends the process.
    pub(crate) fn watch() -> Result<Self, Failure> {
        Self::watch_and(|signal| {
            std::process::exit(i32::from(128 + signal_after(signal)));
        })
    }

    /// Starts to handle signals around work that must end. The first signal is recorded; a second one ends the process, and so
    /// does the first one after the work.
    pub(crate) fn watch_until(done: Arc<AtomicBool>) -> Result<Self, Failure> {
        Self::watch_and(move |first| {
            let last = if done.load(Ordering::SeqCst) { first } else { signal_after(first) };
            std::process::exit(i32::from(128 + last));
        })
    }

    /// Starts to handle signals. The first signal is recorded, then `act` runs in a separate thread.
    pub(crate) fn watch_and(act: impl FnOnce(u8) + Send + 'static) -> Result<Self, Failure> {
        let interrupt = Self::default();
        let noted = interrupt.clone();
        let runtime = runtime()?;
        let watching = {
            let _context = runtime.enter();
            interrupted()
        };
        let watch = move || {
            if let Ok(signal) = runtime.block_on(watching) {
                noted.signal.store(signal, Ordering::SeqCst);
                act(signal);
            }
        };
        let spawned = std::thread::Builder::new().name("ottla-signals".into()).spawn(watch);
        spawned.map_err(|error| Failure::failed(format!("cannot start the signal thread: {error}")))?;
        Ok(interrupt)
    }

    /// `true` after a signal.
    pub(crate) fn is_set(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// Returns [`Failure::Interrupted`] after a signal.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.signal.load(Ordering::SeqCst) {
            0 => Ok(()),
            signal => Err(Failure::Interrupted(signal)),
        }
    }
}

/// Ends the process at the next signal, while this thread does the last work after the first one.
pub(crate) fn end_at_next(first: u8) {
    let wait = move || std::process::exit(i32::from(128 + signal_after(first)));
    // Without the thread, the last work decides about the end.
    let _ = std::thread::Builder::new().name("ottla-signals".into()).spawn(wait);
}

/// Waits for another signal. Blocks the thread, which has no other work.
fn signal_after(first: u8) -> u8 {
    let second = runtime().and_then(|runtime| runtime.block_on(async { interrupted().await }));
    second.unwrap_or(first)
}

const HUP: u8 = 1;
const INT: u8 = 2;
const TERM: u8 = 15;
