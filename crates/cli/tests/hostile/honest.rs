//! An honest client beside an attack: it produces a record and fetches it, again and again.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_wire::{Batches, Records, Seal};

use crate::broker_process::HONEST_TOPIC;
use crate::common::{Raw, batch};

/// Pause between two records.
const PACE: Duration = Duration::from_millis(2);

pub(crate) struct Honest {
    connection: Raw,
    written: i64,
}

/// The time from the start of a produce request to the record's fetch response.
pub(crate) struct Latencies {
    count: u64,
    p50_us: f64,
    pub(crate) p99_us: f64,
    max_us: f64,
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, p50_us, p99_us, max_us } = self;
        write!(f, "{count} records, median {p50_us:.0} us, p99 {p99_us:.0} us, maximum {max_us:.0} us")
    }
}

impl Honest {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let mut honest = Self { connection: Raw::connect(address), written: 0 };
        honest.round_trip();
        honest
    }

    /// Continues until then, or until `is_over`.
    pub(crate) fn measure(&mut self, until: Instant, is_over: impl Fn() -> bool) -> Latencies {
        let mut histogram = Histogram::<u64>::new(3).expect("a precision");
        loop {
            let began = Instant::now();
            self.round_trip();
            histogram.record(began.elapsed().as_micros() as u64).expect("it resizes itself");
            if Instant::now() >= until || is_over() {
                break;
            }
            std::thread::park_timeout(PACE);
        }
        Latencies {
            count: histogram.len(),
            p50_us: histogram.value_at_quantile(0.5) as f64,
            p99_us: histogram.value_at_quantile(0.99) as f64,
            max_us: histogram.max() as f64,
        }
    }

    fn round_trip(&mut self) {
        let value = self.written.to_be_bytes();
        let response = self.connection.produce(HONEST_TOPIC, -1, &batch(&[&value], &Seal::default()));
        assert_eq!(response.error_code, ErrorCode::None, "{:?}", response.error_message);
        assert_eq!(response.base_offset, self.written);
        let found = self.fetch(self.written);
        assert_eq!(found.first(), Some(&self.written));
        self.written += 1;
    }

    /// The values at and after an offset, as far as one response has them.
    fn fetch(&mut self, offset: i64) -> Vec<i64> {
        let partition = FetchPartition {
            fetch_offset: offset,
            partition_max_bytes: 1 << 20,
            current_leader_epoch: -1,
            ..Default::default()
        };
        let topic =
            FetchTopic { topic: HONEST_TOPIC.into(), partitions: vec![partition], ..Default::default() };
        let request =
            FetchRequest { max_bytes: 1 << 20, min_bytes: 1, topics: vec![topic], ..Default::default() };
        let response = self.connection.ask(12, &request).expect("an answer");
        let data = &response.responses[0].partitions[0];
        assert_eq!(data.error_code, ErrorCode::None);
        let bytes = data.records.as_ref().expect("records").to_bytes().expect("in memory");
        let mut values = Vec::new();
        for found in Batches::new(&bytes) {
            // A fetch may cut off its last batch.
            let Ok((header, range)) = found else { break };
            header.verify_crc(&bytes[range.clone()]).expect("a right checksum");
            for record in &Records::of_batch(&bytes.slice(range), 0).expect("sound records") {
                let value = record.expect("a sound record").value.expect("a value").to_vec();
                values.push(i64::from_be_bytes(value.try_into().expect("eight bytes")));
            }
        }
        values
    }

    /// Every record is there once and in order.
    pub(crate) fn assert_all_is_there(&mut self) {
        let mut next = 0;
        while next < self.written {
            let values = self.fetch(next);
            let expected: Vec<i64> = (next..next + values.len() as i64).collect();
            assert_eq!(values, expected);
            next += values.len() as i64;
        }
    }
}
