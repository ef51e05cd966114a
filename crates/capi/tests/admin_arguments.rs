//! Arguments of the admin interface: those that are refused before a broker is asked, with texts that programs compare, and those
//! that a broker decides about.

use std::ffi::{CStr, c_char};
use std::io::Write;
use std::net::TcpStream;
use std::ptr::{null, null_mut};

use ottla_broker::{ApiKey, Broker};
use rdkafka::admin::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::partition_list::*;

use crate::asking::{Asking, array, text};
use crate::common::until;

/// A list of partitions with offsets.
fn list(entries: &[(&CStr, i32, i64)]) -> *mut rd_kafka_topic_partition_list_t {
    let list = rd_kafka_topic_partition_list_new(1);
    for (topic, partition, offset) in entries {
        unsafe { (*rd_kafka_topic_partition_list_add(list, topic.as_ptr(), *partition)).offset = *offset };
    }
    list
}

/// A client without a broker.
struct Offline(Asking);

impl Offline {
    fn new() -> Self {
        // Nothing listens there.
        Self(Asking::new("127.0.0.1:1", RD_KAFKA_PRODUCER, &[]))
    }

    fn refused(&self, kind: rd_kafka_event_type_t, reason: &str) {
        let expected = (RD_KAFKA_RESP_ERR__INVALID_ARG, reason.to_owned());
        assert_eq!(self.0.answer(kind).error(), expected);
    }
}

#[test]
fn a_request_of_one_thing_refuses_none_and_two() {
    let admin = Offline::new();
    let (rk, queue) = (admin.0.rk, admin.0.queue);
    let partitions = list(&[(c"orders", 0, 1)]);
    let group = c"billing".as_ptr();
    unsafe {
        let kind = RD_KAFKA_EVENT_DELETERECORDS_RESULT;
        let request = rd_kafka_DeleteRecords_new(partitions);
        rd_kafka_DeleteRecords(rk, [request; 2].as_mut_ptr(), 2, null(), queue);
        rd_kafka_DeleteRecords_destroy(request);
        admin.refused(kind, "Exactly one DeleteRecords must be passed");
        rd_kafka_DeleteRecords(rk, null_mut(), 0, null(), queue);
        admin.refused(kind, "Exactly one DeleteRecords must be passed");

        let request = rd_kafka_AlterConsumerGroupOffsets_new(group, partitions);
        rd_kafka_AlterConsumerGroupOffsets(rk, [request; 2].as_mut_ptr(), 2, null(), queue);
        rd_kafka_AlterConsumerGroupOffsets_destroy(request);
        let reason = "Exactly one AlterConsumerGroupOffsets must be passed";
        admin.refused(RD_KAFKA_EVENT_ALTERCONSUMERGROUPOFFSETS_RESULT, reason);

        let request = rd_kafka_ListConsumerGroupOffsets_new(group, partitions);
        rd_kafka_ListConsumerGroupOffsets(rk, [request; 2].as_mut_ptr(), 2, null(), queue);
        rd_kafka_ListConsumerGroupOffsets_destroy(request);
        let reason = "Exactly one ListConsumerGroupOffsets must be passed";
        admin.refused(RD_KAFKA_EVENT_LISTCONSUMERGROUPOFFSETS_RESULT, reason);

        let request = rd_kafka_DeleteConsumerGroupOffsets_new(group, partitions);
        rd_kafka_DeleteConsumerGroupOffsets(rk, [request; 2].as_mut_ptr(), 2, null(), queue);
        rd_kafka_DeleteConsumerGroupOffsets_destroy(request);
        let reason = "Exactly one DeleteConsumerGroupOffsets must be passed";
        admin.refused(RD_KAFKA_EVENT_DELETECONSUMERGROUPOFFSETS_RESULT, reason);
        rd_kafka_topic_partition_list_destroy(partitions);
    }
}

#[test]
fn refused_partitions_and_users_have_the_texts_of_librdkafka() {
    let admin = Offline::new();
    let (rk, queue) = (admin.0.rk, admin.0.queue);
    let one = (c"orders", 0, 1);
    unsafe {
        for (count, reason) in [(0, "No records to delete"), (2, "Duplicate partitions not allowed")] {
            let partitions = list(&vec![one; count]);
            let request = rd_kafka_DeleteRecords_new(partitions);
            rd_kafka_DeleteRecords(rk, [request].as_mut_ptr(), 1, null(), queue);
            rd_kafka_DeleteRecords_destroy(request);
            rd_kafka_topic_partition_list_destroy(partitions);
            admin.refused(RD_KAFKA_EVENT_DELETERECORDS_RESULT, reason);
        }
        for (second, reason) in [
            ((c"", 0, 0), "Partition topic name at index 1 must be non-empty"),
            ((c"orders", -1, 0), "Partition at index 1 cannot be negative"),
            ((c"orders", 0, -4), "Partitions must not contain duplicates"),
            ((c"orders", 1, -4), "Partition 1 has an invalid offset -4"),
        ] {
            let partitions = list(&[one, second]);
            rd_kafka_ListOffsets(rk, partitions, null(), queue);
            rd_kafka_topic_partition_list_destroy(partitions);
            admin.refused(RD_KAFKA_EVENT_LISTOFFSETS_RESULT, reason);
        }
        for (second, reason) in [
            (c"", "Empty users aren't allowed, index 1"),
            (c"ann", "Duplicate users aren't allowed in the same request"),
        ] {
            let mut users = [c"ann".as_ptr(), second.as_ptr()];
            rd_kafka_DescribeUserScramCredentials(rk, users.as_mut_ptr(), 2, null(), queue);
            admin.refused(RD_KAFKA_EVENT_DESCRIBEUSERSCRAMCREDENTIALS_RESULT, reason);
        }
    }
}

/// The setting was sent with an empty text, which is a value of some settings.
#[test]
fn a_setting_of_a_new_topic_without_a_value_is_sent_without_one() {
    let broker = Broker::builder().memory().spawn().unwrap();
    let admin = Asking::new(&broker.bootstrap_servers(), RD_KAFKA_PRODUCER, &[]);
    unsafe {
        let topic = rd_kafka_NewTopic_new(c"orders".as_ptr(), 1, 1, null_mut(), 0);
        let set = rd_kafka_NewTopic_set_config(topic, c"retention.ms".as_ptr(), null());
        assert_eq!(set, RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_CreateTopics(admin.rk, [topic].as_mut_ptr(), 1, null(), admin.queue);
        rd_kafka_NewTopic_destroy(topic);
        let answer = admin.answer(RD_KAFKA_EVENT_CREATETOPICS_RESULT);
        let result = rd_kafka_event_CreateTopics_result(answer.0);
        let created = array(rd_kafka_CreateTopics_result_topics, result);
        assert_eq!(rd_kafka_topic_result_error(created[0]), RD_KAFKA_RESP_ERR_INVALID_CONFIG);
        let reason = text(rd_kafka_topic_result_error_string(created[0]));
        assert!(reason.contains("has no value"), "{reason}");
    }
}

/// Both were refused, and no request was sent.
#[test]
fn no_partition_and_repeated_ones_are_sent_to_delete_offsets() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let admin = Asking::new(&broker.bootstrap_servers(), RD_KAFKA_PRODUCER, &[]);
    let one = (c"orders", 0, 1);
    unsafe {
        let partitions = list(&[one]);
        let request = rd_kafka_AlterConsumerGroupOffsets_new(c"billing".as_ptr(), partitions);
        rd_kafka_AlterConsumerGroupOffsets(admin.rk, [request].as_mut_ptr(), 1, null(), admin.queue);
        rd_kafka_AlterConsumerGroupOffsets_destroy(request);
        rd_kafka_topic_partition_list_destroy(partitions);
        let answer = admin.answer(RD_KAFKA_EVENT_ALTERCONSUMERGROUPOFFSETS_RESULT);
        assert_eq!(answer.error().0, RD_KAFKA_RESP_ERR_NO_ERROR);

        for count in [0, 2] {
            let partitions = list(&vec![one; count]);
            let request = rd_kafka_DeleteConsumerGroupOffsets_new(c"billing".as_ptr(), partitions);
            rd_kafka_DeleteConsumerGroupOffsets(admin.rk, [request].as_mut_ptr(), 1, null(), admin.queue);
            rd_kafka_DeleteConsumerGroupOffsets_destroy(request);
            rd_kafka_topic_partition_list_destroy(partitions);
            let answer = admin.answer(RD_KAFKA_EVENT_DELETECONSUMERGROUPOFFSETS_RESULT);
            assert_eq!(answer.error().0, RD_KAFKA_RESP_ERR_NO_ERROR);
            let result = rd_kafka_event_DeleteConsumerGroupOffsets_result(answer.0);
            let groups = array(rd_kafka_DeleteConsumerGroupOffsets_result_groups, result);
            assert!(rd_kafka_group_result_error(groups[0]).is_null());
            let deleted = &*rd_kafka_group_result_partitions(groups[0]);
            let errors = deleted.elems().iter().map(|entry| entry.err).collect::<Vec<_>>();
            assert_eq!(errors, vec![RD_KAFKA_RESP_ERR_NO_ERROR; count]);
        }
    }
    assert_eq!(broker.cluster().committed_offset("billing", "orders", 0), None);
}

/// The text that a function writes to its `errstr`.
fn errstr(call: impl FnOnce(*mut c_char, usize)) -> String {
    let mut text = [0; 256];
    call(text.as_mut_ptr(), text.len());
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().unwrap().to_owned()
}

/// rdkafka-ruby's tests of its admin client compare the first two; all were our own.
#[test]
fn refused_topics_and_partitions_have_the_texts_of_librdkafka() {
    let orders = c"orders".as_ptr();
    let refused = |partitions, replication| {
        errstr(|text, size| unsafe {
            assert!(rd_kafka_NewTopic_new(orders, partitions, replication, text, size).is_null());
        })
    };
    let partitions = "num_partitions out of expected range 1..100000 or -1 for broker default";
    assert_eq!(refused(-999, 1), partitions);
    assert_eq!(refused(3, -2), "replication_factor out of expected range -1..10000");
    let total = errstr(|text, size| unsafe {
        assert!(rd_kafka_NewPartitions_new(orders, 0, text, size).is_null());
    });
    assert_eq!(total, "new_total_cnt out of expected range 1..100000");

    let assigned = |partitions, replication, index| {
        errstr(|text, size| unsafe {
            let topic = rd_kafka_NewTopic_new(orders, partitions, replication, null_mut(), 0);
            let code =
                rd_kafka_NewTopic_set_replica_assignment(topic, index, [1].as_mut_ptr(), 1, text, size);
            assert_eq!(code, RD_KAFKA_RESP_ERR__INVALID_ARG);
            rd_kafka_NewTopic_destroy(topic);
        })
    };
    for (what, refused) in [
        ("Specifying a replication factor", assigned(2, 1, 0)),
        ("Specifying a default partition count", assigned(-1, -1, 0)),
    ] {
        assert_eq!(refused, format!("{what} and a replica assignment are mutually exclusive"));
    }
    let order = "Partitions must be added in order, starting at 0: expecting";
    assert_eq!(assigned(2, -1, 1), format!("{order} partition 0, not 1"));
    let index = errstr(|text, size| unsafe {
        let grown = rd_kafka_NewPartitions_new(orders, 3, null_mut(), 0);
        let code = rd_kafka_NewPartitions_set_replica_assignment(grown, 1, [1].as_mut_ptr(), 1, text, size);
        assert_eq!(code, RD_KAFKA_RESP_ERR__INVALID_ARG);
        rd_kafka_NewPartitions_destroy(grown);
    });
    assert_eq!(index, format!("{order} partition index 0, not 1"));
}

#[test]
fn refused_settings_and_credentials_have_the_texts_of_librdkafka() {
    let admin = Offline::new();
    unsafe {
        let resource = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, c"orders".as_ptr());
        let set = RD_KAFKA_ALTER_CONFIG_OP_TYPE_SET;
        for (name, operation, value, reason) in [
            (null(), set, c"1".as_ptr(), "Config name is required"),
            (c"".as_ptr(), set, c"1".as_ptr(), "Config name mustn't be empty"),
            (c"a".as_ptr(), set, null(), "Config value is required"),
            (c"a".as_ptr(), 7, c"1".as_ptr(), "Invalid alter config operation type"),
        ] {
            let error = rd_kafka_ConfigResource_add_incremental_config(resource, name, operation, value);
            assert_eq!(CStr::from_ptr(rd_kafka_error_string(error)).to_str().unwrap(), reason);
            rd_kafka_error_destroy(error);
        }
        rd_kafka_ConfigResource_destroy(resource);

        let sha256 = RD_KAFKA_SCRAM_MECHANISM_SHA_256;
        for (user, mechanism, iterations, password, reason) in [
            (c"", sha256, 4096, 1, "Empty user at index 0"),
            (c"ann", 0, 4096, 1, "SCRAM mechanism must be specified at index 0"),
            (c"ann", sha256, 0, 1, "Non-positive iterations at index 0"),
            (c"ann", sha256, 4096, 0, "Empty password at index 0"),
        ] {
            let bytes = b"p".as_ptr();
            let change = rd_kafka_UserScramCredentialUpsertion_new(
                user.as_ptr(),
                mechanism,
                iterations,
                bytes,
                password,
                bytes,
                1,
            );
            let (rk, queue) = (admin.0.rk, admin.0.queue);
            rd_kafka_AlterUserScramCredentials(rk, [change].as_mut_ptr(), 1, null(), queue);
            rd_kafka_UserScramCredentialAlteration_destroy(change);
            admin.refused(RD_KAFKA_EVENT_ALTERUSERSCRAMCREDENTIALS_RESULT, reason);
        }
    }
}

/// A test of rdkafka-ruby describes such a broker. Any broker got the request, and refused it with INVALID_REQUEST.
#[test]
fn a_broker_resource_whose_name_is_no_id_is_refused() {
    let admin = Offline::new();
    let (rk, queue) = (admin.0.rk, admin.0.queue);
    let reason = "Expected an int32 broker_id for ConfigResource(type=BROKER, name=first)";
    unsafe {
        let resource = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_BROKER, c"first".as_ptr());
        rd_kafka_DescribeConfigs(rk, [resource].as_mut_ptr(), 1, null(), queue);
        admin.refused(RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT, reason);
        rd_kafka_AlterConfigs(rk, [resource].as_mut_ptr(), 1, null(), queue);
        admin.refused(RD_KAFKA_EVENT_ALTERCONFIGS_RESULT, reason);
        rd_kafka_IncrementalAlterConfigs(rk, [resource].as_mut_ptr(), 1, null(), queue);
        admin.refused(RD_KAFKA_EVENT_INCREMENTALALTERCONFIGS_RESULT, reason);
        rd_kafka_ConfigResource_destroy(resource);
    }
}

/// Each broker got a request, where librdkafka refuses the call.
#[test]
fn configurations_of_two_brokers_are_a_conflict() {
    let admin = Offline::new();
    let (rk, queue) = (admin.0.rk, admin.0.queue);
    let reason = "Only one ConfigResource of type BROKER is allowed per call".to_owned();
    let conflict = (RD_KAFKA_RESP_ERR__CONFLICT, reason);
    unsafe {
        let broker = |name: &CStr| rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_BROKER, name.as_ptr());
        let topic = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, c"orders".as_ptr());
        let mut resources = [broker(c"1"), topic, broker(c"2")];
        rd_kafka_DescribeConfigs(rk, resources.as_mut_ptr(), 3, null(), queue);
        assert_eq!(admin.0.answer(RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT).error(), conflict);
        rd_kafka_AlterConfigs(rk, resources.as_mut_ptr(), 3, null(), queue);
        assert_eq!(admin.0.answer(RD_KAFKA_EVENT_ALTERCONFIGS_RESULT).error(), conflict);
        rd_kafka_IncrementalAlterConfigs(rk, resources.as_mut_ptr(), 3, null(), queue);
        assert_eq!(admin.0.answer(RD_KAFKA_EVENT_INCREMENTALALTERCONFIGS_RESULT).error(), conflict);
        rd_kafka_ConfigResource_destroy_array(resources.as_mut_ptr(), 3);
    }
}

/// They named the controller and a response. A request without items was refused before a broker was there.
#[test]
fn a_timeout_has_the_text_for_what_the_request_waited_for() {
    let admin = Offline::new();
    let (rk, queue) = (admin.0.rk, admin.0.queue);
    let timed_out = |kind, what| {
        let expected = (RD_KAFKA_RESP_ERR__TIMED_OUT, format!("Failed {what}: Local: Timed out"));
        assert_eq!(admin.0.answer(kind).error(), expected);
    };
    let partitions = list(&[(c"orders", 0, -1)]);
    unsafe {
        let options = rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_ANY);
        rd_kafka_AdminOptions_set_request_timeout(options, 100, null_mut(), 0);
        rd_kafka_ListOffsets(rk, partitions, options, queue);
        timed_out(RD_KAFKA_EVENT_LISTOFFSETS_RESULT, "to query partition leaders");
        let records = rd_kafka_DeleteRecords_new(partitions);
        rd_kafka_DeleteRecords(rk, [records].as_mut_ptr(), 1, options, queue);
        timed_out(RD_KAFKA_EVENT_DELETERECORDS_RESULT, "to query partition leaders");
        rd_kafka_DeleteRecords_destroy(records);
        rd_kafka_topic_partition_list_destroy(partitions);

        let topic = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, c"orders".as_ptr());
        let broker = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_BROKER, c"1".as_ptr());
        let mut resources = [topic, broker];
        for (count, what) in [(1, "while waiting for controller"), (2, "while waiting for broker")] {
            rd_kafka_DescribeConfigs(rk, resources.as_mut_ptr(), count, options, queue);
            timed_out(RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT, what);
            rd_kafka_AlterConfigs(rk, resources.as_mut_ptr(), count, options, queue);
            timed_out(RD_KAFKA_EVENT_ALTERCONFIGS_RESULT, what);
            rd_kafka_IncrementalAlterConfigs(rk, resources.as_mut_ptr(), count, options, queue);
            timed_out(RD_KAFKA_EVENT_INCREMENTALALTERCONFIGS_RESULT, what);
        }
        rd_kafka_ConfigResource_destroy_array(resources.as_mut_ptr(), 2);

        let what = "while waiting for controller";
        rd_kafka_CreateTopics(rk, null_mut(), 0, options, queue);
        timed_out(RD_KAFKA_EVENT_CREATETOPICS_RESULT, what);
        rd_kafka_DeleteTopics(rk, null_mut(), 0, options, queue);
        timed_out(RD_KAFKA_EVENT_DELETETOPICS_RESULT, what);
        rd_kafka_CreatePartitions(rk, null_mut(), 0, options, queue);
        timed_out(RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT, what);
        rd_kafka_DescribeConfigs(rk, null_mut(), 0, options, queue);
        timed_out(RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT, what);
        rd_kafka_CreateAcls(rk, null_mut(), 0, options, queue);
        timed_out(RD_KAFKA_EVENT_CREATEACLS_RESULT, what);
        rd_kafka_DeleteAcls(rk, null_mut(), 0, options, queue);
        timed_out(RD_KAFKA_EVENT_DELETEACLS_RESULT, what);
        rd_kafka_AdminOptions_destroy(options);
    }
}

/// Joins the group `connectors` as a worker of Kafka Connect does, and does not wait for the response.
fn join_as_worker(servers: &str) -> TcpStream {
    let mut request = Vec::new();
    let text = |request: &mut Vec<u8>, text: &str| {
        request.extend(i16::try_from(text.len()).unwrap().to_be_bytes());
        request.extend(text.as_bytes());
    };
    let number = |request: &mut Vec<u8>, number: i32| request.extend(number.to_be_bytes());
    // JoinGroup, version 2, with the correlation id 1.
    request.extend(ApiKey::JoinGroup.code().to_be_bytes());
    request.extend(2_i16.to_be_bytes());
    number(&mut request, 1);
    text(&mut request, "worker");
    text(&mut request, "connectors");
    // The timeouts of the session and of the rebalance.
    number(&mut request, 30_000);
    number(&mut request, 30_000);
    // It has no member id.
    text(&mut request, "");
    text(&mut request, "connect");
    // One protocol, without metadata.
    number(&mut request, 1);
    text(&mut request, "default");
    number(&mut request, 0);
    let mut worker = TcpStream::connect(servers).unwrap();
    worker.write_all(&i32::try_from(request.len()).unwrap().to_be_bytes()).unwrap();
    worker.write_all(&request).unwrap();
    worker
}

/// It was described with its members, as if they consumed.
#[test]
fn a_group_of_kafka_connect_is_no_consumer_group() {
    let broker = Broker::builder().memory().spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let _worker = join_as_worker(&servers);
    let admin = Asking::new(&servers, RD_KAFKA_PRODUCER, &[]);
    let mut refused = (RD_KAFKA_RESP_ERR_NO_ERROR, String::new());
    until("the worker has joined", || unsafe {
        let mut groups = [c"connectors".as_ptr()];
        rd_kafka_DescribeConsumerGroups(admin.rk, groups.as_mut_ptr(), 1, null(), admin.queue);
        let answer = admin.answer(RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT);
        let result = rd_kafka_event_DescribeConsumerGroups_result(answer.0);
        let described = array(rd_kafka_DescribeConsumerGroups_result_groups, result);
        assert_eq!(rd_kafka_ConsumerGroupDescription_member_count(described[0]), 0);
        let error = rd_kafka_ConsumerGroupDescription_error(described[0]);
        refused = (rd_kafka_error_code(error), text(rd_kafka_error_string(error)));
        !error.is_null()
    });
    let reason = "GroupId connectors is not a consumer group (connect).".to_owned();
    assert_eq!(refused, (RD_KAFKA_RESP_ERR__INVALID_ARG, reason));
}
