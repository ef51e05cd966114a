//! Producing: records into batches in the caller's thread, batches into requests in the engine's.

mod answers;
mod batch;
pub(crate) mod delivery;
pub(crate) mod idempotence;
pub(crate) mod partitioner;
pub(crate) mod queue;
pub(crate) mod sender;
pub(crate) mod topics;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use self::delivery::Outcome;
use self::queue::Queues;
use self::topics::{NotTaken, Topics};
use crate::config::Config;
use crate::error::{Persisted, ProduceError, ProduceErrorKind};

/// What producing threads and the sender share.
#[derive(Debug)]
pub(crate) struct Produce {
    pub(crate) config: Arc<Config>,
    pub(crate) queues: Queues,
    pub(crate) topics: Topics,
    rng: Mutex<fastrand::Rng>,
}

impl Produce {
    pub(crate) fn new(config: Arc<Config>, mut rng: fastrand::Rng) -> Arc<Self> {
        Arc::new(Self {
            queues: Queues::new(config.buffer_bytes_max, config.batch_bytes_max, config.clock.clone()),
            topics: Topics::new(rng.u64(..)),
            rng: Mutex::new(rng),
            config,
        })
    }

    pub(crate) fn random(&self) -> f64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }

    /// The error for a record that was not taken.
    pub(crate) fn refusal(&self, topic: &Arc<str>, refused: NotTaken) -> ProduceError {
        let (partition, kind) = match refused {
            NotTaken::NoSuchPartition(partition, count) => {
                (partition, ProduceErrorKind::NoSuchPartition { count })
            }
            NotTaken::Refused(partition, queue::Refused::TooLarge(bytes)) => {
                (partition, ProduceErrorKind::TooLarge { bytes, max: self.queues.batch_bytes_max() })
            }
            NotTaken::Refused(partition, queue::Refused::Full | queue::Refused::NewBatch) => {
                let budget = self.queues.budget();
                (partition, ProduceErrorKind::QueueFull { used: budget.used(), max: budget.max() })
            }
            NotTaken::Refused(partition, queue::Refused::Closed) => (partition, ProduceErrorKind::Closed),
        };
        ProduceError { topic: topic.clone(), partition, kind, persisted: Persisted::NotWritten }
    }

    /// Refuses records from now on and fails those that no request carries.
    pub(crate) fn close(&self) {
        for topic in self.topics.all() {
            for queue in topic.close() {
                for open in queue.close() {
                    let kind = ProduceErrorKind::Closed;
                    let persisted = Persisted::NotWritten;
                    let error = ProduceError {
                        topic: topic.name.clone(),
                        partition: queue.partition,
                        kind,
                        persisted,
                    };
                    open.completion.complete(Outcome::Failed(Arc::new(error)));
                    self.queues.settle(open.builder.memory(), None);
                }
            }
        }
    }
}
