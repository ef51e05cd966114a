//! Kafka's API keys, and the requests that this crate implements.

use std::fmt;
use std::io;

use bytes::Bytes;
use ottla_wire::Chain;

use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Message, Request};
use crate::messages::{MESSAGES, REQUESTS};
use crate::schema::{Schema, Versions};

macro_rules! api_keys {
    ($($name:ident = $code:literal,)*) => {
        /// The number that identifies a request type.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[allow(missing_docs, reason = "the names are Kafka's own")]
        pub enum ApiKey {
            $($name,)*
            /// A number that Kafka 4.3 does not define.
            Unknown(i16),
        }

        impl ApiKey {
            /// All keys that Kafka 4.3 defines, in order.
            pub const KNOWN: &[Self] = &[$(Self::$name),*];

            /// The key with this number.
            #[inline]
            pub const fn from_i16(code: i16) -> Self {
                match code {
                    $($code => Self::$name,)*
                    code => Self::Unknown(code),
                }
            }

            /// The key's number.
            #[inline]
            pub const fn code(self) -> i16 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Unknown(code) => code,
                }
            }

            /// Kafka's name of the request.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    Self::Unknown(_) => "Unknown",
                }
            }
        }
    };
}

api_keys! {
    Produce = 0,
    Fetch = 1,
    ListOffsets = 2,
    Metadata = 3,
    LeaderAndIsr = 4,
    StopReplica = 5,
    UpdateMetadata = 6,
    ControlledShutdown = 7,
    OffsetCommit = 8,
    OffsetFetch = 9,
    FindCoordinator = 10,
    JoinGroup = 11,
    Heartbeat = 12,
    LeaveGroup = 13,
    SyncGroup = 14,
    DescribeGroups = 15,
    ListGroups = 16,
    SaslHandshake = 17,
    ApiVersions = 18,
    CreateTopics = 19,
    DeleteTopics = 20,
    DeleteRecords = 21,
    InitProducerId = 22,
    OffsetForLeaderEpoch = 23,
    AddPartitionsToTxn = 24,
    AddOffsetsToTxn = 25,
    EndTxn = 26,
    WriteTxnMarkers = 27,
    TxnOffsetCommit = 28,
    DescribeAcls = 29,
    CreateAcls = 30,
    DeleteAcls = 31,
    DescribeConfigs = 32,
    AlterConfigs = 33,
    AlterReplicaLogDirs = 34,
    DescribeLogDirs = 35,
    SaslAuthenticate = 36,
    CreatePartitions = 37,
    CreateDelegationToken = 38,
    RenewDelegationToken = 39,
    ExpireDelegationToken = 40,
    DescribeDelegationToken = 41,
    DeleteGroups = 42,
    ElectLeaders = 43,
    IncrementalAlterConfigs = 44,
    AlterPartitionReassignments = 45,
    ListPartitionReassignments = 46,
    OffsetDelete = 47,
    DescribeClientQuotas = 48,
    AlterClientQuotas = 49,
    DescribeUserScramCredentials = 50,
    AlterUserScramCredentials = 51,
    Vote = 52,
    BeginQuorumEpoch = 53,
    EndQuorumEpoch = 54,
    DescribeQuorum = 55,
    AlterPartition = 56,
    UpdateFeatures = 57,
    Envelope = 58,
    FetchSnapshot = 59,
    DescribeCluster = 60,
    DescribeProducers = 61,
    BrokerRegistration = 62,
    BrokerHeartbeat = 63,
    UnregisterBroker = 64,
    DescribeTransactions = 65,
    ListTransactions = 66,
    AllocateProducerIds = 67,
    ConsumerGroupHeartbeat = 68,
    ConsumerGroupDescribe = 69,
    ControllerRegistration = 70,
    GetTelemetrySubscriptions = 71,
    PushTelemetry = 72,
    AssignReplicasToDirs = 73,
    ListConfigResources = 74,
    DescribeTopicPartitions = 75,
    ShareGroupHeartbeat = 76,
    ShareGroupDescribe = 77,
    ShareFetch = 78,
    ShareAcknowledge = 79,
    AddRaftVoter = 80,
    RemoveRaftVoter = 81,
    UpdateRaftVoter = 82,
    InitializeShareGroupState = 83,
    ReadShareGroupState = 84,
    WriteShareGroupState = 85,
    DeleteShareGroupState = 86,
    ReadShareGroupStateSummary = 87,
    StreamsGroupHeartbeat = 88,
    StreamsGroupDescribe = 89,
    DescribeShareGroupOffsets = 90,
    AlterShareGroupOffsets = 91,
    DeleteShareGroupOffsets = 92,
}

impl ApiKey {
    /// The description of the request, or `None` if this crate does not implement it.
    pub fn api(self) -> Option<&'static Api> {
        REQUESTS.binary_search_by_key(&self.code(), |api| api.key.code()).ok().map(|at| &REQUESTS[at])
    }

    /// `true` if `version` has a flexible header and message; `false` for requests that this crate does not
    /// implement.
    #[inline]
    pub fn is_flexible(self, version: i16) -> bool {
        self.api().is_some_and(|api| version >= api.flexible_from)
    }
}

/// `Fetch`, or `Unknown(1234)`.
impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(code) => write!(f, "Unknown({code})"),
            key => f.pad(key.name()),
        }
    }
}

/// A request that this crate implements.
#[derive(Clone, Copy, Debug)]
pub struct Api {
    /// The API key.
    pub key: ApiKey,
    /// The versions that this crate encodes and decodes.
    pub versions: Versions,
    /// The versions that are final upstream, which a broker may advertise.
    pub stable_versions: Versions,
    /// The first version with compact lengths and tagged fields; `i16::MAX` if there is none.
    pub flexible_from: i16,
}

/// The request and the response of an [`Api`], for tests of all messages.
#[derive(Clone, Copy, Debug)]
pub struct ApiMessages {
    /// The request's fields.
    pub request: Schema,
    /// The response's fields.
    pub response: Schema,
    /// Decodes a request and encodes it again.
    pub recode_request: Recode,
    /// Decodes a response and encodes it again.
    pub recode_response: Recode,
}

/// Decodes a whole message of some version and encodes it again. The bytes are equal if they were the shortest
/// encoding.
pub type Recode = fn(Bytes, i16) -> Result<Chain, RecodeError>;

/// An error of [`Recode`].
#[derive(Debug, thiserror::Error)]
pub enum RecodeError {
    /// The message could not be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The message could not be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl From<RecodeError> for io::Error {
    fn from(error: RecodeError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

impl Api {
    /// The description of `R`, from its types.
    pub(crate) const fn of<R: Request>() -> Self {
        let stable = R::STABLE_VERSIONS;
        Self {
            key: R::KEY,
            versions: R::SCHEMA.versions,
            stable_versions: Versions { min: *stable.start(), max: *stable.end() },
            flexible_from: R::FLEXIBLE_FROM,
        }
    }

    /// The request's messages.
    ///
    /// # Panics
    /// If the description is not one of [`REQUESTS`].
    pub fn messages(&self) -> &'static ApiMessages {
        let at = REQUESTS.iter().position(|api| api.key == self.key);
        &MESSAGES[at.expect("only this crate makes descriptions")]
    }
}

impl ApiMessages {
    /// The messages of `R`, from its types.
    pub(crate) const fn of<R: Request>() -> Self {
        Self {
            request: R::SCHEMA,
            response: R::Response::SCHEMA,
            recode_request: recode::<R>,
            recode_response: recode::<R::Response>,
        }
    }
}

/// Decodes a whole message and encodes it again.
pub fn recode<M: Message>(bytes: Bytes, version: i16) -> Result<Chain, RecodeError> {
    let mut input = Decoder::new(bytes);
    let message = M::decode(&mut input, version)?;
    input.finish().map_err(|error| error.within_message(M::NAME, version))?;
    let mut out = Encoder::new();
    message.encode(&mut out, version)?;
    Ok(out.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_requests_is_sorted_and_agrees_with_its_answers() {
        assert!(REQUESTS.is_sorted_by_key(|api| api.key.code()));
        for api in REQUESTS {
            let ApiMessages { request, response, .. } = api.messages();
            assert_eq!(request.versions, response.versions, "{}", api.key);
            assert_eq!(request.flexible_from, response.flexible_from, "{}", api.key);
            assert_eq!(request.name, format!("{}Request", api.key));
            assert_eq!(response.name, format!("{}Response", api.key));
            assert_eq!(ApiKey::from_i16(api.key.code()), api.key);
        }
        assert_eq!(ApiKey::Fetch.api().map(|api| api.key), Some(ApiKey::Fetch));
        assert!(ApiKey::Unknown(999).api().is_none());
    }
}
