//! The options of a run, drawn from its seed: each seed has a different mix of faults and load.

use std::time::Duration;

use ottla_wire::Compression;

use crate::net::NetworkFaults;

/// The settings of one run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of partitions of the topic.
    pub partitions: i32,
    /// Number of producers.
    pub producers: u32,
    /// Number of records per producer.
    pub records: u32,
    /// Maximum pause of a producer between two records.
    pub pause_max: Duration,
    /// Maximum padding of a value in bytes.
    pub padding_max: usize,
    /// The producers' codec.
    pub compression: Compression,
    /// `linger.ms`, if set.
    pub linger: Option<Duration>,
    /// `batch.size`.
    pub batch_bytes_max: usize,
    /// `delivery.timeout.ms`.
    pub delivery_timeout: Duration,
    /// Number of readers without a group.
    pub readers: u32,
    /// Number of group members.
    pub members: u32,
    /// Segment size of the logs.
    pub segment_bytes: u32,
    /// Latency of a sync.
    pub sync_delay: Duration,
    /// The network during the faults.
    pub network_faults: NetworkFaults,
    /// Maximum time between two faults.
    pub fault_pause_max: Duration,
    /// Duration of the faults.
    pub faults_for: Duration,
    /// Probability in 1000 of each kind of fault, in the order of `faults::KINDS`.
    pub fault_weights: [u32; 9],
}

impl Options {
    /// Draws the options of a seed.
    pub fn draw(rng: &mut fastrand::Rng) -> Self {
        let ms = Duration::from_millis;
        let latency_max = [0, 1, 5, 30][rng.usize(0..4)];
        let network_faults = NetworkFaults {
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
            network_faults,
            fault_pause_max: ms([200, 1_000, 3_000][rng.usize(0..3)]),
            faults_for: ms(rng.u64(2_000..12_000)),
            fault_weights,
        }
    }
}
