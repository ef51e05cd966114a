//! `ottla topics`.

mod configs;
mod delete_records;
mod partitions;

use ottla_client::{
    Admin, AlterOptions, ErrorCode, NewPartitions, NewTopic, TopicDescription, TopicPartition,
};
use serde_json::{Map, Value, json};

use self::partitions::Ends;
use crate::connect::{ConnectArgs, admin, runtime};
use crate::failure::Failure;
use crate::failures::Failures;
use crate::json_log::json_line;
use crate::listing::{Format, Listing, OutputArgs};
use crate::output::{counted, print};
use crate::printable::printable;
use crate::properties::{key_value, last_of_each};
use crate::topic_args::{TopicArg, TopicArgs};
use crate::topic_spec::TopicSpec;

/// Lists, describes, creates, alters and deletes topics
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Topics {
    /// Prints the name of every topic
    ///
    /// Example: `ottla topics list --output json`
    List {
        /// Includes the broker's internal topics
        #[arg(long)]
        internal: bool,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Prints partitions, leaders, offsets and configs
    ///
    /// Example: `ottla topics describe orders`
    Describe {
        #[command(flatten)]
        topics: TopicArgs,
        /// Prints all configs, not only those that are set explicitly
        #[arg(long)]
        all_settings: bool,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Creates topics
    ///
    /// Example: `ottla topics create orders:3 --set cleanup.policy=compact`
    Create {
        /// The topics, as NAME or NAME:PARTITIONS
        #[arg(required_unless_present = "topic", value_name = "NAME[:PARTITIONS]")]
        topics: Vec<TopicSpec>,
        /// A topic, as in kcat; may be repeated
        #[arg(short, long, value_name = "NAME[:PARTITIONS]", conflicts_with = "topics")]
        topic: Vec<TopicSpec>,
        /// Number of partitions [default: the broker's num.partitions]
        #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
        partitions: Option<i32>,
        /// Number of replicas of each partition [default: the broker's default.replication.factor]
        #[arg(short, long, value_parser = clap::value_parser!(i16).range(1..))]
        replication_factor: Option<i16>,
        /// A topic config, by Kafka's name; may be repeated: the last value of a key applies
        #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
        set: Vec<(String, String)>,
        /// Does not fail for topics that already exist
        #[arg(long)]
        if_not_exists: bool,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Adds partitions to a topic
    ///
    /// Keys of new records can then be in other partitions than before. Example: `ottla topics alter orders --partitions 6`
    #[command(visible_alias = "grow")]
    Alter {
        #[command(flatten)]
        topic: TopicArg,
        /// New total number of partitions
        #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
        partitions: i32,
        /// Validates the change only
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    Configs(configs::Args),
    Partitions(partitions::Args),
    DeleteRecords(delete_records::Args),
    /// Deletes topics and all their records
    ///
    /// Example: `ottla topics delete orders`
    Delete {
        #[command(flatten)]
        topics: TopicArgs,
        #[command(flatten)]
        connect: ConnectArgs,
    },
}

pub(crate) fn run(topics: &Topics) -> Result<(), Failure> {
    runtime()?.block_on(async {
        match topics {
            Topics::List { internal, output, connect } => {
                list(&admin(connect).await?, *internal, output.output).await
            }
            Topics::Describe { topics, all_settings, output, connect } => {
                describe(&admin(connect).await?, topics, *all_settings, output.output).await
            }
            Topics::Create { topics, topic, partitions, replication_factor, set, if_not_exists, connect } => {
                let new = |spec: &TopicSpec| NewTopic {
                    name: spec.name.clone(),
                    partitions: spec.partitions.or(*partitions),
                    replication: *replication_factor,
                    configs: last_of_each(set).into_iter().map(|(name, value)| (name, Some(value))).collect(),
                    ..NewTopic::default()
                };
                let topics: Vec<NewTopic> = topics.iter().chain(topic).map(new).collect();
                create(&admin(connect).await?, &topics, *if_not_exists).await
            }
            Topics::Alter { topic, partitions, dry_run, connect } => {
                alter(&admin(connect).await?, topic.name(), *partitions, *dry_run).await
            }
            Topics::Configs(args) => configs::run(args).await,
            Topics::Partitions(args) => partitions::run(args).await,
            Topics::DeleteRecords(args) => delete_records::run(args).await,
            Topics::Delete { topics, connect } => delete(&admin(connect).await?, topics).await,
        }
    })
}

async fn list(admin: &Admin, internal: bool, format: Format) -> Result<(), Failure> {
    let topics = admin.list_topics().await?;
    let shown = topics.iter().filter(|topic| internal || !topic.internal);
    if format == Format::Table {
        return print(&shown.map(|topic| printable(&topic.name).into_owned() + "\n").collect::<String>());
    }
    let mut listing = Listing::new(["topic", "id", "partitions", "internal"]);
    for topic in shown {
        let id = json!(topic.id.to_string());
        listing.row([json!(topic.name), id, json!(topic.partitions), json!(topic.internal)]);
    }
    listing.print(format)
}

async fn describe(
    admin: &Admin,
    topics: &TopicArgs,
    all_settings: bool,
    format: Format,
) -> Result<(), Failure> {
    let mut failures = Failures::default();
    let names: Vec<&str> = topics.names().collect();
    let topics = described(admin, &names, &mut failures).await;
    let ends = Ends::of(admin, &topics).await?;
    let mut text = String::new();
    for topic in &topics {
        let partitions = partitions_of(topic, &ends);
        let entries = admin.describe_topic_configs(&topic.name).await?.into_iter();
        let entries = entries.filter(|entry| all_settings || !entry.default);
        if format == Format::Json {
            let configs = entries.map(|entry| {
                let value = json!({ "value": entry.value, "source": entry.source.name() });
                (entry.name, value)
            });
            let configs: Map<String, Value> = configs.collect();
            let object = json!({
                "topic": topic.name,
                "id": topic.id.to_string(),
                "internal": topic.internal,
                "partitions": partitions.objects(),
                "configs": configs,
            });
            text += &format!("{}\n", json_line(&object));
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format!(
            "{}  id {}  {}\n",
            printable(&topic.name),
            topic.id,
            counted(topic.partitions.len() as u64, "partition")
        );
        text += &partitions.render(format);
        for entry in entries {
            let value = entry.value.unwrap_or_default();
            text += &format!("{}={}\n", printable(&entry.name), printable(&value));
        }
    }
    failures.print(&text);
    failures.result()
}

/// The descriptions of the topics that exist.
async fn described(admin: &Admin, names: &[&str], failures: &mut Failures) -> Vec<TopicDescription> {
    match (admin.describe_topics(names).await, names) {
        (Ok(all), _) => return all,
        (Err(error), [] | [_]) => {
            failures.push(error);
            return Vec::new();
        }
        // One of them does not exist: the others are described.
        (Err(_), _) => {}
    }
    let mut found = Vec::new();
    for name in names {
        match admin.describe_topics(&[name]).await {
            Ok(described) => found.extend(described),
            Err(error) => failures.push(error),
        }
    }
    found
}

fn partitions_of(topic: &TopicDescription, ends: &Ends) -> Listing<7> {
    let mut listing =
        Listing::new(["partition", "leader", "leader_epoch", "replicas", "isr", "first", "end"]);
    for partition in &topic.partitions {
        listing.row(ends.row(&TopicPartition::new(&topic.name, partition.partition), partition));
    }
    listing
}

async fn alter(admin: &Admin, topic: &str, partitions: i32, dry_run: bool) -> Result<(), Failure> {
    if !dry_run {
        admin.create_partitions(topic, partitions).await?;
        return print(&format!("{topic} has {}\n", of_partitions(partitions)));
    }
    let wanted = NewPartitions::new(topic, partitions);
    let options = AlterOptions { validate_only: true, ..AlterOptions::default() };
    for (_, result) in admin.create_partitions_with(&[wanted], options).await? {
        result?;
    }
    print(&format!("dry run: {topic} can have {}\n", of_partitions(partitions)))
}

fn of_partitions(count: i32) -> String {
    counted(u64::from(count.unsigned_abs()), "partition")
}

async fn create(admin: &Admin, topics: &[NewTopic], if_not_exists: bool) -> Result<(), Failure> {
    let mut failures = Failures::default();
    for topic in topics {
        match admin.create_topics(std::slice::from_ref(topic)).await {
            Ok(()) => failures.print(&format!("created {}\n", topic.name)),
            Err(error) if error.broker_code() == Some(ErrorCode::TopicAlreadyExists) => {
                let exists = existing(admin, &topic.name).await;
                if if_not_exists {
                    failures.print(&format!("{} {exists}\n", topic.name));
                } else {
                    failures.push(Failure::failed(format!("topic `{}` {exists}", topic.name)));
                }
            }
            Err(error) => failures.push(error),
        }
    }
    failures.result()
}

/// `exists and has 2 partitions`: the number may not be that of the command. A user may not be allowed to see it.
async fn existing(admin: &Admin, name: &str) -> String {
    match admin.describe_topics(&[name]).await.as_deref() {
        Ok([topic]) => format!("exists and has {}", counted(topic.partitions.len() as u64, "partition")),
        Ok(_) | Err(_) => "exists".to_owned(),
    }
}

async fn delete(admin: &Admin, topics: &TopicArgs) -> Result<(), Failure> {
    let mut failures = Failures::default();
    for name in topics.names() {
        match admin.delete_topics(&[name]).await {
            Ok(()) => failures.print(&format!("deleted {name}\n")),
            Err(error) => failures.push(error),
        }
    }
    failures.result()
}
