//! The enums of the headers, as plain integers: a program may hand over any value.

use std::ffi::c_int;

pub type rd_kafka_type_t = c_int;
pub const RD_KAFKA_PRODUCER: rd_kafka_type_t = 0;
pub const RD_KAFKA_CONSUMER: rd_kafka_type_t = 1;

pub type rd_kafka_timestamp_type_t = c_int;
pub const RD_KAFKA_TIMESTAMP_NOT_AVAILABLE: rd_kafka_timestamp_type_t = 0;
pub const RD_KAFKA_TIMESTAMP_CREATE_TIME: rd_kafka_timestamp_type_t = 1;
pub const RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME: rd_kafka_timestamp_type_t = 2;

pub type rd_kafka_vtype_t = c_int;
pub const RD_KAFKA_VTYPE_END: rd_kafka_vtype_t = 0;
pub const RD_KAFKA_VTYPE_TOPIC: rd_kafka_vtype_t = 1;
pub const RD_KAFKA_VTYPE_RKT: rd_kafka_vtype_t = 2;
pub const RD_KAFKA_VTYPE_PARTITION: rd_kafka_vtype_t = 3;
pub const RD_KAFKA_VTYPE_VALUE: rd_kafka_vtype_t = 4;
pub const RD_KAFKA_VTYPE_KEY: rd_kafka_vtype_t = 5;
pub const RD_KAFKA_VTYPE_OPAQUE: rd_kafka_vtype_t = 6;
pub const RD_KAFKA_VTYPE_MSGFLAGS: rd_kafka_vtype_t = 7;
pub const RD_KAFKA_VTYPE_TIMESTAMP: rd_kafka_vtype_t = 8;
pub const RD_KAFKA_VTYPE_HEADER: rd_kafka_vtype_t = 9;
pub const RD_KAFKA_VTYPE_HEADERS: rd_kafka_vtype_t = 10;

pub type rd_kafka_msg_status_t = c_int;
pub const RD_KAFKA_MSG_STATUS_NOT_PERSISTED: rd_kafka_msg_status_t = 0;
pub const RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED: rd_kafka_msg_status_t = 1;
pub const RD_KAFKA_MSG_STATUS_PERSISTED: rd_kafka_msg_status_t = 2;

pub type rd_kafka_conf_res_t = c_int;
pub const RD_KAFKA_CONF_UNKNOWN: rd_kafka_conf_res_t = -2;
pub const RD_KAFKA_CONF_INVALID: rd_kafka_conf_res_t = -1;
pub const RD_KAFKA_CONF_OK: rd_kafka_conf_res_t = 0;

pub type rd_kafka_cert_type_t = c_int;
pub const RD_KAFKA_CERT_PUBLIC_KEY: rd_kafka_cert_type_t = 0;
pub const RD_KAFKA_CERT_PRIVATE_KEY: rd_kafka_cert_type_t = 1;
pub const RD_KAFKA_CERT_CA: rd_kafka_cert_type_t = 2;
pub const RD_KAFKA_CERT__CNT: rd_kafka_cert_type_t = 3;

pub type rd_kafka_cert_enc_t = c_int;
pub const RD_KAFKA_CERT_ENC_PKCS12: rd_kafka_cert_enc_t = 0;
pub const RD_KAFKA_CERT_ENC_DER: rd_kafka_cert_enc_t = 1;
pub const RD_KAFKA_CERT_ENC_PEM: rd_kafka_cert_enc_t = 2;
pub const RD_KAFKA_CERT_ENC__CNT: rd_kafka_cert_enc_t = 3;

pub type rd_kafka_consumer_group_state_t = c_int;
pub const RD_KAFKA_CONSUMER_GROUP_STATE_UNKNOWN: rd_kafka_consumer_group_state_t = 0;
pub const RD_KAFKA_CONSUMER_GROUP_STATE_PREPARING_REBALANCE: rd_kafka_consumer_group_state_t = 1;
pub const RD_KAFKA_CONSUMER_GROUP_STATE_COMPLETING_REBALANCE: rd_kafka_consumer_group_state_t = 2;
pub const RD_KAFKA_CONSUMER_GROUP_STATE_STABLE: rd_kafka_consumer_group_state_t = 3;
pub const RD_KAFKA_CONSUMER_GROUP_STATE_DEAD: rd_kafka_consumer_group_state_t = 4;
pub const RD_KAFKA_CONSUMER_GROUP_STATE_EMPTY: rd_kafka_consumer_group_state_t = 5;
pub const RD_KAFKA_CONSUMER_GROUP_STATE__CNT: rd_kafka_consumer_group_state_t = 6;

pub type rd_kafka_consumer_group_type_t = c_int;
pub const RD_KAFKA_CONSUMER_GROUP_TYPE_UNKNOWN: rd_kafka_consumer_group_type_t = 0;
pub const RD_KAFKA_CONSUMER_GROUP_TYPE_CONSUMER: rd_kafka_consumer_group_type_t = 1;
pub const RD_KAFKA_CONSUMER_GROUP_TYPE_CLASSIC: rd_kafka_consumer_group_type_t = 2;
pub const RD_KAFKA_CONSUMER_GROUP_TYPE__CNT: rd_kafka_consumer_group_type_t = 3;

pub type rd_kafka_thread_type_t = c_int;
pub const RD_KAFKA_THREAD_MAIN: rd_kafka_thread_type_t = 0;
pub const RD_KAFKA_THREAD_BACKGROUND: rd_kafka_thread_type_t = 1;
pub const RD_KAFKA_THREAD_BROKER: rd_kafka_thread_type_t = 2;

pub type rd_kafka_admin_op_t = c_int;
pub const RD_KAFKA_ADMIN_OP_ANY: rd_kafka_admin_op_t = 0;
pub const RD_KAFKA_ADMIN_OP_CREATETOPICS: rd_kafka_admin_op_t = 1;
pub const RD_KAFKA_ADMIN_OP_DELETETOPICS: rd_kafka_admin_op_t = 2;
pub const RD_KAFKA_ADMIN_OP_CREATEPARTITIONS: rd_kafka_admin_op_t = 3;
pub const RD_KAFKA_ADMIN_OP_ALTERCONFIGS: rd_kafka_admin_op_t = 4;
pub const RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS: rd_kafka_admin_op_t = 5;
pub const RD_KAFKA_ADMIN_OP_DELETERECORDS: rd_kafka_admin_op_t = 6;
pub const RD_KAFKA_ADMIN_OP_DELETEGROUPS: rd_kafka_admin_op_t = 7;
pub const RD_KAFKA_ADMIN_OP_DELETECONSUMERGROUPOFFSETS: rd_kafka_admin_op_t = 8;
pub const RD_KAFKA_ADMIN_OP_CREATEACLS: rd_kafka_admin_op_t = 9;
pub const RD_KAFKA_ADMIN_OP_DESCRIBEACLS: rd_kafka_admin_op_t = 10;
pub const RD_KAFKA_ADMIN_OP_DELETEACLS: rd_kafka_admin_op_t = 11;
pub const RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPS: rd_kafka_admin_op_t = 12;
pub const RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS: rd_kafka_admin_op_t = 13;
pub const RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS: rd_kafka_admin_op_t = 14;
pub const RD_KAFKA_ADMIN_OP_ALTERCONSUMERGROUPOFFSETS: rd_kafka_admin_op_t = 15;
pub const RD_KAFKA_ADMIN_OP_INCREMENTALALTERCONFIGS: rd_kafka_admin_op_t = 16;
pub const RD_KAFKA_ADMIN_OP_DESCRIBEUSERSCRAMCREDENTIALS: rd_kafka_admin_op_t = 17;
pub const RD_KAFKA_ADMIN_OP_ALTERUSERSCRAMCREDENTIALS: rd_kafka_admin_op_t = 18;
pub const RD_KAFKA_ADMIN_OP_DESCRIBETOPICS: rd_kafka_admin_op_t = 19;
pub const RD_KAFKA_ADMIN_OP_DESCRIBECLUSTER: rd_kafka_admin_op_t = 20;
pub const RD_KAFKA_ADMIN_OP_LISTOFFSETS: rd_kafka_admin_op_t = 21;
pub const RD_KAFKA_ADMIN_OP_ELECTLEADERS: rd_kafka_admin_op_t = 22;
pub const RD_KAFKA_ADMIN_OP__CNT: rd_kafka_admin_op_t = 23;

pub type rd_kafka_IsolationLevel_t = c_int;
pub const RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED: rd_kafka_IsolationLevel_t = 0;
pub const RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED: rd_kafka_IsolationLevel_t = 1;

pub type rd_kafka_AclOperation_t = c_int;
pub const RD_KAFKA_ACL_OPERATION_UNKNOWN: rd_kafka_AclOperation_t = 0;
pub const RD_KAFKA_ACL_OPERATION_ANY: rd_kafka_AclOperation_t = 1;
pub const RD_KAFKA_ACL_OPERATION_ALL: rd_kafka_AclOperation_t = 2;
pub const RD_KAFKA_ACL_OPERATION_READ: rd_kafka_AclOperation_t = 3;
pub const RD_KAFKA_ACL_OPERATION_WRITE: rd_kafka_AclOperation_t = 4;
pub const RD_KAFKA_ACL_OPERATION_CREATE: rd_kafka_AclOperation_t = 5;
pub const RD_KAFKA_ACL_OPERATION_DELETE: rd_kafka_AclOperation_t = 6;
pub const RD_KAFKA_ACL_OPERATION_ALTER: rd_kafka_AclOperation_t = 7;
pub const RD_KAFKA_ACL_OPERATION_DESCRIBE: rd_kafka_AclOperation_t = 8;
pub const RD_KAFKA_ACL_OPERATION_CLUSTER_ACTION: rd_kafka_AclOperation_t = 9;
pub const RD_KAFKA_ACL_OPERATION_DESCRIBE_CONFIGS: rd_kafka_AclOperation_t = 10;
pub const RD_KAFKA_ACL_OPERATION_ALTER_CONFIGS: rd_kafka_AclOperation_t = 11;
pub const RD_KAFKA_ACL_OPERATION_IDEMPOTENT_WRITE: rd_kafka_AclOperation_t = 12;
pub const RD_KAFKA_ACL_OPERATION__CNT: rd_kafka_AclOperation_t = 13;

pub type rd_kafka_ConfigSource_t = c_int;
pub const RD_KAFKA_CONFIG_SOURCE_UNKNOWN_CONFIG: rd_kafka_ConfigSource_t = 0;
pub const RD_KAFKA_CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG: rd_kafka_ConfigSource_t = 1;
pub const RD_KAFKA_CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG: rd_kafka_ConfigSource_t = 2;
pub const RD_KAFKA_CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG: rd_kafka_ConfigSource_t = 3;
pub const RD_KAFKA_CONFIG_SOURCE_STATIC_BROKER_CONFIG: rd_kafka_ConfigSource_t = 4;
pub const RD_KAFKA_CONFIG_SOURCE_DEFAULT_CONFIG: rd_kafka_ConfigSource_t = 5;
pub const RD_KAFKA_CONFIG_SOURCE_GROUP_CONFIG: rd_kafka_ConfigSource_t = 8;
pub const RD_KAFKA_CONFIG_SOURCE__CNT: rd_kafka_ConfigSource_t = 9;

pub type rd_kafka_ResourceType_t = c_int;
pub const RD_KAFKA_RESOURCE_UNKNOWN: rd_kafka_ResourceType_t = 0;
pub const RD_KAFKA_RESOURCE_ANY: rd_kafka_ResourceType_t = 1;
pub const RD_KAFKA_RESOURCE_TOPIC: rd_kafka_ResourceType_t = 2;
pub const RD_KAFKA_RESOURCE_GROUP: rd_kafka_ResourceType_t = 3;
pub const RD_KAFKA_RESOURCE_BROKER: rd_kafka_ResourceType_t = 4;
pub const RD_KAFKA_RESOURCE_TRANSACTIONAL_ID: rd_kafka_ResourceType_t = 5;
pub const RD_KAFKA_RESOURCE__CNT: rd_kafka_ResourceType_t = 6;

pub type rd_kafka_ResourcePatternType_t = c_int;
pub const RD_KAFKA_RESOURCE_PATTERN_UNKNOWN: rd_kafka_ResourcePatternType_t = 0;
pub const RD_KAFKA_RESOURCE_PATTERN_ANY: rd_kafka_ResourcePatternType_t = 1;
pub const RD_KAFKA_RESOURCE_PATTERN_MATCH: rd_kafka_ResourcePatternType_t = 2;
pub const RD_KAFKA_RESOURCE_PATTERN_LITERAL: rd_kafka_ResourcePatternType_t = 3;
pub const RD_KAFKA_RESOURCE_PATTERN_PREFIXED: rd_kafka_ResourcePatternType_t = 4;
pub const RD_KAFKA_RESOURCE_PATTERN_TYPE__CNT: rd_kafka_ResourcePatternType_t = 5;

pub type rd_kafka_AlterConfigOpType_t = c_int;
pub const RD_KAFKA_ALTER_CONFIG_OP_TYPE_SET: rd_kafka_AlterConfigOpType_t = 0;
pub const RD_KAFKA_ALTER_CONFIG_OP_TYPE_DELETE: rd_kafka_AlterConfigOpType_t = 1;
pub const RD_KAFKA_ALTER_CONFIG_OP_TYPE_APPEND: rd_kafka_AlterConfigOpType_t = 2;
pub const RD_KAFKA_ALTER_CONFIG_OP_TYPE_SUBTRACT: rd_kafka_AlterConfigOpType_t = 3;
pub const RD_KAFKA_ALTER_CONFIG_OP_TYPE__CNT: rd_kafka_AlterConfigOpType_t = 4;

pub type rd_kafka_OffsetSpec_t = c_int;
pub const RD_KAFKA_OFFSET_SPEC_MAX_TIMESTAMP: rd_kafka_OffsetSpec_t = -3;
pub const RD_KAFKA_OFFSET_SPEC_EARLIEST: rd_kafka_OffsetSpec_t = -2;
pub const RD_KAFKA_OFFSET_SPEC_LATEST: rd_kafka_OffsetSpec_t = -1;

pub type rd_kafka_ScramMechanism_t = c_int;
pub const RD_KAFKA_SCRAM_MECHANISM_UNKNOWN: rd_kafka_ScramMechanism_t = 0;
pub const RD_KAFKA_SCRAM_MECHANISM_SHA_256: rd_kafka_ScramMechanism_t = 1;
pub const RD_KAFKA_SCRAM_MECHANISM_SHA_512: rd_kafka_ScramMechanism_t = 2;
pub const RD_KAFKA_SCRAM_MECHANISM__CNT: rd_kafka_ScramMechanism_t = 3;

pub type rd_kafka_AclPermissionType_t = c_int;
pub const RD_KAFKA_ACL_PERMISSION_TYPE_UNKNOWN: rd_kafka_AclPermissionType_t = 0;
pub const RD_KAFKA_ACL_PERMISSION_TYPE_ANY: rd_kafka_AclPermissionType_t = 1;
pub const RD_KAFKA_ACL_PERMISSION_TYPE_DENY: rd_kafka_AclPermissionType_t = 2;
pub const RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW: rd_kafka_AclPermissionType_t = 3;
pub const RD_KAFKA_ACL_PERMISSION_TYPE__CNT: rd_kafka_AclPermissionType_t = 4;

pub type rd_kafka_ElectionType_t = c_int;
pub const RD_KAFKA_ELECTION_TYPE_PREFERRED: rd_kafka_ElectionType_t = 0;
pub const RD_KAFKA_ELECTION_TYPE_UNCLEAN: rd_kafka_ElectionType_t = 1;

pub type rd_kafka_share_AcknowledgeType_t = c_int;
pub const RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_ACCEPT: rd_kafka_share_AcknowledgeType_t = 1;
pub const RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_RELEASE: rd_kafka_share_AcknowledgeType_t = 2;
pub const RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_REJECT: rd_kafka_share_AcknowledgeType_t = 3;

/// The type of an event, and the mask of `rd_kafka_conf_set_events`.
pub type rd_kafka_event_type_t = c_int;
pub const RD_KAFKA_EVENT_NONE: rd_kafka_event_type_t = 0x0;
pub const RD_KAFKA_EVENT_DR: rd_kafka_event_type_t = 0x1;
pub const RD_KAFKA_EVENT_FETCH: rd_kafka_event_type_t = 0x2;
pub const RD_KAFKA_EVENT_LOG: rd_kafka_event_type_t = 0x4;
pub const RD_KAFKA_EVENT_ERROR: rd_kafka_event_type_t = 0x8;
pub const RD_KAFKA_EVENT_REBALANCE: rd_kafka_event_type_t = 0x10;
pub const RD_KAFKA_EVENT_OFFSET_COMMIT: rd_kafka_event_type_t = 0x20;
pub const RD_KAFKA_EVENT_STATS: rd_kafka_event_type_t = 0x40;
pub const RD_KAFKA_EVENT_CREATETOPICS_RESULT: rd_kafka_event_type_t = 100;
pub const RD_KAFKA_EVENT_DELETETOPICS_RESULT: rd_kafka_event_type_t = 101;
pub const RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT: rd_kafka_event_type_t = 102;
pub const RD_KAFKA_EVENT_ALTERCONFIGS_RESULT: rd_kafka_event_type_t = 103;
pub const RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT: rd_kafka_event_type_t = 104;
pub const RD_KAFKA_EVENT_DELETERECORDS_RESULT: rd_kafka_event_type_t = 105;
pub const RD_KAFKA_EVENT_DELETEGROUPS_RESULT: rd_kafka_event_type_t = 106;
pub const RD_KAFKA_EVENT_DELETECONSUMERGROUPOFFSETS_RESULT: rd_kafka_event_type_t = 107;
pub const RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH: rd_kafka_event_type_t = 0x100;
pub const RD_KAFKA_EVENT_BACKGROUND: rd_kafka_event_type_t = 0x200;
pub const RD_KAFKA_EVENT_CREATEACLS_RESULT: rd_kafka_event_type_t = 0x400;
pub const RD_KAFKA_EVENT_DESCRIBEACLS_RESULT: rd_kafka_event_type_t = 0x800;
pub const RD_KAFKA_EVENT_DELETEACLS_RESULT: rd_kafka_event_type_t = 0x1000;
pub const RD_KAFKA_EVENT_LISTCONSUMERGROUPS_RESULT: rd_kafka_event_type_t = 0x2000;
pub const RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT: rd_kafka_event_type_t = 0x4000;
pub const RD_KAFKA_EVENT_LISTCONSUMERGROUPOFFSETS_RESULT: rd_kafka_event_type_t = 0x8000;
pub const RD_KAFKA_EVENT_ALTERCONSUMERGROUPOFFSETS_RESULT: rd_kafka_event_type_t = 0x10000;
pub const RD_KAFKA_EVENT_INCREMENTALALTERCONFIGS_RESULT: rd_kafka_event_type_t = 0x20000;
pub const RD_KAFKA_EVENT_DESCRIBEUSERSCRAMCREDENTIALS_RESULT: rd_kafka_event_type_t = 0x40000;
pub const RD_KAFKA_EVENT_ALTERUSERSCRAMCREDENTIALS_RESULT: rd_kafka_event_type_t = 0x80000;
pub const RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT: rd_kafka_event_type_t = 0x10_0000;
pub const RD_KAFKA_EVENT_DESCRIBECLUSTER_RESULT: rd_kafka_event_type_t = 0x20_0000;
pub const RD_KAFKA_EVENT_LISTOFFSETS_RESULT: rd_kafka_event_type_t = 0x40_0000;
pub const RD_KAFKA_EVENT_ELECTLEADERS_RESULT: rd_kafka_event_type_t = 0x80_0000;

pub const RD_KAFKA_VERSION: c_int = 0x0210_00ff;

pub const RD_KAFKA_PARTITION_UA: i32 = -1;
pub const RD_KAFKA_OFFSET_BEGINNING: i64 = -2;
pub const RD_KAFKA_OFFSET_END: i64 = -1;
pub const RD_KAFKA_OFFSET_STORED: i64 = -1000;
pub const RD_KAFKA_OFFSET_INVALID: i64 = -1001;
/// `RD_KAFKA_OFFSET_TAIL(n)` is this less n.
pub const RD_KAFKA_OFFSET_TAIL_BASE: i64 = -2000;

pub const RD_KAFKA_MSG_F_FREE: c_int = 0x1;
pub const RD_KAFKA_MSG_F_COPY: c_int = 0x2;
pub const RD_KAFKA_MSG_F_BLOCK: c_int = 0x4;
pub const RD_KAFKA_MSG_F_PARTITION: c_int = 0x8;

pub const RD_KAFKA_PURGE_F_QUEUE: c_int = 0x1;
pub const RD_KAFKA_PURGE_F_INFLIGHT: c_int = 0x2;
pub const RD_KAFKA_PURGE_F_NON_BLOCKING: c_int = 0x4;

pub const RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE: c_int = 0x8;
