//! The checks of produced batches with compressed records.
//!
//! Small ones are checked at once. The others are checked in steps on a thread that may block: a batch of 64 KiB can inflate
//! to 64 MiB. The steps of all connections take turns, so that a batch waits for one step of each other batch at most.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use ottla_log::{AppendError, AppendOptions, BatchesCheck, Transactional, check_batches};
use ottla_wire::batch::BatchHeader;
use ottla_wire::{CompressError, Compression, RecordError};

use crate::cluster::Cluster;
use crate::memory::ClientHost;
use crate::partition::Partition;

/// Batches whose compressed records have more bytes are not checked at once.
const COMPRESSED_BYTES_AT_ONCE_MAX: usize = 16 << 10;
/// The decompressed bytes of a batch that is checked at once: these take about as long as a request.
const BYTES_AT_ONCE_MAX: usize = 64 << 10;
/// The batches of a partition that are checked at once without being compressed.
const UNCOMPRESSED_BYTES_AT_ONCE_MAX: usize = 4 << 20;
/// The parts of a step, which takes some milliseconds.
const PARTS_OF_STEP: usize = 16;
/// The decompressed bytes of a part. After each, the thread lets those run that wait for its processor: Linux interrupts a thread
/// only every few milliseconds if the other one has used more than its share.
const PART_BYTES: usize = 64 << 10;
/// The pause between two parts, which Linux makes some 50 µs long. A thread that yields instead gives up its whole time slice from Linux
/// 6.18 on, and that of this thread is long: beside a busy program, eight checks of bombs had no answer for half a minute.
const PAUSE: Duration = Duration::from_nanos(1);

#[expect(clippy::disallowed_methods, reason = "a background thread gives its processor to others")]
fn pause() {
    std::thread::sleep(PAUSE);
}

/// The outcome of the checks that need no other thread.
#[derive(Debug)]
pub(crate) enum CheckedAtOnce {
    /// The append itself checks them: they are not compressed.
    Unchecked,
    /// They can be appended without further checks.
    Sound,
    /// They need [`check_in_steps`].
    Expensive,
}

/// Checks the compressed batches of one partition, if that takes little time.
pub(crate) fn check_at_once(
    partition: &Partition,
    now_ms: i64,
    batches: &mut BytesMut,
    transactional: Transactional,
) -> Result<CheckedAtOnce, AppendError> {
    let mut is_compressed = false;
    let mut at = 0;
    while at < batches.len() {
        // The append reports what is wrong.
        let Ok(header) = BatchHeader::parse(&batches[at..]) else { break };
        let bytes = header.total_bytes();
        if header.compression() != Ok(Compression::None) {
            is_compressed = true;
            if bytes > COMPRESSED_BYTES_AT_ONCE_MAX {
                return Ok(CheckedAtOnce::Expensive);
            }
        }
        at += bytes;
    }
    if batches.len() > UNCOMPRESSED_BYTES_AT_ONCE_MAX {
        return Ok(CheckedAtOnce::Expensive);
    }
    if !is_compressed {
        return Ok(CheckedAtOnce::Unchecked);
    }
    let log = partition.log();
    let options = AppendOptions {
        decompressed_bytes_max: Some(BYTES_AT_ONCE_MAX),
        transactional,
        ..AppendOptions::default()
    };
    match check_batches(log.dir(), log.config(), now_ms, batches, options) {
        Ok(()) => Ok(CheckedAtOnce::Sound),
        Err(AppendError::InvalidRecords {
            source: RecordError::Compress { source: CompressError::TooLarge { .. }, .. },
            ..
        }) => Ok(CheckedAtOnce::Expensive),
        Err(error) => Err(error),
    }
}

/// Batches that can be appended without further checks.
#[derive(Debug)]
pub(crate) struct SoundBatches {
    pub(crate) batches: BytesMut,
    /// The largest number of bytes that the records of one batch have without compression.
    pub(crate) records_bytes_max: usize,
}

/// Checks the batches of one partition on a thread that may block, and returns them.
pub(crate) async fn check_in_steps(
    cluster: &Arc<Cluster>,
    partition: &Partition,
    client: ClientHost,
    now_ms: i64,
    batches: BytesMut,
    transactional: Transactional,
) -> Result<SoundBatches, AppendError> {
    let options = AppendOptions { transactional, ..AppendOptions::default() };
    let (dir, config) = {
        let log = partition.log();
        (log.dir().to_owned(), log.config().clone())
    };
    let mut check = BatchesCheck::new(dir, config, now_ms, batches, options);
    let mut memory = cluster.decoder_memory.charge(client, check.memory_bytes()).await;
    loop {
        // A step owns the memory: it uses it until it ends, even if the connection is closed before.
        let step = move |_: &Cluster| {
            let mut has_more = true;
            for _ in 0..PARTS_OF_STEP {
                has_more = check.step(PART_BYTES)?;
                if !has_more {
                    break;
                }
                pause();
            }
            Ok((check, memory, has_more))
        };
        let (next, kept, has_more) = cluster.run_check(client, step).await?;
        if !has_more {
            let records_bytes_max = next.records_bytes_max();
            return Ok(SoundBatches { batches: next.finish(), records_bytes_max });
        }
        (check, memory) = (next, kept);
    }
}
