//! The admin interface in C against Apache Kafka 4.1, for features that the Ottla broker does not have.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(clippy::wildcard_imports, reason = "C's names")]

#[path = "../../crates/capi/tests/asking/mod.rs"]
mod asking;

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};
use std::time::Duration;

use asking::{Asking, PATIENCE_MS, array, text};
use ottla_interop::{Failure, KafkaCluster, KafkaOptions, Peer, require};
use rdkafka::admin::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::partition_list::*;

#[test]
fn credentials_rules_elections_and_rights_through_c() -> Result<(), Failure> {
    require!(Peer::Java);
    let kafka = KafkaCluster::start_with(
        1,
        &KafkaOptions {
            properties: &[
                ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
                ("allow.everyone.if.no.acl.found", "true"),
                ("super.users", "User:ANONYMOUS"),
            ],
            ..KafkaOptions::default()
        },
    )?;
    let admin = Asking::new(&kafka.bootstrap(), RD_KAFKA_PRODUCER, &[]);
    unsafe {
        topics_with_rights(&admin);
        settings_are_replaced(&admin);
        credentials(&admin);
        rules(&admin);
        elections(&admin);
        offsets_of_committed_records(&admin);
    }
    Ok(())
}

/// Repeats until `done`: brokers learn of changes from the controller's log.
fn until(mut done: impl FnMut() -> bool) {
    for _ in 0..PATIENCE_MS / 50 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("not done within {PATIENCE_MS} ms");
}

unsafe fn topics_with_rights(admin: &Asking) {
    unsafe {
        let topic = rd_kafka_NewTopic_new(c"orders".as_ptr(), 2, -1, null_mut(), 0);
        for partition in [0, 1] {
            let mut brokers = [1];
            let assigned = rd_kafka_NewTopic_set_replica_assignment(
                topic,
                partition,
                brokers.as_mut_ptr(),
                1,
                null_mut(),
                0,
            );
            assert_eq!(assigned, RD_KAFKA_RESP_ERR_NO_ERROR);
        }
        let options = rd_kafka_AdminOptions_new(admin.rk, RD_KAFKA_ADMIN_OP_CREATETOPICS);
        let set = rd_kafka_AdminOptions_set_operation_timeout(options, PATIENCE_MS, null_mut(), 0);
        assert_eq!(set, RD_KAFKA_RESP_ERR_NO_ERROR);
        for (dry, again) in [(1, RD_KAFKA_RESP_ERR_NO_ERROR), (0, RD_KAFKA_RESP_ERR_NO_ERROR)] {
            rd_kafka_AdminOptions_set_validate_only(options, dry, null_mut(), 0);
            rd_kafka_CreateTopics(admin.rk, [topic].as_mut_ptr(), 1, options, admin.queue);
            let answer = admin.answer(RD_KAFKA_EVENT_CREATETOPICS_RESULT);
            let result = rd_kafka_event_CreateTopics_result(answer.0);
            let created = array(rd_kafka_CreateTopics_result_topics, result);
            assert_eq!(rd_kafka_topic_result_error(created[0]), again);
        }
        rd_kafka_CreateTopics(admin.rk, [topic].as_mut_ptr(), 1, null(), admin.queue);
        rd_kafka_AdminOptions_destroy(options);
        rd_kafka_NewTopic_destroy(topic);
        let answer = admin.answer(RD_KAFKA_EVENT_CREATETOPICS_RESULT);
        let created =
            array(rd_kafka_CreateTopics_result_topics, rd_kafka_event_CreateTopics_result(answer.0));
        assert_eq!(text(rd_kafka_topic_result_error_string(created[0])), "Topic 'orders' already exists.");

        let options = rd_kafka_AdminOptions_new(admin.rk, RD_KAFKA_ADMIN_OP_ANY);
        assert!(rd_kafka_AdminOptions_set_include_authorized_operations(options, 1).is_null());
        let names = [c"orders".as_ptr()];
        let topics = rd_kafka_TopicCollection_of_topic_names(names.as_ptr().cast_mut(), 1);
        until(|| {
            rd_kafka_DescribeTopics(admin.rk, topics, options, admin.queue);
            let answer = admin.answer(RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT);
            let result = rd_kafka_event_DescribeTopics_result(answer.0);
            let described = array(rd_kafka_DescribeTopics_result_topics, result);
            let mut count = 0;
            let may = rd_kafka_TopicDescription_authorized_operations(described[0], &raw mut count);
            let may: Vec<_> = (0..count).map(|index| *may.add(index)).collect();
            may.contains(&RD_KAFKA_ACL_OPERATION_WRITE)
                && rd_kafka_TopicDescription_is_internal(described[0]) == 0
                && !rd_kafka_TopicDescription_topic_id(described[0]).is_null()
        });
        rd_kafka_TopicCollection_destroy(topics);
        rd_kafka_DescribeCluster(admin.rk, options, admin.queue);
        rd_kafka_AdminOptions_destroy(options);
        let answer = admin.answer(RD_KAFKA_EVENT_DESCRIBECLUSTER_RESULT);
        assert_eq!(answer.error().0, RD_KAFKA_RESP_ERR_NO_ERROR);
        let result = rd_kafka_event_DescribeCluster_result(answer.0);
        let mut count = 0;
        let may = rd_kafka_DescribeCluster_result_authorized_operations(result, &raw mut count);
        assert!(count > 3 && !text(rd_kafka_AclOperation_name(*may)).is_empty());
    }
}

unsafe fn settings_are_replaced(admin: &Asking) {
    unsafe {
        let resource = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, c"orders".as_ptr());
        let (name, value) = (c"segment.ms".as_ptr(), c"70000".as_ptr());
        assert_eq!(rd_kafka_ConfigResource_set_config(resource, name, value), RD_KAFKA_RESP_ERR_NO_ERROR);
        let nothing = rd_kafka_ConfigResource_set_config(resource, name, null());
        assert_eq!(nothing, RD_KAFKA_RESP_ERR__INVALID_ARG);
        let wrong = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, c"none".as_ptr());
        rd_kafka_AlterConfigs(admin.rk, [resource, wrong].as_mut_ptr(), 2, null(), admin.queue);
        rd_kafka_ConfigResource_destroy_array([resource, wrong].as_mut_ptr(), 2);
        let answer = admin.answer(RD_KAFKA_EVENT_ALTERCONFIGS_RESULT);
        let result = rd_kafka_event_AlterConfigs_result(answer.0);
        let altered = array(rd_kafka_AlterConfigs_result_resources, result);
        assert_eq!(rd_kafka_ConfigResource_error(altered[0]), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(rd_kafka_ConfigResource_error(altered[1]), RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
        assert!(!text(rd_kafka_ConfigResource_error_string(altered[1])).is_empty());
    }
}

unsafe fn credentials(admin: &Asking) {
    unsafe {
        let mechanism = RD_KAFKA_SCRAM_MECHANISM_SHA_256;
        let password = c"wonderland".to_bytes();
        let (start, len) = (password.as_ptr(), password.len());
        let user = c"alice".as_ptr();
        let set = rd_kafka_UserScramCredentialUpsertion_new(user, mechanism, 8192, start, len, null(), 0);
        let gone = rd_kafka_UserScramCredentialDeletion_new(c"bob".as_ptr(), mechanism);
        rd_kafka_AlterUserScramCredentials(admin.rk, [set, gone].as_mut_ptr(), 2, null(), admin.queue);
        rd_kafka_UserScramCredentialAlteration_destroy_array([set, gone].as_mut_ptr(), 2);
        let answer = admin.answer(RD_KAFKA_EVENT_ALTERUSERSCRAMCREDENTIALS_RESULT);
        let result = rd_kafka_event_AlterUserScramCredentials_result(answer.0);
        let altered = array(rd_kafka_AlterUserScramCredentials_result_responses, result);
        let of = |index: usize| {
            let error = rd_kafka_AlterUserScramCredentials_result_response_error(altered[index]);
            let user = rd_kafka_AlterUserScramCredentials_result_response_user(altered[index]);
            (text(user), rd_kafka_error_code(error))
        };
        assert_eq!(of(0), ("alice".to_owned(), RD_KAFKA_RESP_ERR_NO_ERROR));
        assert_eq!(of(1), ("bob".to_owned(), RD_KAFKA_RESP_ERR_RESOURCE_NOT_FOUND));

        let users = [c"alice".as_ptr(), c"bob".as_ptr()];
        until(|| {
            let users = users.as_ptr().cast_mut();
            rd_kafka_DescribeUserScramCredentials(admin.rk, users, 2, null(), admin.queue);
            let answer = admin.answer(RD_KAFKA_EVENT_DESCRIBEUSERSCRAMCREDENTIALS_RESULT);
            let result = rd_kafka_event_DescribeUserScramCredentials_result(answer.0);
            let described = array(rd_kafka_DescribeUserScramCredentials_result_descriptions, result);
            let error = rd_kafka_UserScramCredentialsDescription_error(described[1]);
            assert_eq!(rd_kafka_error_code(error), RD_KAFKA_RESP_ERR_RESOURCE_NOT_FOUND);
            let alice = described[0];
            assert_eq!(text(rd_kafka_UserScramCredentialsDescription_user(alice)), "alice");
            if rd_kafka_UserScramCredentialsDescription_scramcredentialinfo_count(alice) == 0 {
                return false;
            }
            let info = rd_kafka_UserScramCredentialsDescription_scramcredentialinfo(alice, 0);
            assert_eq!(rd_kafka_ScramCredentialInfo_mechanism(info), mechanism);
            assert_eq!(rd_kafka_ScramCredentialInfo_iterations(info), 8192);
            true
        });
    }
}

unsafe fn rules(admin: &Asking) {
    unsafe {
        let rule = |name: &CStr| {
            let names = [name.as_ptr(), c"User:alice".as_ptr(), c"*".as_ptr()];
            rd_kafka_AclBinding_new(
                RD_KAFKA_RESOURCE_TOPIC,
                names[0],
                RD_KAFKA_RESOURCE_PATTERN_PREFIXED,
                names[1],
                names[2],
                RD_KAFKA_ACL_OPERATION_READ,
                RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW,
                null_mut(),
                0,
            )
        };
        let mut rules = [rule(c"ord"), rule(c"")];
        rd_kafka_CreateAcls(admin.rk, rules.as_mut_ptr(), 2, null(), admin.queue);
        rd_kafka_AclBinding_destroy_array(rules.as_mut_ptr(), 2);
        let answer = admin.answer(RD_KAFKA_EVENT_CREATEACLS_RESULT);
        let created = array(rd_kafka_CreateAcls_result_acls, rd_kafka_event_CreateAcls_result(answer.0));
        assert!(rd_kafka_acl_result_error(created[0]).is_null());
        let refused = rd_kafka_error_code(rd_kafka_acl_result_error(created[1]));
        assert_eq!(refused, RD_KAFKA_RESP_ERR_INVALID_REQUEST);

        let filter = rd_kafka_AclBindingFilter_new(
            RD_KAFKA_RESOURCE_TOPIC,
            c"orders".as_ptr(),
            RD_KAFKA_RESOURCE_PATTERN_MATCH,
            null(),
            null(),
            RD_KAFKA_ACL_OPERATION_ANY,
            RD_KAFKA_ACL_PERMISSION_TYPE_ANY,
            null_mut(),
            0,
        );
        until(|| {
            rd_kafka_DescribeAcls(admin.rk, filter, null(), admin.queue);
            let answer = admin.answer(RD_KAFKA_EVENT_DESCRIBEACLS_RESULT);
            let result = rd_kafka_event_DescribeAcls_result(answer.0);
            let found = array(rd_kafka_DescribeAcls_result_acls, result);
            found.first().is_some_and(|found| is_the_rule(found))
        });
        rd_kafka_DeleteAcls(admin.rk, [filter].as_mut_ptr(), 1, null(), admin.queue);
        rd_kafka_AclBinding_destroy(filter);
        let answer = admin.answer(RD_KAFKA_EVENT_DELETEACLS_RESULT);
        let result = rd_kafka_event_DeleteAcls_result(answer.0);
        let deleted = array(rd_kafka_DeleteAcls_result_responses, result);
        assert!(rd_kafka_DeleteAcls_result_response_error(deleted[0]).is_null());
        let mut count = 0;
        let matching = rd_kafka_DeleteAcls_result_response_matching_acls(deleted[0], &raw mut count);
        assert!(count == 1 && is_the_rule(&**matching));
        assert!(rd_kafka_AclBinding_error(*matching).is_null());
    }
}

unsafe fn is_the_rule(rule: &rd_kafka_AclBinding_t) -> bool {
    unsafe {
        let names: [*const c_char; 3] = [
            rd_kafka_AclBinding_name(rule),
            rd_kafka_AclBinding_principal(rule),
            rd_kafka_AclBinding_host(rule),
        ];
        let numbers = [
            rd_kafka_AclBinding_restype(rule),
            rd_kafka_AclBinding_resource_pattern_type(rule),
            rd_kafka_AclBinding_operation(rule),
            rd_kafka_AclBinding_permission_type(rule),
        ];
        let named = [
            text(rd_kafka_ResourceType_name(numbers[0])),
            text(rd_kafka_ResourcePatternType_name(numbers[1])),
            text(rd_kafka_AclOperation_name(numbers[2])),
            text(rd_kafka_AclPermissionType_name(numbers[3])),
        ];
        names.map(text) == ["ord", "User:alice", "*"] && named == ["TOPIC", "PREFIXED", "READ", "ALLOW"]
    }
}

unsafe fn elections(admin: &Asking) {
    unsafe {
        let asked = rd_kafka_topic_partition_list_new(2);
        for partition in [0, 9] {
            rd_kafka_topic_partition_list_add(asked, c"orders".as_ptr(), partition);
        }
        let request = rd_kafka_ElectLeaders_new(RD_KAFKA_ELECTION_TYPE_PREFERRED, asked);
        rd_kafka_topic_partition_list_destroy(asked);
        rd_kafka_ElectLeaders(admin.rk, request, null(), admin.queue);
        rd_kafka_ElectLeaders_destroy(request);
        let answer = admin.answer(RD_KAFKA_EVENT_ELECTLEADERS_RESULT);
        let result = rd_kafka_event_ElectLeaders_result(answer.0);
        let elected = array(rd_kafka_ElectLeaders_result_partitions, result);
        let of = |index: usize| {
            let partition = &*rd_kafka_topic_partition_result_partition(elected[index]);
            let error = rd_kafka_topic_partition_result_error(elected[index]);
            assert_eq!(partition.err, rd_kafka_error_code(error));
            (partition.partition, partition.err)
        };
        assert_eq!(of(0), (0, RD_KAFKA_RESP_ERR_ELECTION_NOT_NEEDED));
        assert_eq!(of(1), (9, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART));
    }
}

unsafe fn offsets_of_committed_records(admin: &Asking) {
    unsafe {
        let options = rd_kafka_AdminOptions_new(admin.rk, RD_KAFKA_ADMIN_OP_LISTOFFSETS);
        let committed = RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED;
        assert!(rd_kafka_AdminOptions_set_isolation_level(options, committed).is_null());
        let wanted = rd_kafka_topic_partition_list_new(1);
        let element = rd_kafka_topic_partition_list_add(wanted, c"orders".as_ptr(), 0);
        (*element).offset = RD_KAFKA_OFFSET_SPEC_MAX_TIMESTAMP.into();
        rd_kafka_ListOffsets(admin.rk, wanted, options, admin.queue);
        rd_kafka_topic_partition_list_destroy(wanted);
        rd_kafka_AdminOptions_destroy(options);
        let answer = admin.answer(RD_KAFKA_EVENT_LISTOFFSETS_RESULT);
        let result = rd_kafka_event_ListOffsets_result(answer.0);
        let infos = array(rd_kafka_ListOffsets_result_infos, result);
        let found = &*rd_kafka_ListOffsetsResultInfo_topic_partition(infos[0]);
        // The topic has no records.
        assert_eq!((found.offset, found.err), (-1, RD_KAFKA_RESP_ERR_NO_ERROR));
    }
}
