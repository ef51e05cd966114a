//! SIGINT and SIGTERM: what a command does before it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::signal::unix::{SignalKind, signal};

use crate::connect::runtime;
use crate::failure::Failure;

/// Resolves with the number of the signal when the user or the system asks the command to stop.
///
/// The handlers are in place when this returns, in the context of a runtime: a signal that comes before the first poll does not
/// end the process.
pub(crate) fn interrupted() -> impl Future<Output = Result<u8, Failure>> {
    let handlers = signal(SignalKind::terminate())
        .and_then(|terminate| Ok((terminate, signal(SignalKind::interrupt())?)))
        .map_err(|error| Failure::failed(format!("no signals: {error}")));
    async move {
        let (mut terminate, mut interrupt) = handlers?;
        tokio::select! {
            _ = terminate.recv() => Ok(TERM),
            _ = interrupt.recv() => Ok(INT),
        }
    }
}

/// The first signal, for loops that look at it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    signal: Arc<AtomicU8>,
}

impl Interrupt {
    /// Takes signals from now on. The second one ends the process.
    pub(crate) fn watch() -> Result<Self, Failure> {
        Self::watch_and(|signal| {
            // Nobody waits: this thread has nothing else to do.
            let second = runtime().and_then(|runtime| runtime.block_on(async { interrupted().await }));
            std::process::exit(i32::from(128 + second.unwrap_or(signal)));
        })
    }

    /// Takes signals from now on: the first one is noted, and then `act` runs in a thread of its own.
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
                noted.signal.store(signal, Ordering::Relaxed);
                act(signal);
            }
        };
        let spawned = std::thread::Builder::new().name("ottla-signals".into()).spawn(watch);
        spawned.map_err(|error| Failure::failed(format!("no thread for signals: {error}")))?;
        Ok(interrupt)
    }

    /// Whether a signal came.
    pub(crate) fn is_set(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// How a command ends that a signal stopped.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.signal.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(Failure::Interrupted(signal)),
        }
    }
}

const INT: u8 = 2;
const TERM: u8 = 15;
