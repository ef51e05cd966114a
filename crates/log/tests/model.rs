//! Random operations on a log, compared with a list of its expected records.

use std::sync::Arc;

use fastrand::Rng;
use ottla_log::storage::mem::MemStorage;
use ottla_log::{AppendError, AppendOptions, Log, LogConfig, ReadError, ReadPlan};
use ottla_wire::{Batches, Compression, Records, Seal};

use crate::common::{DIR, NOW, sealed};

/// One record as it should be: its batch, its time, its value.
#[derive(Clone, Debug, PartialEq)]
struct Expected {
    batch: i64,
    batch_end: i64,
    time: i64,
    value: Vec<u8>,
}

struct Model {
    start: i64,
    /// From offset 0 on, deleted ones too.
    records: Vec<Expected>,
}

impl Model {
    fn end(&self) -> i64 {
        self.records.len() as i64
    }
}

fn random_config(rng: &mut Rng) -> LogConfig {
    LogConfig {
        // Large batches fit into some segments only.
        segment_bytes: if rng.bool() { rng.u32(300..5000) } else { rng.u32(5000..50_000) },
        segment_ms: if rng.bool() { rng.i64(1..2000) } else { i64::MAX },
        index_interval_bytes: rng.u32(0..500),
        segment_index_bytes: rng.u32(24..200),
        tail_cache_bytes: *rng.choice([0, 300, 1000, 5000, 1 << 20].iter()).expect("not empty"),
        retention_bytes: rng.bool().then(|| rng.u64(500..20_000)),
        retention_ms: None,
        ..LogConfig::default()
    }
}

fn append(log: &mut Log, model: &mut Model, rng: &mut Rng) {
    let mut buffer = bytes::BytesMut::new();
    let mut end = model.end();
    let mut added = Vec::new();
    for _ in 0..if rng.u8(0..4) == 0 { rng.usize(1..4) } else { 1 } {
        let time = NOW + rng.i64(0..100_000);
        let len = if rng.u8(0..8) == 0 { 6000 } else { 40 };
        let values: Vec<Vec<u8>> = (0..rng.usize(1..5))
            .map(|_| (0..rng.usize(0..len)).map(|_| rng.u8(b'a'..b'f')).collect())
            .collect();
        let compression = *rng.choice(Compression::ALL.iter()).expect("not empty");
        let slices: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        buffer.extend_from_slice(&sealed(time, &slices, &Seal { compression, ..Seal::default() }));
        let (batch, batch_end) = (end, end + values.len() as i64);
        added.extend(values.into_iter().map(|value| Expected { batch, batch_end, time, value }));
        end = batch_end;
    }
    let base = log.end_offset();
    // A broker may check the batches before it takes the lock.
    let options = if rng.bool() {
        AppendOptions::default()
    } else {
        ottla_log::check_batches(DIR, log.config(), NOW + 100_000, &mut buffer, AppendOptions::default())
            .expect("sound");
        AppendOptions { check: ottla_log::Check::Trusted, ..AppendOptions::default() }
    };
    let (bytes, max) = (buffer.len(), log.config().segment_bytes);
    let result = log.append(NOW + 100_000, buffer, options);
    if bytes > max as usize {
        assert!(matches!(result, Err(AppendError::ListTooLarge { .. })), "{bytes} bytes, {max}: {result:?}");
        return;
    }
    let appended = result.expect("appended");
    model.records.extend(added);
    assert_eq!((appended.base_offset, appended.last_offset + 1), (base, model.end()));
}

fn read(log: &mut Log, model: &Model, rng: &mut Rng) {
    let offset = rng.i64(model.start - 1..=model.end() + 1);
    let max_bytes = rng.usize(0..3000);
    let max_offset = rng.i64(offset - 2..=model.end() + 2);
    let one = rng.bool();
    let result = if rng.bool() {
        log.read(offset, max_bytes, max_offset, one)
    } else {
        log.plan_read(offset, max_bytes, max_offset, one).and_then(|plan| match plan {
            ReadPlan::Ready(result) => Ok(result),
            ReadPlan::Cold(cold) => cold.run(),
        })
    };
    if offset < model.start || offset > model.end() {
        assert!(matches!(result, Err(ReadError::OutOfRange { .. })));
        return;
    }
    let result = result.expect("in range");
    let bytes = result.chain.to_bytes().expect("bytes");
    let mut batches = Batches::new(&bytes);
    let mut next = None;
    for batch in &mut batches {
        let (header, range) = batch.expect("a batch");
        let at = next.unwrap_or(header.base_offset);
        assert_eq!(header.base_offset, at, "no gaps");
        let block = Records::of_batch(&bytes.slice(range), 1 << 20).expect("records");
        for (record, n) in block.iter().zip(at..) {
            let record = record.expect("a record");
            let expected = &model.records[n as usize];
            assert_eq!(
                (record.offset, record.timestamp, record.value),
                (n, expected.time, Some(&expected.value[..]))
            );
        }
        assert_eq!(header.next_offset(), model.records[at as usize].batch_end);
        assert!(header.next_offset() <= max_offset);
        next = Some(header.next_offset());
    }
    let first = model.records.get(offset as usize);
    let may = first.is_some_and(|first| first.batch_end <= max_offset && offset < max_offset);
    if next.is_none() {
        // No whole batch was returned: there was none, or it did not fit.
        assert!(!may || !one, "{offset} up to {max_offset}");
        assert!(bytes.is_empty() || !one);
    } else {
        assert_eq!(
            Batches::new(&bytes).next().expect("one").expect("whole").0.base_offset,
            first.expect("one").batch
        );
    }
    let first_bytes = Batches::new(&bytes).next().map_or(0, |b| b.expect("whole").0.total_bytes());
    assert!(bytes.len() <= max_bytes.max(if one { first_bytes } else { 0 }));
    if let (Some(told), Some(found)) = (result.next_offset, next) {
        assert_eq!(told, found);
    }
}

fn look_up_time(log: &mut Log, model: &Model, rng: &mut Rng) {
    let time = NOW + rng.i64(-100..100_100);
    let live = || (model.start..).zip(&model.records[model.start as usize..]);
    let expected =
        live().find(|(_, record)| record.time >= time).map(|(offset, record)| (offset, record.time));
    let found = log.offset_for_timestamp(time).expect("read").map(|found| (found.offset, found.timestamp));
    assert_eq!(found, expected, "{time}");
}

#[test]
fn a_log_is_a_list_with_a_start_whatever_happens_to_it() {
    for seed in 0..150 {
        let rng = &mut Rng::with_seed(seed);
        let disk = MemStorage::forgetful();
        let mut config = random_config(rng);
        let open = |disk: &MemStorage, config: &LogConfig| {
            Log::open(Arc::new(disk.clone()), DIR, config.clone(), NOW).expect("opened").0
        };
        let mut log = open(&disk, &config);
        let mut model = Model { start: 0, records: Vec::new() };
        for _ in 0..300 {
            match rng.u8(0..100) {
                0..35 => append(&mut log, &mut model, rng),
                35..75 => read(&mut log, &model, rng),
                75..85 => look_up_time(&mut log, &model, rng),
                85..88 => drop(log.sync_now().expect("synced")),
                88..90 => drop(log.trim_cache(rng.usize(0..1000))),
                90..92 => {
                    config = random_config(rng);
                    log.update_config(config.clone());
                }
                92 => drop(log.enforce_retention(NOW).expect("enforced")),
                93 => drop(log.delete_records_before(rng.i64(model.start..=model.end())).expect("deleted")),
                94 => {
                    let to = rng.i64(model.start..=model.end());
                    log.truncate_to(to, NOW).expect("cut");
                    let cut = model.records.get(to as usize).map_or(to, |record| record.batch);
                    // A partly deleted batch is removed as a whole; deleted offsets are not used again.
                    model.records.truncate(cut.max(model.start) as usize);
                }
                95 => {
                    log.close().expect("closed");
                    log = open(&disk, &config);
                }
                96 => {
                    drop(log);
                    log = open(&disk, &config);
                }
                97 => {
                    log.sync_now().expect("synced");
                    disk.crash(rng);
                    drop(log);
                    log = open(&disk, &config);
                }
                _ => log.roll(NOW).expect("rolled"),
            }
            let start = log.start_offset();
            assert!(start >= model.start, "seed {seed}");
            model.start = start;
            assert_eq!((log.end_offset(), log.tail().visible()), (model.end(), model.end()), "seed {seed}");
            assert!(log.cache_bytes() <= config.tail_cache_bytes && log.quarantined().is_empty());
        }
    }
}
