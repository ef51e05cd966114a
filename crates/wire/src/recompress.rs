//! Writes the records of a batch with another codec. Offsets, timestamps, producer and sequence stay as they are.

use crate::batch::{BatchHeader, Compression, HEADER_BYTES};
use crate::compress::{self, CompressError};
use crate::reader::RecordError;
use crate::seal::{Summed, finish_header};

/// Returns the batch with its records in `codec`, and a new checksum.
///
/// As in Kafka, the codec is used even if it does not shrink the records. Decompressed records above `bytes_max` are an
/// error, also if only the result is compressed: readers with this limit could not decompress it. The records themselves are not
/// checked.
///
/// # Errors
/// [`RecordError::Compress`] for compressed bytes that are damaged or inflate to too many, for too many plain bytes, and for a level
/// that the codec does not have; [`RecordError::Batch`] for a batch without a sound header.
pub fn recompress(
    batch: &[u8],
    codec: Compression,
    level: Option<i32>,
    bytes_max: usize,
) -> Result<Vec<u8>, RecordError> {
    let mut header = BatchHeader::parse(batch)?;
    let failed = |source| RecordError::Compress { base_offset: header.base_offset, source };
    let inflated;
    let records = match header.compression()? {
        Compression::None if codec != Compression::None && batch.len() - HEADER_BYTES > bytes_max => {
            let compressed = batch.len() - HEADER_BYTES;
            return Err(failed(CompressError::TooLarge { codec, compressed, cap: bytes_max }));
        }
        Compression::None => &batch[HEADER_BYTES..],
        from => {
            inflated = compress::decompress(from, &batch[HEADER_BYTES..], bytes_max).map_err(failed)?;
            &inflated[..]
        }
    };
    let mut out = vec![0; HEADER_BYTES];
    compress::compress(codec, level, records, &mut out).map_err(failed)?;
    header.attributes = (header.attributes & !Compression::MASK) | codec as i16;
    finish_header(&mut header, &mut out, &[], Summed::new(false));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::BatchBuilder;
    use crate::reader::Records;
    use crate::seal::Seal;

    fn batch(codec: Compression) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for n in 0..300_u32 {
            let value = format!("value {n} {}", "x".repeat(n as usize % 50));
            builder.push(
                1000 + i64::from(n),
                Some(&n.to_be_bytes()),
                Some(value.as_bytes()),
                &[(&b"h"[..], Some(b"1"))],
            );
        }
        let seal = Seal {
            producer_id: 9,
            producer_epoch: 2,
            base_sequence: 17,
            transactional: true,
            compression: codec,
            level: None,
        };
        builder.seal(&seal).expect("sealed").to_bytes().to_vec()
    }

    fn records(batch: &[u8]) -> Vec<(i64, i64, Vec<u8>, Vec<u8>)> {
        let records = Records::of_batch(&batch.to_vec().into(), 1 << 20).expect("a batch");
        records.validate().expect("sound records");
        let all = records.iter().map(|record| {
            let record = record.expect("sound");
            let bytes = |field: Option<&[u8]>| field.unwrap_or_default().to_vec();
            (record.offset, record.timestamp, bytes(record.key), bytes(record.value))
        });
        all.collect()
    }

    #[test]
    fn every_codec_becomes_every_other_and_nothing_else_changes() {
        for from in Compression::ALL {
            let before = batch(from);
            let header = BatchHeader::parse(&before).expect("a header");
            for to in Compression::ALL {
                let after = recompress(&before, to, None, 1 << 20).expect("recompressed");
                let new = BatchHeader::parse(&after).expect("a header");
                new.verify_crc(&after).expect("the checksum fits");
                assert_eq!((new.total_bytes(), new.compression()), (after.len(), Ok(to)), "{from:?}");
                let expected = BatchHeader {
                    attributes: new.attributes,
                    batch_length: new.batch_length,
                    crc: new.crc,
                    ..header
                };
                assert_eq!(new, expected, "{from:?} to {to:?}");
                assert!(new.is_transactional());
                assert_eq!(records(&after), records(&before), "{from:?} to {to:?}");
            }
        }
    }

    /// A topic whose codec is set stores that codec, also if it makes a batch larger.
    #[test]
    fn records_that_do_not_shrink_have_the_codec_too() {
        let mut builder = BatchBuilder::new();
        builder.push(0, None, Some(b"7"), &[]);
        let plain = builder.seal(&Seal::default()).expect("sealed").to_bytes();
        for codec in Compression::ALL {
            let after = recompress(&plain, codec, None, 1 << 20).expect("recompressed");
            let header = BatchHeader::parse(&after).expect("a header");
            assert_eq!(header.compression(), Ok(codec));
            assert_eq!(records(&after), records(&plain));
        }
    }

    /// It was stored, and no compaction could decompress it again.
    #[test]
    fn plain_records_above_the_limit_are_refused_if_the_result_is_compressed() {
        let mut builder = BatchBuilder::new();
        builder.push(0, None, Some(&[0; 1000]), &[]);
        let plain = builder.seal(&Seal::default()).expect("sealed").to_bytes();
        let records = plain.len() - HEADER_BYTES;
        for codec in Compression::ALL {
            assert!(recompress(&plain, codec, None, records).is_ok());
            let result = recompress(&plain, codec, None, records - 1);
            let is_too_large = matches!(
                result,
                Err(RecordError::Compress { source: CompressError::TooLarge { cap, .. }, .. }) if cap == records - 1
            );
            assert_eq!(is_too_large, codec != Compression::None, "{codec:?}");
        }
    }

    #[test]
    fn a_bomb_and_an_unknown_level_are_refused() {
        let mut builder = BatchBuilder::new();
        builder.push(0, None, Some(&vec![0; 1 << 20]), &[]);
        let bomb = builder.seal(&Seal { compression: Compression::Zstd, ..Seal::default() });
        let bomb = bomb.expect("sealed").to_bytes();
        let error = recompress(&bomb, Compression::Gzip, None, 1 << 16).expect_err("too large");
        assert!(matches!(
            error,
            RecordError::Compress { source: CompressError::TooLarge { cap: 65_536, .. }, .. }
        ));
        assert!(recompress(&bomb, Compression::Gzip, Some(10), 1 << 22).is_err());
        assert!(recompress(&bomb[..40], Compression::Gzip, None, 1 << 22).is_err());
    }
}
