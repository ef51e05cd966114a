//! `ottla bench`: what it costs, measured.

mod consume;
mod latency;
pub(crate) mod measure;
mod minikafka;
mod patterns;
mod payload;
mod pingpong;
mod produce;
mod progress;
mod subscribe;

use std::path::PathBuf;
use std::time::Duration;

use ottla_client::{Admin, Client, Config, Error, ErrorCode, NewTopic, PrometheusEndpoint};

use crate::commands::produce::AcksArg;
use crate::connect::{ConnectArgs, contact, runtime};
use crate::failure::Failure;
use crate::metrics::MetricsArgs;
use crate::topic_args::topic_name;

pub(crate) use self::patterns::parse_order;
use self::payload::Pool;

/// How long a new topic may take to be usable.
const TOPIC_WITHIN: Duration = Duration::from_secs(10);

/// Measures producing, consuming, latency, and the log underneath
///
/// Client creation and warm-up lie outside the measured phase. With --json the last line is one JSON object. Ctrl-C ends
/// the measured phase and prints what was measured until then, with exit code 130.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Bench {
    Produce(produce::Args),
    Consume(consume::Args),
    Latency(latency::Args),
    Pingpong(pingpong::Args),
    Subscribe(subscribe::Args),
    Patterns(patterns::Args),
    Minikafka(minikafka::Args),
}

/// What the benchmarks against a broker have in common.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Common {
    /// The topic; made if it is not there
    #[arg(short, long, default_value = "bench", value_parser = topic_name)]
    topic: String,
    /// Messages in the measured phase
    #[arg(short, short_alias = 'n', long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Bytes of each message
    #[arg(short, long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    size: u32,
    /// Partitions, if the topic is to be made
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..))]
    partitions: i32,
    /// The last line is one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

impl Common {
    fn config(&self) -> Result<Config, Failure> {
        let mut config = self.connect.config(&[])?;
        self.metrics.apply(&mut config)?;
        Ok(config)
    }
}

/// What the benchmarks that produce have in common.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Producing {
    /// How batches are compressed: none, gzip, snappy, lz4, zstd
    #[arg(short = 'z', long)]
    codec: Option<String>,
    /// What the broker must have done before it acknowledges [default: all]
    #[arg(long)]
    acks: Option<AcksArg>,
    /// A file of messages, one per line, all of the same length, which then is the size of each
    #[arg(long, value_name = "FILE", conflicts_with = "size")]
    payload: Option<PathBuf>,
    /// Messages before the measured phase [default: a tenth of --count, up to 10000; 100000 at full speed]
    #[arg(long)]
    warmup: Option<u64>,
}

impl Producing {
    /// The configuration that the command line asks for.
    fn config(&self, common: &Common) -> Result<Config, Failure> {
        let mut config = common.config()?;
        if let Some(codec) = &self.codec {
            config.set("compression.codec", codec)?;
        }
        if let Some(acks) = self.acks {
            config.set("acks", acks.value())?;
        }
        Ok(config)
    }

    /// How many messages come before the measured ones.
    fn warmup(&self, common: &Common, max: u64) -> u64 {
        self.warmup.unwrap_or((common.count / 10).min(max))
    }

    /// The messages.
    fn pool(&self, common: &Common) -> Result<Pool, Failure> {
        match &self.payload {
            Some(path) => Pool::of_lines(path),
            None => Ok(Pool::new(common.size as usize)),
        }
    }

    fn describe(config: &Config) -> String {
        format!(
            "acks={:?} codec={} idempotence={}",
            config.acks,
            config.compression.name(),
            config.idempotence
        )
        .to_lowercase()
    }
}

/// A client whose cluster answers, and its topic.
#[derive(Debug)]
struct Prepared {
    client: Client,
    /// How many partitions the topic has.
    partitions: usize,
    /// Serves as long as the benchmark runs.
    _metrics: Option<PrometheusEndpoint>,
}

fn prepare(common: &Common, config: Config) -> Result<Prepared, Failure> {
    runtime()?.block_on(async {
        let (client, _) = contact(config).await?;
        let admin = Admin::of(&client);
        let missing = match admin.describe_topics(&[&common.topic]).await {
            Ok(_) => false,
            Err(Error::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }) => true,
            Err(error) => return Err(error.into()),
        };
        if missing {
            admin.create_topics(&[NewTopic::new(&common.topic).partitions(common.partitions)]).await?;
        }
        let partitions = admin.await_topic(&common.topic, TOPIC_WITHIN).await?;
        Ok(Prepared { _metrics: common.metrics.serve(&client)?, client, partitions })
    })
}

pub(crate) fn run(bench: &Bench) -> Result<(), Failure> {
    match bench {
        Bench::Produce(args) => produce::run(args),
        Bench::Consume(args) => consume::run(args),
        Bench::Latency(args) => latency::run(args),
        Bench::Pingpong(args) => pingpong::run(args),
        Bench::Subscribe(args) => subscribe::run(args),
        Bench::Patterns(args) => patterns::run(args),
        Bench::Minikafka(args) => minikafka::run(args),
    }
}
