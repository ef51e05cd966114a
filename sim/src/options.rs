//! The options of a run, drawn from its seed: each seed has a different mix of faults and load.
//!
//! Options have a text form, `records=50 producers=1`, in which a failure prints them. A missing option has its
//! simplest value: the value that a shrunk run tends to.

use std::fmt;
use std::time::Duration;

use ottla_testkit::NetworkFaults;
use ottla_wire::Compression;

macro_rules! options {
    ($($(#[doc = $doc:literal])* $name:ident = $simple:literal;)*) => {
        /// The settings of one run. Durations are in milliseconds.
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub struct Options {
            $($(#[doc = $doc])* pub $name: i64,)*
        }

        impl Options {
            /// The simplest run: small, without faults.
            pub const SIMPLEST: Self = Self { $($name: $simple,)* };

            /// Every option with its name.
            pub fn all(&self) -> Vec<(&'static str, i64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// Sets an option by its name.
            ///
            /// # Errors
            /// There is no such option.
            pub fn set(&mut self, name: &str, value: i64) -> Result<(), String> {
                match name {
                    $(stringify!($name) => self.$name = value,)*
                    _ => return Err(format!("no option `{name}`")),
                }
                Ok(())
            }
        }
    };
}

options! {
    /// Number of partitions of the first topic.
    partitions = 1;
    /// Number of partitions of the second topic; 0: there is none.
    partitions_second = 0;
    /// Number of producers.
    producers = 1;
    /// Number of records per producer.
    records = 1;
    /// Maximum pause of a producer between two records.
    pause_max = 5;
    /// The producers' pauses are that many times shorter, with as many times more records: most of a run's cost is not per record.
    density = 1;
    /// Maximum padding of a value in bytes.
    padding_max = 0;
    /// The producers' codec, by its position in `Compression::ALL`.
    compression = 0;
    /// `linger.ms`; -1: the default.
    linger = -1;
    /// `batch.size`.
    batch_bytes_max = 1_000_000;
    /// `delivery.timeout.ms`.
    delivery_timeout = 120_000;
    /// Number of readers without a group.
    readers = 1;
    /// Number of members of the first group.
    members = 0;
    /// Number of members of the second group.
    members_second = 0;
    /// The protocol of the first group: 0 eager, 1 cooperative, 2 the client's default.
    assignor = 0;
    /// The protocol of the second group.
    assignor_second = 0;
    /// Number of parallel processors, which form the third group.
    processors = 0;
    /// Number of concurrent handlers of a processor.
    workers = 1;
    /// Maximum time to handle a record.
    handling_max = 0;
    /// Number of writers of transactions; 0: there are no transactions.
    writers = 0;
    /// Number of transactions per writer.
    transactions = 1;
    /// Maximum number of entries in a transaction.
    entries_max = 1;
    /// Number of partitions of the transactional topics.
    ledger_partitions = 1;
    /// Number of copiers.
    copiers = 0;
    /// Number of readers of the transactional topics.
    ledger_readers = 1;
    /// `transaction.timeout.ms`.
    transaction_timeout = 5_000;
    /// Number of keepers of a compacted topic, each with a reader; 0: there is no such topic.
    keepers = 0;
    /// Number of updates per keeper.
    updates = 1;
    /// Number of keys per keeper.
    keys = 1;
    /// Number of members of a share group; 0: there is none.
    sharers = 0;
    /// `group.share.delivery.count.limit`.
    deliveries_max = 5;
    /// `group.share.record.lock.duration.ms`.
    lock_duration = 1_000;
    /// Segment size of the logs.
    segment_bytes = 1_073_741_824;
    /// Latency of a sync.
    sync_delay = 0;
    /// 1: the broker's clock stamps the records.
    log_append_time = 0;
    /// Maximum latency of a write to the network.
    latency_max = 0;
    /// Maximum size of the pieces of a write; 0: whole.
    slice_bytes_max = 0;
    /// Connections out of 1000 that break after a random number of bytes.
    cut_per_mille = 0;
    /// Maximum number of bytes before such a break.
    cut_bytes_max = 2000;
    /// Connection attempts out of 1000 that are refused or hang.
    refused_per_mille = 0;
    /// Maximum time between two faults.
    fault_pause_max = 200;
    /// Duration of the faults.
    faults_for = 500;
    /// Weight of power cuts.
    power_cut = 0;
    /// Weight of kills.
    kill = 0;
    /// Weight of restarts.
    restart = 0;
    /// Weight of moves of leaders.
    move_leader = 0;
    /// Weight of moves of coordinators.
    move_coordinator = 0;
    /// Weight of nodes that go down or up.
    node = 0;
    /// Weight of requests that fail, wait or are cut.
    intercept = 0;
    /// Weight of broken connections.
    cut = 0;
    /// Weight of a disk call that fails.
    disk = 0;
    /// Weight of files or disks that fail for a time.
    disk_outage = 0;
    /// Weight of damage to a file while the broker is down.
    damage = 0;
    /// Weight of damage to a file while the broker runs.
    bit_rot = 0;
    /// Weight of jumps of the wall clock.
    clock = 0;
}

/// The bytes of each direction of a connection that are split if `density` is above 1: some small requests and their responses.
const DENSE_SLICED_BYTES: u64 = 4_096;

/// The options that are weights of faults.
const WEIGHTS: [&str; 13] = [
    "power_cut",
    "kill",
    "restart",
    "move_leader",
    "move_coordinator",
    "node",
    "intercept",
    "cut",
    "disk",
    "disk_outage",
    "damage",
    "bit_rot",
    "clock",
];

impl Options {
    /// Draws the options of a seed.
    pub fn draw(rng: &mut fastrand::Rng) -> Self {
        fn one_of(rng: &mut fastrand::Rng, values: &[i64]) -> i64 {
            values[rng.usize(0..values.len())]
        }
        let mut options = Self {
            partitions: rng.i64(1..=3),
            partitions_second: rng.i64(0..=2),
            producers: rng.i64(1..=3),
            records: one_of(rng, &[50, 150, 400]),
            pause_max: one_of(rng, &[5, 20, 100]),
            padding_max: one_of(rng, &[0, 100, 5_000]),
            compression: rng.i64(0..Compression::ALL.len() as i64),
            linger: one_of(rng, &[-1, 0, 5, 50]),
            batch_bytes_max: one_of(rng, &[200, 2_000, 1_000_000]),
            delivery_timeout: one_of(rng, &[1_500, 120_000, 120_000]),
            readers: rng.i64(1..=2),
            members: rng.i64(0..=2),
            members_second: rng.i64(0..=2),
            assignor: rng.i64(0..=2),
            assignor_second: rng.i64(0..=2),
            processors: one_of(rng, &[0, 1, 1, 2]),
            workers: one_of(rng, &[1, 3, 8]),
            handling_max: one_of(rng, &[0, 5, 100]),
            segment_bytes: one_of(rng, &[2_000, 20_000, 1 << 30]),
            sync_delay: one_of(rng, &[0, 1, 10, 50]),
            log_append_time: rng.i64(0..=1),
            latency_max: one_of(rng, &[0, 1, 5, 30]),
            slice_bytes_max: one_of(rng, &[0, 1, 7, 100, 5_000]),
            cut_per_mille: one_of(rng, &[0, 100, 300, 700]),
            cut_bytes_max: one_of(rng, &[100, 2_000, 50_000]),
            refused_per_mille: one_of(rng, &[0, 0, 50, 200]),
            fault_pause_max: one_of(rng, &[200, 1_000, 3_000]),
            faults_for: rng.i64(2_000..12_000),
            ..Self::SIMPLEST
        };
        for weight in WEIGHTS {
            let drawn = if rng.bool() { rng.i64(1..10) } else { 0 };
            options.set(weight, drawn).expect("a weight is an option");
        }
        if rng.bool() {
            options.writers = rng.i64(1..=2);
            options.transactions = one_of(rng, &[5, 20, 60]);
            options.entries_max = one_of(rng, &[1, 3, 10]);
            options.ledger_partitions = rng.i64(1..=3);
            options.copiers = rng.i64(0..=2);
            options.ledger_readers = rng.i64(1..=2);
            options.transaction_timeout = one_of(rng, &[1_000, 5_000, 60_000]);
        }
        if rng.bool() {
            options.keepers = rng.i64(1..=2);
            options.updates = one_of(rng, &[20, 100, 300]);
            options.keys = one_of(rng, &[1, 5, 30]);
        }
        if rng.bool() {
            options.sharers = rng.i64(1..=3);
            options.deliveries_max = one_of(rng, &[2, 3, 5, 10]);
            options.lock_duration = one_of(rng, &[1_000, 3_000]);
        }
        options
    }

    /// The same with that many times more records from its producers in the same time.
    #[must_use]
    pub fn denser(self, times: i64) -> Self {
        Self { density: self.density * times, records: self.records * times, ..self }
    }

    /// The longest pause of a producer between two records.
    pub(crate) fn producer_pause(&self) -> Duration {
        ms(self.pause_max) / u32::try_from(self.density).unwrap_or(1).max(1)
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// The word that is no option.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self::SIMPLEST;
        for word in text.split_whitespace() {
            let (name, value) =
                word.split_once('=').ok_or_else(|| format!("`{word}`: expected NAME=NUMBER"))?;
            options.set(name, value.parse().map_err(|_| format!("`{word}`: no number"))?)?;
        }
        Ok(options)
    }

    /// `batch.size` of producers. A segment has room for each batch: the broker refuses others for good.
    pub(crate) fn batch_size(&self) -> usize {
        self.batch_bytes_max.min(self.segment_bytes / 2) as usize
    }

    /// The most bytes that a value has beyond its text, so that a segment has room for it.
    pub(crate) fn value_padding_max(&self) -> usize {
        self.padding_max.min(self.segment_bytes / 2) as usize
    }

    pub(crate) fn codec(&self) -> Compression {
        Compression::ALL[self.compression as usize % Compression::ALL.len()]
    }

    pub(crate) fn network_faults(&self) -> NetworkFaults {
        NetworkFaults {
            latency_max: ms(self.latency_max),
            slice_bytes_max: self.slice_bytes_max as usize,
            // A run with many records would spend most of its time with single bytes.
            sliced_bytes: if self.density > 1 { DENSE_SLICED_BYTES } else { u64::MAX },
            cut_per_mille: self.cut_per_mille as u32,
            cut_bytes_max: self.cut_bytes_max as u64,
            refused_per_mille: self.refused_per_mille as u32,
        }
    }
}

/// The text form: every option that has not its simplest value.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self
            .all()
            .into_iter()
            .zip(Self::SIMPLEST.all())
            .filter(|(own, simplest)| own != simplest)
            .map(|((name, value), _)| format!("{name}={value}"))
            .collect();
        f.write_str(&words.join(" "))
    }
}

/// A duration of so many milliseconds.
pub(crate) fn ms(ms: i64) -> Duration {
    Duration::from_millis(ms.max(0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_comes_back() {
        for seed in 0..100 {
            let options = Options::draw(&mut fastrand::Rng::with_seed(seed));
            assert_eq!(Options::parse(&options.to_string()), Ok(options));
        }
        assert_eq!(Options::parse(""), Ok(Options::SIMPLEST));
        assert!(Options::parse("records=x").is_err() && Options::parse("speed=1").is_err());
    }
}
