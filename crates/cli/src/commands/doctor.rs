//! `ottla doctor`.

mod brokers;
mod connection;
mod goal;
mod network;
mod pace;
mod peer;
mod records;
mod report;
mod security;
mod topics;

use std::sync::Arc;
use std::time::Duration;

use ottla_client::{Client, Config, TcpConnector};

use self::connection::ProbeSettings;
use self::goal::Goal;
use self::report::{Report, Status, Step};
use crate::connect::{ConnectArgs, contact, runtime};
use crate::failure::Failure;
use crate::topic_args::topic_name;

/// Default time limit of an answer; `socket.timeout.ms` overrides it.
const ANSWER_WITHIN_MS: &str = "10000";

/// Diagnoses why a cluster cannot be reached, or is slow
///
/// Checks name resolution, connections, API versions, advertised addresses, topics, round trips and records. Each
/// step reports its duration. The checks use the wire protocol directly, without a client's retries. Exit code 1 if a
/// step fails.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic whose records are read, and with --write written. Without it, --write creates a topic and deletes it
    #[arg(short, long, value_name = "TOPIC", value_parser = topic_name)]
    topic: Option<String>,
    /// Writes a few records, to measure acknowledgements
    #[arg(long)]
    write: bool,
    /// Prints the settings for this goal
    #[arg(long, value_name = "GOAL")]
    goal: Option<Goal>,
    /// Prints one JSON object instead of lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = args.connect.config(&[("socket.timeout.ms", ANSWER_WITHIN_MS)])?;
    // The client's own validation reports contradictory properties now.
    drop(Client::with_engine(config.clone(), Arc::new(TcpConnector::default()), 0)?);
    let mut report = Report::new(args.json);
    let measurements = examine(args, &config, &mut report)?;
    if let Some(goal) = args.goal {
        report.suggest(goal::suggestions(goal, &measurements, &config)?)?;
    }
    report.finish()
}

/// Measurements for later steps and for suggestions.
#[derive(Debug, Default)]
struct Measurements {
    /// The fastest connect: the network's share of a round trip.
    connect: Option<Duration>,
    /// The median round trip of a small request.
    round_trip: Option<Duration>,
    /// The median time of an acknowledgement.
    acknowledgement: Option<Duration>,
}

fn examine(args: &Args, config: &Config, report: &mut Report) -> Result<Measurements, Failure> {
    let mut measurements = Measurements::default();
    let settings = ProbeSettings::of(config)?;
    let reachable = network::examine(config, &settings, report, &mut measurements)?;
    if !reachable.is_empty() {
        let secured = security::handshakes(&reachable, &settings, report)?;
        if let Some(first) = brokers::find_broker(&secured, &settings, report)?
            && security::login(&first, &settings, report)?
        {
            pace::examine(&first, &settings, report, &mut measurements)?;
            if let Some(cluster) = brokers::examine(&first, &settings, report)? {
                topics::examine(&cluster, report)?;
                records::examine(args, &cluster, &settings, report, &mut measurements)?;
            }
        }
        let client = connect_with_client(config.clone());
        report.add(client)?;
    }
    Ok(measurements)
}

/// The text of a failure without the advice to run this command.
fn without_doctor(failure: &str) -> &str {
    failure.split(" (run `ottla doctor").next().unwrap_or(failure)
}

/// Connects as a program would: with the client, these properties and its retries.
fn connect_with_client(config: Config) -> Step {
    let target = config.bootstrap_servers.clone();
    let step = Step::new("client", target);
    let watch = connection::Stopwatch::start();
    let result = runtime().and_then(|runtime| runtime.block_on(contact(config)));
    let step = step.took(watch.elapsed());
    match result {
        Ok((_, cluster)) => step.fact(format!("brokers: {}", cluster.brokers.len())),
        Err(failure) => step
            .status(Status::Fail)
            .fact(without_doctor(&failure.to_string()))
            .advice("resolve the problems of the steps above first; -vv shows the client's log"),
    }
}
