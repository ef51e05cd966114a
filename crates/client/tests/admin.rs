//! Stories of the admin client against the embedded broker: the result per resource, the broker that is asked, and
//! the deadlines.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread, Fault, KafkaLevel};
use ottla_client::{
    Admin, AlterOptions, Client, Config, ConfigChange, ConfigResource, ConfigSource, DeleteBefore,
    DescribeConfigs, DescribeOptions, Error, ErrorCode, FoundOffset, GroupFilter, HangingTransaction,
    Isolation, KeyedResults, NewPartitions, NewTopic, OffsetAndMetadata, OffsetAt, Polled, Producer,
    QuotaAlteration, QuotaEntity, Record, Timeouts, TopicPartition, TransactionFilter,
};
use ottla_protocol::ApiKey;

/// The time limit of an admin call.
const PATIENCE: Duration = Duration::from_secs(30);

fn broker(nodes: i32) -> BrokerThread {
    Broker::builder().memory().nodes(nodes).spawn().expect("a broker in memory")
}

fn admin(broker: &BrokerThread) -> Admin {
    Admin::new(Config::new(broker.bootstrap_servers())).expect("a client")
}

fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

/// The broker's error code; `None` for success.
fn code<T: std::fmt::Debug>(answer: &Result<T, Error>) -> ErrorCode {
    match answer {
        Ok(_) => ErrorCode::None,
        Err(error) => error.broker_code().unwrap_or_else(|| panic!("not the broker's: {error:?}")),
    }
}

fn codes<K, V: std::fmt::Debug>(answers: &KeyedResults<K, V>) -> Vec<ErrorCode> {
    answers.iter().map(|(_, answer)| code(answer)).collect()
}

async fn fill(client: &Client, topic: &str, partition: i32, count: i64) {
    let producer = client.producer();
    for n in 0..count {
        let record = Record::to(topic).partition(partition).value("x").timestamp_ms(1_000 + n);
        producer.send(record).await.expect("written");
    }
}

#[tokio::test]
async fn each_topic_has_an_answer_of_its_own() {
    let broker = broker(1);
    let admin = admin(&broker);
    let wanted = [
        NewTopic::new("orders").partitions(3),
        NewTopic::new("bad name"),
        NewTopic::new("tuned").partitions(1).config("retention.ms", "1000"),
        NewTopic::new("mistuned").config("retention.ms", "soon"),
    ];
    let dry = AlterOptions { validate_only: true, ..AlterOptions::default() };
    let checked = admin.create_topics_with(&wanted, dry).await.expect("answered");
    let expected =
        [ErrorCode::None, ErrorCode::InvalidTopicException, ErrorCode::None, ErrorCode::InvalidConfig];
    assert_eq!(codes(&checked), expected);
    assert!(admin.list_topics().await.expect("listed").is_empty(), "nothing was created");

    let created = admin.create_topics_with(&wanted, AlterOptions::default()).await.expect("answered");
    assert_eq!(codes(&created), expected);
    assert_eq!(created[0].0, "orders");
    assert_eq!(created[0].1.as_ref().expect("created").partitions, Some(3));
    let again = admin.create_topics_with(&wanted[..1], AlterOptions::default()).await.expect("answered");
    assert_eq!(codes(&again), [ErrorCode::TopicAlreadyExists]);

    let more =
        [NewPartitions::new("orders", 5), NewPartitions::new("none", 5), NewPartitions::new("tuned", 1)];
    let grown = admin.create_partitions_with(&more, AlterOptions::default()).await.expect("answered");
    let expected = [ErrorCode::None, ErrorCode::UnknownTopicOrPartition, ErrorCode::InvalidPartitions];
    assert_eq!(codes(&grown), expected);

    let described =
        admin.describe_topics_with(&["none", "orders"], DescribeOptions::default()).await.expect("answered");
    assert_eq!(codes(&described.topics), [ErrorCode::UnknownTopicOrPartition, ErrorCode::None]);
    assert_eq!(described.topics[1].1.as_ref().expect("found").partitions.len(), 5);
    assert_eq!(described.brokers.len(), 1);

    let deleted =
        admin.delete_topics_with(&["orders", "none", "tuned"], Timeouts::default()).await.expect("answered");
    assert_eq!(codes(&deleted), [ErrorCode::None, ErrorCode::UnknownTopicOrPartition, ErrorCode::None]);
    assert!(admin.list_topics().await.expect("listed").is_empty());
}

#[tokio::test]
async fn settings_say_where_they_come_from_and_change_one_by_one() {
    let broker = broker(1);
    let admin = admin(&broker);
    admin.create_topics(&[NewTopic::new("orders")]).await.expect("created");
    let orders = ConfigResource::topic("orders");
    let changes = |value: &str| vec![("retention.ms".to_owned(), ConfigChange::Set(value.to_owned()))];
    let resources = [(orders.clone(), changes("5000")), (ConfigResource::topic("none"), changes("5000"))];
    let altered =
        admin.incremental_alter_configs(&resources, AlterOptions::default()).await.expect("answered");
    assert_eq!(codes(&altered), [ErrorCode::None, ErrorCode::UnknownTopicOrPartition]);

    let what = DescribeConfigs { synonyms: true, documentation: true, ..DescribeConfigs::default() };
    let asked = [orders.clone(), ConfigResource::broker(broker_id(&admin).await)];
    let described = admin.describe_configs(&asked, what).await.expect("answered");
    assert_eq!(codes(&described), [ErrorCode::None, ErrorCode::None]);
    let entries = described[0].1.as_ref().expect("described");
    let retention = entries.iter().find(|entry| entry.name == "retention.ms").expect("listed");
    assert_eq!((retention.value.as_deref(), retention.source), (Some("5000"), ConfigSource::Topic));
    assert!(!retention.default && !retention.synonyms.is_empty() && retention.documentation.is_some());
    let untouched = entries.iter().find(|entry| entry.name == "cleanup.policy").expect("listed");
    assert!(untouched.default);

    let dry = AlterOptions { validate_only: true, ..AlterOptions::default() };
    let deletion = [(orders.clone(), vec![("retention.ms".to_owned(), ConfigChange::Delete)])];
    for (change, default) in [(dry, false), (AlterOptions::default(), true)] {
        let altered = admin.incremental_alter_configs(&deletion, change).await.expect("answered");
        assert_eq!(codes(&altered), [ErrorCode::None]);
        let entries = admin.describe_topic_configs("orders").await.expect("described");
        let retention = entries.iter().find(|entry| entry.name == "retention.ms").expect("listed");
        assert_eq!(retention.default, default);
    }
}

#[tokio::test]
async fn settings_that_are_replaced_leave_nothing_of_the_old() {
    let broker = broker(1);
    let admin = admin(&broker);
    let topic = NewTopic::new("orders").config("retention.ms", "5000").config("segment.bytes", "2000000");
    admin.create_topics(&[topic]).await.expect("created");
    let set = |topic: &str, name: &str, value: &str| {
        (ConfigResource::topic(topic), vec![(name.to_owned(), value.to_owned())])
    };
    let values = [
        set("orders", "retention.ms", "6000"),
        set("none", "retention.ms", "6000"),
        set("orders", "retention.ms", "soon"),
        set("orders", "no.such.setting", "1"),
    ];
    let told = async || {
        let entries = admin.describe_topic_configs("orders").await.expect("described");
        let of = |name: &str| entries.iter().find(|entry| entry.name == name).expect("listed").clone();
        (of("retention.ms").value.expect("a value"), of("segment.bytes").default)
    };
    let dry = AlterOptions { validate_only: true, ..AlterOptions::default() };
    for (change, expected) in [(dry, ("5000", false)), (AlterOptions::default(), ("6000", true))] {
        // In sequence, because a request names each resource once.
        let mut answered = Vec::new();
        for one in &values {
            answered.extend(codes(
                &admin.alter_configs(std::slice::from_ref(one), change).await.expect("answered"),
            ));
        }
        let wrong = ErrorCode::InvalidConfig;
        assert_eq!(answered, [ErrorCode::None, ErrorCode::UnknownTopicOrPartition, wrong, wrong]);
        let (retention, default) = told().await;
        assert_eq!((&*retention, default), expected);
    }
}

async fn broker_id(admin: &Admin) -> i32 {
    admin.describe_cluster_with(DescribeOptions::default()).await.expect("described").brokers[0].id
}

#[tokio::test]
async fn leaders_tell_offsets_and_delete_records() {
    let broker = broker(2);
    let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
    let admin = client.admin();
    admin.create_topics(&[NewTopic::new("orders").partitions(2)]).await.expect("created");
    fill(&client, "orders", 0, 5).await;
    fill(&client, "orders", 1, 3).await;

    let wanted = [
        (at("orders", 1), OffsetAt::Latest),
        (at("orders", 0), OffsetAt::Timestamp(1_002)),
        (at("orders", 7), OffsetAt::Latest),
        (at("none", 0), OffsetAt::Latest),
    ];
    let found = admin
        .list_offsets_with(&wanted, Isolation::ReadUncommitted, Timeouts::default())
        .await
        .expect("answered");
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(codes(&found), [ErrorCode::None, ErrorCode::None, unknown, unknown]);
    let offsets: Vec<_> = found.iter().filter_map(|(_, found)| found.as_ref().ok()).collect();
    assert_eq!((offsets[0].offset, offsets[1].offset, offsets[1].timestamp_ms), (3, 2, 1_002));
    let highest = [(at("orders", 0), OffsetAt::MaxTimestamp), (at("orders", 1), OffsetAt::Timestamp(9_000))];
    let found = admin
        .list_offsets_with(&highest, Isolation::ReadUncommitted, Timeouts::default())
        .await
        .expect("answered");
    assert_eq!(found[0].1.as_ref().expect("found").timestamp_ms, 1_004);
    assert_eq!(found[1].1.as_ref().expect("answered").offset, -1, "nothing is that late");

    let before = [
        (at("orders", 0), DeleteBefore::Offset(2)),
        (at("orders", 1), DeleteBefore::End),
        (at("orders", 7), DeleteBefore::End),
    ];
    let deleted = admin.delete_records(&before, Timeouts::default()).await.expect("answered");
    assert_eq!(deleted[0].1.as_ref().ok(), Some(&2));
    assert_eq!(deleted[1].1.as_ref().ok(), Some(&3));
    assert_eq!(code(&deleted[2].1), unknown);
    let too_far = [(at("orders", 0), DeleteBefore::Offset(99))];
    let refused = admin.delete_records(&too_far, Timeouts::default()).await.expect("answered");
    assert_eq!(codes(&refused), [ErrorCode::OffsetOutOfRange]);
}

#[tokio::test]
async fn groups_and_their_offsets_answer_one_by_one() {
    let broker = broker(2);
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("group.id", "billing").expect("known");
    config.set("auto.offset.reset", "earliest").expect("known");
    let client = Client::new(config).expect("a client");
    let admin = client.admin();
    let topics = [NewTopic::new("orders").partitions(2), NewTopic::new("returns")];
    admin.create_topics(&topics).await.expect("created");
    fill(&client, "orders", 0, 1).await;
    let mut consumer = client.consumer();
    consumer.subscribe(&["orders"]).await.expect("subscribed");
    while !matches!(consumer.poll(PATIENCE).await.expect("polled"), Some(Polled::Records(_))) {}

    let none = Timeouts::default();
    let listed = admin.list_consumer_groups(GroupFilter::default(), none).await.expect("listed");
    assert!(listed.errors.is_empty());
    assert_eq!(listed.groups.iter().map(|group| &*group.group).collect::<Vec<_>>(), ["billing"]);
    let empty = GroupFilter { states: vec!["Empty".into()], ..GroupFilter::default() };
    assert!(admin.list_consumer_groups(empty, none).await.expect("listed").groups.is_empty());

    let described =
        admin.describe_groups_with(&["billing", "none"], DescribeOptions::default()).await.expect("answered");
    assert_eq!(codes(&described), [ErrorCode::None, ErrorCode::GroupIdNotFound]);
    let billing = described[0].1.as_ref().expect("described");
    assert_eq!(billing.members[0].assignment, [at("orders", 0), at("orders", 1)]);
    assert_eq!((&*billing.state, billing.members.len()), ("Stable", 1));
    assert!(broker.bootstrap_servers().contains(&billing.coordinator_node.port.to_string()));

    // While the group has members, its offsets cannot be altered and the group cannot be deleted.
    let noted = OffsetAndMetadata { offset: 1, leader_epoch: None, metadata: "by hand".into() };
    let offsets = [(at("orders", 0), noted.clone()), (at("orders", 1), 0.into())];
    let refused = admin.alter_group_offsets_with("billing", &offsets, none).await.expect("answered");
    assert_eq!(codes(&refused), [ErrorCode::UnknownMemberId; 2]);
    let refused = admin.delete_groups_with(&["billing", "none"], none).await.expect("answered");
    assert_eq!(codes(&refused), [ErrorCode::NonEmptyGroup, ErrorCode::GroupIdNotFound]);
    let both = [at("orders", 0), at("returns", 0)];
    let refused = admin.delete_group_offsets("billing", &both, none).await.expect("answered");
    assert_eq!(codes(&refused), [ErrorCode::GroupSubscribedToTopic, ErrorCode::None]);

    consumer.unsubscribe(PATIENCE).await.expect("left");
    let altered = admin.alter_group_offsets_with("billing", &offsets, none).await.expect("answered");
    assert_eq!(codes(&altered), [ErrorCode::None; 2]);
    let asked = [at("orders", 1), at("orders", 0), at("orders", 5)];
    let found = admin.list_group_offsets("billing", Some(&asked), true, none).await.expect("answered");
    assert_eq!(found[0].1.as_ref().expect("found").as_ref().map(|found| found.offset), Some(0));
    assert_eq!(found[1].1.as_ref().expect("found").as_ref(), Some(&noted));
    assert_eq!(found[2].1.as_ref().expect("answered").as_ref(), None);
    assert_eq!(admin.list_group_offsets("billing", None, false, none).await.expect("answered").len(), 2);
    let deleted = admin.delete_group_offsets("billing", &[at("orders", 0)], none).await.expect("answered");
    assert_eq!(codes(&deleted), [ErrorCode::None]);
    assert_eq!(admin.group_offsets("billing", None).await.expect("answered").len(), 1);
    assert_eq!(
        codes(&admin.delete_groups_with(&["billing"], none).await.expect("answered")),
        [ErrorCode::None]
    );
}

/// confluent-kafka-go's TestAdminAPIs: nothing listens there.
#[tokio::test]
async fn a_description_of_no_topics_needs_no_broker() {
    let admin = Admin::new(Config::new("127.0.0.1:1")).expect("an admin");
    let described = admin.describe_topics_with(&[], DescribeOptions::default()).await.expect("no request");
    assert!(described.topics.is_empty() && described.brokers.is_empty());
    assert!(admin.describe_topics(&[]).await.expect("no request").is_empty());
}

#[tokio::test]
async fn what_the_broker_does_not_know_is_said_so() {
    let old = Broker::builder().memory().configure(|config| config.as_version = KafkaLevel::V0_11);
    let old = old.spawn().expect("a broker in memory");
    let none = Timeouts::default();
    let error = admin(&old).describe_scram_credentials(None, none).await.expect_err("unknown");
    let text = error.to_string();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    assert!(text.contains("the broker does not know this request"), "{text}");
    // This one has no authorizer.
    let broker = broker(1);
    let acls = admin(&broker).describe_acls(&ottla_client::AclFilter::any(), none).await;
    let is_refused =
        |error: &Error| matches!(error, Error::Refused { code: ErrorCode::SecurityDisabled, .. });
    assert!(acls.as_ref().is_err_and(is_refused), "{acls:?}");
}

#[tokio::test]
async fn a_controller_that_moves_is_found_and_a_coordinator_too() {
    let broker = broker(2);
    let admin = admin(&broker);
    let fail = |api, code| broker.cluster().intercept(api, None, 2, Fault::Fail(code));
    fail(ApiKey::CreateTopics, ErrorCode::NotController);
    let created = admin.create_topics_with(&[NewTopic::new("orders")], AlterOptions::default()).await;
    assert_eq!(codes(&created.expect("answered")), [ErrorCode::None]);
    fail(ApiKey::DescribeGroups, ErrorCode::NotCoordinator);
    fail(ApiKey::FindCoordinator, ErrorCode::CoordinatorNotAvailable);
    let described =
        admin.describe_groups_with(&["none"], DescribeOptions::default()).await.expect("answered");
    assert_eq!(codes(&described), [ErrorCode::GroupIdNotFound]);
    fail(ApiKey::ListOffsets, ErrorCode::NotLeaderOrFollower);
    let end = [(at("orders", 0), OffsetAt::Latest)];
    let found = admin.list_offsets_with(&end, Isolation::ReadCommitted, Timeouts::default()).await;
    assert_eq!(codes(&found.expect("answered")), [ErrorCode::None]);
}

#[tokio::test]
async fn the_deadline_holds_and_the_connection_survives_it() {
    let broker = broker(1);
    let admin = admin(&broker);
    admin.create_topics(&[NewTopic::new("orders")]).await.expect("created");
    broker.cluster().intercept(ApiKey::DescribeConfigs, None, 1, Fault::Delay(Duration::from_secs(2)));
    let what =
        DescribeConfigs { timeouts: Timeouts::within(Duration::from_millis(200)), ..Default::default() };
    let began = Instant::now();
    let error = admin.describe_configs(&[ConfigResource::topic("orders")], what).await.expect_err("late");
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert!(error.to_string().starts_with("describe_configs"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());

    // No broker is reachable: the change is tried until the caller's deadline.
    let nobody = Admin::new(Config::new("127.0.0.1:1")).expect("a client");
    let began = Instant::now();
    let change =
        AlterOptions { timeouts: Timeouts::within(Duration::from_millis(500)), ..AlterOptions::default() };
    let error = nobody.create_topics_with(&[NewTopic::new("orders")], change).await.expect_err("nobody");
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(300) && waited < PATIENCE, "{waited:?}");
}

#[tokio::test]
async fn an_open_transaction_is_listed_described_and_terminated() {
    let broker = broker(2);
    let admin = admin(&broker);
    admin.create_topics(&[NewTopic::new("orders")]).await.expect("created");
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("transactional.id", "billing").expect("valid");
    let producer = Producer::new(config).expect("a producer");
    producer.init_transactions(PATIENCE).await.expect("initialized");
    producer.begin_transaction().expect("begun");
    producer.send(Record::to("orders").value("1")).await.expect("written");

    let filter = |states: &[&str]| TransactionFilter {
        states: states.iter().map(|state| (*state).to_owned()).collect(),
        ..Default::default()
    };
    let listed = admin.list_transactions(filter(&[]), Timeouts::default()).await.expect("listed");
    assert_eq!((listed.transactions.len(), listed.errors.len()), (1, 0));
    let billing = &listed.transactions[0];
    assert_eq!((&*billing.transactional_id, &*billing.state), ("billing", "Ongoing"));
    let empty = admin.list_transactions(filter(&["Empty"]), Timeouts::default()).await.expect("listed");
    assert_eq!(empty.transactions, []);

    let ids = ["billing", "unknown"];
    let mut described = admin.describe_transactions(&ids, Timeouts::default()).await.expect("described");
    assert_eq!(codes(&described), [ErrorCode::None, ErrorCode::TransactionalIdNotFound]);
    let found = described.remove(0).1.expect("described");
    assert_eq!((found.producer_id, found.coordinator), (billing.producer_id, billing.coordinator));
    assert_eq!(found.partitions, [at("orders", 0)]);
    assert!(found.started_ms.is_some_and(|ms| ms > 0), "{found:?}");
    let producers =
        admin.describe_producers(&[at("orders", 0)], Timeouts::default()).await.expect("described");
    let known = producers[0].1.as_ref().expect("described");
    assert_eq!((known[0].producer_id, known[0].transaction_start_offset), (found.producer_id, Some(0)));

    admin.terminate_transaction("billing", Timeouts::default()).await.expect("terminated");
    let described = admin.describe_transactions(&["billing"], Timeouts::default()).await.expect("described");
    let found = described[0].1.as_ref().expect("described");
    assert!(found.partitions.is_empty() && found.started_ms.is_none(), "{found:?}");
    let error = producer.commit_transaction(PATIENCE).await.expect_err("the producer is fenced");
    assert!(error.is_fatal(), "{error:?}");
}

#[tokio::test]
async fn a_transaction_without_a_coordinator_is_aborted_in_its_partition() {
    let broker = broker(1);
    broker.cluster().set_transactions_approved(true);
    let admin = admin(&broker);
    admin.create_topics(&[NewTopic::new("orders")]).await.expect("created");
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("transactional.id", "lost").expect("valid");
    let producer = Producer::new(config).expect("a producer");
    producer.init_transactions(PATIENCE).await.expect("initialized");
    producer.begin_transaction().expect("begun");
    producer.send(Record::to("orders").value("1")).await.expect("written");
    let orders = [at("orders", 0)];
    let producers = admin.describe_producers(&orders, Timeouts::default()).await.expect("described");
    let open = producers[0].1.as_ref().expect("described")[0].clone();
    let hanging = HangingTransaction {
        partition: at("orders", 0),
        producer_id: open.producer_id,
        producer_epoch: open.producer_epoch as i16,
        coordinator_epoch: open.coordinator_epoch.unwrap_or(0),
    };
    admin.abort_hanging_transaction(hanging, Timeouts::default()).await.expect("aborted");
    let producers = admin.describe_producers(&orders, Timeouts::default()).await.expect("described");
    assert_eq!(producers[0].1.as_ref().expect("described")[0].transaction_start_offset, None);
}

#[tokio::test]
async fn features_the_quorum_and_log_directories_are_described() {
    let broker = broker(2);
    let admin = admin(&broker);
    admin.create_topics(&[NewTopic::new("orders").partitions(2)]).await.expect("created");
    let features = admin.describe_features(Timeouts::default()).await.expect("described");
    let transactions = features.iter().find(|feature| feature.name == "transaction.version");
    assert_eq!(transactions.and_then(|feature| feature.finalized), Some(2));
    let quorum = admin.describe_quorum(Timeouts::default()).await.expect("described");
    let ids = |replicas: &[ottla_client::QuorumReplica]| replicas.iter().map(|it| it.id).collect::<Vec<_>>();
    assert_eq!((quorum.leader, ids(&quorum.voters), ids(&quorum.observers)), (1, vec![1], vec![2]));
    let dirs = admin.describe_log_dirs(None, Timeouts::default()).await.expect("described");
    assert_eq!(dirs.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [1, 2]);
    let replicas = dirs.iter().flat_map(|(_, dirs)| &dirs.as_ref().expect("described")[0].replicas);
    let mut partitions: Vec<_> = replicas.map(|replica| replica.partition.clone()).collect();
    partitions.sort();
    assert_eq!(partitions, [at("orders", 0), at("orders", 1)]);

    let old = Broker::builder().memory().configure(|config| config.as_version = KafkaLevel::V0_11);
    let old = old.spawn().expect("a broker");
    let error = self::admin(&old).describe_quorum(Timeouts::default()).await.expect_err("too old");
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
}

/// Brokers were asked one after the other: the first one used up the time of all.
#[tokio::test]
async fn a_broker_that_is_down_does_not_use_up_the_time_of_the_others() {
    let broker = broker(3);
    let admin = admin(&broker);
    admin.describe_cluster().await.expect("answered");
    broker.cluster().take_down(1);
    let what = DescribeConfigs { timeouts: Timeouts::within(Duration::from_secs(6)), ..Default::default() };
    let asked: Vec<_> = (1..=3).map(ConfigResource::broker).collect();
    let described = admin.describe_configs(&asked, what).await.expect("two are up");
    let failed: Vec<bool> = described.iter().map(|(_, described)| described.is_err()).collect();
    assert_eq!(failed, [true, false, false]);
}

/// No group behind the sixteenth was asked for while the first one had no answer.
#[tokio::test]
async fn groups_whose_coordinator_does_not_answer_do_not_hide_the_others() {
    let broker = broker(2);
    let admin = admin(&broker);
    admin.create_topics(&[NewTopic::new("orders")]).await.expect("created");
    let names: Vec<String> = (0..40).map(|number| format!("group-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let offsets = [(at("orders", 0), 0)].into();
    for name in &names {
        admin.alter_group_offsets(name, &offsets).await.expect("committed");
    }
    let within = |limit| DescribeOptions { timeouts: Timeouts::within(limit), ..Default::default() };
    let described = admin.describe_groups_with(&names, within(PATIENCE)).await.expect("described");
    let coordinators: Vec<i32> =
        described.into_iter().map(|(_, group)| group.expect("described").coordinator).collect();
    let silent = coordinators[0];
    for api in [ApiKey::DescribeGroups, ApiKey::ConsumerGroupDescribe] {
        broker.cluster().intercept(api, Some(silent), 1_000, Fault::Delay(PATIENCE));
    }
    let described = admin.describe_groups_with(&names, within(Duration::from_secs(6))).await;
    for ((name, described), coordinator) in described.expect("answers").into_iter().zip(coordinators) {
        assert_eq!(described.is_err(), coordinator == silent, "{name} at {coordinator}: {described:?}");
    }
}

/// The client gave up after `socket.timeout.ms` and closed the connection, although it had granted the broker more time: the result of
/// the change was unknown.
#[tokio::test]
async fn a_broker_has_the_time_that_the_request_grants_it() {
    let broker = broker(1);
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("socket.timeout.ms", "1000").expect("valid");
    // Its requests would wait behind the slow one.
    config.set("enable.metrics.push", "false").expect("valid");
    let admin = Admin::new(config).expect("a client");
    let slow = Fault::AnswerAfter(Duration::from_secs(3));
    broker.cluster().intercept(ApiKey::CreateTopics, None, 1, slow);
    let timeouts = Timeouts { request: Some(PATIENCE), operation: Some(PATIENCE * 4 / 5) };
    let change = AlterOptions { timeouts, ..AlterOptions::default() };
    let created = admin.create_topics_with(&[NewTopic::new("orders")], change).await.expect("answered");
    assert_eq!(codes(&created), [ErrorCode::None]);
}

/// The error was UNSUPPORTED_VERSION, as if the request had not been understood.
#[tokio::test]
async fn a_group_is_not_found_where_the_newer_protocols_are_disabled() {
    let broker = broker(1);
    let admin = admin(&broker);
    for api in [ApiKey::ConsumerGroupDescribe, ApiKey::ShareGroupDescribe] {
        broker.cluster().intercept(api, None, 1, Fault::Fail(ErrorCode::UnsupportedVersion));
    }
    let what = DescribeOptions::default();
    let described = admin.describe_groups_with(&["none"], what).await.expect("answered");
    assert_eq!(codes(&described), [ErrorCode::GroupIdNotFound]);
    let described = admin.describe_share_groups_with(&["none"], what).await.expect("answered");
    assert_eq!(codes(&described), [ErrorCode::GroupIdNotFound]);
}

/// The last question was asked for both, so that the beginning was the end; the second of two equal ones had an error.
#[tokio::test]
async fn a_partition_has_an_answer_for_each_of_its_questions() {
    let broker = broker(1);
    let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
    let admin = client.admin();
    admin.create_topics(&[NewTopic::new("orders")]).await.expect("created");
    fill(&client, "orders", 0, 3).await;
    let orders = || at("orders", 0);
    let wanted = [
        (orders(), OffsetAt::Earliest),
        (orders(), OffsetAt::Latest),
        (orders(), OffsetAt::Timestamp(1_001)),
        (orders(), OffsetAt::Earliest),
    ];
    let none = Timeouts::default();
    let found = admin.list_offsets_with(&wanted, Isolation::ReadUncommitted, none).await.expect("answered");
    let offset = |found: &Result<FoundOffset, Error>| found.as_ref().expect("found").offset;
    assert_eq!(found.iter().map(|(_, found)| offset(found)).collect::<Vec<_>>(), [0, 3, 1, 0]);
    let found = admin.list_offsets_each(&wanted).await.expect("answered");
    assert_eq!(found.iter().map(|(_, found)| offset(found)).collect::<Vec<_>>(), [0, 3, 1, 0]);
    let twice = [ConfigResource::topic("orders"), ConfigResource::topic("orders")];
    let described = admin.describe_configs(&twice, DescribeConfigs::default()).await.expect("answered");
    assert_eq!(codes(&described), [ErrorCode::None; 2]);
}

/// The calls of an operation shared a counter: after ten failures of any groups, the next pause was longer than the time limit.
#[tokio::test]
async fn failures_of_some_groups_do_not_delay_the_others() {
    let broker = broker(1);
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("retry.backoff.max.ms", "300000").expect("valid");
    let admin = Admin::new(config).expect("a client");
    let names: Vec<String> = (0..40).map(|number| format!("group-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let loading = Fault::Fail(ErrorCode::CoordinatorLoadInProgress);
    broker.cluster().intercept(ApiKey::DescribeGroups, None, 40, loading);
    let what = DescribeOptions { timeouts: Timeouts::within(PATIENCE), ..DescribeOptions::default() };
    let described = admin.describe_groups_with(&names, what).await.expect("answered");
    assert_eq!(codes(&described), [ErrorCode::GroupIdNotFound; 40], "none exists");
}

/// The calls of an operation shared their last error: a broker that did not answer was unreachable at another one's address.
#[tokio::test]
async fn the_error_of_a_broker_is_its_own() {
    let broker = broker(2);
    let admin = admin(&broker);
    admin.describe_cluster().await.expect("answered");
    broker.cluster().take_down(2);
    broker.cluster().intercept(ApiKey::DescribeLogDirs, Some(1), 1_000, Fault::Delay(PATIENCE));
    let within = Timeouts::within(Duration::from_secs(3));
    let described = admin.describe_log_dirs(Some(&[1, 2]), within).await.expect("a result for each");
    let error = described[0].1.as_ref().expect_err("silent");
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert!(described[1].1.is_err(), "down");
}

/// The partitions of all leaders waited for the slowest response before any of them was asked for again.
#[tokio::test]
async fn a_silent_leader_leaves_the_others_time_to_be_asked_again() {
    let broker = broker(2);
    let admin = admin(&broker);
    admin.create_topics(&[NewTopic::new("orders").partitions(2)]).await.expect("created");
    assert!(broker.cluster().set_leader("orders", 0, 1) && broker.cluster().set_leader("orders", 1, 2));
    broker.cluster().intercept(ApiKey::ListOffsets, Some(1), 1_000, Fault::Delay(PATIENCE));
    broker.cluster().intercept(ApiKey::ListOffsets, Some(2), 1, Fault::Fail(ErrorCode::NotLeaderOrFollower));
    let ends = [(at("orders", 0), OffsetAt::Latest), (at("orders", 1), OffsetAt::Latest)];
    let within = Timeouts::within(Duration::from_secs(6));
    let found = admin.list_offsets_with(&ends, Isolation::ReadUncommitted, within).await.expect("answers");
    assert!(found[0].1.is_err(), "{found:?}");
    assert_eq!(found[1].1.as_ref().map(|found| found.offset).ok(), Some(0), "{found:?}");
}

/// The application got THROTTLING_QUOTA_EXCEEDED: Java's client waits, and librdkafka's versions of the requests are not refused.
#[tokio::test]
async fn topics_for_which_the_quota_of_changes_has_no_room_are_changed_after_the_pause() {
    let broker = Broker::builder().memory().configure(|config| {
        config.set("controller.quota.window.num", "1").expect("a property");
    });
    let broker = broker.spawn().expect("a broker in memory");
    let admin = admin(&broker);
    let entity = QuotaEntity::default().with("user", Some("ANONYMOUS"));
    let changes = vec![("controller_mutation_rate".to_owned(), Some(20.0))];
    let quota = QuotaAlteration { entity, changes };
    let altered = admin.alter_client_quotas(&[quota], Timeouts::within(PATIENCE)).await.expect("answered");
    assert_eq!(codes(&altered), [ErrorCode::None]);

    let change = AlterOptions { timeouts: Timeouts::within(PATIENCE), ..AlterOptions::default() };
    // The quota has room for 20 partitions at first.
    let wanted = [NewTopic::new("orders").partitions(25), NewTopic::new("invoices").partitions(25)];
    let created = admin.create_topics_with(&wanted, change).await.expect("answered");
    assert_eq!(codes(&created), [ErrorCode::None; 2]);
    assert!(created.iter().all(|(_, topic)| topic.as_ref().is_ok_and(|topic| topic.partitions == Some(25))));
    let more = [NewPartitions::new("orders", 26), NewPartitions::new("invoices", 26)];
    let grown = admin.create_partitions_with(&more, change).await.expect("answered");
    assert_eq!(codes(&grown), [ErrorCode::None; 2]);
    let names = ["orders", "missing", "invoices"];
    let deleted = admin.delete_topics_with(&names, Timeouts::within(PATIENCE)).await.expect("answered");
    let expected = [ErrorCode::None, ErrorCode::UnknownTopicOrPartition, ErrorCode::None];
    assert_eq!(codes(&deleted), expected);

    // The pause for so many partitions is longer than the time limit of the call.
    let large = [NewTopic::new("large").partitions(1_500), NewTopic::new("late")];
    let created = admin.create_topics_with(&large, change).await.expect("answered");
    assert_eq!(codes(&created), [ErrorCode::None, ErrorCode::ThrottlingQuotaExceeded]);
}
