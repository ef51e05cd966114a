//! What a run is made of, drawn from its seed: each seed is another mixture of faults and load.

use std::time::Duration;

use ottla_wire::Compression;

use crate::net::Weather;

/// The settings of one run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Partitions of the topic.
    pub partitions: i32,
    /// Producers.
    pub producers: u32,
    /// Records of each producer.
    pub records: u32,
    /// Longest pause of a producer between two records.
    pub pause_max: Duration,
    /// Bytes of padding in a value, at most.
    pub padding_max: usize,
    /// Codec of the producers.
    pub compression: Compression,
    /// `linger.ms`, if set.
    pub linger: Option<Duration>,
    /// `batch.size`.
    pub batch_bytes_max: usize,
    /// `delivery.timeout.ms`.
    pub delivery_timeout: Duration,
    /// Readers with partitions of their own.
    pub readers: u32,
    /// Members of the group that reads, too.
    pub members: u32,
    /// Segments of the logs are closed at this size.
    pub segment_bytes: u32,
    /// Latency of a sync.
    pub sync_delay: Duration,
    /// The network while there are faults.
    pub weather: Weather,
    /// The time between two faults, at most; each fault is drawn anew.
    pub fault_pause_max: Duration,
    /// How long there are faults.
    pub faults_for: Duration,
    /// Chance in 1000 of each kind of fault, by the order of `faults::KINDS`.
    pub fault_weights: [u32; 9],
}

impl Options {
    /// The mixture of this seed.
    pub fn draw(rng: &mut fastrand::Rng) -> Self {
        let ms = Duration::from_millis;
        let latency_max = [0, 1, 5, 30][rng.usize(0..4)];
        let weather = Weather {
            latency_max: ms(latency_max),
            slice_bytes_max: [0, 1, 7, 100, 5_000][rng.usize(0..5)],
            cut_per_mille: [0, 100, 300, 700][rng.usize(0..4)],
            cut_bytes_max: [100, 2_000, 50_000][rng.usize(0..3)],
            refused_per_mille: [0, 0, 50, 200][rng.usize(0..4)],
        };
        let mut fault_weights = [0; 9];
        for weight in &mut fault_weights {
            *weight = if rng.bool() { rng.u32(1..10) } else { 0 };
        }
        Self {
            partitions: rng.i32(1..=4),
            producers: rng.u32(1..=3),
            records: [50, 150, 400][rng.usize(0..3)],
            pause_max: ms([5, 20, 100][rng.usize(0..3)]),
            padding_max: [0, 100, 5_000][rng.usize(0..3)],
            compression: Compression::ALL[rng.usize(0..Compression::ALL.len())],
            linger: [None, Some(ms(0)), Some(ms(5)), Some(ms(50))][rng.usize(0..4)],
            batch_bytes_max: [200, 2_000, 1_000_000][rng.usize(0..3)],
            delivery_timeout: ms([1_500, 120_000, 120_000][rng.usize(0..3)]),
            readers: rng.u32(1..=2),
            members: rng.u32(0..=2),
            segment_bytes: [2_000, 20_000, 1 << 30][rng.usize(0..3)],
            sync_delay: ms([0, 1, 10, 50][rng.usize(0..4)]),
            weather,
            fault_pause_max: ms([200, 1_000, 3_000][rng.usize(0..3)]),
            faults_for: ms(rng.u64(2_000..12_000)),
            fault_weights,
        }
    }
}
