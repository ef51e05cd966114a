//! `ottla consume --share`: reads as a member of a share group.

use ottla_client::{AcknowledgeType, Client, ShareBatch, ShareConsumer};

use super::first_signal::FirstSignal;
use super::printed::Printed;
use super::{CLOSE_WITHIN, POLL, Reading};
use crate::failure::Failure;
use crate::format::Shown;

/// Reads until a signal comes or `--count` records are printed. Printed records are accepted, and so are those that a filter omits;
/// other members of the group get the rest.
pub(super) async fn run(
    client: &Client,
    reading: &mut Reading<'_>,
    interrupted: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let mut consumer = client.share_consumer()?;
    let mut first_signal = FirstSignal::new(interrupted);
    let read = read(&mut consumer, reading, first_signal.wait()).await;
    let flushed = reading.output.flush();
    let is_stuck = matches!(read.as_ref().and(flushed.as_ref()), Err(Failure::Interrupted(_)));
    // Acknowledgements of records that were not written to the pipe are not sent.
    let closed = if is_stuck { Ok(()) } else { first_signal.close(consumer.close(CLOSE_WITHIN)).await };
    read.and(flushed).and(closed)
}

async fn read(
    consumer: &mut ShareConsumer,
    reading: &mut Reading<'_>,
    interrupted: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let mut interrupted = Box::pin(interrupted);
    tokio::select! {
        biased;
        signal = &mut interrupted => return signal,
        begun = begin(consumer, reading) => begun?,
    }
    loop {
        let polled = tokio::select! {
            biased;
            signal = &mut interrupted => return signal,
            polled = consumer.poll(POLL) => polled?,
        };
        match polled {
            Some(batch) => {
                if print(consumer, reading, &batch)? {
                    return Ok(());
                }
            }
            // No records arrived during the poll: the printed ones are flushed.
            None => reading.on_idle().await?,
        }
    }
}

/// Subscribes to the topic. Fails if it does not exist.
async fn begin(consumer: &mut ShareConsumer, reading: &Reading<'_>) -> Result<(), Failure> {
    reading.partitions().await?;
    consumer.subscribe(&[reading.args.topic.name()]).await?;
    Ok(())
}

/// Prints a batch. Returns `true` if it contains the last requested record. Records are accepted after the output has accepted
/// their bytes; closing releases the others.
fn print(
    consumer: &mut ShareConsumer,
    reading: &mut Reading<'_>,
    batch: &ShareBatch,
) -> Result<bool, Failure> {
    let mut printed = Printed::default();
    let mut shown = Ok(false);
    for (record, next) in batch.into_iter().zip(1..) {
        shown = reading.show(&Shown {
            topic: record.topic(),
            partition: record.partition(),
            offset: record.offset(),
            timestamp_ms: record.timestamp_ms(),
            key: record.key(),
            value: record.value(),
            headers: record.raw_headers(),
        });
        printed.push(reading.output.position(), next);
        if !matches!(shown, Ok(false)) {
            break;
        }
    }
    let flushed = reading.output.flush();
    let accepted = printed.next(reading.output.accepted()).unwrap_or(0);
    for (record, _) in batch.into_iter().zip(0..accepted) {
        consumer.acknowledge(&record, AcknowledgeType::Accept)?;
    }
    shown.and_then(|is_last| flushed.map(|()| is_last))
}
