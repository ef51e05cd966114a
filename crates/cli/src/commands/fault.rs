//! `ottla fault`: makes a broker misbehave for a test, through its control address.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::connect::runtime;
use crate::control::ControlAddress;
use crate::control::client::ControlClient;
use crate::failure::Failure;
use crate::output::print;

/// Makes a broker misbehave for a test
///
/// The broker runs with --control; docs/TESTING.md has the HTTP requests behind these commands. Prints JSON. Example:
/// `ottla fault add Produce fail --error NOT_ENOUGH_REPLICAS --topic orders --control unix:ottla.sock`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum FaultCommand {
    Add(AddArgs),
    /// Prints the faults that still have requests to come
    List {
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Removes a fault, or all of them
    Remove {
        /// The id that `add` printed
        id: Option<u64>,
        #[command(flatten)]
        control: ControlArgs,
    },
    Node(NodeArgs),
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Moves the leader of a partition, or with --group or --transactional-id a coordinator
    Move(MoveArgs),
    Follow(FollowArgs),
    /// Does periodic work of the broker now
    Now {
        /// The work: roll and compact need --topic
        #[arg(value_parser = ["apply-retention", "roll", "compact", "expire-offsets", "abort-timed-out-transactions"])]
        action: String,
        /// The topic of roll and compact
        #[arg(long, value_name = "TOPIC")]
        topic: Option<String>,
        #[command(flatten)]
        control: ControlArgs,
    },
    Wait(WaitArgs),
    /// Keeps the data of a broker in memory under a name, for `restore` and `fork`
    Snapshot {
        /// The name: letters, digits, dots, dashes and underscores
        name: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Replaces the broker's data by a snapshot's; the addresses stay
    Restore {
        /// The name that `snapshot` was given
        name: String,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Starts another broker with the same data, and prints its id and its bootstrap.servers
    Fork {
        /// The snapshot it starts from; without it, the data as it is now
        #[arg(long, value_name = "NAME")]
        snapshot: Option<String>,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Stops a fork
    EndFork {
        /// The id that `fork` printed
        id: u64,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Prints the number of requests by API since the first call
    Requests {
        #[command(flatten)]
        control: ControlArgs,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ControlArgs {
    /// The address of `ottla broker --control`
    #[arg(long, value_name = "unix:PATH|HOST:PORT", env = "OTTLA_CONTROL")]
    control: ControlAddress,
    /// The file that `ottla broker --control-token` has written, for a HOST:PORT
    #[arg(long, value_name = "FILE", env = "OTTLA_CONTROL_TOKEN")]
    control_token: Option<PathBuf>,
    /// A fork of the broker, by the id that `fork` printed: the command is for it
    #[arg(long, value_name = "ID")]
    of_fork: Option<u64>,
}

impl ControlArgs {
    /// Sends a request to the broker, or to its fork, and returns the answer.
    pub(crate) fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, Failure> {
        let path = match self.of_fork {
            Some(id) => format!("/forks/{id}{path}"),
            None => path.to_owned(),
        };
        let client = ControlClient::new(self.control.clone(), self.control_token.as_deref())?;
        runtime()?.block_on(client.call(method, &path, body))
    }
}

/// Sets a fault for the next requests of an API
#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// The API, by its name in Kafka's protocol: Produce, Fetch, Metadata, JoinGroup, ...
    api: String,
    /// The fault: fail the request; delay it, or only its response; close the connection instead of the request, of its response or
    /// within the response; leave the request or its response out
    #[arg(value_parser = ["fail", "delay", "answer-late", "cut", "cut-after", "cut-at", "hang", "hang-after"])]
    action: String,
    /// The error of `fail`, by Kafka's name
    #[arg(long, value_name = "NAME")]
    error: Option<String>,
    /// Milliseconds of `delay`, `answer-late`, or before `fail`
    #[arg(long, value_name = "MS")]
    delay_ms: Option<u64>,
    /// Bytes of the response that `cut-at` sends
    #[arg(long, value_name = "N")]
    bytes: Option<u64>,
    /// Only requests to this node
    #[arg(long, value_name = "ID")]
    node: Option<i32>,
    /// Only requests with this client.id
    #[arg(long, value_name = "NAME")]
    client_id: Option<String>,
    /// Only requests that name this topic
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// The number of requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u32,
    #[command(flatten)]
    control: ControlArgs,
}

/// Stops, starts, cuts off, pauses, slows down or adds a node
#[derive(Debug, clap::Args)]
pub(crate) struct NodeArgs {
    /// The id of the node
    id: i32,
    /// `stop` lets other replicas lead its partitions; `cut-off` leaves it leader; `pause` is SIGSTOP: it keeps its connections, too
    #[arg(value_parser = ["stop", "start", "cut-off", "reconnect", "pause", "resume", "lag", "add"])]
    action: String,
    /// Milliseconds of `lag`; 0 ends it
    #[arg(long, value_name = "MS", required_if_eq("action", "lag"))]
    lag_ms: Option<u64>,
    #[command(flatten)]
    control: ControlArgs,
}

/// Makes the broker's disk fail, full or slow
#[derive(Debug, clap::Subcommand)]
pub(crate) enum DiskCommand {
    Add(AddDiskArgs),
    /// Prints the faults of the disk that still have calls to come
    List {
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Removes a fault of the disk, or all of them
    Remove {
        /// The id that `add` printed
        id: Option<u64>,
        #[command(flatten)]
        control: ControlArgs,
    },
}

/// Sets a fault for the next calls of the broker to its disk
///
/// A full disk refuses records; a write or sync that fails takes its partition offline until the broker restarts. Example:
/// `ottla fault disk add write full --topic orders`
#[derive(Debug, clap::Args)]
pub(crate) struct AddDiskArgs {
    /// The calls; `read` is for records that are no longer in memory
    #[arg(value_parser = ["read", "write", "sync"])]
    call: String,
    /// `fail` is EIO, and `full` is ENOSPC
    #[arg(value_parser = ["fail", "full", "slow"])]
    action: String,
    /// Milliseconds that each call of `slow` takes longer, at most 10000
    #[arg(long, value_name = "MS", required_if_eq("action", "slow"))]
    delay_ms: Option<u64>,
    /// Only files of this topic
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only files of this partition of the topic
    #[arg(long, value_name = "N", requires = "topic")]
    partition: Option<i32>,
    /// The number of calls; without it, every call until the fault is removed
    #[arg(long, value_name = "N")]
    count: Option<u32>,
    #[command(flatten)]
    control: ControlArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MoveArgs {
    /// The node that leads, or coordinates; -1 leaves a partition without a leader
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    to: i32,
    /// The topic whose partition moves
    #[arg(long, value_name = "TOPIC", required_unless_present_any = ["group", "transactional_id"])]
    topic: Option<String>,
    /// The partition of --topic [default: 0]
    #[arg(long, value_name = "N", conflicts_with_all = ["group", "transactional_id"])]
    partition: Option<i32>,
    /// The group whose coordinator moves
    #[arg(long, value_name = "GROUP", conflicts_with = "topic")]
    group: Option<String>,
    /// The transactional id whose coordinator moves
    #[arg(long, value_name = "ID", conflicts_with_all = ["topic", "group"])]
    transactional_id: Option<String>,
    #[command(flatten)]
    control: ControlArgs,
}

/// Sends the consumers of a partition to a follower (KIP-392)
#[derive(Debug, clap::Args)]
pub(crate) struct FollowArgs {
    /// The node at which they read while it is up; -1 is the leader again
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    at: i32,
    /// The topic
    #[arg(long, value_name = "TOPIC")]
    topic: String,
    /// The partition of --topic
    #[arg(long, value_name = "N", default_value_t = 0)]
    partition: i32,
    /// The first offset that the follower has, if it is not the leader's
    #[arg(long, value_name = "OFFSET")]
    low: Option<i64>,
    /// The offset behind the last record that the follower has, if it is not the leader's
    #[arg(long, value_name = "OFFSET")]
    high: Option<i64>,
    #[command(flatten)]
    control: ControlArgs,
}

/// Waits for the state of a group or transaction, or for requests
#[derive(Debug, clap::Args)]
pub(crate) struct WaitArgs {
    /// The group, with --state: Stable, Empty, Dead, ...
    #[arg(long, value_name = "GROUP", requires = "state", required_unless_present_any = ["transactional_id", "api"])]
    group: Option<String>,
    /// The transactional id, with --state: Ongoing, CompleteCommit, ...
    #[arg(long, value_name = "ID", requires = "state", conflicts_with = "group")]
    transactional_id: Option<String>,
    /// The state, by Kafka's name, in upper or lower case
    #[arg(long, value_name = "NAME")]
    state: Option<String>,
    /// The API whose requests are counted, with --count
    #[arg(long, value_name = "NAME", requires = "count", conflicts_with_all = ["group", "transactional_id", "state"])]
    api: Option<String>,
    /// The number of requests of --api since the first count
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// The longest wait in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    within_ms: u64,
    #[command(flatten)]
    control: ControlArgs,
}

/// A request to the control address.
struct Call<'a> {
    control: &'a ControlArgs,
    method: &'static str,
    path: String,
    body: Value,
}

pub(crate) fn run(command: &FaultCommand) -> Result<(), Failure> {
    if let FaultCommand::Node(NodeArgs { action, lag_ms: Some(_), .. }) = command
        && action != "lag"
    {
        return Err(Failure::usage(format!("--lag-ms is an option of `lag`, not of `{action}`")));
    }
    let Call { control, method, path, body } = call_of(command);
    let answer = control.call(method, &path, &body)?;
    print(&format!("{answer}\n"))
}

fn call_of(command: &FaultCommand) -> Call<'_> {
    let post = |control, path: &str, body| Call { control, method: "POST", path: path.to_owned(), body };
    let get = |control, path: &str| Call { control, method: "GET", path: path.to_owned(), body: Value::Null };
    let delete = |control, path: String| Call { control, method: "DELETE", path, body: Value::Null };
    match command {
        FaultCommand::Add(args) => post(&args.control, "/faults", args.body()),
        FaultCommand::List { control } => get(control, "/faults"),
        FaultCommand::Remove { id, control } => {
            let path = id.map_or_else(|| "/faults".to_owned(), |id| format!("/faults/{id}"));
            delete(control, path)
        }
        FaultCommand::Node(args) => {
            let (path, body) = args.request();
            post(&args.control, &path, body)
        }
        FaultCommand::Disk(DiskCommand::Add(args)) => post(&args.control, "/disk-faults", args.body()),
        FaultCommand::Disk(DiskCommand::List { control }) => get(control, "/disk-faults"),
        FaultCommand::Disk(DiskCommand::Remove { id, control }) => {
            let path = id.map_or_else(|| "/disk-faults".to_owned(), |id| format!("/disk-faults/{id}"));
            delete(control, path)
        }
        FaultCommand::Move(args) => {
            let MoveArgs { to, topic, partition, group, transactional_id, control } = args;
            match topic {
                Some(topic) => {
                    let partition = partition.unwrap_or(0);
                    post(control, "/leaders", json!({ "topic": topic, "partition": partition, "node": to }))
                }
                None => post(
                    control,
                    "/coordinators",
                    object([
                        ("group", group.as_ref().map(|group| json!(group))),
                        ("transactional_id", transactional_id.as_ref().map(|id| json!(id))),
                        ("node", Some(json!(to))),
                    ]),
                ),
            }
        }
        FaultCommand::Follow(args) => post(&args.control, "/followers", args.body()),
        FaultCommand::Now { action, topic, control } => {
            let topic = topic.as_ref().map(|topic| json!(topic));
            post(control, "/now", object([("action", Some(json!(action))), ("topic", topic)]))
        }
        FaultCommand::Wait(args) => post(&args.control, "/wait", args.body()),
        FaultCommand::Snapshot { name, control } => post(control, "/snapshots", json!({ "name": name })),
        FaultCommand::Restore { name, control } => {
            post(control, &format!("/snapshots/{name}/restore"), Value::Null)
        }
        FaultCommand::Fork { snapshot, control } => {
            post(control, "/forks", object([("snapshot", snapshot.as_ref().map(|name| json!(name)))]))
        }
        FaultCommand::EndFork { id, control } => delete(control, format!("/forks/{id}")),
        FaultCommand::Requests { control } => get(control, "/requests"),
    }
}

impl AddArgs {
    fn body(&self) -> Value {
        object([
            ("api", Some(json!(self.api))),
            ("action", Some(json!(self.action))),
            ("error", self.error.as_ref().map(|error| json!(error))),
            ("delay_ms", self.delay_ms.map(|ms| json!(ms))),
            ("bytes", self.bytes.map(|bytes| json!(bytes))),
            ("node", self.node.map(|node| json!(node))),
            ("client_id", self.client_id.as_ref().map(|id| json!(id))),
            ("topic", self.topic.as_ref().map(|topic| json!(topic))),
            ("count", Some(json!(self.count))),
        ])
    }
}

impl AddDiskArgs {
    fn body(&self) -> Value {
        object([
            ("call", Some(json!(self.call))),
            ("action", Some(json!(self.action))),
            ("delay_ms", self.delay_ms.map(|ms| json!(ms))),
            ("topic", self.topic.as_ref().map(|topic| json!(topic))),
            ("partition", self.partition.map(|number| json!(number))),
            ("count", self.count.map(|count| json!(count))),
        ])
    }
}

impl NodeArgs {
    fn request(&self) -> (String, Value) {
        let change = match &*self.action {
            "add" => return ("/nodes".to_owned(), json!({ "id": self.id })),
            "stop" => json!({ "up": false }),
            "start" => json!({ "up": true }),
            "cut-off" => json!({ "reachable": false }),
            "reconnect" => json!({ "reachable": true }),
            "pause" => json!({ "paused": true }),
            "resume" => json!({ "paused": false }),
            _ => json!({ "lag_ms": self.lag_ms }),
        };
        (format!("/nodes/{}", self.id), change)
    }
}

impl FollowArgs {
    fn body(&self) -> Value {
        object([
            ("topic", Some(json!(self.topic))),
            ("partition", Some(json!(self.partition))),
            ("node", Some(json!(self.at))),
            ("low", self.low.map(|offset| json!(offset))),
            ("high", self.high.map(|offset| json!(offset))),
        ])
    }
}

impl WaitArgs {
    fn body(&self) -> Value {
        object([
            ("group", self.group.as_ref().map(|group| json!(group))),
            ("transactional_id", self.transactional_id.as_ref().map(|id| json!(id))),
            ("state", self.state.as_ref().map(|state| json!(state))),
            ("api", self.api.as_ref().map(|api| json!(api))),
            ("count", self.count.map(|count| json!(count))),
            ("within_ms", Some(json!(self.within_ms))),
        ])
    }
}

/// A JSON object of the entries that have a value.
fn object<const N: usize>(entries: [(&str, Option<Value>); N]) -> Value {
    let present = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(present.collect::<Map<_, _>>())
}
