//! `ottla transactions`.

use std::time::Duration;

use ottla_client::{
    Admin, Error, ErrorCode, HangingTransaction, Timeouts, TopicPartition, TransactionDescription,
    TransactionFilter,
};
use serde_json::{Value, json};

use crate::choices::{TRANSACTION_STATES, completed, transaction_state};
use crate::connect::{ConnectArgs, admin, runtime};
use crate::failure::{Failure, remember_operation};
use crate::failures::Failures;
use crate::listing::{Listing, OutputArgs};
use crate::output::{note, print};
use crate::partition_args::{TopicAndPartition, topic_and_partition};
use crate::time::{format_ms, now_ms};

/// The state of an id with an open transaction.
const ONGOING: &str = "Ongoing";

/// The states of an id whose last transaction has ended in all partitions.
const ENDED: [&str; 4] = ["Empty", "CompleteCommit", "CompleteAbort", "Dead"];

/// Lists, describes and aborts transactions
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Transactions {
    /// Prints every transactional id with its state
    ///
    /// Example: `ottla transactions list --state Ongoing`
    List {
        /// Prints only ids in this state, by Kafka's names: Ongoing, Empty, CompleteCommit; may be repeated
        #[arg(long, value_name = "STATE", value_parser = completed(transaction_state, TRANSACTION_STATES), hide_possible_values = true)]
        state: Vec<String>,
        /// Prints only the ids of this producer id; may be repeated
        #[arg(long, value_name = "ID")]
        producer_id: Vec<i64>,
        /// Prints only transactions that have been open for longer than so many seconds
        #[arg(long, value_name = "SECONDS")]
        longer_than: Option<u64>,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Prints the producer, the start and the partitions of transactions
    ///
    /// Example: `ottla transactions describe billing`
    Describe {
        /// The transactional ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    Abort(AbortArgs),
}

/// Aborts the open transactions of ids and fences their producers, or aborts one that hangs
///
/// A producer that is fenced fails with its next request. A transaction hangs if a partition has it open and its coordinator
/// does not know it; `--hanging` aborts it in this partition, unless the coordinator has it open there. Example:
/// `ottla transactions abort billing`
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(crate) struct AbortArgs {
    /// The transactional ids
    #[arg(group = "which", value_name = "ID")]
    ids: Vec<String>,
    /// The partition of a transaction that hangs
    #[arg(long, group = "which", value_name = "TOPIC:PARTITION", value_parser = topic_and_partition, requires = "producer_id")]
    hanging: Option<TopicAndPartition>,
    /// The producer id of the transaction that hangs
    #[arg(long, value_name = "ID", requires = "hanging")]
    producer_id: Option<i64>,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(transactions: &Transactions) -> Result<(), Failure> {
    runtime()?.block_on(async {
        match transactions {
            Transactions::List { state, producer_id, longer_than, output, connect } => {
                let filter = TransactionFilter {
                    states: state.clone(),
                    producer_ids: producer_id.clone(),
                    longer_than: longer_than.map(Duration::from_secs),
                };
                list(&admin(connect).await?, filter, *output).await
            }
            Transactions::Describe { ids, output, connect } => {
                describe(&admin(connect).await?, ids, *output).await
            }
            Transactions::Abort(args) => abort(args).await,
        }
    })
}

async fn list(admin: &Admin, filter: TransactionFilter, output: OutputArgs) -> Result<(), Failure> {
    let listed = admin.list_transactions(filter, Timeouts::default()).await?;
    let mut listing = Listing::new(["transactional_id", "state", "producer_id", "coordinator"]);
    for found in listed.transactions {
        listing.row([
            json!(found.transactional_id),
            json!(found.state),
            json!(found.producer_id),
            json!(found.coordinator),
        ]);
    }
    let mut failures = Failures::default();
    failures.print_listing(&listing, output.output);
    for (node, error) in listed.errors {
        note(&format!("ottla: the transactions of node {node} are missing"));
        failures.push(error);
    }
    failures.result()
}

async fn describe(admin: &Admin, ids: &[String], output: OutputArgs) -> Result<(), Failure> {
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut listing = Listing::new([
        "transactional_id",
        "state",
        "producer_id",
        "producer_epoch",
        "coordinator",
        "timeout_ms",
        "started",
        "age_ms",
        "partitions",
    ]);
    let mut failures = Failures::default();
    for (id, described) in admin.describe_transactions(&ids, Timeouts::default()).await? {
        match described {
            Ok(found) => listing.row(row(&found)),
            Err(error) => failures.push(failure(&id, error)),
        }
    }
    failures.print_listing(&listing, output.output);
    failures.result()
}

fn row(found: &TransactionDescription) -> [Value; 9] {
    let partitions = found.partitions.iter().map(|at| format!("{}:{}", at.topic, at.partition));
    [
        json!(found.transactional_id),
        json!(found.state),
        json!(found.producer_id),
        json!(found.producer_epoch),
        json!(found.coordinator),
        json!(u64::try_from(found.timeout.as_millis()).unwrap_or(u64::MAX)),
        json!(found.started_ms.map(format_ms)),
        json!(found.started_ms.map(|ms| (now_ms() - ms).max(0))),
        json!(partitions.collect::<Vec<_>>()),
    ]
}

fn failure(id: &str, error: Error) -> Failure {
    match error.broker_code() {
        Some(ErrorCode::TransactionalIdNotFound) => Failure::failed(format!(
            "transactional id `{id}` does not exist: `ottla transactions list` prints the ids"
        )),
        _ => error.into(),
    }
}

async fn abort(args: &AbortArgs) -> Result<(), Failure> {
    let admin = admin(&args.connect).await?;
    if let (Some(hanging), Some(producer_id)) = (&args.hanging, args.producer_id) {
        return abort_hanging(&admin, hanging, producer_id).await;
    }
    remember_operation("write");
    let ids: Vec<&str> = args.ids.iter().map(String::as_str).collect();
    // An id that does not exist would be created, and a producer without a transaction fenced.
    let mut failures = Failures::default();
    for (id, described) in admin.describe_transactions(&ids, Timeouts::default()).await? {
        match described {
            Err(error) => failures.push(failure(&id, error)),
            Ok(found) if found.state != ONGOING => failures.push(Failure::failed(format!(
                "transactional id `{id}` has no open transaction: its state is {}",
                found.state
            ))),
            Ok(_) => match admin.terminate_transaction(&id, Timeouts::default()).await {
                Ok(()) => failures.print(&format!("aborted the transaction of {id}\n")),
                Err(error) => failures.push(error),
            },
        }
    }
    failures.result()
}

async fn abort_hanging(
    admin: &Admin,
    (topic, partition): &TopicAndPartition,
    producer_id: i64,
) -> Result<(), Failure> {
    let Some(partition) = partition else {
        return Err(Failure::usage(format!("--hanging {topic}: name the partition, as in {topic}:0")));
    };
    let at = TopicPartition::new(topic, *partition);
    let described = admin.describe_producers(std::slice::from_ref(&at), Timeouts::default()).await?;
    let mut producers = Vec::new();
    for (_, found) in described {
        producers.extend(found?);
    }
    let open = producers
        .iter()
        .find(|found| found.producer_id == producer_id && found.transaction_start_offset.is_some());
    let Some(open) = open else {
        return Err(Failure::failed(format!(
            "topic `{topic}` partition {partition}: producer {producer_id} has no open transaction there"
        )));
    };
    let start = open.transaction_start_offset.map_or_else(|| "-".to_owned(), |offset| offset.to_string());
    refuse_known(admin, &at, producer_id).await?;
    let hanging = HangingTransaction {
        partition: at,
        producer_id,
        producer_epoch: i16::try_from(open.producer_epoch).unwrap_or(i16::MAX),
        coordinator_epoch: open.coordinator_epoch.unwrap_or(0),
    };
    admin.abort_hanging_transaction(hanging, Timeouts::default()).await?;
    print(&format!(
        "aborted the transaction of producer {producer_id} in {topic}:{partition}, which started at offset {start}\n"
    ))
}

/// Fails if a coordinator has a transaction of the producer open in the partition: an abort here would end a part of it only.
async fn refuse_known(admin: &Admin, at: &TopicPartition, producer_id: i64) -> Result<(), Failure> {
    let filter = TransactionFilter { producer_ids: vec![producer_id], ..TransactionFilter::default() };
    let listed = admin.list_transactions(filter, Timeouts::default()).await?;
    if let Some((node, error)) = listed.errors.into_iter().next() {
        let reason = Failure::from(error);
        return Err(Failure::failed(format!(
            "node {node} may have the transaction of producer {producer_id} open, and does not list its transactions: {reason}"
        )));
    }
    let ids: Vec<&str> = listed.transactions.iter().map(|found| found.transactional_id.as_str()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    for (id, described) in admin.describe_transactions(&ids, Timeouts::default()).await? {
        let found = match described {
            Ok(found) => found,
            Err(error) if error.broker_code() == Some(ErrorCode::TransactionalIdNotFound) => continue,
            Err(error) => return Err(error.into()),
        };
        if found.partitions.contains(at) && !ENDED.contains(&&*found.state) {
            return Err(Failure::failed(format!(
                "topic `{}` partition {}: the transaction of producer {producer_id} does not hang: it is one of `{id}`, whose \
                 state is {}; `ottla transactions abort {id}` aborts it in all partitions",
                at.topic, at.partition, found.state
            )));
        }
    }
    Ok(())
}
