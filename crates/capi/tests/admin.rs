//! The admin interface as C calls it, against the embedded broker: each request is answered by one event.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread, Fault, KafkaLevel};
use ottla_client::{Client, Config, Record};
use ottla_protocol::ApiKey;
use rdkafka::admin::*;
use rdkafka::client::list_groups::*;
use rdkafka::consume::leave_group::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::partition_list::*;
use rdkafka::queue::event::*;
use rdkafka::queue::poll::*;

use crate::asking::{Asking, PATIENCE_MS, array, text};

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 2).spawn().expect("a broker in memory")
}

fn topic_codes(topics: &[&rd_kafka_topic_result_t]) -> Vec<(String, rd_kafka_resp_err_t)> {
    let code = |topic: &&rd_kafka_topic_result_t| unsafe {
        let topic = std::ptr::from_ref(*topic);
        (text(rd_kafka_topic_result_name(topic)), rd_kafka_topic_result_error(topic))
    };
    topics.iter().map(code).collect()
}

fn list(partitions: &[(&CStr, i32, i64)]) -> *mut rd_kafka_topic_partition_list_t {
    let list = rd_kafka_topic_partition_list_new(1);
    for (topic, partition, offset) in partitions {
        unsafe { (*rd_kafka_topic_partition_list_add(list, topic.as_ptr(), *partition)).offset = *offset };
    }
    list
}

fn offsets(list: *const rd_kafka_topic_partition_list_t) -> Vec<(i32, i64, rd_kafka_resp_err_t)> {
    unsafe { (*list).elems() }.iter().map(|found| (found.partition, found.offset, found.err)).collect()
}

fn fill(broker: &BrokerThread, count: usize) {
    let producer = Client::new(Config::new(broker.bootstrap_servers())).unwrap().producer();
    for _ in 0..count {
        drop(producer.enqueue_blocking(Record::to("orders").partition(0).value("x")).unwrap());
    }
    producer.flush_blocking(Duration::from_secs(60)).unwrap();
}

#[test]
fn topics_are_created_grown_described_and_deleted_one_answer_for_each() {
    let broker = broker();
    let admin = Asking::new(&broker.bootstrap_servers(), RD_KAFKA_PRODUCER, &[]);
    let opaque = 17 as *mut c_void;
    unsafe {
        let topics = [c"new", c"orders", c"bad name"]
            .map(|name| rd_kafka_NewTopic_new(name.as_ptr(), 2, 1, null_mut(), 0));
        let set = rd_kafka_NewTopic_set_config(topics[0], c"retention.ms".as_ptr(), c"3600000".as_ptr());
        assert_eq!(set, RD_KAFKA_RESP_ERR_NO_ERROR);
        let options = rd_kafka_AdminOptions_new(admin.rk, RD_KAFKA_ADMIN_OP_CREATETOPICS);
        rd_kafka_AdminOptions_set_opaque(options, opaque);
        rd_kafka_CreateTopics(admin.rk, topics.as_ptr().cast_mut(), topics.len(), options, admin.queue);
        rd_kafka_AdminOptions_destroy(options);
        rd_kafka_NewTopic_destroy_array(topics.as_ptr().cast_mut(), topics.len());
        let answer = admin.answer(RD_KAFKA_EVENT_CREATETOPICS_RESULT);
        assert_eq!(answer.error().0, RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(rd_kafka_event_opaque(answer.0), opaque);
        assert!(rd_kafka_event_DeleteTopics_result(answer.0).is_null(), "of another kind");
        let result = rd_kafka_event_CreateTopics_result(answer.0);
        let created = array(rd_kafka_CreateTopics_result_topics, result);
        let expected = [
            ("new".to_owned(), RD_KAFKA_RESP_ERR_NO_ERROR),
            ("orders".to_owned(), RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS),
            ("bad name".to_owned(), RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION),
        ];
        assert_eq!(topic_codes(&created), expected);
        assert!(rd_kafka_topic_result_error_string(created[0]).is_null());
        assert!(!text(rd_kafka_topic_result_error_string(created[1])).is_empty());

        let grown = rd_kafka_NewPartitions_new(c"new".as_ptr(), 5, null_mut(), 0);
        let late = rd_kafka_NewPartitions_set_replica_assignment(grown, 1, null_mut(), 0, null_mut(), 0);
        assert_eq!(late, RD_KAFKA_RESP_ERR__INVALID_ARG, "0 is next");
        rd_kafka_CreatePartitions(admin.rk, [grown].as_mut_ptr(), 1, null(), admin.queue);
        rd_kafka_NewPartitions_destroy(grown);
        let answer = admin.answer(RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT);
        let result = rd_kafka_event_CreatePartitions_result(answer.0);
        let grown = array(rd_kafka_CreatePartitions_result_topics, result);
        assert_eq!(topic_codes(&grown), [("new".to_owned(), RD_KAFKA_RESP_ERR_NO_ERROR)]);

        let names = [c"new".as_ptr(), c"none".as_ptr()];
        let topics = rd_kafka_TopicCollection_of_topic_names(names.as_ptr().cast_mut(), names.len());
        rd_kafka_DescribeTopics(admin.rk, topics, null(), admin.queue);
        rd_kafka_TopicCollection_destroy(topics);
        let answer = admin.answer(RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT);
        let result = rd_kafka_event_DescribeTopics_result(answer.0);
        let described = array(rd_kafka_DescribeTopics_result_topics, result);
        assert!(rd_kafka_TopicDescription_error(described[0]).is_null());
        let mut count = 0;
        let partitions = rd_kafka_TopicDescription_partitions(described[0], &raw mut count);
        assert_eq!(count, 5);
        assert_eq!(text(rd_kafka_TopicDescription_name(described[0])), "new");
        let last = *partitions.add(4);
        assert_eq!(rd_kafka_TopicPartitionInfo_partition(last), 4);
        let mut complete = 0;
        assert!(!rd_kafka_TopicPartitionInfo_isr(last, &raw mut complete).is_null() && complete == 1);
        let leader = rd_kafka_TopicPartitionInfo_leader(*partitions);
        assert!(broker.bootstrap_servers().ends_with(&rd_kafka_Node_port(leader).to_string()));
        let mut nodes = 0;
        assert!(!rd_kafka_TopicPartitionInfo_replicas(*partitions, &raw mut nodes).is_null() && nodes == 1);
        let error = rd_kafka_TopicDescription_error(described[1]);
        assert_eq!(rd_kafka_error_code(error), RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
        assert_eq!(text(rd_kafka_error_string(error)), "Broker: Unknown topic or partition");

        let topics = [c"new", c"none"].map(|name| rd_kafka_DeleteTopic_new(name.as_ptr()));
        rd_kafka_DeleteTopics(admin.rk, topics.as_ptr().cast_mut(), topics.len(), null(), admin.queue);
        rd_kafka_DeleteTopic_destroy_array(topics.as_ptr().cast_mut(), topics.len());
        let answer = admin.answer(RD_KAFKA_EVENT_DELETETOPICS_RESULT);
        let result = rd_kafka_event_DeleteTopics_result(answer.0);
        let deleted = array(rd_kafka_DeleteTopics_result_topics, result);
        let expected = [
            ("new".to_owned(), RD_KAFKA_RESP_ERR_NO_ERROR),
            ("none".to_owned(), RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART),
        ];
        assert_eq!(topic_codes(&deleted), expected);
    }
}

#[test]
fn settings_and_the_cluster_are_told() {
    let broker = broker();
    let admin = Asking::new(&broker.bootstrap_servers(), RD_KAFKA_PRODUCER, &[]);
    unsafe {
        let resource = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, c"orders".as_ptr());
        let set = RD_KAFKA_ALTER_CONFIG_OP_TYPE_SET;
        let name = c"retention.ms".as_ptr();
        let error = rd_kafka_ConfigResource_add_incremental_config(resource, name, set, null());
        assert_eq!(rd_kafka_error_code(error), RD_KAFKA_RESP_ERR__INVALID_ARG);
        rd_kafka_error_destroy(error);
        let error = rd_kafka_ConfigResource_add_incremental_config(resource, name, set, c"7000".as_ptr());
        assert!(error.is_null());
        rd_kafka_IncrementalAlterConfigs(admin.rk, [resource].as_mut_ptr(), 1, null(), admin.queue);
        let answer = admin.answer(RD_KAFKA_EVENT_INCREMENTALALTERCONFIGS_RESULT);
        let result = rd_kafka_event_IncrementalAlterConfigs_result(answer.0);
        let altered = array(rd_kafka_IncrementalAlterConfigs_result_resources, result);
        assert_eq!(rd_kafka_ConfigResource_error(altered[0]), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(text(rd_kafka_ConfigResource_name(altered[0])), "orders");

        rd_kafka_DescribeConfigs(admin.rk, [resource].as_mut_ptr(), 1, null(), admin.queue);
        let answer = admin.answer(RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT);
        let result = rd_kafka_event_DescribeConfigs_result(answer.0);
        let described = array(rd_kafka_DescribeConfigs_result_resources, result);
        assert_eq!(rd_kafka_ConfigResource_type(described[0]), RD_KAFKA_RESOURCE_TOPIC);
        let mut count = 0;
        let entries = rd_kafka_ConfigResource_configs(described[0], &raw mut count);
        let entries: Vec<_> = (0..count).map(|index| *entries.add(index)).collect();
        let named = |name: &str| {
            let found = entries.iter().find(|entry| text(rd_kafka_ConfigEntry_name(**entry)) == name);
            *found.expect("listed")
        };
        let retention = named("retention.ms");
        assert_eq!(text(rd_kafka_ConfigEntry_value(retention)), "7000");
        let source = rd_kafka_ConfigEntry_source(retention);
        assert_eq!(source, RD_KAFKA_CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG);
        assert_eq!(text(rd_kafka_ConfigSource_name(source)), "DYNAMIC_TOPIC_CONFIG");
        assert_eq!(rd_kafka_ConfigEntry_is_default(retention), 0);
        assert_eq!(rd_kafka_ConfigEntry_is_read_only(retention), 0);
        assert_eq!(rd_kafka_ConfigEntry_is_sensitive(retention), 0);
        assert_eq!(rd_kafka_ConfigEntry_is_default(named("cleanup.policy")), 1);
        let synonyms = rd_kafka_ConfigEntry_synonyms(retention, &raw mut count);
        assert!(count > 0 && rd_kafka_ConfigEntry_is_synonym(*synonyms) == 1);

        // A resource that is named twice is an error of the caller, and no request is sent.
        rd_kafka_DescribeConfigs(admin.rk, [resource; 2].as_mut_ptr(), 2, null(), admin.queue);
        let answer = admin.answer(RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT);
        let (code, reason) = answer.error();
        assert!(code == RD_KAFKA_RESP_ERR__INVALID_ARG && reason.contains("orders"), "{code} {reason}");
        assert!(array(rd_kafka_DescribeConfigs_result_resources, answer.0).is_empty());
        rd_kafka_ConfigResource_destroy(resource);

        rd_kafka_DescribeCluster(admin.rk, null(), admin.queue);
        let answer = admin.answer(RD_KAFKA_EVENT_DESCRIBECLUSTER_RESULT);
        let result = rd_kafka_event_DescribeCluster_result(answer.0);
        assert_eq!(array(rd_kafka_DescribeCluster_result_nodes, result).len(), 1);
        assert!(!text(rd_kafka_DescribeCluster_result_cluster_id(result)).is_empty());
        let controller = rd_kafka_DescribeCluster_result_controller(result);
        assert_eq!(text(rd_kafka_Node_host(controller)), "127.0.0.1");
        assert!(rd_kafka_Node_id(controller) >= 0 && rd_kafka_Node_id(null()) == -1);
        assert!(rd_kafka_Node_rack(controller).is_null());
    }
}

#[test]
fn records_and_offsets_have_a_result_per_partition() {
    let broker = broker();
    fill(&broker, 5);
    let admin = Asking::new(&broker.bootstrap_servers(), RD_KAFKA_PRODUCER, &[]);
    unsafe {
        let wanted = list(&[
            (c"orders", 0, RD_KAFKA_OFFSET_SPEC_LATEST.into()),
            (c"orders", 9, RD_KAFKA_OFFSET_SPEC_EARLIEST.into()),
        ]);
        rd_kafka_ListOffsets(admin.rk, wanted, null(), admin.queue);
        rd_kafka_topic_partition_list_destroy(wanted);
        let answer = admin.answer(RD_KAFKA_EVENT_LISTOFFSETS_RESULT);
        let infos = array(rd_kafka_ListOffsets_result_infos, rd_kafka_event_ListOffsets_result(answer.0));
        let of = |index: usize| &*rd_kafka_ListOffsetsResultInfo_topic_partition(infos[index]);
        assert_eq!((of(0).partition, of(0).offset, of(0).err), (0, 5, RD_KAFKA_RESP_ERR_NO_ERROR));
        assert_eq!((of(1).partition, of(1).err), (9, RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION));
        assert_eq!(rd_kafka_ListOffsetsResultInfo_timestamp(infos[0]), -1);

        let before = list(&[(c"orders", 0, 2), (c"orders", 9, 0)]);
        let request = rd_kafka_DeleteRecords_new(before);
        rd_kafka_topic_partition_list_destroy(before);
        rd_kafka_DeleteRecords(admin.rk, [request].as_mut_ptr(), 1, null(), admin.queue);
        rd_kafka_DeleteRecords_destroy(request);
        let answer = admin.answer(RD_KAFKA_EVENT_DELETERECORDS_RESULT);
        let result = rd_kafka_event_DeleteRecords_result(answer.0);
        let deleted = offsets(rd_kafka_DeleteRecords_result_offsets(result));
        assert_eq!(deleted[0], (0, 2, RD_KAFKA_RESP_ERR_NO_ERROR));
        assert_eq!((deleted[1].0, deleted[1].2), (9, RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION));
    }
}

/// A member of the group `billing`, which has consumed a record of `orders`.
fn member_of_billing(servers: &str) -> Asking {
    let properties = [(c"group.id", c"billing"), (c"auto.offset.reset", c"earliest")];
    let consumer = Asking::new(servers, RD_KAFKA_CONSUMER, &properties);
    unsafe {
        let topics = list(&[(c"orders", -1, 0)]);
        assert_eq!(rd_kafka_subscribe(consumer.rk, topics), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_partition_list_destroy(topics);
        let message = rd_kafka_consumer_poll(consumer.rk, PATIENCE_MS);
        assert!(!message.is_null() && (*message).err == RD_KAFKA_RESP_ERR_NO_ERROR);
        rdkafka::messages::message::rd_kafka_message_destroy(message);
    }
    consumer
}

#[test]
fn groups_are_listed() {
    let broker = broker();
    fill(&broker, 1);
    let _member = member_of_billing(&broker.bootstrap_servers());
    let admin = Asking::new(&broker.bootstrap_servers(), RD_KAFKA_PRODUCER, &[]);
    unsafe {
        let options = rd_kafka_AdminOptions_new(admin.rk, RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPS);
        let states = [RD_KAFKA_CONSUMER_GROUP_STATE_STABLE];
        let set = rd_kafka_AdminOptions_set_match_consumer_group_states(options, states.as_ptr(), 1);
        assert!(set.is_null());
        rd_kafka_ListConsumerGroups(admin.rk, options, admin.queue);
        rd_kafka_AdminOptions_destroy(options);
        let answer = admin.answer(RD_KAFKA_EVENT_LISTCONSUMERGROUPS_RESULT);
        let result = rd_kafka_event_ListConsumerGroups_result(answer.0);
        let listed = array(rd_kafka_ListConsumerGroups_result_valid, result);
        assert_eq!(text(rd_kafka_ConsumerGroupListing_group_id(listed[0])), "billing");
        let state = rd_kafka_ConsumerGroupListing_state(listed[0]);
        assert_eq!(state, RD_KAFKA_CONSUMER_GROUP_STATE_STABLE);
        assert_eq!(text(rd_kafka_consumer_group_state_name(state)), "Stable");
        assert_eq!(rd_kafka_consumer_group_state_code(c"stable".as_ptr()), state);
        let kind = rd_kafka_ConsumerGroupListing_type(listed[0]);
        assert_eq!(kind, rd_kafka_consumer_group_type_code(c"Classic".as_ptr()));
        assert_eq!(text(rd_kafka_consumer_group_type_name(kind)), "Classic");
        assert_eq!(rd_kafka_ConsumerGroupListing_is_simple_consumer_group(listed[0]), 0);
        assert!(array(rd_kafka_ListConsumerGroups_result_errors, result).is_empty());
    }
}

#[test]
fn groups_are_described() {
    let broker = broker();
    fill(&broker, 1);
    let _member = member_of_billing(&broker.bootstrap_servers());
    let admin = Asking::new(&broker.bootstrap_servers(), RD_KAFKA_PRODUCER, &[]);
    unsafe {
        let groups = [c"billing".as_ptr(), c"none".as_ptr()];
        rd_kafka_DescribeConsumerGroups(admin.rk, groups.as_ptr().cast_mut(), 2, null(), admin.queue);
        let answer = admin.answer(RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT);
        let result = rd_kafka_event_DescribeConsumerGroups_result(answer.0);
        let described = array(rd_kafka_DescribeConsumerGroups_result_groups, result);
        assert_eq!(rd_kafka_ConsumerGroupDescription_member_count(described[0]), 1);
        assert_eq!(text(rd_kafka_ConsumerGroupDescription_group_id(described[0])), "billing");
        assert!(rd_kafka_ConsumerGroupDescription_error(described[0]).is_null());
        assert_eq!(text(rd_kafka_ConsumerGroupDescription_partition_assignor(described[0])), "range");
        let kind = rd_kafka_ConsumerGroupDescription_type(described[0]);
        assert_eq!(kind, RD_KAFKA_CONSUMER_GROUP_TYPE_CLASSIC);
        let simple = rd_kafka_ConsumerGroupDescription_is_simple_consumer_group;
        assert_eq!((simple(described[0]), simple(described[1])), (0, 1));
        let coordinator = rd_kafka_ConsumerGroupDescription_coordinator(described[0]);
        let port = rd_kafka_Node_port(coordinator);
        assert!(broker.bootstrap_servers().ends_with(&port.to_string()));
        let mut count = 9;
        let unasked = rd_kafka_ConsumerGroupDescription_authorized_operations;
        assert!(unasked(described[0], &raw mut count).is_null() && count == 0);
        let member = rd_kafka_ConsumerGroupDescription_member(described[0], 0);
        assert!(rd_kafka_ConsumerGroupDescription_member(described[0], 1).is_null());
        let assignment = rd_kafka_MemberDescription_assignment(member);
        assert_eq!(offsets(rd_kafka_MemberAssignment_partitions(assignment)).len(), 2);
        assert!(rd_kafka_MemberDescription_target_assignment(member).is_null());
        assert_eq!(text(rd_kafka_MemberDescription_host(member)), "/127.0.0.1");
        assert!(rd_kafka_MemberDescription_group_instance_id(member).is_null());
        assert_eq!(text(rd_kafka_MemberDescription_client_id(member)), "rdkafka");
        let id = text(rd_kafka_MemberDescription_consumer_id(member));
        assert!(id.starts_with("rdkafka"), "{id}");

        // The same in one call that waits.
        for group in [null(), c"billing".as_ptr()] {
            let mut told = null();
            let listed = rd_kafka_list_groups(admin.rk, group, &raw mut told, PATIENCE_MS);
            assert_eq!((listed, (*told).group_cnt), (RD_KAFKA_RESP_ERR_NO_ERROR, 1));
            let group = &*(*told).groups;
            assert_eq!((text(group.group), text(group.state)), ("billing".into(), "Stable".into()));
            assert_eq!((group.member_cnt, group.broker.port), (1, port.into()));
            let member = &*group.members;
            assert_eq!((text(member.member_id), text(member.client_host)), (id.clone(), "/127.0.0.1".into()));
            assert!(member.member_metadata_size > 0 && member.member_assignment_size > 0);
            rd_kafka_group_list_destroy(told);
        }
        let absent = rd_kafka_ConsumerGroupDescription_state(described[1]);
        assert_eq!(absent, RD_KAFKA_CONSUMER_GROUP_STATE_DEAD);
    }
}

#[test]
fn offsets_of_groups_are_set_and_deleted_and_groups_deleted() {
    let broker = broker();
    fill(&broker, 1);
    let consumer = member_of_billing(&broker.bootstrap_servers());
    let admin = Asking::new(&broker.bootstrap_servers(), RD_KAFKA_PRODUCER, &[]);
    unsafe {
        assert_eq!(rd_kafka_consumer_close(consumer.rk), RD_KAFKA_RESP_ERR_NO_ERROR);
        let wanted = list(&[(c"orders", 0, 1), (c"orders", 1, 0)]);
        let request = rd_kafka_AlterConsumerGroupOffsets_new(c"billing".as_ptr(), wanted);
        rd_kafka_AlterConsumerGroupOffsets(admin.rk, [request].as_mut_ptr(), 1, null(), admin.queue);
        rd_kafka_AlterConsumerGroupOffsets_destroy(request);
        rd_kafka_topic_partition_list_destroy(wanted);
        let answer = admin.answer(RD_KAFKA_EVENT_ALTERCONSUMERGROUPOFFSETS_RESULT);
        let result = rd_kafka_event_AlterConsumerGroupOffsets_result(answer.0);
        let altered = array(rd_kafka_AlterConsumerGroupOffsets_result_groups, result);
        assert_eq!(text(rd_kafka_group_result_name(altered[0])), "billing");
        let set = offsets(rd_kafka_group_result_partitions(altered[0]));
        assert_eq!(set, [(0, 1, RD_KAFKA_RESP_ERR_NO_ERROR), (1, 0, RD_KAFKA_RESP_ERR_NO_ERROR)]);

        let one = list(&[(c"orders", 1, 0)]);
        let request = rd_kafka_DeleteConsumerGroupOffsets_new(c"billing".as_ptr(), one);
        rd_kafka_DeleteConsumerGroupOffsets(admin.rk, [request].as_mut_ptr(), 1, null(), admin.queue);
        rd_kafka_DeleteConsumerGroupOffsets_destroy(request);
        rd_kafka_topic_partition_list_destroy(one);
        let answer = admin.answer(RD_KAFKA_EVENT_DELETECONSUMERGROUPOFFSETS_RESULT);
        assert_eq!(answer.error().0, RD_KAFKA_RESP_ERR_NO_ERROR);
        let result = rd_kafka_event_DeleteConsumerGroupOffsets_result(answer.0);
        let deleted = array(rd_kafka_DeleteConsumerGroupOffsets_result_groups, result);
        let gone = offsets(rd_kafka_group_result_partitions(deleted[0]));
        assert_eq!((gone[0].0, gone[0].2), (1, RD_KAFKA_RESP_ERR_NO_ERROR));

        let request = rd_kafka_ListConsumerGroupOffsets_new(c"billing".as_ptr(), null());
        let options = rd_kafka_AdminOptions_new(admin.rk, RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS);
        assert!(rd_kafka_AdminOptions_set_require_stable_offsets(options, 1).is_null());
        assert_eq!(rd_kafka_AdminOptions_set_broker(options, 1, null_mut(), 0), RD_KAFKA_RESP_ERR_NO_ERROR);
        let types = [RD_KAFKA_CONSUMER_GROUP_TYPE_CLASSIC];
        let refused = rd_kafka_AdminOptions_set_match_consumer_group_types(options, types.as_ptr(), 1);
        assert_eq!(rd_kafka_error_code(refused), RD_KAFKA_RESP_ERR__INVALID_ARG);
        rd_kafka_error_destroy(refused);
        rd_kafka_ListConsumerGroupOffsets(admin.rk, [request].as_mut_ptr(), 1, options, admin.queue);
        rd_kafka_AdminOptions_destroy(options);
        rd_kafka_ListConsumerGroupOffsets_destroy(request);
        let answer = admin.answer(RD_KAFKA_EVENT_LISTCONSUMERGROUPOFFSETS_RESULT);
        let result = rd_kafka_event_ListConsumerGroupOffsets_result(answer.0);
        let found = array(rd_kafka_ListConsumerGroupOffsets_result_groups, result);
        let left = offsets(rd_kafka_group_result_partitions(found[0]));
        assert_eq!(left, [(0, 1, RD_KAFKA_RESP_ERR_NO_ERROR)]);

        let groups = [c"billing", c"none"].map(|group| rd_kafka_DeleteGroup_new(group.as_ptr()));
        rd_kafka_DeleteGroups(admin.rk, groups.as_ptr().cast_mut(), 2, null(), admin.queue);
        rd_kafka_DeleteGroup_destroy_array(groups.as_ptr().cast_mut(), 2);
        let answer = admin.answer(RD_KAFKA_EVENT_DELETEGROUPS_RESULT);
        let result = rd_kafka_event_DeleteGroups_result(answer.0);
        let deleted = array(rd_kafka_DeleteGroups_result_groups, result);
        assert!(rd_kafka_group_result_error(deleted[0]).is_null());
        let error = rd_kafka_group_result_error(deleted[1]);
        assert_eq!(rd_kafka_error_code(error), RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND);
    }
}

#[test]
fn an_election_for_all_partitions_is_answered() {
    let broker = broker();
    let admin = Asking::new(&broker.bootstrap_servers(), RD_KAFKA_PRODUCER, &[]);
    unsafe {
        let election = rd_kafka_ElectLeaders_new(RD_KAFKA_ELECTION_TYPE_PREFERRED, null_mut());
        rd_kafka_ElectLeaders(admin.rk, election, null(), admin.queue);
        rd_kafka_ElectLeaders_destroy(election);
        let answer = admin.answer(RD_KAFKA_EVENT_ELECTLEADERS_RESULT);
        assert_eq!(answer.error().0, RD_KAFKA_RESP_ERR_NO_ERROR);
    }
}

/// Name and value of each setting of a resource.
fn entries_of(resource: *const rd_kafka_ConfigResource_t) -> Vec<(String, String)> {
    let mut count = 99;
    let entries = unsafe { rd_kafka_ConfigResource_configs(resource, &raw mut count) };
    let entries = (0..count).map(|index| unsafe {
        let entry = *entries.add(index);
        (text(rd_kafka_ConfigEntry_name(entry)), text(rd_kafka_ConfigEntry_value(entry)))
    });
    entries.collect()
}

/// Programs compare the texts.
#[test]
fn two_equal_names_and_empty_lists_are_refused_before_a_broker_is_asked() {
    // Nothing listens there.
    let admin = Asking::new("127.0.0.1:1", RD_KAFKA_PRODUCER, &[]);
    let refused = |kind, reason: &str| {
        let expected = (RD_KAFKA_RESP_ERR__INVALID_ARG, reason.to_owned());
        assert_eq!(admin.answer(kind).error(), expected);
    };
    let (rk, queue) = (admin.rk, admin.queue);
    unsafe {
        let topics = |names: &[*const c_char]| {
            let topics = rd_kafka_TopicCollection_of_topic_names(names.as_ptr().cast_mut(), names.len());
            rd_kafka_DescribeTopics(rk, topics, null(), queue);
            rd_kafka_TopicCollection_destroy(topics);
        };
        topics(&[c"orders".as_ptr(), c"refunds".as_ptr(), c"orders".as_ptr()]);
        refused(RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT, "Duplicate topics not allowed");
        topics(&[c"orders".as_ptr(), c"".as_ptr()]);
        refused(RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT, "Empty topic name at index 1 isn't allowed");

        let resource = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, c"orders".as_ptr());
        let kind = RD_KAFKA_EVENT_INCREMENTALALTERCONFIGS_RESULT;
        rd_kafka_IncrementalAlterConfigs(rk, [resource; 2].as_mut_ptr(), 2, null(), queue);
        refused(kind, "Duplicate ConfigResource found");
        let add = rd_kafka_ConfigResource_add_incremental_config;
        let (name, set) = (c"retention.ms".as_ptr(), RD_KAFKA_ALTER_CONFIG_OP_TYPE_SET);
        assert!(add(resource, name, set, c"7000".as_ptr()).is_null());
        assert!(add(resource, name, RD_KAFKA_ALTER_CONFIG_OP_TYPE_DELETE, null()).is_null());
        rd_kafka_IncrementalAlterConfigs(rk, [resource].as_mut_ptr(), 1, null(), queue);
        refused(kind, "Duplicate ConfigEntry found");
        rd_kafka_ConfigResource_destroy(resource);

        let deleted = RD_KAFKA_EVENT_DELETEGROUPS_RESULT;
        rd_kafka_DeleteGroups(rk, null_mut(), 0, null(), queue);
        refused(deleted, "No groups to delete");
        let group = rd_kafka_DeleteGroup_new(c"billing".as_ptr());
        rd_kafka_DeleteGroups(rk, [group; 2].as_mut_ptr(), 2, null(), queue);
        rd_kafka_DeleteGroup_destroy(group);
        refused(deleted, "Duplicate groups not allowed");

        let described = RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT;
        rd_kafka_DescribeConsumerGroups(rk, null_mut(), 0, null(), queue);
        refused(described, "No groups to describe");
        let mut groups = [c"billing".as_ptr(); 2];
        rd_kafka_DescribeConsumerGroups(rk, groups.as_mut_ptr(), 2, null(), queue);
        refused(described, "Duplicate groups not allowed");
    }
}

/// It was freed when the next one was added.
#[test]
fn a_setting_of_a_resource_stays_while_more_are_added() {
    unsafe {
        let resource = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, c"orders".as_ptr());
        let set = |name: &CStr| rd_kafka_ConfigResource_set_config(resource, name.as_ptr(), c"1".as_ptr());
        assert_eq!(set(c"first"), RD_KAFKA_RESP_ERR_NO_ERROR);
        let mut count = 0;
        let first = *rd_kafka_ConfigResource_configs(resource, &raw mut count);
        for _ in 0..100 {
            assert_eq!(set(c"another"), RD_KAFKA_RESP_ERR_NO_ERROR);
        }
        assert_eq!(*rd_kafka_ConfigResource_configs(resource, &raw mut count), first, "it has moved");
        assert_eq!((count, text(rd_kafka_ConfigEntry_name(first))), (101, "first".to_owned()));
        rd_kafka_ConfigResource_destroy(resource);
    }
}

#[test]
fn the_changes_of_a_resource_are_listed_and_made() {
    let broker = broker();
    let admin = Asking::new(&broker.bootstrap_servers(), RD_KAFKA_PRODUCER, &[]);
    unsafe {
        let resource = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, c"orders".as_ptr());
        assert_eq!(entries_of(resource), []);
        let (name, delete) = (c"retention.ms".as_ptr(), RD_KAFKA_ALTER_CONFIG_OP_TYPE_DELETE);
        assert!(rd_kafka_ConfigResource_add_incremental_config(resource, name, delete, null()).is_null());
        let set = rd_kafka_ConfigResource_set_config(resource, c"segment.ms".as_ptr(), c"60000".as_ptr());
        assert_eq!(set, RD_KAFKA_RESP_ERR_NO_ERROR);
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(entries_of(resource), [of("retention.ms", ""), of("segment.ms", "60000")]);

        rd_kafka_IncrementalAlterConfigs(admin.rk, [resource].as_mut_ptr(), 1, null(), admin.queue);
        let answer = admin.answer(RD_KAFKA_EVENT_INCREMENTALALTERCONFIGS_RESULT);
        assert_eq!(answer.error().0, RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_DescribeConfigs(admin.rk, [resource].as_mut_ptr(), 1, null(), admin.queue);
        rd_kafka_ConfigResource_destroy(resource);
        let answer = admin.answer(RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT);
        let result = rd_kafka_event_DescribeConfigs_result(answer.0);
        let described = array(rd_kafka_DescribeConfigs_result_resources, result);
        assert!(entries_of(described[0]).contains(&of("segment.ms", "60000")));
    }
}

#[test]
fn what_the_broker_does_not_know_and_what_makes_no_sense_are_errors_of_the_event() {
    let broker = broker();
    let admin = Asking::new(&broker.bootstrap_servers(), RD_KAFKA_PRODUCER, &[]);
    let old = Broker::builder().memory().configure(|config| config.as_version = KafkaLevel::V0_11);
    let old = old.spawn().expect("a broker in memory");
    let asking_old = Asking::new(&old.bootstrap_servers(), RD_KAFKA_PRODUCER, &[]);
    unsafe {
        rd_kafka_DescribeUserScramCredentials(asking_old.rk, null_mut(), 0, null(), asking_old.queue);
        let answer = asking_old.answer(RD_KAFKA_EVENT_DESCRIBEUSERSCRAMCREDENTIALS_RESULT);
        assert_eq!(answer.error().0, RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE);
        let result = rd_kafka_event_DescribeUserScramCredentials_result(answer.0);
        assert!(array(rd_kafka_DescribeUserScramCredentials_result_descriptions, result).is_empty());

        let any = RD_KAFKA_RESOURCE_ANY;
        let filter = rd_kafka_AclBindingFilter_new(any, null(), any, null(), null(), any, any, null_mut(), 0);
        rd_kafka_DescribeAcls(admin.rk, filter, null(), admin.queue);
        let answer = admin.answer(RD_KAFKA_EVENT_DESCRIBEACLS_RESULT);
        assert_eq!(answer.error().0, RD_KAFKA_RESP_ERR_SECURITY_DISABLED);
        // A filter is not an ACL: the request creates none.
        rd_kafka_CreateAcls(admin.rk, [filter].as_mut_ptr(), 1, null(), admin.queue);
        let answer = admin.answer(RD_KAFKA_EVENT_CREATEACLS_RESULT);
        assert_eq!(answer.error().0, RD_KAFKA_RESP_ERR__INVALID_ARG);
        rd_kafka_AclBinding_destroy(filter);

        let user = c"alice".as_ptr();
        let weak = rd_kafka_UserScramCredentialUpsertion_new(user, 1, 0, c"pw".as_ptr().cast(), 2, null(), 0);
        rd_kafka_AlterUserScramCredentials(admin.rk, [weak].as_mut_ptr(), 1, null(), admin.queue);
        rd_kafka_UserScramCredentialAlteration_destroy(weak);
        let answer = admin.answer(RD_KAFKA_EVENT_ALTERUSERSCRAMCREDENTIALS_RESULT);
        let (code, reason) = answer.error();
        assert!(code == RD_KAFKA_RESP_ERR__INVALID_ARG && reason.contains("index 0"), "{code} {reason}");

        // An array that is not there.
        rd_kafka_CreateTopics(admin.rk, null_mut(), 3, null(), admin.queue);
        let answer = admin.answer(RD_KAFKA_EVENT_CREATETOPICS_RESULT);
        assert_eq!(answer.error().0, RD_KAFKA_RESP_ERR__INVALID_ARG);
        // Without a client or a queue the call has no effect.
        rd_kafka_DescribeCluster(null_mut(), null(), admin.queue);
        rd_kafka_DescribeCluster(admin.rk, null(), null_mut());
    }
}

#[test]
fn a_request_without_items_is_refused() {
    let broker = broker();
    let admin = Asking::new(&broker.bootstrap_servers(), RD_KAFKA_PRODUCER, &[]);
    let refused = |kind, text: &str| {
        let (code, reason) = admin.answer(kind).error();
        assert_eq!((code, &*reason), (RD_KAFKA_RESP_ERR__INVALID_ARG, text));
    };
    unsafe {
        rd_kafka_CreateTopics(admin.rk, null_mut(), 0, null(), admin.queue);
        refused(RD_KAFKA_EVENT_CREATETOPICS_RESULT, "No topics to create");
        rd_kafka_DeleteTopics(admin.rk, null_mut(), 0, null(), admin.queue);
        refused(RD_KAFKA_EVENT_DELETETOPICS_RESULT, "No topics to delete");
        rd_kafka_CreatePartitions(admin.rk, null_mut(), 0, null(), admin.queue);
        refused(RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT, "No partitions to create");
        rd_kafka_AlterConfigs(admin.rk, null_mut(), 0, null(), admin.queue);
        refused(RD_KAFKA_EVENT_ALTERCONFIGS_RESULT, "No config resources specified");
        rd_kafka_IncrementalAlterConfigs(admin.rk, null_mut(), 0, null(), admin.queue);
        refused(RD_KAFKA_EVENT_INCREMENTALALTERCONFIGS_RESULT, "No config resources specified");
        rd_kafka_DescribeConfigs(admin.rk, null_mut(), 0, null(), admin.queue);
        refused(RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT, "No config resources specified");
        // These were sent to the broker, which had nothing to do.
        rd_kafka_CreateAcls(admin.rk, null_mut(), 0, null(), admin.queue);
        refused(RD_KAFKA_EVENT_CREATEACLS_RESULT, "No acls to create");
        rd_kafka_DeleteAcls(admin.rk, null_mut(), 0, null(), admin.queue);
        refused(RD_KAFKA_EVENT_DELETEACLS_RESULT, "No acl binding filters specified");
    }
}

#[test]
fn a_request_has_its_time_and_ends_with_its_client() {
    let nobody = Asking::new("127.0.0.1:1", RD_KAFKA_PRODUCER, &[]);
    unsafe {
        let options = rd_kafka_AdminOptions_new(nobody.rk, RD_KAFKA_ADMIN_OP_ANY);
        rd_kafka_AdminOptions_set_request_timeout(options, 300, null_mut(), 0);
        rd_kafka_DescribeCluster(nobody.rk, options, nobody.queue);
        rd_kafka_AdminOptions_destroy(options);
        let answer = nobody.answer(RD_KAFKA_EVENT_DESCRIBECLUSTER_RESULT);
        assert_eq!(answer.error().0, RD_KAFKA_RESP_ERR__TIMED_OUT);

        // Lists of groups have errors among their results. Programs compare the texts.
        let options = rd_kafka_AdminOptions_new(nobody.rk, RD_KAFKA_ADMIN_OP_ANY);
        rd_kafka_AdminOptions_set_request_timeout(options, 100, null_mut(), 0);
        rd_kafka_ListConsumerGroups(nobody.rk, options, nobody.queue);
        let answer = nobody.answer(RD_KAFKA_EVENT_LISTCONSUMERGROUPS_RESULT);
        assert_eq!(answer.error().0, RD_KAFKA_RESP_ERR_NO_ERROR);
        let result = rd_kafka_event_ListConsumerGroups_result(answer.0);
        let errors = array(rd_kafka_ListConsumerGroups_result_errors, result);
        assert_eq!(errors.len(), 1);
        assert_eq!(rd_kafka_error_code(errors[0]), RD_KAFKA_RESP_ERR__TIMED_OUT);
        let election = rd_kafka_ElectLeaders_new(RD_KAFKA_ELECTION_TYPE_PREFERRED, null_mut());
        rd_kafka_ElectLeaders(nobody.rk, election, options, nobody.queue);
        rd_kafka_ElectLeaders_destroy(election);
        let answer = nobody.answer(RD_KAFKA_EVENT_ELECTLEADERS_RESULT);
        let expected = "Failed while waiting for controller: Local: Timed out".to_owned();
        assert_eq!(answer.error(), (RD_KAFKA_RESP_ERR__TIMED_OUT, expected));
        rd_kafka_AdminOptions_destroy(options);

        // A client that is destroyed does not wait for its pending requests.
        let broker = broker();
        let long = Duration::from_secs(120);
        broker.cluster().intercept(ApiKey::DescribeCluster, None, 1, Fault::Delay(long));
        let admin = Asking::new(&broker.bootstrap_servers(), RD_KAFKA_PRODUCER, &[]);
        rd_kafka_DescribeCluster(admin.rk, null(), admin.queue);
        let began = Instant::now();
        drop(admin);
        assert!(began.elapsed() < long / 4, "{:?}", began.elapsed());
    }
}

#[test]
fn configurations_of_several_brokers_time_out_as_a_whole_when_none_answers() {
    // Nothing listens there.
    let admin = Asking::new("127.0.0.1:1", RD_KAFKA_PRODUCER, &[]);
    unsafe {
        let options = rd_kafka_AdminOptions_new(admin.rk, RD_KAFKA_ADMIN_OP_ANY);
        let set = rd_kafka_AdminOptions_set_request_timeout(options, 300, null_mut(), 0);
        assert_eq!(set, RD_KAFKA_RESP_ERR_NO_ERROR);
        let topic = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, c"orders".as_ptr());
        let broker = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_BROKER, c"3".as_ptr());
        let mut resources = [topic, broker];
        rd_kafka_AlterConfigs(admin.rk, resources.as_mut_ptr(), 2, options, admin.queue);
        let altered = admin.answer(RD_KAFKA_EVENT_ALTERCONFIGS_RESULT);
        assert_eq!(altered.error().0, RD_KAFKA_RESP_ERR__TIMED_OUT);
        rd_kafka_DescribeConfigs(admin.rk, resources.as_mut_ptr(), 2, options, admin.queue);
        let described = admin.answer(RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT);
        assert_eq!(described.error().0, RD_KAFKA_RESP_ERR__TIMED_OUT);
        rd_kafka_ConfigResource_destroy_array(resources.as_mut_ptr(), 2);
        rd_kafka_AdminOptions_destroy(options);
    }
}

#[test]
fn groups_without_a_broker_time_out_when_the_time_is_over() {
    // Nothing listens there.
    let admin = Asking::new("127.0.0.1:1", RD_KAFKA_PRODUCER, &[]);
    let mut groups = null();
    for timeout_ms in [150, 700] {
        let began = Instant::now();
        let listed = unsafe { rd_kafka_list_groups(admin.rk, null(), &raw mut groups, timeout_ms) };
        assert_eq!(listed, RD_KAFKA_RESP_ERR__TIMED_OUT);
        assert!(began.elapsed() >= Duration::from_millis(timeout_ms as u64), "{:?}", began.elapsed());
    }
}
