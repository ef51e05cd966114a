//! The state of producers: its decisions, its snapshots and its expiration.

use super::*;
use crate::config::LogConfig;

fn header(producer_id: i64, epoch: i16, base_sequence: i32, records: i32) -> BatchHeader {
    BatchHeader {
        base_offset: 0,
        batch_length: 100,
        partition_leader_epoch: 0,
        crc: 0,
        attributes: 0,
        last_offset_delta: records - 1,
        base_timestamp: 5,
        max_timestamp: 5,
        producer_id,
        producer_epoch: epoch,
        base_sequence,
        record_count: records,
    }
}

fn verdict(producers: &Producers, header: &BatchHeader) -> Verdict {
    judge(producers.get(header.producer_id), header)
}

#[test]
fn the_last_five_batches_are_known_and_gaps_are_refused() {
    let mut all = Producers::default();
    for n in 0..7 {
        let next = header(9, 2, n * 10, 10);
        assert_eq!(verdict(&all, &next), Verdict::Append);
        all.note(&next, 100 + i64::from(n) * 10, 0, 10);
    }
    for n in 2..7 {
        let Verdict::Duplicate(found) = verdict(&all, &header(9, 2, n * 10, 10)) else { panic!("known") };
        assert_eq!(found.base_offset, 100 + i64::from(n) * 10);
    }
    let last = Some(69);
    assert_eq!(verdict(&all, &header(9, 2, 10, 10)), Verdict::OutOfOrder { last }, "too old to be known");
    assert_eq!(verdict(&all, &header(9, 2, 71, 1)), Verdict::OutOfOrder { last });
    assert_eq!(verdict(&all, &header(9, 2, 60, 5)), Verdict::OutOfOrder { last }, "half a batch is another");
    assert_eq!(verdict(&all, &header(9, 1, 70, 1)), Verdict::Fenced { current: 2 });
    assert_eq!(verdict(&all, &header(9, 3, 70, 1)), Verdict::OutOfOrder { last: None });
    assert_eq!(verdict(&all, &header(9, 3, 0, 1)), Verdict::Append);
    assert_eq!(verdict(&all, &header(8, 0, 17, 1)), Verdict::Append, "nothing is known of it");
}

#[test]
fn sequences_wrap_to_zero_and_the_snapshot_knows() {
    let mut all = Producers::default();
    all.note(&header(1, 0, i32::MAX - 1, 4), 50, 0, 10);
    assert_eq!(all.get(1).and_then(Producer::last).map(|b| b.last_sequence), Some(1));
    assert_eq!(verdict(&all, &header(1, 0, 2, 1)), Verdict::Append);
    let bytes = all.encode();
    assert_eq!(Producers::decode(&bytes).as_ref(), Some(&all));
    // Kafka's part alone, as Kafka would write it: the last batch is still found.
    let mut kafka = bytes[..10 + KAFKA_ENTRY_BYTES].to_vec();
    let crc = ottla_wire::crc::crc32c(&kafka[6..]).to_be_bytes();
    kafka[2..6].copy_from_slice(&crc);
    let read = Producers::decode(&kafka).expect("sound");
    assert!(
        matches!(verdict(&read, &header(1, 0, i32::MAX - 1, 4)), Verdict::Duplicate(b) if b.base_offset == 50)
    );
    all.note(&header(1, 0, 2, 1), 54, 0, 10);
    assert_eq!(sequence_after(i32::MAX, 1), 0);
}

#[test]
fn snapshots_keep_everything_and_damaged_ones_are_refused() {
    let mut all = Producers::default();
    for n in 0..40 {
        all.note(&header(i64::from(n % 7), 3, n / 7 * 10, 10), i64::from(n) * 10, i64::from(n), 10);
    }
    let bytes = all.encode();
    assert_eq!(Producers::decode(&bytes), Some(all));
    for at in 0..bytes.len() {
        assert_eq!(Producers::decode(&bytes[..at]), None, "cut at {at}");
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        assert_eq!(Producers::decode(&bad), None, "flipped at {at}");
    }
}

/// Found by the fuzz target `producer_snapshot`.
#[test]
fn a_snapshot_with_impossible_numbers_is_refused() {
    let mut all = Producers::default();
    all.note(&header(7, 0, 5, 3), 100, 0, 16);
    let sound = all.encode();
    // The windows follow one entry of Kafka's: magic, version, time, time of the producer, length, and the batch.
    let batch_at = 10 + KAFKA_ENTRY_BYTES + 4 + 2 + 8 + 8 + 1;
    let kafka_at = 10;
    for (at, number) in [
        (batch_at, &(-1_i32).to_be_bytes()[..]),
        (batch_at + 4, &(-1_i32).to_be_bytes()),
        (batch_at + 8, &i64::MIN.to_be_bytes()),
        (batch_at + 8, &103_i64.to_be_bytes()),
        (batch_at + 16, &i64::MAX.to_be_bytes()),
        (kafka_at + 14, &i64::MIN.to_be_bytes()),
        (kafka_at + 22, &i32::MIN.to_be_bytes()),
    ] {
        let mut bytes = sound.clone();
        bytes[at..at + number.len()].copy_from_slice(number);
        let crc = ottla_wire::crc::crc32c(&bytes[CHECKED_FROM..]);
        bytes[2..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(Producers::decode(&bytes), None, "{number:x?} at {at}");
    }
    assert_eq!(Producers::decode(&sound), Some(all));
}

#[test]
fn idle_producers_are_forgotten_by_time_and_by_number() {
    let mut all = Producers::default();
    for id in 0..100 {
        all.note(&header(id, 0, 0, 1), id, id, 16);
    }
    assert!(all.len() <= 16 && all.get(99).is_some() && all.get(80).is_none());
    all.expire(140, 102, 51);
    all.expire(180, 102, 51);
    all.expire(200, 102, 51);
    assert_eq!(all.describe().iter().map(|p| p.producer_id).collect::<Vec<_>>(), [99]);
}

#[test]
fn a_clock_that_jumps_forgets_no_producer() {
    let (hour, day) = (3_600_000, 24 * 3_600_000);
    let mut all = Producers::default();
    let mut now = 1_700_000_000_000;
    for step in [hour, 3 * day, -2 * day, hour, -10 * day, 30 * day] {
        now += step;
        all.observe_clock(now, day / 2);
        all.note(&header(7, 0, 0, 1), 0, now, 16);
        all.note(&header(step, 0, 0, 1), 0, now, 16);
        all.expire(now, day, day / 2);
    }
    assert_eq!(all.len(), 6, "each is at most three hours old");
    // A snapshot that is loaded after the clock has jumped.
    let mut loaded = Producers::decode(&all.encode()).expect("a snapshot");
    loaded.expire(now + 5 * day, day, day / 2);
    assert_eq!(loaded.len(), 6);
    for hours in 1..=24 {
        loaded.expire(now + 5 * day + hours * hour, day, day / 2);
    }
    assert_eq!(loaded.len(), 0);
}

/// After a night without the broker, the last known time was that of the last batch: the ages of idle producers began again.
#[test]
fn a_snapshot_has_the_time_up_to_which_its_producers_were_idle() {
    let (hour, day) = (3_600_000, 24 * 3_600_000);
    let start = 1_700_000_000_000;
    let mut all = Producers::default();
    all.note(&header(7, 0, 0, 1), 0, start, 16);
    for hours in 0..=20 {
        all.expire(start + hours * hour, day, day / 2);
    }
    let bytes = all.encode();
    let mut loaded = Producers::decode(&bytes).expect("a snapshot");
    assert!(!loaded.is_snapshot_stale(day));
    for (hours, left) in [(21, 1), (22, 1), (23, 1), (24, 0)] {
        loaded.expire(start + hours * hour, day, day / 2);
        assert_eq!(loaded.len(), left, "after {hours} hours");
    }
    assert!(loaded.is_snapshot_stale(day));

    // A snapshot of the version before: the times of the producers count.
    let version_at = 10 + KAFKA_ENTRY_BYTES + 4;
    let mut older = [&bytes[..version_at], &1_i16.to_be_bytes(), &bytes[version_at + 10..]].concat();
    let crc = ottla_wire::crc::crc32c(&older[CHECKED_FROM..]);
    older[2..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
    let mut loaded = Producers::decode(&older).expect("a snapshot");
    assert_eq!(loaded, all);
    loaded.expire(start + 21 * hour, day, day / 2);
    assert!(loaded.len() == 1 && loaded.is_snapshot_stale(day));
    let mut unknown = older.clone();
    unknown[version_at..version_at + 2].copy_from_slice(&3_i16.to_be_bytes());
    let crc = ottla_wire::crc::crc32c(&unknown[CHECKED_FROM..]);
    unknown[2..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
    assert_eq!(Producers::decode(&unknown), None);
}

/// A check that came later than after half of the expiration was taken for a jump of the clock, and no producer expired.
#[test]
fn producers_expire_also_if_they_are_checked_seldom() {
    let start = 1_700_000_000_000;
    let config = LogConfig { producer_expiration_ms: 100, ..LogConfig::default() };
    let mut all = Producers::default();
    all.observe_clock(start, config.producer_step_ms_max());
    all.note(&header(7, 0, 0, 1), 0, start, 16);
    let checked_ms = start + config.producer_check_ms;
    all.expire(checked_ms, config.producer_expiration_ms, config.producer_step_ms_max());
    assert_eq!(all.len(), 0);
    assert_eq!(LogConfig::default().producer_step_ms_max(), 12 * 3_600_000, "half of a day is a jump");
}

/// The time of a batch is read before its check, and others look at the clock meanwhile. Each time, all producers aged too much.
#[test]
fn a_batch_with_an_earlier_time_changes_the_ages_of_no_others() {
    let (start, expiration_ms) = (1_700_000_000_000, 1500);
    let step_ms_max = LogConfig::default().producer_step_ms_max();
    let mut all = Producers::default();
    all.note(&header(7, 0, 0, 1), 0, start, 16);
    for look in 1..=10 {
        all.expire(start + look * 100, expiration_ms, step_ms_max);
        all.observe_clock(start + look * 100 - 90, step_ms_max);
    }
    assert_eq!(all.len(), 1);
    all.expire(start + expiration_ms, expiration_ms, step_ms_max);
    assert_eq!(all.len(), 0);
}
