//! DescribeClientQuotas: the quotas of users, client ids and IP addresses that a filter matches.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DescribeClientQuotas, versions = "0-1", flexible = "1+", response = DescribeClientQuotasResponse)]
pub struct DescribeClientQuotasRequest {
    pub components: Vec<ComponentData>,
    pub strict: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ComponentData {
    pub entity_type: String,
    pub match_type: i8,
    pub r#match: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-1", flexible = "1+")]
pub struct DescribeClientQuotasResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
    pub entries: Option<Vec<EntryData>>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct EntryData {
    pub entity: Vec<EntityData>,
    pub values: Vec<ValueData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct EntityData {
    pub entity_type: String,
    pub entity_name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ValueData {
    pub key: String,
    pub value: f64,
}
