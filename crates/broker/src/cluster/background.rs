//! Threads for work that takes much processor time: connections with very many items in a request, batches to be decompressed, and
//! handshakes of TLS.
//!
//! They have a lower priority than the threads that serve clients, so that these never wait for a processor behind them.
//! One thread serves all connections with such requests: the memory that a thread has freed mostly stays with it, up to its largest
//! request. Another one shakes hands, so that new clients do not wait for these.

use std::sync::{Arc, OnceLock};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

#[cfg(target_os = "linux")]
use super::background_priority;
use crate::cluster::Cluster;
use crate::partition::{Syncer, finished};

/// The threads.
#[derive(Debug, Default)]
pub(crate) struct BackgroundThreads {
    heavy: BackgroundThread,
    handshakes: BackgroundThread,
}

/// A thread, which starts with its first work.
#[derive(Debug, Default)]
struct BackgroundThread(OnceLock<Option<Runtime>>);

impl BackgroundThread {
    fn runtime(&self, name: &str) -> Option<&Runtime> {
        let start = || {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(1).thread_name(name).enable_all();
            // Other systems count a priority for the whole process: there it stays.
            #[cfg(target_os = "linux")]
            builder.on_thread_start(background_priority::lower);
            let started = builder.build();
            started.inspect_err(|error| tracing::warn!(%error, thread = name, "cannot start a thread")).ok()
        };
        self.0.get_or_init(start).as_ref()
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take().flatten() {
            // Waiting for the thread could block the one that serves clients.
            runtime.shutdown_background();
        }
    }
}

/// Ends a task when the one that waits for it ends.
struct Aborting<V>(JoinHandle<V>);

impl<V> Drop for Aborting<V> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Cluster {
    /// Runs a future that takes processor time. `None` if it panicked.
    pub(crate) async fn run_future_in_background<V: Send + 'static>(
        self: &Arc<Self>,
        future: impl Future<Output = V> + Send + 'static,
    ) -> Option<V> {
        run_on(self.background_runtime(), future).await
    }

    /// Runs the handshake of a connection. `None` if it panicked.
    pub(crate) async fn run_handshake<V: Send + 'static>(
        self: &Arc<Self>,
        handshake: impl Future<Output = V> + Send + 'static,
    ) -> Option<V> {
        run_on(self.background.handshakes.runtime("ottla-handshake"), handshake).await
    }

    /// Runs work that may block, and waits for it. The directory stays locked until the work has ended.
    ///
    /// No `async fn`: its future would have the work twice.
    pub(crate) fn run_blocking<V, W>(&self, work: W) -> impl Future<Output = V> + use<V, W>
    where
        V: Send + 'static,
        W: FnOnce() -> V + Send + 'static,
    {
        let held = self.data_lock.share();
        let work = move || {
            let done = work();
            drop(held);
            done
        };
        self.syncer.run_blocking(work)
    }

    /// Runs work that takes processor time, and waits for it. The directory stays locked until the work has ended.
    pub(crate) async fn run_in_background<V: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> V + Send + 'static,
    ) -> V {
        let held = self.data_lock.share();
        let work = move || {
            let done = work();
            drop(held);
            done
        };
        match self.background_runtime() {
            None => self.syncer.run_blocking(work).await,
            Some(runtime) => finished(runtime.spawn_blocking(work)).await,
        }
    }

    fn background_runtime(&self) -> Option<&Runtime> {
        match self.syncer {
            Syncer::Inline(_) => None,
            Syncer::Thread => self.background.heavy.runtime("ottla-heavy"),
        }
    }
}

async fn run_on<V: Send + 'static>(
    runtime: Option<&Runtime>,
    future: impl Future<Output = V> + Send + 'static,
) -> Option<V> {
    match runtime {
        None => Some(future.await),
        Some(runtime) => {
            let mut task = Aborting(runtime.spawn(future));
            (&mut task.0).await.ok()
        }
    }
}
