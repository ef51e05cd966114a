//! `ottla run`.

mod child;
mod program;

use std::time::Duration;

use ottla_client::{Admin, Client, Error, ErrorCode};
use ottla_parallel::{BatchFailure, GiveUp, Metrics, Mode, Order, Processor, Retry};

use self::child::{Answer, Child, Feed};
use super::consume::interrupted;
use crate::bench::parse_order;
use crate::connect::{ConnectArgs, contact, runtime};
use crate::failure::Failure;
use crate::metrics::MetricsArgs;
use crate::output::note;
use crate::topic_args::{topic_name, topic_or_regex};
use crate::warnings;

/// How often it is looked whether the processor is still there.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often something is said of what blocks the commits, and from which age on.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Feeds the records of topics to child processes
///
/// Each worker is a process of its own: it reads records from its standard input, one per line, and writes one line for each
/// to its standard output, in the same order. A record is done when its answer has come, and what is committed never passes
/// one that is not. An answer that begins with `error`, or is a JSON object with a member `error`, says that the record has
/// failed; so does a process that ends. A program that cannot be started is no failure of a record: the command ends, and
/// nothing of the record is committed. Ctrl-C waits for the records in hand, commits, and leaves the group. A
/// summary is printed at the end, and the exit code is 1 when records were skipped.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topics, separated by commas; one that begins with ^ is a regular expression
    #[arg(short, long, required = true, value_delimiter = ',', value_parser = topic_or_regex)]
    topic: Vec<String>,
    /// The consumer group
    #[arg(short = 'G', short_alias = 'g', long)]
    group: String,
    /// How many processes
    #[arg(short, long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// Each line is a JSON object: topic, partition, offset, timestamp, key, value, headers; otherwise it is the value
    #[arg(long)]
    json: bool,
    /// What is handled in order: none, partition, key
    #[arg(long, default_value = "none", value_parser = parse_order)]
    order: Order,
    /// How many records a process may have before it answers the first
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Prints the answers
    #[arg(long)]
    print: bool,
    /// How often a failed record is tried again
    #[arg(long, default_value_t = 3)]
    retries: u32,
    /// How long the first repetition waits, in milliseconds; each further one twice as long, up to 10 s
    #[arg(long, default_value_t = 100)]
    retry_delay_ms: u64,
    /// A failed record holds up what follows it in its key or partition, instead of letting it pass
    #[arg(long)]
    hold: bool,
    /// Where records go that have failed too often [default: the command stops]
    #[arg(long, value_name = "TOPIC", value_parser = topic_name)]
    dead_letters: Option<String>,
    /// Records that have failed too often count as done
    #[arg(long, conflicts_with = "dead_letters")]
    skip: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// What each worker runs, with its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Before the group is joined: a program that is not there would fail every record.
    program::check(&args.command[0], std::env::var_os("PATH").as_deref())?;
    let ours = [("auto.offset.reset", "earliest"), ("partition.assignment.strategy", "cooperative-sticky")];
    let mut config = args.connect.config(&ours)?;
    config.set("group.id", &args.group)?;
    // For the dead letters.
    warnings::watch(&mut config, true)?;
    args.metrics.apply(&mut config)?;
    runtime()?.block_on(async {
        // From here on a signal ends the command cleanly, also one that comes before the group is joined.
        let interrupted = interrupted();
        tokio::pin!(interrupted);
        // An unreachable broker is reported now, and a misspelled topic, which may also come into being later.
        let (client, _) = tokio::select! {
            biased;
            signal = &mut interrupted => return signal,
            contacted = contact(config.clone()) => contacted?,
        };
        warn_of_missing_topics(&client, &args.topic).await;
        drop(client);
        let processor = start(args, config)?;
        let (metrics, served) = (processor.metrics_source(), processor.metrics_source());
        let _endpoint = args.metrics.serve_and(processor.client(), move || served().prometheus_text())?;
        let mut quiet = Duration::ZERO;
        while !processor.is_stopped() {
            tokio::select! {
                signal = &mut interrupted => {
                    signal?;
                    break;
                }
                () = tokio::time::sleep(LOOK_EVERY) => quiet += LOOK_EVERY,
            }
            if quiet >= SAY_EVERY {
                quiet = Duration::ZERO;
                say(&processor.metrics());
            }
        }
        processor.stop();
        let ended = processor.join();
        let metrics = metrics();
        note(&summary(&metrics, args.dead_letters.as_deref()));
        ended?;
        match metrics.skipped {
            0 => Ok(()),
            skipped => Err(Failure::failed(format!(
                "{skipped} {} failed more often than --retries {} allows and {} skipped: --dead-letters TOPIC keeps such records",
                if skipped == 1 { "record" } else { "records" },
                args.retries,
                if skipped == 1 { "was" } else { "were" },
            ))),
        }
    })
}

/// A topic that does not exist is waited for: without a word, a misspelled name looks like one without records.
async fn warn_of_missing_topics(client: &Client, topics: &[String]) {
    for topic in topics.iter().filter(|topic| !topic.starts_with('^')) {
        let described = Admin::of(client).describe_topics(&[topic]).await;
        if let Err(Error::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }) = described {
            note(&format!("ottla: warning: topic `{topic}` does not exist: its records are waited for"));
        }
    }
}

/// What became of the records.
fn summary(metrics: &Metrics, dead_letters: Option<&str>) -> String {
    let to = dead_letters.map(|topic| format!(" to {topic}")).unwrap_or_default();
    let Metrics { handled, retries, skipped, dead_letters, .. } = metrics;
    format!(
        "{handled} records handled, {retries} retries, {skipped} skipped, {dead_letters} dead-lettered{to}"
    )
}

fn start(args: &Args, config: ottla_client::Config) -> Result<Processor, Failure> {
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
    let builder = Processor::builder(config, mode)
        .topics(args.topic.iter().map(String::as_str))
        .workers(args.workers.into())
        .order(args.order)
        .batch(args.batch as usize)
        .batch_wait(Duration::from_millis(5))
        .retry(retry)
        .give_up(give_up);
    let feed = Feed { command: args.command.clone(), json: args.json, print: args.print };
    if mode == Mode::MultiAsync {
        let each = |_| {
            let mut child = Child::new(feed.clone());
            Ok(move |message: &ottla_parallel::Message<'_>| match child.feed([**message])?.pop() {
                Some(Answer::Failed(failure)) => Err(failure),
                Some(Answer::Done) | None => Ok(()),
            })
        };
        return Ok(builder.start_each_with(each)?);
    }
    let each = |_| {
        let mut child = Child::new(feed.clone());
        Ok(move |messages: &ottla_parallel::Messages<'_>| {
            let answers = child.feed(messages.iter())?;
            let failed = |(index, answer)| match answer {
                Answer::Failed(failure) => Some((index, failure)),
                Answer::Done => None,
            };
            let failed: Vec<_> = answers.into_iter().enumerate().filter_map(failed).collect();
            if failed.is_empty() { Ok(()) } else { Err(BatchFailure::records(failed)) }
        })
    };
    Ok(builder.start_batches_with(each)?)
}

fn say(metrics: &Metrics) {
    let (handled, failures, queued) = (metrics.handled, metrics.failures, metrics.queued);
    tracing::info!(handled, failures, queued, "so far");
    for partition in &metrics.partitions {
        if let Some((offset, age)) = partition.blocking.filter(|(_, age)| *age >= SAY_EVERY) {
            let (at, age_s) = (&partition.at, age.as_secs());
            tracing::warn!(%at, offset, age_s, "this record blocks the commit");
        }
    }
}
