//! `compression.type`: batches of another codec than their topic's are recompressed before they are appended, on a thread
//! that may block.

use std::sync::Arc;

use bytes::BytesMut;
use ottla_log::{AppendError, LogConfig, Transactional};
use ottla_wire::batch::BatchHeader;
use ottla_wire::{CompressError, Compression, RecordError, recompress};

use crate::batch_checks::check_in_steps;
use crate::cluster::Cluster;
use crate::memory::ClientHost;
use crate::partition::Partition;

/// Copies of the records while they are recompressed: decompressed, compressed in the codec's scratch memory, and as a batch.
const COPIES: usize = 3;

/// Checks batches, and recompresses those of another codec than the partition's. The result can be appended without further
/// checks.
#[cold]
pub(crate) async fn check_and_recompress(
    cluster: &Arc<Cluster>,
    partition: &Partition,
    client: ClientHost,
    now_ms: i64,
    batches: BytesMut,
    transactional: Transactional,
) -> Result<BytesMut, AppendError> {
    let checked = check_in_steps(cluster, partition, client, now_ms, batches, transactional).await?;
    let (dir, config) = {
        let log = partition.log();
        (log.dir().to_owned(), log.config().clone())
    };
    // A change of the setting may have come in between.
    let Some(codec) = config.compression else { return Ok(checked.batches) };
    let memory = cluster.decoder_memory.charge(client, COPIES * checked.records_bytes_max).await;
    // The work owns the memory, even if the connection is closed before it ends.
    let work = move |_: &Cluster| {
        let recompressed = recompress_all(&dir, &config, codec, &checked.batches);
        drop(memory);
        recompressed
    };
    cluster.run_check(client, work).await
}

fn recompress_all(
    dir: &str,
    config: &LogConfig,
    codec: Compression,
    batches: &[u8],
) -> Result<BytesMut, AppendError> {
    let invalid = |source| AppendError::InvalidRecords { dir: dir.to_owned(), source };
    let message_bytes_max = config.message_bytes_max as usize;
    // Uncompressed records above `max.message.bytes` would be refused in any case, and need not be inflated.
    let bytes_max = match codec {
        Compression::None => config.decompressed_bytes_max.min(message_bytes_max),
        _ => config.decompressed_bytes_max,
    };
    let mut out = BytesMut::with_capacity(batches.len());
    let mut at = 0;
    while at < batches.len() {
        let header = BatchHeader::parse(&batches[at..]).map_err(|source| invalid(source.into()))?;
        let batch = &batches[at..at + header.total_bytes()];
        at += batch.len();
        if header.compression() == Ok(codec) {
            out.extend_from_slice(batch);
            continue;
        }
        let stored = recompress(batch, codec, config.compression_level(), bytes_max);
        let stored = stored.map_err(|source| match source {
            RecordError::Compress { source: CompressError::TooLarge { cap, .. }, .. } => {
                AppendError::TooLarge {
                    dir: dir.to_owned(),
                    what: "a batch without its compression",
                    bytes: cap + 1,
                    max: cap,
                }
            }
            source => invalid(source),
        })?;
        out.extend_from_slice(&stored);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use ottla_wire::{BatchBuilder, Seal};

    use super::*;
    use crate::stored_codec::StoredCodec;

    fn batch(compression: Compression) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        builder.push(0, None, Some(&[b'x'; 2000]), &[]);
        let seal = Seal { compression, ..Seal::default() };
        builder.seal(&seal).expect("sealed").to_bytes().to_vec()
    }

    #[test]
    fn only_batches_of_another_codec_are_rewritten() {
        let config = LogConfig { compression: Some(Compression::Zstd), ..LogConfig::default() };
        let codec = StoredCodec::new(&config);
        let (zstd, lz4) = (batch(Compression::Zstd), batch(Compression::Lz4));
        assert!(!codec.differs_from(&zstd));
        let both = [zstd.clone(), lz4].concat();
        assert!(codec.differs_from(&both));
        assert!(!codec.differs_from(&both[..30]), "the append reports a broken batch");
        let stored = recompress_all("orders-0", &config, Compression::Zstd, &both).expect("recompressed");
        assert_eq!(stored[..zstd.len()], zstd);
        assert!(!codec.differs_from(&stored));
        codec.set(&LogConfig::default());
        assert!(!codec.differs_from(&both), "`producer` keeps every batch");
    }

    #[test]
    fn a_batch_that_is_too_large_without_its_compression_is_refused_for_its_size() {
        let config = LogConfig {
            message_bytes_max: 1000,
            compression: Some(Compression::None),
            ..LogConfig::default()
        };
        let error = recompress_all("orders-0", &config, Compression::None, &batch(Compression::Gzip))
            .expect_err("too large");
        assert!(matches!(error, AppendError::TooLarge { bytes: 1001, max: 1000, .. }), "{error}");
    }

    /// `max.message.bytes` can be larger than the records that a compaction may decompress.
    #[test]
    fn a_plain_batch_is_not_compressed_if_it_could_not_be_decompressed() {
        let config = LogConfig {
            message_bytes_max: 10_000,
            decompressed_bytes_max: 1000,
            compression: Some(Compression::Zstd),
            ..LogConfig::default()
        };
        let error = recompress_all("orders-0", &config, Compression::Zstd, &batch(Compression::None))
            .expect_err("too large");
        assert!(matches!(error, AppendError::TooLarge { bytes: 1001, max: 1000, .. }), "{error}");
    }
}
