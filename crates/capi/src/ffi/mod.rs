//! C's types: the facts of `include/rdkafka.h` in Rust. `tests/layout.c` and the asserts here keep the two together.

#![allow(non_snake_case, reason = "C's names for C's values")]

pub mod c_strings;
mod callback_types;
mod error_codes;
pub(crate) mod exported_from_c;
pub mod memory;
mod opaque;
pub mod panic;
mod structs;
mod values;
mod varargs;
pub mod version;

pub use callback_types::*;
pub use error_codes::*;
pub use opaque::*;
#[cfg(target_pointer_width = "64")]
pub(crate) use structs::layout;
pub use structs::*;
pub use values::*;

pub use crate::admin::{
    rd_kafka_AclBinding_t, rd_kafka_AdminOptions_t, rd_kafka_AlterConsumerGroupOffsets_t,
    rd_kafka_AlterUserScramCredentials_result_response_t, rd_kafka_ConfigEntry_t, rd_kafka_ConfigResource_t,
    rd_kafka_ConsumerGroupDescription_t, rd_kafka_ConsumerGroupListing_t,
    rd_kafka_DeleteAcls_result_response_t, rd_kafka_DeleteConsumerGroupOffsets_t, rd_kafka_DeleteGroup_t,
    rd_kafka_DeleteRecords_t, rd_kafka_DeleteTopic_t, rd_kafka_ElectLeaders_t,
    rd_kafka_ListConsumerGroupOffsets_t, rd_kafka_ListOffsetsResultInfo_t, rd_kafka_MemberAssignment_t,
    rd_kafka_MemberDescription_t, rd_kafka_NewPartitions_t, rd_kafka_NewTopic_t, rd_kafka_Node_t,
    rd_kafka_ScramCredentialInfo_t, rd_kafka_TopicCollection_t, rd_kafka_TopicDescription_t,
    rd_kafka_TopicPartitionInfo_t, rd_kafka_UserScramCredentialAlteration_t,
    rd_kafka_UserScramCredentialsDescription_t, rd_kafka_acl_result_t, rd_kafka_group_result_t,
    rd_kafka_topic_partition_result_t, rd_kafka_topic_result_t,
};
pub use crate::conf::rd_kafka_conf_t;
pub use crate::conf::topic_conf::rd_kafka_topic_conf_t;
pub use crate::consume::group_metadata::rd_kafka_consumer_group_metadata_t;
pub use crate::errors::error_object::rd_kafka_error_t;
pub use crate::messages::headers::rd_kafka_headers_t;
pub use crate::messages::uuid::rd_kafka_Uuid_t;
pub use crate::queue::event::rd_kafka_event_t;
pub use crate::queue::queue_handle::rd_kafka_queue_t;
