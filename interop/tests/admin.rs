//! Every admin call against Apache Kafka 4.1 with an authorizer: two brokers, used only by this test.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::collections::BTreeSet;
use std::time::Duration;

use ottla_client::{
    Acl, AclFilter, AclOperation, AclPermission, Admin, AlterOptions, Client, Config, ConfigChange,
    ConfigResource, ConfigSource, DeleteBefore, DescribeConfigs, DescribeOptions, Election, Error, ErrorCode,
    GroupFilter, GroupProtocol, Isolation, KeyedResults, NewPartitions, NewTopic, OffsetAndMetadata,
    OffsetAt, PatternType, Polled, Record, ResourceType, ScramChange, ScramMechanism, Secret, Timeouts,
    TopicPartition,
};
use ottla_interop::{Failure, KafkaCluster, KafkaOptions, Peer, require};

const PATIENCE: Duration = Duration::from_secs(60);
const NONE: Timeouts = Timeouts { request: None, operation: None };

#[test]
fn every_call_reaches_the_broker_that_answers_it() -> Result<(), Failure> {
    require!(Peer::Java);
    let kafka = KafkaCluster::start_with(
        2,
        &KafkaOptions {
            properties: &[
                ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
                ("allow.everyone.if.no.acl.found", "true"),
                ("super.users", "User:ANONYMOUS"),
                ("auto.leader.rebalance.enable", "false"),
            ],
            ..KafkaOptions::default()
        },
    )?;
    let client =
        Client::new(Config::new(kafka.bootstrap())).map_err(|error| Failure::new(error.to_string()))?;
    let admin = client.admin();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|error| Failure::new(error.to_string()))?.block_on(async {
        topics(&admin).await;
        cluster_and_rights(&admin).await;
        settings(&admin).await;
        records_and_offsets(&client, &admin).await;
        for protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
            groups(&kafka, &admin, protocol).await;
        }
        credentials(&admin).await;
        access_rules(&admin).await;
        elections(&admin).await;
    });
    Ok(())
}

fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

#[track_caller]
fn code<T: std::fmt::Debug>(answer: &Result<T, Error>) -> ErrorCode {
    match answer {
        Ok(_) => ErrorCode::None,
        Err(error) => error.broker_code().unwrap_or_else(|| panic!("not the broker's: {error:?}")),
    }
}

#[track_caller]
fn codes<K, V: std::fmt::Debug>(answers: Result<KeyedResults<K, V>, Error>) -> Vec<ErrorCode> {
    answers.expect("answered").iter().map(|(_, answer)| code(answer)).collect()
}

async fn topics(admin: &Admin) {
    let wanted = [
        NewTopic::new("orders").partitions(2).replication(2),
        NewTopic::new("bad name"),
        NewTopic::new("placed").assigned([2, 1]).assigned([1, 2]).config("retention.ms", "3600000"),
        NewTopic::new("misplaced").assigned([9]),
    ];
    let expected = [
        ErrorCode::None,
        ErrorCode::InvalidTopicException,
        ErrorCode::None,
        ErrorCode::InvalidReplicaAssignment,
    ];
    let dry = AlterOptions { validate_only: true, ..AlterOptions::default() };
    assert_eq!(codes(admin.create_topics_with(&wanted, dry).await), expected);
    assert!(admin.list_topics().await.expect("listed").iter().all(|topic| topic.name != "orders"));
    let created = admin.create_topics_with(&wanted, AlterOptions::default()).await.expect("answered");
    let orders = created[0].1.as_ref().expect("created");
    assert_eq!((orders.partitions, orders.replication), (Some(2), Some(2)));
    assert!(!orders.id.is_zero());
    assert_eq!(codes(Ok(created)), expected);
    for topic in ["orders", "placed"] {
        admin.await_topic(topic, PATIENCE).await.expect("there");
    }
    let more = [
        NewPartitions { assignments: vec![vec![1]], ..NewPartitions::new("orders", 3) },
        NewPartitions { assignments: vec![vec![1, 2]], ..NewPartitions::new("placed", 3) },
        NewPartitions::new("none", 3),
    ];
    let grown = codes(admin.create_partitions_with(&more, AlterOptions::default()).await);
    let expected = [ErrorCode::InvalidReplicaAssignment, ErrorCode::None, ErrorCode::UnknownTopicOrPartition];
    assert_eq!(grown, expected);

    let rights = DescribeOptions { authorized_operations: true, ..DescribeOptions::default() };
    let described = loop {
        let described = admin.describe_topics_with(&["placed", "none"], rights).await.expect("answered");
        if described.topics[0].1.as_ref().is_ok_and(|topic| topic.partitions.len() == 3) {
            break described;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(code(&described.topics[1].1), ErrorCode::UnknownTopicOrPartition);
    let placed = described.topics[0].1.as_ref().expect("there");
    assert_eq!(placed.partitions[0].replicas, [2, 1]);
    assert_eq!(placed.partitions[2].replicas, [1, 2]);
    let may = placed.authorized_operations.as_ref().expect("reported");
    assert!(may.contains(&AclOperation::Write) && may.contains(&AclOperation::AlterConfigs), "{may:?}");
    assert_eq!(described.brokers.len(), 2);

    admin.create_topics(&[NewTopic::new("short")]).await.expect("created");
    let deleted = codes(admin.delete_topics_with(&["short", "none"], NONE).await);
    assert_eq!(deleted, [ErrorCode::None, ErrorCode::UnknownTopicOrPartition]);
}

async fn cluster_and_rights(admin: &Admin) {
    let plain = admin.describe_cluster_with(DescribeOptions::default()).await.expect("described");
    assert_eq!(plain.authorized_operations, None);
    assert_eq!(plain.brokers.iter().map(|node| node.id).collect::<Vec<_>>(), [1, 2]);
    let rights = DescribeOptions { authorized_operations: true, ..DescribeOptions::default() };
    let described = admin.describe_cluster_with(rights).await.expect("described");
    let may = described.authorized_operations.expect("reported");
    assert!(may.contains(&AclOperation::Create) && may.contains(&AclOperation::ClusterAction), "{may:?}");
    assert!(described.id.is_some() && described.controller.is_some());
}

async fn settings(admin: &Admin) {
    let set = |name: &str, value: &str| (name.to_owned(), ConfigChange::Set(value.to_owned()));
    let orders = ConfigResource::topic("orders");
    let changes = [
        (orders.clone(), vec![set("retention.ms", "5000"), set("cleanup.policy", "delete")]),
        (ConfigResource::broker(2), vec![set("log.cleaner.backoff.ms", "12345")]),
        (ConfigResource::group("billing"), vec![set("consumer.session.timeout.ms", "46000")]),
        (ConfigResource::topic("none"), vec![set("retention.ms", "5000")]),
    ];
    let altered = codes(admin.incremental_alter_configs(&changes, AlterOptions::default()).await);
    assert_eq!(
        altered,
        [ErrorCode::None, ErrorCode::None, ErrorCode::None, ErrorCode::UnknownTopicOrPartition]
    );
    let append = ("cleanup.policy".to_owned(), ConfigChange::Append("compact".to_owned()));
    let appended = [(orders.clone(), vec![append])];
    assert_eq!(
        codes(admin.incremental_alter_configs(&appended, AlterOptions::default()).await),
        [ErrorCode::None]
    );

    let what = DescribeConfigs { synonyms: true, documentation: true, ..DescribeConfigs::default() };
    let asked = [
        orders.clone(),
        ConfigResource::broker(2),
        ConfigResource::broker(1),
        ConfigResource::group("billing"),
    ];
    // Brokers learn of changes from the controller's log.
    let described = loop {
        let described = admin.describe_configs(&asked, what).await.expect("answered");
        let of = |index: usize, name: &str| {
            let entries = described[index].1.as_ref().expect("described");
            entries.iter().find(|entry| entry.name == name).expect("listed").value.clone()
        };
        if of(0, "cleanup.policy").as_deref() == Some("delete,compact")
            && of(1, "log.cleaner.backoff.ms").as_deref() == Some("12345")
            && of(3, "consumer.session.timeout.ms").as_deref() == Some("46000")
        {
            assert_ne!(of(2, "log.cleaner.backoff.ms").as_deref(), Some("12345"), "another broker's");
            break described;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let entry = |index: usize, name: &str| {
        let entries = described[index].1.as_ref().expect("described");
        entries.iter().find(|entry| entry.name == name).expect("listed").clone()
    };
    let retention = entry(0, "retention.ms");
    assert_eq!(retention.source, ConfigSource::Topic);
    assert_eq!(retention.synonyms.first().map(|synonym| synonym.source), Some(ConfigSource::Topic));
    assert!(retention.documentation.is_some_and(|text| !text.is_empty()));
    assert_eq!(entry(1, "log.cleaner.backoff.ms").source, ConfigSource::DynamicBroker);
    assert_eq!(entry(3, "consumer.session.timeout.ms").source, ConfigSource::Group);

    // A full replacement: configs that are not listed are removed.
    let replaced = [(orders.clone(), vec![("segment.ms".to_owned(), "70000".to_owned())])];
    assert_eq!(codes(admin.alter_configs(&replaced, AlterOptions::default()).await), [ErrorCode::None]);
    loop {
        let entries = admin.describe_topic_configs("orders").await.expect("described");
        let entry = |name: &str| entries.iter().find(|entry| entry.name == name).expect("listed");
        if entry("segment.ms").value.as_deref() == Some("70000") {
            assert!(entry("retention.ms").default);
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn records_and_offsets(client: &Client, admin: &Admin) {
    let producer = client.producer();
    for n in 0..6 {
        let record = Record::to("orders").partition(n % 2).value("x").timestamp_ms(1_000 + i64::from(n));
        producer.send(record).await.expect("written");
    }
    let wanted = [
        (at("orders", 1), OffsetAt::Latest),
        (at("orders", 0), OffsetAt::Timestamp(1_002)),
        (at("orders", 0), OffsetAt::Timestamp(1_002)),
        (at("none", 0), OffsetAt::Earliest),
    ];
    let found =
        admin.list_offsets_with(&wanted[..2], Isolation::ReadCommitted, NONE).await.expect("answered");
    let of = |index: usize| *found[index].1.as_ref().expect("found");
    assert_eq!((of(0).offset, of(1).offset, of(1).timestamp_ms), (3, 1, 1_002));
    assert!(of(1).leader_epoch.is_some());
    let highest = [(at("orders", 1), OffsetAt::MaxTimestamp)];
    let found = admin.list_offsets_with(&highest, Isolation::ReadUncommitted, NONE).await.expect("answered");
    assert_eq!(found[0].1.as_ref().expect("found").offset, 2);
    assert_eq!(
        codes(admin.list_offsets_with(&wanted[3..], Isolation::ReadUncommitted, NONE).await),
        [ErrorCode::UnknownTopicOrPartition]
    );

    let before = [
        (at("orders", 0), DeleteBefore::Offset(1)),
        (at("orders", 1), DeleteBefore::End),
        (at("orders", 5), DeleteBefore::End),
    ];
    let deleted = admin.delete_records(&before, NONE).await.expect("answered");
    assert_eq!((deleted[0].1.as_ref().ok(), deleted[1].1.as_ref().ok()), (Some(&1), Some(&3)));
    assert_eq!(code(&deleted[2].1), ErrorCode::UnknownTopicOrPartition);
    let too_far = [(at("orders", 0), DeleteBefore::Offset(99))];
    assert_eq!(codes(admin.delete_records(&too_far, NONE).await), [ErrorCode::OffsetOutOfRange]);
}

async fn groups(kafka: &KafkaCluster, admin: &Admin, protocol: GroupProtocol) {
    let (group, kind) = match protocol {
        GroupProtocol::Classic => ("billing", "classic"),
        GroupProtocol::Consumer => ("shipping", "consumer"),
    };
    let mut config = Config::new(kafka.bootstrap());
    config.set("group.id", group).expect("known");
    config.set("auto.offset.reset", "earliest").expect("known");
    config.group_protocol = protocol;
    let mut consumer = Client::new(config).expect("a client").consumer();
    consumer.subscribe(&["orders"]).await.expect("subscribed");
    while !matches!(consumer.poll(PATIENCE).await.expect("polled"), Some(Polled::Records(_))) {}

    let listed = admin.list_consumer_groups(GroupFilter::default(), NONE).await.expect("listed");
    assert!(listed.errors.is_empty(), "{:?}", listed.errors);
    let listing = listed.groups.iter().find(|listing| listing.group == group).expect("listed");
    assert_eq!((&*listing.kind, &*listing.protocol_type), (kind, "consumer"));
    let filter = GroupFilter { states: vec!["Stable".into()], kinds: vec![kind.into()] };
    let filtered = admin.list_consumer_groups(filter, NONE).await.expect("listed");
    let names: BTreeSet<&str> = filtered.groups.iter().map(|listing| &*listing.group).collect();
    assert_eq!(names, BTreeSet::from([group]));

    let rights = DescribeOptions { authorized_operations: true, ..DescribeOptions::default() };
    let described = admin.describe_groups_with(&[group, "none"], rights).await.expect("answered");
    assert_eq!(code(&described[1].1), ErrorCode::GroupIdNotFound);
    let found = described[0].1.as_ref().expect("described");
    assert_eq!((&*found.kind, &*found.state, found.members.len()), (kind, "Stable", 1));
    assert!(found.authorized_operations.as_ref().expect("reported").contains(&AclOperation::Delete));
    assert!(found.coordinator_node.port != 0 && found.coordinator_node.id == found.coordinator);
    let member = &found.members[0];
    assert_eq!(member.assignment.len(), 2);
    assert_eq!(member.target.as_ref().map(Vec::len), (kind == "consumer").then_some(2));

    let noted = OffsetAndMetadata { offset: 1, leader_epoch: Some(0), metadata: "by hand".into() };
    let offsets = [(at("orders", 0), noted.clone()), (at("orders", 1), 2.into())];
    let refused = codes(admin.alter_group_offsets_with(group, &offsets, NONE).await);
    assert_eq!(refused, [ErrorCode::UnknownMemberId; 2]);
    let refused = codes(admin.delete_groups_with(&[group, "none"], NONE).await);
    assert_eq!(refused, [ErrorCode::NonEmptyGroup, ErrorCode::GroupIdNotFound]);
    let refused = codes(admin.delete_group_offsets(group, &[at("orders", 0)], NONE).await);
    assert_eq!(refused, [ErrorCode::GroupSubscribedToTopic]);

    consumer.unsubscribe(PATIENCE).await.expect("left");
    let altered = codes(admin.alter_group_offsets_with(group, &offsets, NONE).await);
    assert_eq!(altered, [ErrorCode::None; 2]);
    let asked = [at("orders", 1), at("orders", 0), at("orders", 7)];
    let found = admin.list_group_offsets(group, Some(&asked), true, NONE).await.expect("answered");
    let of = |index: usize| found[index].1.as_ref().expect("answered").as_ref();
    assert_eq!(of(0).map(|found| found.offset), Some(2));
    assert_eq!((of(1), of(2)), (Some(&noted), None));
    assert_eq!(admin.list_group_offsets(group, None, false, NONE).await.expect("answered").len(), 2);
    assert_eq!(codes(admin.delete_group_offsets(group, &[at("orders", 0)], NONE).await), [ErrorCode::None]);
    assert_eq!(admin.group_offsets(group, None).await.expect("answered").len(), 1);
    assert_eq!(codes(admin.delete_groups_with(&[group], NONE).await), [ErrorCode::None]);
}

async fn credentials(admin: &Admin) {
    let set = |user: &str, mechanism, iterations| ScramChange::Set {
        user: user.into(),
        mechanism,
        iterations,
        password: Secret::new("wonderland"),
        salt: None,
    };
    let changes = [
        set("alice", ScramMechanism::Sha256, 4096),
        set("bob", ScramMechanism::Sha256, 100),
        ScramChange::Delete { user: "carol".into(), mechanism: ScramMechanism::Sha256 },
    ];
    let altered = codes(admin.alter_scram_credentials(&changes, NONE).await);
    assert_eq!(altered, [ErrorCode::None, ErrorCode::UnacceptableCredential, ErrorCode::ResourceNotFound]);
    let second = [set("alice", ScramMechanism::Sha512, 8192)];
    assert_eq!(codes(admin.alter_scram_credentials(&second, NONE).await), [ErrorCode::None]);
    let twice = [second[0].clone(), set("alice", ScramMechanism::Sha256, 4096)];
    assert_eq!(codes(admin.alter_scram_credentials(&twice, NONE).await), [ErrorCode::DuplicateResource]);
    let described = loop {
        let described =
            admin.describe_scram_credentials(Some(&["alice", "bob"]), NONE).await.expect("answered");
        if described[0].1.as_ref().is_ok_and(|alice| alice.len() == 2) {
            break described;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let alice: Vec<_> = described[0].1.as_ref().expect("described").iter().collect();
    let alice: BTreeSet<_> = alice.iter().map(|found| (found.mechanism, found.iterations)).collect();
    assert_eq!(alice, BTreeSet::from([(ScramMechanism::Sha256, 4096), (ScramMechanism::Sha512, 8192)]));
    assert_eq!(code(&described[1].1), ErrorCode::ResourceNotFound);
    let all = admin.describe_scram_credentials(None, NONE).await.expect("answered");
    assert_eq!(all.iter().map(|(user, _)| &**user).collect::<Vec<_>>(), ["alice"]);
    let deletion = [ScramChange::Delete { user: "alice".into(), mechanism: ScramMechanism::Sha512 }];
    assert_eq!(codes(admin.alter_scram_credentials(&deletion, NONE).await), [ErrorCode::None]);
}

async fn access_rules(admin: &Admin) {
    let rule = |resource, name: &str, pattern, operation| Acl {
        resource,
        name: name.into(),
        pattern,
        principal: "User:alice".into(),
        host: "*".into(),
        operation,
        permission: AclPermission::Allow,
    };
    let rules = [
        rule(ResourceType::Topic, "orders", PatternType::Literal, AclOperation::Read),
        rule(ResourceType::Topic, "ord", PatternType::Prefixed, AclOperation::Write),
        rule(ResourceType::Group, "billing", PatternType::Literal, AclOperation::Read),
        rule(ResourceType::Topic, "", PatternType::Literal, AclOperation::Read),
    ];
    let created = codes(admin.create_acls(&rules, NONE).await);
    assert_eq!(created, [ErrorCode::None, ErrorCode::None, ErrorCode::None, ErrorCode::InvalidRequest]);
    let holds = AclFilter {
        resource: ResourceType::Topic,
        name: Some("orders".into()),
        pattern: PatternType::Match,
        ..AclFilter::any()
    };
    let found = loop {
        let found = admin.describe_acls(&holds, NONE).await.expect("described");
        if found.len() == 2 {
            break found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(found.iter().collect::<BTreeSet<_>>(), rules[..2].iter().collect());

    let nothing = AclFilter { principal: Some("User:nobody".into()), ..AclFilter::any() };
    let deleted = admin.delete_acls(&[holds.clone(), nothing], NONE).await.expect("answered");
    let gone = deleted[0].1.as_ref().expect("answered");
    assert_eq!(gone.iter().map(|(rule, _)| rule).collect::<BTreeSet<_>>(), rules[..2].iter().collect());
    assert!(gone.iter().all(|(_, deleted)| deleted.is_ok()));
    assert!(deleted[1].1.as_ref().expect("answered").is_empty());
    while !admin.describe_acls(&holds, NONE).await.expect("described").is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(admin.describe_acls(&AclFilter::any(), NONE).await.expect("described"), rules[2..3]);
}

async fn elections(admin: &Admin) {
    let asked = [at("orders", 0), at("orders", 1), at("orders", 9)];
    for (election, needless) in [
        (Election::Preferred, ErrorCode::ElectionNotNeeded),
        (Election::Unclean, ErrorCode::ElectionNotNeeded),
    ] {
        let elected = codes(admin.elect_leaders(election, Some(&asked), NONE).await);
        assert_eq!(elected, [needless, needless, ErrorCode::UnknownTopicOrPartition], "{election:?}");
    }
    let all = admin.elect_leaders(Election::Preferred, None, NONE).await.expect("answered");
    assert!(all.iter().all(|(_, elected)| elected.is_ok()), "those that need none are left out: {all:?}");
}
