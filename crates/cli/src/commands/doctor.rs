//! `ottla doctor`.

mod brokers;
mod goal;
mod network;
mod pace;
mod peer;
mod records;
mod report;
mod security;
mod topics;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use ottla_client::{Client, Config, TcpConnector};

use self::goal::Goal;
use self::report::{Report, Status, Step};
use self::wire::Terms;
use crate::connect::{ConnectArgs, contact, runtime};
use crate::failure::Failure;
use crate::topic_args::topic_name;

/// How long an answer may take, unless `socket.timeout.ms` says otherwise: somebody sits and waits.
const ANSWER_WITHIN_MS: &str = "10000";

/// Finds out why a cluster cannot be reached, or is slow
///
/// Walks from names to records, step by step, with the time that each step took: names, connections, what brokers
/// speak, where they say they listen, topics, round trips. It looks at the wire itself, without a client's retries.
/// Exit code 1 when a step fails.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic whose records are read, and with --write written; otherwise, with --write, one that is created and
    /// deleted
    #[arg(short, long, value_name = "TOPIC", value_parser = topic_name)]
    topic: Option<String>,
    /// Writes a few records, without which nothing is known of acknowledgements
    #[arg(long)]
    write: bool,
    /// What matters: prints the settings for it
    #[arg(long, value_name = "GOAL")]
    goal: Option<Goal>,
    /// One JSON object instead of lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = args.connect.config(&[("socket.timeout.ms", ANSWER_WITHIN_MS)])?;
    // Contradictions are found now, by the client's own rules.
    drop(Client::with_engine(config.clone(), Arc::new(TcpConnector::default()), 0)?);
    let mut report = Report::new(args.json);
    let seen = examine(args, &config, &mut report)?;
    if let Some(goal) = args.goal {
        report.suggest(goal::suggestions(goal, &seen, &config)?)?;
    }
    report.finish()
}

/// What later steps and the suggestions build on.
#[derive(Debug, Default)]
struct Seen {
    /// The fastest connect: what one round trip costs the network alone.
    connect: Option<Duration>,
    /// The median of a small request's round trips.
    round_trip: Option<Duration>,
    /// The median of an acknowledgement's.
    acknowledgement: Option<Duration>,
}

fn examine(args: &Args, config: &Config, report: &mut Report) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    let terms = Terms::of(config)?;
    let reachable = network::examine(config, &terms, report, &mut seen)?;
    if !reachable.is_empty() {
        let secured = security::handshakes(&reachable, &terms, report)?;
        if let Some(first) = brokers::greet(&secured, &terms, report)?
            && security::login(&first, &terms, report)?
        {
            pace::examine(&first, &terms, report, &mut seen)?;
            if let Some(cluster) = brokers::examine(&first, &terms, report)? {
                topics::examine(&cluster, report)?;
                records::examine(args, &cluster, &terms, report, &mut seen)?;
            }
        }
        let client = through_the_client(config.clone());
        report.add(client)?;
    }
    Ok(seen)
}

/// What a program would meet: the client with these properties, its own retries included.
fn through_the_client(config: Config) -> Step {
    let target = config.bootstrap_servers.clone();
    let step = Step::new("client", target);
    let watch = wire::Stopwatch::start();
    let result = runtime().and_then(|runtime| runtime.block_on(contact(config)));
    let step = step.took(watch.elapsed());
    match result {
        Ok((_, cluster)) => step.fact(format!("brokers: {}", cluster.brokers.len())),
        Err(failure) => step
            .status(Status::Fail)
            .fact(failure.to_string())
            .advice("what the steps above say is wrong comes first; -vv shows the client's own log"),
    }
}
