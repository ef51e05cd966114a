//! Offsets as the application handles them: stored, committed, looked up.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Consumer, Control, TopicPartition, Watermarks};
use crate::admin::{Admin, OffsetAt};
use crate::blocking;
use crate::error::Error;

/// An offset to be committed: the one of the next record, with what is kept beside it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OffsetAndMetadata {
    /// The offset of the next record to be processed.
    pub offset: i64,
    /// The epoch of the leader that wrote the record before it, if it is known: whoever goes on from here can tell
    /// whether the log is still the same (KIP-320).
    pub leader_epoch: Option<i32>,
    /// A note for whoever reads the offset.
    pub metadata: String,
}

impl From<i64> for OffsetAndMetadata {
    fn from(offset: i64) -> Self {
        Self { offset, ..Self::default() }
    }
}

/// A commit that is under way; its outcome, when it is waited for. Dropping it does not stop the commit.
#[derive(Debug)]
#[must_use = "what the coordinator answers is known only to who waits for it"]
pub struct Committing(oneshot::Receiver<Result<(), Error>>);

impl Committing {
    /// Waits for the answer, for threads without a runtime.
    pub fn wait(self, timeout: Duration) -> Result<(), Error> {
        let waited_ms = timeout.as_millis();
        blocking::block_on(timeout, self)
            .unwrap_or_else(|| Err(Error::TimedOut { what: "the commit".into(), waited_ms }))
    }
}

impl Future for Committing {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(context)).unwrap_or(Err(Error::Closed)))
    }
}

impl Consumer {
    /// Says that everything before this offset is done: the next commit, automatic or not, has it and what is kept
    /// beside it. With `enable.auto.offset.store=false` this alone says so.
    ///
    /// # Errors
    /// [`Error::NotAssigned`] if the partition is not this consumer's (any more): nothing is stored.
    pub fn store_offset(
        &mut self,
        partition: &TopicPartition,
        offset: impl Into<OffsetAndMetadata>,
    ) -> Result<(), Error> {
        let Some(place) = self.inbox.place(partition) else { return Err(not_assigned(partition)) };
        self.reader.forget_handed_out(Some(partition));
        place.store(offset.into());
        Ok(())
    }

    /// Commits these offsets, and waits for the answer. What is done of other partitions stays uncommitted.
    ///
    /// # Errors
    /// [`Error::NotAssigned`] for a partition that the group has taken back: a late commit must not undo what its next
    /// owner has committed. Otherwise the broker's refusal.
    pub async fn commit_offsets(&self, offsets: &[(TopicPartition, OffsetAndMetadata)]) -> Result<(), Error> {
        self.begin_commit(Some(offsets)).await
    }

    /// Begins to commit these offsets, or all that is done (`None`), and does not wait. Commits are carried out in the
    /// order in which they are begun.
    pub fn begin_commit(&self, offsets: Option<&[(TopicPartition, OffsetAndMetadata)]>) -> Committing {
        let (answer, received) = oneshot::channel();
        let control = match offsets {
            Some(offsets) => Control::CommitOffsets(offsets.iter().cloned().collect(), answer),
            None => Control::Commit(answer),
        };
        // When the engine is gone the answer is never sent, and that is what waiting then says.
        let _ = self.control.send(control);
        Committing(received)
    }

    /// [`Consumer::commit`] for threads without a runtime.
    pub fn commit_blocking(&mut self, timeout: Duration) -> Result<(), Error> {
        self.reader.finish_handed_out();
        self.begin_commit(None).wait(timeout)
    }

    /// The offset of the first record with each timestamp or a later one, milliseconds since 1970; past the last record,
    /// the end. The partitions need not be assigned.
    pub async fn offsets_for_times(
        &self,
        wanted: &[(TopicPartition, i64)],
    ) -> Result<BTreeMap<TopicPartition, i64>, Error> {
        let wanted: Vec<_> =
            wanted.iter().map(|(at, timestamp)| (at.clone(), OffsetAt::Timestamp(*timestamp))).collect();
        Admin::of(&self.client).list_offsets(&wanted).await
    }

    /// Where a partition begins and ends, asked of its leader. It need not be assigned.
    pub async fn query_watermarks(&self, partition: &TopicPartition) -> Result<Watermarks, Error> {
        let admin = Admin::of(&self.client);
        let ask = async |at| {
            let found = admin.list_offsets(&[(partition.clone(), at)]).await?;
            Ok::<_, Error>(found.get(partition).copied().unwrap_or(-1))
        };
        Ok(Watermarks { low: ask(OffsetAt::Earliest).await?, high: ask(OffsetAt::Latest).await? })
    }
}

pub(crate) fn not_assigned(at: &TopicPartition) -> Error {
    Error::NotAssigned { topic: at.topic.to_string(), partition: at.partition }
}
