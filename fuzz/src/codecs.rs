//! The codecs, and message sets of the formats 0 and 1.

use ottla_wire::batch::Compression;
use ottla_wire::compress::{compress, decompress, decompress_lz4_v0};
use ottla_wire::legacy::{is_legacy, to_v2};
use ottla_wire::{BatchHeader, Records};

use crate::wire::DECOMPRESSED_BYTES_MAX;

pub(crate) fn gzip(input: &[u8]) {
    codec(Compression::Gzip, input);
}

pub(crate) fn gzip_seeds() -> Vec<Vec<u8>> {
    codec_seeds(Compression::Gzip)
}

pub(crate) fn snappy(input: &[u8]) {
    codec(Compression::Snappy, input);
}

pub(crate) fn snappy_seeds() -> Vec<Vec<u8>> {
    codec_seeds(Compression::Snappy)
}

pub(crate) fn lz4(input: &[u8]) {
    codec(Compression::Lz4, input);
    if let Ok(bytes) = decompress_lz4_v0(input, DECOMPRESSED_BYTES_MAX) {
        assert!(bytes.len() <= DECOMPRESSED_BYTES_MAX);
    }
}

pub(crate) fn lz4_seeds() -> Vec<Vec<u8>> {
    codec_seeds(Compression::Lz4)
}

pub(crate) fn zstd(input: &[u8]) {
    codec(Compression::Zstd, input);
}

pub(crate) fn zstd_seeds() -> Vec<Vec<u8>> {
    codec_seeds(Compression::Zstd)
}

/// The input as compressed bytes, and as bytes to compress.
fn codec(codec: Compression, input: &[u8]) {
    if let Ok(bytes) = decompress(codec, input, DECOMPRESSED_BYTES_MAX) {
        assert!(bytes.len() <= DECOMPRESSED_BYTES_MAX);
        assert_eq!(decompress(codec, input, bytes.len()).as_ref(), Ok(&bytes), "the exact size is enough");
        if let Some(less) = bytes.len().checked_sub(1) {
            assert!(decompress(codec, input, less).is_err(), "a byte less is not enough");
        }
    }
    let mut compressed = Vec::new();
    compress(codec, None, input, &mut compressed).expect("the default level");
    assert_eq!(decompress(codec, &compressed, DECOMPRESSED_BYTES_MAX).as_deref(), Ok(input));
}

fn codec_seeds(codec: Compression) -> Vec<Vec<u8>> {
    let text = "the same words and the same words again, ".repeat(30).into_bytes();
    let noise: Vec<u8> = (0..600_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut seeds = vec![b"plain text".to_vec()];
    for plain in [Vec::new(), vec![7], text, noise, vec![0; 100_000]] {
        let mut compressed = Vec::new();
        compress(codec, None, &plain, &mut compressed).expect("the default level");
        seeds.push(compressed);
    }
    if codec == Compression::Snappy {
        // A raw block, without Java's framing.
        seeds.push([&[11, 40][..], b"hello world"].concat());
    }
    seeds.retain(|seed| seed.len() <= 3000);
    seeds
}

/// Old message sets. The checksums are put right unless the first bit of the first byte is set.
pub(crate) fn legacy(input: &[u8]) {
    let (choices, bytes) = input.split_first().unwrap_or((&1, &[]));
    let mut bytes = bytes.to_vec();
    if choices & 1 == 0 {
        repair_messages(&mut bytes);
    }
    let mut rest = &bytes[..];
    while is_legacy(rest) {
        let Ok(Some((batch, consumed))) = to_v2(rest, DECOMPRESSED_BYTES_MAX) else { break };
        let header = BatchHeader::parse(&batch).expect("a sound header");
        header.verify_crc(&batch).expect("a sound checksum");
        let records = Records::of_batch(&batch, DECOMPRESSED_BYTES_MAX).expect("not compressed");
        let mut last = None;
        for record in &records {
            let record = record.expect("a sound record");
            assert!(last.is_none_or(|last| record.offset > last), "offsets rise");
            last = Some(record.offset);
        }
        assert!((1..=rest.len()).contains(&consumed));
        rest = &rest[consumed..];
    }
}

pub(crate) fn legacy_seeds() -> Vec<Vec<u8>> {
    let message = |magic, attributes, offset, value: &[u8]| {
        message(magic, attributes, offset, Some(b"key"), Some(value))
    };
    let wrapped = |magic: u8, codec: Compression| {
        let inner =
            [message(magic, 0, 0, b"one"), message(magic, 0, 1, b"two"), message(magic, 0, 2, b"three")]
                .concat();
        let mut value = Vec::new();
        compress(codec, None, &inner, &mut value).expect("the default level");
        message(magic, codec as u8, 42, &value)
    };
    let mut sets = vec![
        message(0, 0, 7, b"value"),
        message(1, 0, 7, b"value"),
        message(1, 8, 7, b"stamped"),
        [message(0, 0, 1, b"a"), message(1, 0, 2, b"b")].concat(),
        self::message(1, 0, 9, None, None),
    ];
    for magic in [0, 1] {
        sets.extend(
            [Compression::Gzip, Compression::Snappy, Compression::Lz4].map(|codec| wrapped(magic, codec)),
        );
    }
    sets.into_iter().map(|set| [vec![0], set].concat()).collect()
}

fn message(magic: u8, attributes: u8, offset: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
    let mut body = vec![magic, attributes];
    if magic == 1 {
        body.extend((1000 + offset).to_be_bytes());
    }
    for part in [key, value] {
        body.extend(part.map_or(-1, |part| part.len() as i32).to_be_bytes());
        body.extend(part.unwrap_or_default());
    }
    let mut out = offset.to_be_bytes().to_vec();
    out.extend((body.len() as i32 + 4).to_be_bytes());
    out.extend([0; 4]);
    out.extend(body);
    repair_messages(&mut out);
    out
}

/// Puts the checksums of messages right.
fn repair_messages(bytes: &mut [u8]) {
    let mut rest = bytes;
    while let Some(size) = rest.get(8..12).and_then(|size| size.first_chunk::<4>()) {
        let size = i32::from_be_bytes(*size);
        let Some((message, after)) =
            usize::try_from(size).ok().and_then(|size| rest.split_at_mut_checked(12 + size))
        else {
            return;
        };
        if message.len() > 16 {
            let crc = crc32(&message[16..]);
            message[12..16].copy_from_slice(&crc.to_be_bytes());
        }
        rest = after;
    }
}

/// CRC-32 as in gzip, bit by bit: inputs are small.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}
