//! Statistics of a processor as C structs.

use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};

use ottla_parallel::{Metrics, PartitionMetrics};

use crate::ffi::c_strings::{c_string, malloced};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::processor::{find, ottla_processor_t};

/// A partition.
#[repr(C)]
pub struct ottla_processor_partition_t {
    pub topic: *const c_char,
    pub partition: i32,
    pub paused: c_int,
    pub committed: i64,
    pub finished: i64,
    pub blocking: i64,
    pub blocking_ms: i64,
    pub in_flight: u64,
    pub in_flight_bytes: u64,
}

/// A look at a processor.
#[repr(C)]
pub struct ottla_processor_stats_t {
    pub handled: u64,
    pub failures: u64,
    pub retries: u64,
    pub dead_letters: u64,
    pub skipped: u64,
    pub late: u64,
    pub queued: u64,
    pub breaker_opened: u64,
    pub breaker_is_open: c_int,
    pub partition_cnt: usize,
    pub partitions: *const *const ottla_processor_partition_t,
}

#[cfg(target_pointer_width = "64")]
mod layouts {
    use super::*;
    use crate::ffi::layout;

    layout!(ottla_processor_partition_t, 64: topic 0, partition 8, paused 12, committed 16, finished 24, blocking 32,
        blocking_ms 40, in_flight 48, in_flight_bytes 56);
    layout!(ottla_processor_stats_t, 88: handled 0, failures 8, retries 16, dead_letters 24, skipped 32, late 40,
        queued 48, breaker_opened 56, breaker_is_open 64, partition_cnt 72, partitions 80);
}

/// The struct for C, followed by the memory that it points to.
#[repr(C)]
struct StatsBlock {
    stats: ottla_processor_stats_t,
    pointers: Vec<*const ottla_processor_partition_t>,
    partitions: Vec<ottla_processor_partition_t>,
    topics: Vec<CString>,
}

impl StatsBlock {
    fn of(metrics: &Metrics) -> Box<Self> {
        let topics: Vec<CString> = metrics.partitions.iter().map(|it| c_string(&it.at.topic)).collect();
        let partitions: Vec<_> = metrics.partitions.iter().zip(&topics).map(partition).collect();
        let pointers: Vec<_> = partitions.iter().map(std::ptr::from_ref).collect();
        let stats = ottla_processor_stats_t {
            handled: metrics.handled,
            failures: metrics.failures,
            retries: metrics.retries,
            dead_letters: metrics.dead_letters,
            skipped: metrics.skipped,
            late: metrics.late,
            queued: metrics.queued as u64,
            breaker_opened: metrics.breaker_opened,
            breaker_is_open: (!metrics.breaker_closed).into(),
            partition_cnt: pointers.len(),
            partitions: pointers.as_ptr(),
        };
        Box::new(Self { stats, pointers, partitions, topics })
    }
}

fn partition((of, topic): (&PartitionMetrics, &CString)) -> ottla_processor_partition_t {
    let (blocking, age) = of.blocking.unzip();
    ottla_processor_partition_t {
        topic: topic.as_ptr(),
        partition: of.at.partition,
        paused: of.paused.into(),
        committed: of.committed.unwrap_or(RD_KAFKA_OFFSET_INVALID),
        finished: of.finished.unwrap_or(RD_KAFKA_OFFSET_INVALID),
        blocking: blocking.unwrap_or(RD_KAFKA_OFFSET_INVALID),
        blocking_ms: age.map_or(0, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX)),
        in_flight: of.in_flight as u64,
        in_flight_bytes: of.in_flight_bytes as u64,
    }
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub extern "C" fn ottla_processor_stats(
    processor: *const ottla_processor_t,
) -> *const ottla_processor_stats_t {
    find(processor, FUNCTION).map_or(null(), |running| {
        Box::into_raw(StatsBlock::of(&running.processor.metrics())).cast_const().cast()
    })
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_processor_stats_destroy(stats: *const ottla_processor_stats_t) {
    if !stats.is_null() {
        // SAFETY: the first field of what `ottla_processor_stats` leaked, given back once (ottla.h,
        // `ottla_processor_stats_destroy`).
        drop(unsafe { Box::from_raw(stats.cast_mut().cast::<StatsBlock>()) });
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub extern "C" fn ottla_processor_metrics(processor: *const ottla_processor_t) -> *mut c_char {
    let text = |text: String| malloced(&c_string(&text));
    find(processor, FUNCTION)
        .map_or(null_mut(), |running| text(running.processor.metrics().prometheus_text()))
}
