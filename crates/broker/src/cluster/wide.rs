//! Requests with very many items are answered by a thread of their own, so that other clients do not wait for them.
//!
//! It is one thread, and always the same: the memory that a thread has freed mostly stays with it, up to its largest request.

use std::sync::{Arc, OnceLock};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::partition::Syncer;

/// The thread, which starts with the first such request.
#[derive(Debug, Default)]
pub(crate) struct WideRequests(OnceLock<Option<Runtime>>);

impl WideRequests {
    fn runtime(&self) -> Option<&Runtime> {
        let start = || {
            let mut builder = Builder::new_multi_thread();
            let started = builder.worker_threads(1).thread_name("ottla-wide").enable_all().build();
            started
                .inspect_err(
                    |error| tracing::warn!(%error, "requests with many items have no thread of their own"),
                )
                .ok()
        };
        self.0.get_or_init(start).as_ref()
    }
}

impl Drop for WideRequests {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take().flatten() {
            // Waiting for the thread could block the one that serves clients.
            runtime.shutdown_background();
        }
    }
}

/// Ends a task when its connection does.
struct Aborting<V>(JoinHandle<V>);

impl<V> Drop for Aborting<V> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Cluster {
    /// Runs the answer to a request with very many items. `None` if it panicked.
    pub(crate) async fn answer_wide<V: Send + 'static>(
        self: &Arc<Self>,
        answer: impl Future<Output = V> + Send + 'static,
    ) -> Option<V> {
        let runtime = match self.syncer {
            Syncer::Inline(_) => None,
            Syncer::Thread => self.wide.runtime(),
        };
        match runtime {
            None => Some(answer.await),
            Some(runtime) => {
                let mut task = Aborting(runtime.spawn(answer));
                (&mut task.0).await.ok()
            }
        }
    }
}
