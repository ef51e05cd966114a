//! `ottla run`.

mod child;
mod program;

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use ottla_client::{Client, ClusterDescription, Config, Error, ErrorCode, pattern_matches};
use ottla_parallel::{BatchFailure, GiveUp, Metrics, Mode, Order, Processor, Retry};

use self::child::{Child, ChildSettings, LineResult};
use super::groups;
use super::produce::await_topic;
use crate::bench::parse_order;
use crate::choices::{ORDERS, completed};
use crate::connect::{ConnectArgs, contact, runtime};
use crate::failure::{Failure, remember_operation};
use crate::metrics::MetricsArgs;
use crate::output::{counted, note, print_bytes};
use crate::signals::Signals;
use crate::topic_args::{Subscription, subscription, topic_name};
use crate::warnings;

/// Interval at which the processor's state is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Interval of reports about a record that blocks commits, and the age from which it is reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Processes records of topics in child processes
///
/// Each worker is a child process. It reads records from its standard input, one per line, and writes one result line
/// per record to its standard output, in the same order. A record is done when its result line arrives; commits never
/// pass an unfinished record. A result that begins with `error`, or is a JSON object with a member `error`, marks the
/// record as failed. A process that exits fails its unfinished records. One that writes more lines than it has read records
/// ends the command, without a commit of those records. A program that cannot be started ends the
/// command, without a commit of the record. Ctrl-C waits for records in flight, commits, and leaves the group; a second
/// Ctrl-C ends the command at once. A summary is printed at the end. The exit code is 1 if records were skipped.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topics, separated by commas; a name that begins with ^ is a regular expression, which may have commas. May be repeated
    #[arg(short, long, required = true, value_name = "TOPIC,...", value_parser = subscription)]
    topic: Vec<Subscription>,
    /// The consumer group
    #[arg(short = 'G', short_alias = 'g', long, value_parser = NonEmptyStringValueParser::new())]
    group: String,
    /// Reads as a member of the share group named with --group: each record goes to one member, and is accepted when its
    /// result line arrives. Records that were not handled are released
    #[arg(long, conflicts_with = "hold")]
    share: bool,
    /// Number of child processes
    #[arg(short, long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// Writes each record as a JSON object with topic, partition, offset, timestamp, key, value and headers [default:
    /// the value]
    #[arg(long)]
    json: bool,
    /// Order to keep: none, partition, key
    #[arg(long, default_value = "none", value_parser = completed(parse_order, ORDERS), hide_possible_values = true)]
    order: Order,
    /// Maximum number of records that a process receives before its first result
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Prints the result lines
    #[arg(long)]
    print: bool,
    /// Number of retries of a failed record
    #[arg(long, default_value_t = 3)]
    retries: u32,
    /// Delay before the first retry in milliseconds; it doubles with each retry, up to 10 s
    #[arg(long, default_value_t = 100)]
    retry_delay_ms: u64,
    /// Blocks later records of the same key or partition while a failed record is retried; needs --order
    #[arg(long)]
    hold: bool,
    /// Topic for records whose retries are used up [default: the command stops]
    #[arg(long, value_name = "TOPIC", value_parser = topic_name)]
    dead_letters: Option<String>,
    /// Skips records whose retries are used up; a share group rejects them
    #[arg(long, conflicts_with = "dead_letters")]
    skip: bool,
    /// Number of failures in a row after which no record is started for a pause; then one is tried [default: never]
    #[arg(long, value_name = "FAILURES", value_parser = clap::value_parser!(u32).range(1..))]
    breaker: Option<u32>,
    /// First pause of --breaker in milliseconds; it doubles while the tried records fail, up to ten times this
    #[arg(long, default_value_t = 1000, requires = "breaker")]
    breaker_pause_ms: u64,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// The program of each worker, with its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

impl Args {
    fn topics(&self) -> impl Iterator<Item = &str> {
        self.topic.iter().flat_map(|names| &names.0).map(String::as_str)
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    remember_operation("read");
    // Before joining the group: a missing program would fail every record.
    program::check(&args.command[0], std::env::var_os("PATH").as_deref())?;
    if args.share && args.order != Order::None {
        return Err(Failure::usage("a share group has no order: leave out --order or --share"));
    }
    if args.hold && args.order == Order::None {
        return Err(Failure::usage("--hold has no order to keep: add --order key or --order partition"));
    }
    let ours = [("auto.offset.reset", "earliest"), ("partition.assignment.strategy", "cooperative-sticky")];
    let mut config = args.connect.config(&ours)?;
    config.set("group.id", &args.group)?;
    if let Some(dead_letters) = &args.dead_letters {
        refuse_endless_loop(args.topics(), dead_letters, &config)?;
    }
    // Shows problems with dead letters.
    warnings::watch(&mut config, true)?;
    args.metrics.apply(&mut config)?;
    runtime()?.block_on(async {
        // From here a signal ends the command cleanly, even before the group is joined.
        let mut signals = Signals::handle()?;
        // Reports an unreachable broker now, and topics that do not exist yet.
        let (client, cluster) = tokio::select! {
            biased;
            _ = signals.next() => return Ok(()),
            contacted = contact(config.clone()) => contacted?,
        };
        tokio::select! {
            biased;
            _ = signals.next() => return Ok(()),
            looked = look_up_topics(args, &client, &cluster) => looked?,
        }
        if !config.is_set("allow.auto.create.topics") {
            // As in `ottla consume`: a topic that does not exist is probably misspelt.
            config.set("allow.auto.create.topics", "false")?;
        }
        let admin = client.admin();
        let mut processor = start(args, config)?;
        let (metrics, served) = (processor.metrics_source(), processor.metrics_source());
        let _endpoint = args.metrics.serve_and(processor.client(), move || served().prometheus_text())?;
        let mut quiet = Duration::ZERO;
        while !processor.is_stopped() {
            tokio::select! {
                _ = signals.next() => break,
                () = tokio::time::sleep(CHECK_INTERVAL) => quiet += CHECK_INTERVAL,
            }
            if quiet >= REPORT_INTERVAL {
                quiet = Duration::ZERO;
                log_progress(&processor.metrics());
            }
        }
        processor.stop();
        let ended = tokio::select! {
            biased;
            ended = processor.stopped() => ended,
            signal = signals.next() => return Err(Failure::Interrupted(signal)),
        };
        let metrics = metrics();
        note(&summary(&metrics, args.dead_letters.as_deref()));
        if let Err(error) = ended {
            return Err(groups::kind::explain(&admin, &args.group, args.share, failure(error)).await);
        }
        match metrics.skipped {
            0 => Ok(()),
            skipped => Err(Failure::failed(format!(
                "{skipped} {} failed after --retries {} and {} skipped: use --dead-letters TOPIC to keep such records",
                if skipped == 1 { "record" } else { "records" },
                args.retries,
                if skipped == 1 { "was" } else { "were" },
            ))),
        }
    })
}

/// The failure of the processor. For a record that was given up, it names the options with which the command continues.
fn failure(error: ottla_parallel::Error) -> Failure {
    match error {
        error @ ottla_parallel::Error::Record { .. } => Failure::failed(format!(
            "{error}; --dead-letters TOPIC keeps such records in a topic, --skip leaves them out, and --retries N tries more often"
        )),
        error => error.into(),
    }
}

/// Refuses a topic for dead letters that the command reads itself: it would process, and write, the same records for ever.
fn refuse_endless_loop<'a>(
    topics: impl Iterator<Item = &'a str>,
    dead_letters: &str,
    config: &Config,
) -> Result<(), Failure> {
    let mut is_hidden = false;
    for pattern in &config.topic_blacklist {
        is_hidden |= pattern_matches(pattern, dead_letters)?;
    }
    for topic in topics {
        let is_read = if topic.starts_with('^') {
            !is_hidden && pattern_matches(topic, dead_letters)?
        } else {
            topic == dead_letters
        };
        if is_read {
            return Err(Failure::usage(format!(
                "--dead-letters {dead_letters}: --topic {topic} reads this topic, and would process its own dead letters for ever: \
                 use another topic"
            )));
        }
    }
    Ok(())
}

/// Warns of topics that do not exist, and waits for that of dead letters.
async fn look_up_topics(args: &Args, client: &Client, cluster: &ClusterDescription) -> Result<(), Failure> {
    warn_of_missing_topics(client, args.topics()).await;
    match &args.dead_letters {
        Some(dead_letters) => await_topic(client, cluster, dead_letters).await,
        None => Ok(()),
    }
}

/// Warns of topics that do not exist: a misspelled name would look like a topic without records.
async fn warn_of_missing_topics<'a>(client: &Client, topics: impl Iterator<Item = &'a str>) {
    for topic in topics.filter(|topic| !topic.starts_with('^')) {
        let described = client.admin().describe_topics(&[topic]).await;
        if let Err(Error::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }) = described {
            note(&format!("ottla: warning: topic `{topic}` does not exist: waiting for its records"));
        }
    }
}

/// The final counts.
fn summary(metrics: &Metrics, dead_letters: Option<&str>) -> String {
    let to = dead_letters.map(|topic| format!(" to {topic}")).unwrap_or_default();
    let Metrics { handled, retries, skipped, dead_letters, .. } = metrics;
    format!(
        "{} handled, {retries} {}, {skipped} skipped, {dead_letters} dead-lettered{to}",
        counted(*handled, "record"),
        if *retries == 1 { "retry" } else { "retries" }
    )
}

fn start(args: &Args, config: Config) -> Result<Processor, Failure> {
    let mut retry = Retry::times(args.retries).delay(Duration::from_millis(args.retry_delay_ms));
    if args.hold {
        retry = retry.holding();
    }
    let give_up = match &args.dead_letters {
        Some(topic) => GiveUp::DeadLetter(topic.clone()),
        None if args.skip => GiveUp::Skip,
        None => GiveUp::Stop,
    };
    let mode = if args.batch == 1 { Mode::MultiAsync } else { Mode::MultiBatch };
    let mut builder = Processor::builder(config, mode)
        .topics(args.topics())
        .workers(args.workers.into())
        .order(args.order)
        .batch(args.batch as usize)
        .batch_wait(Duration::from_millis(5))
        .retry(retry)
        .give_up(give_up);
    if args.share {
        builder = builder.share_group();
    }
    if let Some(failures) = args.breaker {
        builder = builder.circuit_breaker(failures, Duration::from_millis(args.breaker_pause_ms));
    }
    let feed = ChildSettings {
        command: args.command.clone(),
        json: args.json,
        print: args.print.then_some(print_bytes),
    };
    if mode == Mode::MultiAsync {
        let each = |_| {
            let mut child = Child::new(feed.clone());
            Ok(move |message: &ottla_parallel::Message<'_>| match child.process_records([**message])?.pop() {
                Some(LineResult::Failed(failure)) => Err(failure),
                Some(LineResult::Done) | None => Ok(()),
            })
        };
        return Ok(builder.start_each_with(each)?);
    }
    let each = |_| {
        let mut child = Child::new(feed.clone());
        Ok(move |messages: &ottla_parallel::Messages<'_>| {
            let answers = child.process_records(messages.iter())?;
            let failed = |(index, answer)| match answer {
                LineResult::Failed(failure) => Some((index, failure)),
                LineResult::Done => None,
            };
            let failed: Vec<_> = answers.into_iter().enumerate().filter_map(failed).collect();
            if failed.is_empty() { Ok(()) } else { Err(BatchFailure::records(failed)) }
        })
    };
    Ok(builder.start_batches_with(each)?)
}

fn log_progress(metrics: &Metrics) {
    let (handled, failures, queued) = (metrics.handled, metrics.failures, metrics.queued);
    tracing::info!(handled, failures, queued, "progress");
    for partition in &metrics.partitions {
        if let Some((offset, age)) = partition.blocking.filter(|(_, age)| *age >= REPORT_INTERVAL) {
            let (at, age_s) = (&partition.at, age.as_secs());
            tracing::warn!(%at, offset, age_s, "record blocks the commit");
        }
    }
}
