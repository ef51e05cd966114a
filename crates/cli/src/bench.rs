//! `ottla bench`: performance measurements.

mod consume;
mod consume_group;
mod latency;
pub(crate) mod measure;
mod minikafka;
mod patterns;
mod payload;
mod pingpong;
mod produce;
mod progress;
mod subscribe;
mod transactions;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ottla_client::{Client, Config, Error, ErrorCode, NewTopic, PrometheusEndpoint};

use crate::acks_arg::AcksArg;
use crate::connect::{ConnectArgs, contact, runtime};
use crate::failure::Failure;
use crate::metrics::MetricsArgs;
use crate::output::counted;
use crate::topic_args::topic_name;

pub(crate) use self::patterns::parse_order;
use self::payload::Pool;

/// Time limit for the creation of a topic.
const TOPIC_WITHIN: Duration = Duration::from_secs(10);

/// Measures producing, consuming, latency, and the log itself
///
/// Client creation and warm-up are not measured. With --json the last line is one JSON object. Ctrl-C stops the
/// measurement and prints partial results, with exit code 130.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Bench {
    Produce(produce::Args),
    Consume(consume::Args),
    Latency(latency::Args),
    Pingpong(pingpong::Args),
    Subscribe(subscribe::Args),
    Transactions(transactions::Args),
    Patterns(patterns::Args),
    Minikafka(minikafka::Args),
}

/// Arguments of all benchmarks against a broker.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CommonArgs {
    /// The topic; created if it does not exist
    #[arg(short, long, default_value = "bench", value_parser = topic_name)]
    topic: String,
    /// Number of measured messages
    #[arg(short, short_alias = 'n', long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Size of each message in bytes
    #[arg(short, long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    size: u32,
    /// Number of partitions, if the topic is created
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..))]
    partitions: i32,
    /// Prints one JSON object as the last line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

impl CommonArgs {
    fn config(&self) -> Result<Config, Failure> {
        let mut config = self.connect.config(&[])?;
        self.metrics.apply(&mut config)?;
        Ok(config)
    }
}

/// Arguments of the benchmarks that produce.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ProducerArgs {
    /// Compression codec: none, gzip, snappy, lz4, zstd
    #[arg(short = 'z', long)]
    codec: Option<String>,
    /// Acknowledgements that the producer requires [default: all]
    #[arg(long, allow_negative_numbers = true)]
    acks: Option<AcksArg>,
    /// A file of messages, one per line; all lines must have the same length, which replaces --size
    #[arg(long, value_name = "FILE", conflicts_with = "size")]
    payload: Option<PathBuf>,
    /// Number of messages before the measurement [default: a tenth of --count, at most 10000; 100000 at full speed]
    #[arg(long)]
    warmup: Option<u64>,
}

impl ProducerArgs {
    /// The configuration from the command line.
    fn config(&self, common: &CommonArgs) -> Result<Config, Failure> {
        let mut config = common.config()?;
        if let Some(codec) = &self.codec {
            config.set("compression.codec", codec)?;
        }
        if let Some(acks) = self.acks {
            config.set("acks", acks.value())?;
        }
        Ok(config)
    }

    /// The number of warm-up messages.
    fn warmup(&self, common: &CommonArgs, max: u64) -> u64 {
        self.warmup.unwrap_or((common.count / 10).min(max))
    }

    /// The messages to send.
    fn pool(&self, common: &CommonArgs) -> Result<Pool, Failure> {
        match &self.payload {
            Some(path) => Pool::of_lines(path),
            None => Ok(Pool::new(common.size as usize)),
        }
    }

    fn describe(config: &Config) -> String {
        format!(
            "acks={:?} codec={} idempotence={}",
            config.acks,
            config.compression_codec.name(),
            config.enable_idempotence
        )
        .to_lowercase()
    }
}

/// A connected client and its topic.
#[derive(Debug)]
struct BenchSetup {
    client: Client,
    /// The number of partitions of the topic.
    partitions: usize,
    /// Serves metrics until it is dropped.
    _metrics: Option<PrometheusEndpoint>,
}

fn prepare(common: &CommonArgs, config: Config) -> Result<BenchSetup, Failure> {
    runtime()?.block_on(async {
        let (client, _) = contact(config).await?;
        let admin = client.admin();
        let missing = match admin.describe_topics(&[&common.topic]).await {
            Ok(_) => false,
            Err(Error::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }) => true,
            Err(error) => return Err(error.into()),
        };
        if missing {
            admin.create_topics(&[NewTopic::new(&common.topic).partitions(common.partitions)]).await?;
        }
        let partitions = admin.await_topic(&common.topic, TOPIC_WITHIN).await?;
        Ok(BenchSetup { _metrics: common.metrics.serve(&client)?, client, partitions })
    })
}

/// The topic of a measurement, for its title.
fn described_topic(topic: &str, partitions: usize) -> String {
    format!("{topic} ({})", counted(partitions as u64, "partition"))
}

pub(crate) fn run(bench: &Bench) -> Result<(), Failure> {
    match bench {
        Bench::Produce(args) => produce::run(args),
        Bench::Consume(args) => consume::run(args),
        Bench::Latency(args) => latency::run(args),
        Bench::Pingpong(args) => pingpong::run(args),
        Bench::Subscribe(args) => subscribe::run(args),
        Bench::Transactions(args) => transactions::run(args),
        Bench::Patterns(args) => patterns::run(args),
        Bench::Minikafka(args) => minikafka::run(args),
    }
}

/// The name of a group that no run has used: a group with members or offsets is not new.
fn new_group(kind: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("bench-{kind}-{}", now.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The title of a measurement had `1 partitions`.
    #[test]
    fn the_title_of_a_measurement_counts_its_partitions_in_english() {
        assert_eq!(described_topic("orders", 1), "orders (1 partition)");
        assert_eq!(described_topic("orders", 3), "orders (3 partitions)");
    }
}
