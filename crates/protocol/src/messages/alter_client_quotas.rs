//! AlterClientQuotas: sets and removes quotas.

use ottla_protocol_derive::Message;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = AlterClientQuotas, versions = "0-1", flexible = "1+", response = AlterClientQuotasResponse)]
pub struct AlterClientQuotasRequest {
    pub entries: Vec<EntryData>,
    pub validate_only: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct EntryData {
    pub entity: Vec<EntityData>,
    pub ops: Vec<OpData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct EntityData {
    pub entity_type: String,
    pub entity_name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OpData {
    pub key: String,
    pub value: f64,
    pub remove: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-1", flexible = "1+")]
pub struct AlterClientQuotasResponse {
    pub throttle_time_ms: i32,
    pub entries: Vec<results::EntryData>,
}

/// The entries of the response; those of the request have the same name.
pub mod results {
    use ottla_protocol_derive::Message;

    use super::EntityData;
    use crate::error_code::ErrorCode;

    #[derive(Clone, Debug, PartialEq, Message)]
    pub struct EntryData {
        pub error_code: ErrorCode,
        pub error_message: Option<String>,
        pub entity: Vec<EntityData>,
    }
}
