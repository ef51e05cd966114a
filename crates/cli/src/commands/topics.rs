//! `ottla topics`.

use ottla_client::{Admin, NewTopic, OffsetAt, TopicPartition};

use crate::connect::{ConnectArgs, admin, runtime};
use crate::failure::Failure;
use crate::output::print;
use crate::properties::key_value;
use crate::table::Table;
use crate::topic_args::{TopicArg, TopicArgs};
use crate::topic_spec::TopicSpec;

/// Lists, describes, creates, expands and deletes topics
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Topics {
    /// Prints the name of every topic
    List {
        /// Includes the broker's internal topics
        #[arg(long)]
        internal: bool,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Prints partitions, leaders, offsets and configs
    Describe {
        #[command(flatten)]
        topics: TopicArgs,
        /// Prints all configs, not only those that are set explicitly
        #[arg(long)]
        all_settings: bool,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Creates topics
    Create {
        /// The topics, as NAME or NAME:PARTITIONS
        #[arg(required = true, value_name = "NAME[:PARTITIONS]")]
        topics: Vec<TopicSpec>,
        /// Number of partitions [default: the broker's num.partitions]
        #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
        partitions: Option<i32>,
        /// Number of replicas of each partition [default: the broker's default.replication.factor]
        #[arg(short, long, value_parser = clap::value_parser!(i16).range(1..))]
        replication_factor: Option<i16>,
        /// A topic config, by Kafka's name; may be repeated
        #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
        set: Vec<(String, String)>,
        /// Does not fail for topics that already exist
        #[arg(long)]
        if_not_exists: bool,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Adds partitions to a topic
    Grow {
        #[command(flatten)]
        topic: TopicArg,
        /// New total number of partitions
        #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
        partitions: i32,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Deletes topics and all their records
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
            Topics::List { internal, connect } => list(&admin(connect).await?, *internal).await,
            Topics::Describe { topics, all_settings, connect } => {
                describe(&admin(connect).await?, topics, *all_settings).await
            }
            Topics::Create { topics, partitions, replication_factor, set, if_not_exists, connect } => {
                let new = |spec: &TopicSpec| NewTopic {
                    name: spec.name.clone(),
                    partitions: spec.partitions.or(*partitions),
                    replication: *replication_factor,
                    configs: set.clone(),
                    ..NewTopic::default()
                };
                let topics: Vec<NewTopic> = topics.iter().map(new).collect();
                create(&admin(connect).await?, &topics, *if_not_exists).await
            }
            Topics::Grow { topic, partitions, connect } => {
                let topic = topic.name();
                admin(connect).await?.create_partitions(topic, *partitions).await?;
                print(&format!("{topic} has {partitions} partitions\n"))
            }
            Topics::Delete { topics, connect } => delete(&admin(connect).await?, topics).await,
        }
    })
}

async fn list(admin: &Admin, internal: bool) -> Result<(), Failure> {
    let topics = admin.list_topics().await?;
    let shown = topics.iter().filter(|topic| internal || !topic.internal);
    print(&shown.map(|topic| topic.name.clone() + "\n").collect::<String>())
}

async fn describe(admin: &Admin, topics: &TopicArgs, all_settings: bool) -> Result<(), Failure> {
    let names: Vec<&str> = topics.names().collect();
    let mut text = String::new();
    for topic in admin.describe_topics(&names).await? {
        let leaders = topic.partitions.iter().filter(|partition| partition.leader.is_some());
        let at = leaders.map(|partition| TopicPartition::new(&topic.name, partition.partition));
        let at: Vec<TopicPartition> = at.collect();
        let ask = |offset| at.iter().map(move |at| (at.clone(), offset)).collect::<Vec<_>>();
        let first = admin.list_offsets(&ask(OffsetAt::Earliest)).await?;
        let end = admin.list_offsets(&ask(OffsetAt::Latest)).await?;
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format!("{}  id {}  {} partitions\n", topic.name, topic.id, topic.partitions.len());
        let mut table = Table::new(["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "FIRST", "END"]);
        for partition in &topic.partitions {
            let at = TopicPartition::new(&topic.name, partition.partition);
            let or_dash = |number: Option<&i64>| number.map_or("-".into(), i64::to_string);
            table.row([
                partition.partition.to_string(),
                partition.leader.map_or("none".into(), |leader| leader.to_string()),
                partition.leader_epoch.to_string(),
                comma(&partition.replicas),
                comma(&partition.isr),
                or_dash(first.get(&at)),
                or_dash(end.get(&at)),
            ]);
        }
        text += &table.render();
        for entry in admin.describe_topic_configs(&topic.name).await? {
            if all_settings || !entry.default {
                text += &format!("{}={}\n", entry.name, entry.value.unwrap_or_default());
            }
        }
    }
    print(&text)
}

async fn create(admin: &Admin, topics: &[NewTopic], if_not_exists: bool) -> Result<(), Failure> {
    for topic in topics {
        match admin.create_topics(std::slice::from_ref(topic)).await {
            Ok(()) => print(&format!("created {}\n", topic.name))?,
            Err(ottla_client::Error::Broker {
                code: ottla_client::ErrorCode::TopicAlreadyExists, ..
            }) if if_not_exists => {
                print(&format!("{} exists\n", topic.name))?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

async fn delete(admin: &Admin, topics: &TopicArgs) -> Result<(), Failure> {
    for name in topics.names() {
        admin.delete_topics(&[name]).await?;
        print(&format!("deleted {name}\n"))?;
    }
    Ok(())
}

fn comma(numbers: &[i32]) -> String {
    numbers.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}
