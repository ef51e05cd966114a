//! What the processor produces: outputs of handlers, and dead letters.

use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ottla_client::{CorruptBatch, Delivery, ProduceError, Record};
use tokio::time::Instant;

use crate::core::work::{Unsettled, Work};
use crate::dispatcher::Dispatcher;
use crate::error::{Error, FailureKind};
use crate::exchange::Produced;
use crate::message::Pieces;
use crate::outputs::Outputs;
use crate::settings::GiveUp;

/// What a dead letter of raw bytes has beside them: headers, and the frame of its batch.
const LETTER_BYTES: usize = 4096;

type Write = Pin<Box<dyn Future<Output = Written> + Send>>;

/// Something was written, or not.
pub(crate) struct Written {
    done: Unsettled,
    result: Result<(), ProduceError>,
}

/// What is not acknowledged yet.
#[derive(Default)]
pub(crate) struct Writing(FuturesUnordered<Write>);

impl Writing {
    /// The next that is acknowledged; waits forever if there is none.
    pub(crate) async fn next(&mut self) -> Option<Written> {
        match self.0.next().await {
            Some(written) => Some(written),
            None => std::future::pending().await,
        }
    }

    fn push(&mut self, done: Unsettled, deliveries: Vec<Delivery>) {
        self.0.push(Box::pin(async move {
            let mut result = Ok(());
            for delivery in deliveries {
                result = result.and(delivery.await.map(drop));
            }
            Written { done, result }
        }));
    }
}

impl Dispatcher {
    /// Writes what handlers have produced and what was given up since the last time.
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
            let Work { of, offsets, size, .. } = work;
            let done = Unsettled { of, offsets, until: i64::MAX, except: Vec::new(), size };
            result = result.and(self.await_writes(done, written));
        }
        result
    }

    /// Something was written: what it belongs to is done.
    pub(crate) fn settle(&mut self, written: Written) -> Result<(), Error> {
        let mut inner = self.exchange.lock();
        match written.result {
            Ok(()) => inner.core.settle(&written.done, Instant::now()),
            Err(_) => inner.core.abandon(written.done.of),
        }
        written.result.map_err(not_written)
    }

    async fn write_all(&self, outputs: &Outputs) -> Result<Vec<Delivery>, Error> {
        let mut deliveries = Vec::new();
        for record in outputs.iter() {
            deliveries.extend(self.write(record).await?);
        }
        Ok(deliveries)
    }

    /// In a transaction nobody waits for a single record: the commit does.
    async fn write(&self, record: Record<'_>) -> Result<Option<Delivery>, Error> {
        if self.transaction.is_some() {
            self.producer.post(record).await.map_err(not_written)?;
            return Ok(None);
        }
        self.producer.enqueue(record).await.map(Some).map_err(not_written)
    }

    fn await_writes(&mut self, done: Unsettled, written: Result<Vec<Delivery>, Error>) -> Result<(), Error> {
        match written {
            Ok(deliveries) if deliveries.is_empty() => {
                self.exchange.lock().core.settle(&done, Instant::now());
            }
            Ok(deliveries) => self.writing.push(done, deliveries),
            Err(error) => {
                self.exchange.lock().core.abandon(done.of);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes or skips what failed too often. A handler that cannot work ends the processor instead.
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
            match &self.settings.give_up {
                GiveUp::Stop => {
                    let (at, reason) = (record.at().clone(), reason.to_owned());
                    return Err(Error::Record { at, offset, attempts, reason });
                }
                GiveUp::Skip => {
                    tracing::warn!(at = %record.at(), offset, attempts, reason, "a record is given up");
                    self.exchange.lock().skipped += 1;
                }
                GiveUp::DeadLetter(topic) => {
                    let numbers = [record.partition().to_string(), offset.to_string(), attempts.to_string()];
                    let mut letter = Record::to(topic);
                    (letter.key, letter.value) = (record.key(), record.value());
                    letter.timestamp_ms = Some(record.timestamp_ms()).filter(|timestamp| *timestamp >= 0);
                    for (name, value) in record.headers() {
                        letter.headers.push((std::str::from_utf8(name).unwrap_or_default(), value));
                    }
                    let letter = letter
                        .header("ottla.error.topic", record.topic())
                        .header("ottla.error.partition", &numbers[0])
                        .header("ottla.error.offset", &numbers[1])
                        .header("ottla.error.group", self.group())
                        .header("ottla.error.attempts", &numbers[2])
                        .header("ottla.error.kind", kind)
                        .header("ottla.error.reason", reason);
                    deliveries.extend(self.write(letter).await?);
                    self.exchange.lock().dead_letters += 1;
                }
            }
        }
        Ok(deliveries)
    }

    /// What cannot be decoded, as a whole: nobody knows its records.
    async fn give_up_corrupt(&self, corrupt: &CorruptBatch) -> Result<Vec<Delivery>, Error> {
        let (from, next) = (corrupt.first_offset(), corrupt.next_offset());
        let (at, bytes) = (corrupt.at(), corrupt.bytes());
        match &self.settings.give_up {
            GiveUp::Stop => Err(corrupt.error().clone().into()),
            GiveUp::Skip => {
                tracing::warn!(%at, from, next, error = %corrupt.error(), "records that cannot be decoded are given up");
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
                    .header("ottla.error.group", self.group())
                    .header("ottla.error.attempts", "0")
                    .header("ottla.error.kind", "corrupt")
                    .header("ottla.error.reason", &reason);
                // Raw bytes that no record can hold are left where they are: the headers say where.
                let fits = bytes.len() + LETTER_BYTES <= self.settings.config.request_bytes_max;
                letter.value = fits.then_some(&**bytes);
                let written = self.write(letter).await?;
                self.exchange.lock().dead_letters += 1;
                Ok(written.into_iter().collect())
            }
        }
    }

    fn group(&self) -> &str {
        self.settings.config.group_id.as_deref().unwrap_or_default()
    }
}

fn not_written(error: ProduceError) -> Error {
    Error::Output { topic: error.topic.to_string(), reason: error.to_string() }
}
