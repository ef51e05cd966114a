//! Writes the outputs of handlers and dead letters.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ottla_client::{CorruptBatch, Delivery, ProduceError, ProduceErrorKind, Producer, Record};
use tokio::time::Instant;

use crate::core::work::{PendingRecords, Work};
use crate::error::{Error, FailureKind};
use crate::exchange::{Exchange, Produced};
use crate::message::Pieces;
use crate::outputs::Outputs;
use crate::settings::{Builder, GiveUp};

/// Maximum length of the reason in a dead letter: an error may quote a whole document.
const REASON_BYTES_MAX: usize = 4096;

type Write = Pin<Box<dyn Future<Output = WriteResult> + Send>>;

/// The result of a write.
pub(crate) struct WriteResult {
    done: PendingRecords,
    result: Result<(), ProduceError>,
}

/// Writes that are not yet acknowledged.
#[derive(Default)]
pub(crate) struct PendingWrites(FuturesUnordered<Write>);

impl PendingWrites {
    /// The next acknowledged write; pending if there is none.
    pub(crate) async fn next(&mut self) -> Option<WriteResult> {
        match self.0.next().await {
            Some(written) => Some(written),
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
    exchange: Arc<Exchange>,
    pub(crate) producer: Producer,
    pub(crate) pending: PendingWrites,
    give_up: GiveUp,
    group: String,
    /// `true` in exactly-once mode: no single write is awaited, as the commit of the transaction covers it.
    is_transactional: bool,
}

impl Writer {
    pub(crate) fn new(settings: &Builder, exchange: Arc<Exchange>, producer: Producer) -> Self {
        Self {
            exchange,
            producer,
            pending: PendingWrites::default(),
            give_up: settings.gives_up(),
            group: settings.config.group_id.clone().unwrap_or_default(),
            is_transactional: settings.exactly_once.is_some(),
        }
    }

    /// Writes new outputs and handles newly given-up records.
    pub(crate) async fn write_out(&mut self) -> Result<(), Error> {
        let (produced, given_up) = {
            let mut inner = self.exchange.lock();
            (std::mem::take(&mut inner.produced), std::mem::take(&mut inner.given_up))
        };
        let mut result = Ok(());
        for Produced { done, outputs } in produced {
            let written = self.write_all(&outputs).await;
            result = result.and(self.await_writes(done, written));
        }
        for work in given_up {
            let written = match &work.payload.corrupt {
                Some(corrupt) => self.give_up_corrupt(corrupt).await,
                None => self.give_up(&work).await,
            };
            let Work { assignment, offsets, size, .. } = work;
            let rejected = self.give_up == GiveUp::Skip;
            let (until, except) = (i64::MAX, Vec::new());
            let done = PendingRecords { assignment, offsets, until, except, size, rejected };
            result = result.and(self.await_writes(done, written));
        }
        result
    }

    /// Finishes the records that waited for a write.
    pub(crate) fn settle(&mut self, written: WriteResult) -> Result<(), Error> {
        let mut inner = self.exchange.lock();
        match &written.result {
            Ok(()) => inner.settle(written.done, Instant::now()),
            Err(_) => inner.core.abandon(&written.done),
        }
        written.result.map_err(not_written)
    }

    async fn write_all(&self, outputs: &Outputs) -> Result<Vec<Delivery>, Error> {
        let mut deliveries = Vec::new();
        for record in outputs.iter() {
            deliveries.extend(self.write(&record).await.map_err(not_written)?);
        }
        Ok(deliveries)
    }

    async fn write(&self, record: &Record<'_>) -> Result<Option<Delivery>, ProduceError> {
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
            match self.write(&letter).await {
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
        self.write(&letter).await.map_err(not_written)
    }

    fn await_writes(
        &mut self,
        done: PendingRecords,
        written: Result<Vec<Delivery>, Error>,
    ) -> Result<(), Error> {
        match written {
            Ok(deliveries) if deliveries.is_empty() => {
                self.exchange.lock().settle(done, Instant::now());
            }
            Ok(deliveries) => self.pending.push(done, deliveries),
            Err(error) => {
                self.exchange.lock().core.abandon(&done);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Applies [`GiveUp`] to a record whose retries are used up. After a fatal failure the processor stops instead.
    async fn give_up(&self, work: &Work<Pieces>) -> Result<Vec<Delivery>, Error> {
        let failure = work.payload.failure.as_ref();
        let (reason, kind) = failure.map_or(("", ""), |failure| (&*failure.reason, failure.kind.name()));
        let mut deliveries = Vec::new();
        for found in work.payload.iter() {
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
                    self.exchange.lock().skipped += 1;
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
                    deliveries.extend(self.write_letter(letter, own_headers).await?);
                    self.exchange.lock().dead_letters += 1;
                }
            }
        }
        Ok(deliveries)
    }

    /// Applies [`GiveUp`] to undecodable records as a whole: their number is unknown.
    async fn give_up_corrupt(&self, corrupt: &CorruptBatch) -> Result<Vec<Delivery>, Error> {
        let (from, next) = (corrupt.first_offset(), corrupt.next_offset());
        let (at, bytes) = (corrupt.at(), corrupt.bytes());
        match &self.give_up {
            GiveUp::Stop => Err(corrupt.error().clone().into()),
            GiveUp::Skip => {
                tracing::warn!(%at, from, next, error = %corrupt.error(), "undecodable records given up");
                self.exchange.lock().skipped += 1;
                Ok(Vec::new())
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
                let written = self.write_letter(letter, 0).await?;
                self.exchange.lock().dead_letters += 1;
                Ok(written.into_iter().collect())
            }
        }
    }
}

/// A part that a dead letter does without if it is too large.
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

fn not_written(error: ProduceError) -> Error {
    Error::Output { topic: error.topic.to_string(), reason: error.to_string() }
}
