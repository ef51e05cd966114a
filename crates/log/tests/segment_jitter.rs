//! `segment.jitter.ms`: segments are closed earlier, each by a random part of it.

use std::sync::Arc;

use ottla_log::storage::mem::MemStorage;
use ottla_log::{AppendOptions, Log, LogConfig};

use crate::common::{NOW, batch};

const STEP_MS: i64 = 10;

/// The time after its first batch at which each of a log's first segments was closed.
fn ages(dir: &str, config: &LogConfig) -> Vec<i64> {
    let (mut log, _) =
        Log::open(Arc::new(MemStorage::new()), dir, config.clone(), NOW).expect("a new log opens");
    let (mut ages, mut now, mut began) = (Vec::new(), NOW, NOW);
    while ages.len() < 8 {
        let segments = log.segment_count();
        log.append(now, batch(now, &[b"a record"]), AppendOptions::default()).expect("appended");
        if log.segment_count() > segments {
            ages.push(now - began);
            began = now;
        }
        now += STEP_MS;
    }
    ages
}

/// It had no effect: the segments of all partitions that were created together were closed together.
#[test]
fn segments_are_closed_earlier_by_a_random_part_of_the_jitter() {
    let config = LogConfig { segment_ms: 1000, segment_jitter_ms: 500, ..LogConfig::default() };
    let first = ages("orders-0", &config);
    assert!(first.iter().all(|age| (500..=1000 + STEP_MS).contains(age)), "{first:?}");
    assert!(first.iter().any(|age| *age != first[0]), "each segment has its own: {first:?}");
    assert_eq!(ages("orders-0", &config), first, "the same seed, the same times");
    assert_ne!(ages("orders-1", &config), first, "each partition has its own");
    assert_ne!(ages("orders-0", &LogConfig { jitter_seed: 1, ..config.clone() }), first);
    let without = LogConfig { segment_jitter_ms: 0, ..config };
    assert_eq!(ages("orders-0", &without), [1000 + STEP_MS; 8]);
}

/// As in Kafka, the random part is at most `segment.ms`.
#[test]
fn a_jitter_above_the_age_of_a_segment_closes_no_segment_at_once() {
    let config = LogConfig { segment_ms: 100, segment_jitter_ms: i64::MAX, ..LogConfig::default() };
    let all = ages("orders-0", &config);
    assert!(all.iter().all(|age| (STEP_MS..=100 + STEP_MS).contains(age)), "{all:?}");
}
