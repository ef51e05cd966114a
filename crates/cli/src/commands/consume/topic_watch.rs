//! The end of a topic that is deleted while it is read.

use std::time::{Duration, Instant};

use ottla_client::{Admin, Error, ErrorCode};

use crate::failure::Failure;
use crate::output::note;

/// The interval of the checks, while no records arrive.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The time limit of a check: without an answer, the next one decides.
const CHECK_WITHIN: Duration = Duration::from_millis(500);
/// The number of brokers in a row that do not know the topic: the metadata of one of them may be old.
const MISSING_MIN: u32 = 2;

/// Checks that a topic still exists. Brokers send no event when it is deleted: a fetch from it waits.
#[derive(Debug)]
pub(super) struct TopicWatch {
    topic: String,
    /// A group waits for the topic, because its members may be longer there than the topic is missing.
    waits: bool,
    checked: Instant,
    /// The checks in a row without the topic.
    missing: u32,
}

impl TopicWatch {
    pub(super) fn new(topic: &str, waits: bool) -> Self {
        Self { topic: topic.to_owned(), waits, checked: Instant::now(), missing: 0 }
    }

    /// Checks, if it is time. A missing topic is a failure, or with a group a warning.
    pub(super) async fn check(&mut self, admin: &Admin) -> Result<(), Failure> {
        if self.checked.elapsed() < CHECK_INTERVAL {
            return Ok(());
        }
        let topic = [&*self.topic];
        let described = tokio::time::timeout(CHECK_WITHIN, admin.describe_topics(&topic)).await;
        self.checked = Instant::now();
        match described {
            Ok(Err(Error::Broker { code: ErrorCode::UnknownTopicOrPartition, .. })) => self.on_missing(),
            Ok(Ok(_)) => {
                self.on_existing();
                Ok(())
            }
            // Other errors are reported with the connections.
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    fn on_missing(&mut self) -> Result<(), Failure> {
        self.missing = self.missing.saturating_add(1);
        match (self.missing == MISSING_MIN, self.waits) {
            (false, _) => Ok(()),
            (true, false) => Err(Failure::failed(format!("topic `{}` was deleted", self.topic))),
            (true, true) => {
                note(&format!("ottla: warning: topic `{}` was deleted: waiting for it", self.topic));
                Ok(())
            }
        }
    }

    fn on_existing(&mut self) {
        if self.missing >= MISSING_MIN {
            note(&format!("ottla: topic `{}` exists again", self.topic));
        }
        self.missing = 0;
    }
}
