//! Writes the outputs of handlers and dead letters.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use ottla_client::{
    CorruptBatch, Delivery, ProduceError, ProduceErrorKind, Producer, Record, TransactionError,
};
use tokio::time::Instant;

use crate::core::work::{PendingRecords, Work};
use crate::error::{Error, FailureKind};
use crate::exchange::{Exchange, GivenUpCounts, Produced};
use crate::message::Pieces;
use crate::settings::{Builder, GiveUp};

/// Maximum length of the reason in a dead letter: an error may quote a whole document.
const REASON_BYTES_MAX: usize = 4096;

type Write = Pin<Box<dyn Future<Output = WriteResult> + Send>>;

/// The result of a write.
struct WriteResult {
    done: PendingRecords,
    result: Result<(), ProduceError>,
}

/// Writes that are not yet acknowledged.
#[derive(Default)]
struct PendingWrites(FuturesUnordered<Write>);

impl PendingWrites {
    /// The next acknowledged write; pending if there is none.
    async fn next(&mut self) -> WriteResult {
        match self.0.next().await {
            Some(written) => written,
            None => std::future::pending().await,
        }
    }

    fn push(&mut self, done: PendingRecords, deliveries: Vec<Delivery>) {
        self.0.push(Box::pin(async move {
            let mut result = Ok(());
            for delivery in deliveries {
                result = result.and(delivery.await.map(drop));
            }
            WriteResult { done, result }
        }));
    }
}

/// Writes outputs and dead letters, and finishes their input records.
pub(crate) struct Writer {
    sink: Sink,
    pending: PendingWrites,
    /// Outputs and given-up records for which the producer had no room, in order. Their records are in flight, which bounds them.
    unwritten: VecDeque<Unwritten>,
    /// The part of the first of them that the producer has taken.
    begun: Begun,
}

/// Records to write.
enum Unwritten {
    Outputs(Produced),
    GivenUp(Work<Pieces>),
}

/// The part of an [`Unwritten`] that the producer has taken.
#[derive(Default)]
struct Begun {
    records: usize,
    deliveries: Vec<Delivery>,
}

/// The producer, and the action for records that are given up.
struct Sink {
    exchange: Arc<Exchange>,
    producer: Producer,
    give_up: GiveUp,
    group: String,
    /// `true` in exactly-once mode: no single write is awaited, as the commit of the transaction covers it.
    is_transactional: bool,
}

impl Writer {
    pub(crate) fn new(settings: &Builder, exchange: Arc<Exchange>, producer: Producer) -> Self {
        let sink = Sink {
            exchange,
            producer,
            give_up: settings.gives_up(),
            group: settings.config.group_id.clone().unwrap_or_default(),
            is_transactional: settings.exactly_once.is_some(),
        };
        let (pending, unwritten, begun) = (PendingWrites::default(), VecDeque::new(), Begun::default());
        Self { sink, pending, unwritten, begun }
    }

    pub(crate) const fn producer(&self) -> &Producer {
        &self.sink.producer
    }

    /// `true` if the producer has no room for some records.
    pub(crate) fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Drops the unwritten records: their transaction is aborted.
    pub(crate) fn clear(&mut self) {
        self.unwritten.clear();
        self.begun = Begun::default();
    }

    /// Takes new outputs and newly given-up records, and writes all for which the producer has room.
    pub(crate) fn write_out(&mut self) -> Result<(), Error> {
        {
            let mut inner = self.sink.exchange.lock();
            self.unwritten.extend(std::mem::take(&mut inner.produced).into_iter().map(Unwritten::Outputs));
            self.unwritten.extend(std::mem::take(&mut inner.given_up).into_iter().map(Unwritten::GivenUp));
        }
        let mut result = Ok(());
        while let Some(first) = self.unwritten.front() {
            let Some(written) = self.sink.write(first, &mut self.begun).now_or_never() else { break };
            result = result.and(self.await_writes(written));
        }
        result
    }

    /// Waits until a write is acknowledged, or until the producer has room for the first unwritten records. Finishes the records
    /// that have no more to wait for. Pending if there are none. Cancel safe: the next call continues.
    pub(crate) async fn advance(&mut self) -> Result<(), Error> {
        let Self { sink, pending, unwritten, begun } = self;
        let write = async {
            match unwritten.front() {
                Some(first) => sink.write(first, begun).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            acknowledged = pending.next() => self.settle(acknowledged),
            written = write => self.await_writes(written),
        }
    }

    /// Finishes the records that waited for a write.
    fn settle(&self, written: WriteResult) -> Result<(), Error> {
        let mut inner = self.sink.exchange.lock();
        match &written.result {
            Ok(()) => inner.settle(written.done, Instant::now()),
            Err(_) => inner.core.abandon(&written.done),
        }
        written.result.map_err(not_written)
    }

    /// Awaits the acknowledgements of the first unwritten records, which the producer has taken or refused.
    fn await_writes(&mut self, written: Result<(), Error>) -> Result<(), Error> {
        let Begun { deliveries, .. } = std::mem::take(&mut self.begun);
        let Some(first) = self.unwritten.pop_front() else { return written };
        let done = match first {
            Unwritten::Outputs(Produced { done, .. }) => done,
            Unwritten::GivenUp(Work { assignment, offsets, size, .. }) => {
                let rejected = self.sink.give_up == GiveUp::Skip;
                PendingRecords { assignment, offsets, until: i64::MAX, except: Vec::new(), size, rejected }
            }
        };
        match written {
            Ok(()) if deliveries.is_empty() => self.sink.exchange.lock().settle(done, Instant::now()),
            Ok(()) => self.pending.push(done, deliveries),
            Err(_) => self.sink.exchange.lock().core.abandon(&done),
        }
        written
    }
}

impl Begun {
    fn add(&mut self, written: Option<Delivery>) {
        self.records += 1;
        self.deliveries.extend(written);
    }
}

impl Sink {
    /// Writes records from the one at which the last call was cancelled. Cancel safe.
    async fn write(&self, unwritten: &Unwritten, begun: &mut Begun) -> Result<(), Error> {
        match unwritten {
            Unwritten::Outputs(Produced { outputs, .. }) => {
                for record in outputs.iter().skip(begun.records) {
                    begun.add(self.write_record(&record).await.map_err(not_written)?);
                }
                Ok(())
            }
            Unwritten::GivenUp(work) => match &work.payload.corrupt {
                Some(corrupt) => self.give_up_corrupt(corrupt, begun).await,
                None => self.give_up(work, begun).await,
            },
        }
    }

    /// Counts a record that is given up: in a transaction, once that is committed.
    fn count(&self, change: impl FnOnce(&mut GivenUpCounts)) {
        let mut inner = self.exchange.lock();
        if self.is_transactional {
            change(&mut inner.uncommitted_counts);
        } else {
            change(&mut inner.given_up_counts);
        }
    }

    async fn write_record(&self, record: &Record<'_>) -> Result<Option<Delivery>, ProduceError> {
        if self.is_transactional {
            self.producer.send_unobserved(record).await?;
            return Ok(None);
        }
        self.producer.enqueue(record).await.map(Some)
    }

    /// Writes a dead letter whose first headers, `own_headers`, are those of its record. If it exceeds `message.max.bytes`, it loses
    /// the record's value, then also its headers, then also its key: a poison record must not stop each of its owners.
    async fn write_letter(
        &self,
        mut letter: Record<'_>,
        own_headers: usize,
    ) -> Result<Option<Delivery>, Error> {
        for lost in [LostPart::Value, LostPart::Headers, LostPart::Key] {
            match self.write_record(&letter).await {
                Err(ProduceError { kind: ProduceErrorKind::TooLarge { bytes, max }, .. }) => {
                    tracing::warn!(
                        topic = letter.topic,
                        bytes,
                        max,
                        ?lost,
                        "a dead letter is too large for this part"
                    );
                }
                written => return written.map_err(not_written),
            }
            match lost {
                LostPart::Value => letter.value = None,
                LostPart::Headers => drop(letter.headers.drain(..own_headers)),
                LostPart::Key => letter.key = None,
            }
        }
        self.write_record(&letter).await.map_err(not_written)
    }

    /// Applies [`GiveUp`] to a record whose retries are used up. After a fatal failure the processor stops instead.
    async fn give_up(&self, work: &Work<Pieces>, begun: &mut Begun) -> Result<(), Error> {
        let failure = work.payload.failure.as_ref();
        let (reason, kind) = failure.map_or(("", ""), |failure| (&*failure.reason, failure.kind.name()));
        for found in work.payload.iter().skip(begun.records) {
            let record = found.map_err(|corrupt| corrupt.error().clone())?.record;
            let (offset, attempts) = (record.offset(), work.payload.attempts);
            if failure.is_some_and(|failure| failure.kind == FailureKind::Fatal) {
                let (at, reason) = (record.at().clone(), reason.to_owned());
                return Err(Error::Handler { at, offset, reason });
            }
            match &self.give_up {
                GiveUp::Stop => {
                    let (at, reason) = (record.at().clone(), reason.to_owned());
                    return Err(Error::Record { at, offset, attempts, reason });
                }
                GiveUp::Skip => {
                    tracing::warn!(at = %record.at(), offset, attempts, reason, "record given up");
                    self.count(|counts| counts.skipped += 1);
                    begun.add(None);
                }
                GiveUp::DeadLetter(topic) => {
                    let mut letter = Record::to(topic);
                    (letter.key, letter.value) = (record.key(), record.value());
                    letter.timestamp_ms = Some(record.timestamp_ms()).filter(|timestamp| *timestamp >= 0);
                    letter.headers.extend(record.headers());
                    let own_headers = letter.headers.len();
                    let numbers = [
                        record.partition().to_string(),
                        offset.to_string(),
                        bytes_of(&letter).to_string(),
                        attempts.to_string(),
                    ];
                    let letter = letter
                        .header("ottla.error.topic", record.topic())
                        .header("ottla.error.partition", &numbers[0])
                        .header("ottla.error.offset", &numbers[1])
                        .header("ottla.error.bytes", &numbers[2])
                        .header("ottla.error.group", &self.group)
                        .header("ottla.error.attempts", &numbers[3])
                        .header("ottla.error.kind", kind)
                        .header("ottla.error.reason", shortened(reason));
                    begun.add(self.write_letter(letter, own_headers).await?);
                    self.count(|counts| counts.dead_letters += 1);
                }
            }
        }
        Ok(())
    }

    /// Applies [`GiveUp`] to undecodable records as a whole: their number is unknown.
    async fn give_up_corrupt(&self, corrupt: &CorruptBatch, begun: &mut Begun) -> Result<(), Error> {
        let (from, next) = (corrupt.first_offset(), corrupt.next_offset());
        let (at, bytes) = (corrupt.at(), corrupt.bytes());
        match &self.give_up {
            GiveUp::Stop => Err(corrupt.error().clone().into()),
            GiveUp::Skip => {
                tracing::warn!(%at, from, next, error = %corrupt.error(), "undecodable records given up");
                self.count(|counts| counts.skipped += 1);
                Ok(())
            }
            GiveUp::DeadLetter(topic) => {
                let numbers =
                    [at.partition.to_string(), from.to_string(), next.to_string(), bytes.len().to_string()];
                let reason = corrupt.error().to_string();
                let mut letter = Record::to(topic)
                    .header("ottla.error.topic", &*at.topic)
                    .header("ottla.error.partition", &numbers[0])
                    .header("ottla.error.offset", &numbers[1])
                    .header("ottla.error.next_offset", &numbers[2])
                    .header("ottla.error.bytes", &numbers[3])
                    .header("ottla.error.group", &self.group)
                    .header("ottla.error.attempts", "0")
                    .header("ottla.error.kind", "corrupt")
                    .header("ottla.error.reason", shortened(&reason));
                // A batch that is larger than a record may be is not copied: the headers name its offsets.
                letter.value = Some(bytes);
                begun.add(self.write_letter(letter, 0).await?);
                self.count(|counts| counts.dead_letters += 1);
                Ok(())
            }
        }
    }
}

/// A part that is left out of a dead letter that is too large.
#[derive(Clone, Copy, Debug)]
enum LostPart {
    Value,
    Headers,
    Key,
}

/// The bytes of a record's key, value and headers.
fn bytes_of(record: &Record<'_>) -> usize {
    let of = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
    let headers: usize = record.headers.iter().map(|(name, value)| name.len() + of(*value)).sum();
    of(record.key) + of(record.value) + headers
}

/// The reason, cut off at [`REASON_BYTES_MAX`].
fn shortened(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}

/// The error of a record that was not written. A transaction that must be aborted is not an error of the record.
fn not_written(error: ProduceError) -> Error {
    match &error.kind {
        ProduceErrorKind::Transaction(failed) if failed.requires_abort() => {
            Error::Transaction(TransactionError::clone(failed))
        }
        _ => Error::Output { topic: error.topic.to_string(), reason: error.to_string() },
    }
}
