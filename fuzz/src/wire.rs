//! Frames, record batches and old message sets.

use bytes::{BufMut, Bytes};
use ottla_wire::batch::{CRC_FROM, HEADER_BYTES};
use ottla_wire::crc::crc32c;
use ottla_wire::frames::FrameBuffer;
use ottla_wire::{
    BatchBuilder, BatchHeader, Batches, Compression, Mark, RecordError, RecordPosition, RecordStream,
    Records, Seal,
};

use crate::input::Input;

/// The limit of a frame: above the size from which a frame has a buffer of its own.
const FRAME_BYTES_MAX: usize = 40_000;
/// The limit of the decompressed bytes of a batch.
pub(crate) const DECOMPRESSED_BYTES_MAX: usize = 256 << 10;

/// Any way of cutting a stream gives the same frames, and a declared length takes no memory.
pub(crate) fn frames(input: &[u8]) {
    let mut input = Input::new(input);
    let steps = input.take(8).to_vec();
    let stream = input.rest();
    let (expected, is_expected_broken) = frames_in(stream);
    let mut expected = expected.into_iter();
    let mut buffer = FrameBuffer::new(FRAME_BYTES_MAX);
    let mut is_broken = false;
    let mut rest = stream;
    for step in steps.iter().chain([&0]).cycle() {
        loop {
            match buffer.next_frame() {
                Ok(Some(frame)) => assert_eq!(Some(&frame[..]), expected.next()),
                Ok(None) => break,
                Err(_) => is_broken = true,
            }
            if is_broken {
                break;
            }
        }
        if rest.is_empty() || is_broken {
            break;
        }
        assert!(buffer.arrived() < 4 || buffer.awaited().is_some());
        let spare = buffer.spare();
        let n = (1 + usize::from(*step) * 16).min(rest.len()).min(spare.capacity() - spare.len());
        assert!(n > 0, "there is always room to read into");
        spare.put_slice(&rest[..n]);
        rest = &rest[n..];
    }
    assert_eq!((is_broken, expected.next()), (is_expected_broken, None));
}

/// The frames of a stream, and whether it ends with an impossible length.
fn frames_in(mut stream: &[u8]) -> (Vec<&[u8]>, bool) {
    let mut frames = Vec::new();
    loop {
        let Some((size, after)) = stream.split_first_chunk::<4>() else { return (frames, false) };
        match usize::try_from(i32::from_be_bytes(*size)) {
            Ok(size) if size <= FRAME_BYTES_MAX => match after.split_at_checked(size) {
                Some((frame, after)) => {
                    frames.push(frame);
                    stream = after;
                }
                None => return (frames, false),
            },
            _ => return (frames, true),
        }
    }
}

pub(crate) fn frames_seeds() -> Vec<Vec<u8>> {
    let seed = |steps: [u8; 8], sizes: &[usize]| {
        let mut seed = steps.to_vec();
        for size in sizes {
            seed.put_i32(*size as i32);
            seed.extend((0..*size).map(|n| n as u8));
        }
        seed
    };
    let mut torn = seed([3; 8], &[9, 900]);
    torn.truncate(200);
    let mut too_large = seed([9; 8], &[3]);
    too_large.put_i32(i32::MAX);
    vec![
        seed([0; 8], &[0, 1, 2]),
        seed([255; 8], &[1000, 0, 30, 2000]),
        seed([0, 1, 0, 7, 0, 0, 0, 60], &[12, 500]),
        torn,
        too_large,
    ]
}

/// Batches in a fetch response: all ways of reading the records agree.
pub(crate) fn batch(input: &[u8]) {
    let bytes = batches_of(input);
    for found in Batches::new(&bytes) {
        let Ok((header, range)) = found else { break };
        let mut written = [0; HEADER_BYTES];
        header.write(&mut written);
        assert_eq!(written, bytes[range.clone()][..HEADER_BYTES]);
        let batch = bytes.slice(range);
        let streamed = stream(&header, &batch);
        match Records::of_batch(&batch, DECOMPRESSED_BYTES_MAX) {
            Ok(records) => {
                let whole = read(&records);
                // A reader in parts does not see that a codec's checksum at the end is wrong before the records end.
                assert_eq!(whole, streamed.ok(), "a stream finds what the whole block has");
                let is_sound = whole.is_some();
                assert!(is_sound || records.validate().is_err(), "what is valid can be read");
            }
            Err(error) => assert!(streamed.is_err(), "not decompressed, but streamed: {error}"),
        }
    }
}

/// The batches of an input: a byte of choices, and the bytes. The checksums are put right unless the first bit is set.
pub(crate) fn batches_of(input: &[u8]) -> Bytes {
    let (choices, bytes) = input.split_first().unwrap_or((&1, &[]));
    let mut bytes = bytes.to_vec();
    if choices & 1 == 0 {
        repair_checksums(&mut bytes);
    }
    bytes.into()
}

/// Puts the checksums of whole batches right: no fuzzer guesses them.
pub(crate) fn repair_checksums(bytes: &mut [u8]) {
    let mut at = 0;
    while let Ok(header) = BatchHeader::parse(&bytes[at..]) {
        let Some(batch) = bytes.get_mut(at..at + header.total_bytes()) else { break };
        let crc = crc32c(&batch[CRC_FROM..]);
        batch[CRC_FROM - 4..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
        at += header.total_bytes();
    }
}

fn stream(header: &BatchHeader, batch: &Bytes) -> Result<Vec<RecordPosition>, RecordError> {
    let mut stream = RecordStream::new(header, batch.clone(), DECOMPRESSED_BYTES_MAX)?;
    let mut found = Vec::new();
    while stream.read_part(|position| found.push(position))? {}
    if found.len() != header.record_count as usize {
        return Err(RecordError::Count {
            base_offset: header.base_offset,
            claimed: header.record_count,
            found: found.len() as u32,
        });
    }
    Ok(found)
}

/// The records, if all are sound and nothing follows them.
fn read(records: &Records) -> Option<Vec<RecordPosition>> {
    let mut found = Vec::new();
    let mut iter = records.iter();
    let mut mark = Mark::default();
    let mut is_sound = true;
    for record in iter.by_ref() {
        assert_eq!(records.next_at(&mut mark), Some(record.clone()), "a mark and an iterator agree");
        let Ok(record) = record else {
            is_sound = false;
            break;
        };
        assert_eq!(record.headers.iter().count(), record.headers.len());
        found.push(RecordPosition {
            offset: record.offset,
            timestamp: record.timestamp,
            has_key: record.key.is_some(),
        });
    }
    let mut skipped = Mark::default();
    let skips = records.skip_at(&mut skipped, u32::MAX).is_ok();
    assert!(skips || !is_sound, "sound records can be skipped");
    (is_sound && iter.rest().is_empty() && found.len() == records.header().record_count as usize)
        .then_some(found)
}

pub(crate) fn batch_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Compression::ALL
        .into_iter()
        .flat_map(|codec| [1, 5].map(|count| seed_of(&sealed(codec, count))))
        .collect();
    let two = [&sealed(Compression::None, 2)[..], &sealed(Compression::Lz4, 3)].concat();
    seeds.push(seed_of(&two));
    seeds.push(seed_of(&sealed(Compression::Zstd, 2)[..50]));
    seeds
}

fn seed_of(batches: &[u8]) -> Vec<u8> {
    [&[0], batches].concat()
}

/// A batch with keys, headers and nulls, as a producer writes it.
pub(crate) fn sealed(codec: Compression, count: u32) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for n in 0..count {
        let key = [b'k', n as u8];
        let value = vec![b'v'; 20 * n as usize];
        let headers: &[(&[u8], Option<&[u8]>)] =
            if n % 2 == 0 { &[] } else { &[(b"name", Some(b"value")), (b"null", None)] };
        builder.push(
            1_700_000_000_000 + i64::from(n),
            (n % 3 == 0).then_some(&key[..]),
            (n % 4 != 3).then_some(&value[..]),
            headers,
        );
    }
    let seal = Seal {
        producer_id: 4000,
        producer_epoch: 1,
        base_sequence: 7,
        compression: codec,
        ..Seal::default()
    };
    builder.seal(&seal).expect("every codec has a default level").to_bytes().to_vec()
}
