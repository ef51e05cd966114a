//! Requests and responses in every version: what can be decoded can be encoded, and decoded again.

#[path = "../../crates/protocol/tests/support/random.rs"]
mod random;

pub(crate) use random::random_message;

use bytes::Bytes;
use fastrand::Rng;
use ottla_protocol::api::{Api, ApiKey, Recode};
use ottla_protocol::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use ottla_protocol::schema::Schema;
use ottla_protocol::{Decoder, Message, RequestHeader, peek_correlation_id};

/// Seeds have at most this size.
const SEED_BYTES_MAX: usize = 1500;

const RECORDS: &[ApiKey] = &[
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::DeleteRecords,
    ApiKey::InitProducerId,
];
const CLUSTER: &[ApiKey] = &[
    ApiKey::Metadata,
    ApiKey::ApiVersions,
    ApiKey::DescribeCluster,
    ApiKey::DescribeTopicPartitions,
    ApiKey::FindCoordinator,
    ApiKey::SaslHandshake,
    ApiKey::SaslAuthenticate,
];
const GROUPS: &[ApiKey] = &[
    ApiKey::JoinGroup,
    ApiKey::Heartbeat,
    ApiKey::LeaveGroup,
    ApiKey::SyncGroup,
    ApiKey::DescribeGroups,
    ApiKey::ListGroups,
    ApiKey::DeleteGroups,
    ApiKey::ConsumerGroupHeartbeat,
    ApiKey::ConsumerGroupDescribe,
];
const SHARES: &[ApiKey] = &[
    ApiKey::ShareGroupHeartbeat,
    ApiKey::ShareGroupDescribe,
    ApiKey::ShareFetch,
    ApiKey::ShareAcknowledge,
    ApiKey::InitializeShareGroupState,
    ApiKey::ReadShareGroupState,
    ApiKey::WriteShareGroupState,
    ApiKey::DeleteShareGroupState,
    ApiKey::ReadShareGroupStateSummary,
    ApiKey::DescribeShareGroupOffsets,
    ApiKey::AlterShareGroupOffsets,
    ApiKey::DeleteShareGroupOffsets,
];
const OFFSETS: &[ApiKey] = &[
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::OffsetDelete,
    ApiKey::TxnOffsetCommit,
    ApiKey::AddPartitionsToTxn,
    ApiKey::AddOffsetsToTxn,
    ApiKey::EndTxn,
    ApiKey::WriteTxnMarkers,
    ApiKey::DescribeProducers,
];
const TOPICS: &[ApiKey] =
    &[ApiKey::CreateTopics, ApiKey::DeleteTopics, ApiKey::CreatePartitions, ApiKey::ElectLeaders];
const SETTINGS: &[ApiKey] = &[
    ApiKey::DescribeConfigs,
    ApiKey::AlterConfigs,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::DescribeAcls,
    ApiKey::CreateAcls,
    ApiKey::DeleteAcls,
    ApiKey::DescribeUserScramCredentials,
    ApiKey::AlterUserScramCredentials,
];

macro_rules! targets {
    ($($request:ident, $request_seeds:ident, $response:ident, $response_seeds:ident: $keys:ident;)*) => {
        $(
            pub(crate) fn $request(input: &[u8]) {
                recode_input($keys, Side::Request, input);
            }

            pub(crate) fn $request_seeds() -> Vec<Vec<u8>> {
                seeds($keys, Side::Request)
            }

            pub(crate) fn $response(input: &[u8]) {
                recode_input($keys, Side::Response, input);
            }

            pub(crate) fn $response_seeds() -> Vec<Vec<u8>> {
                seeds($keys, Side::Response)
            }
        )*
    };
}

targets! {
    records_request, records_request_seeds, records_response, records_response_seeds: RECORDS;
    cluster_request, cluster_request_seeds, cluster_response, cluster_response_seeds: CLUSTER;
    groups_request, groups_request_seeds, groups_response, groups_response_seeds: GROUPS;
    shares_request, shares_request_seeds, shares_response, shares_response_seeds: SHARES;
    offsets_request, offsets_request_seeds, offsets_response, offsets_response_seeds: OFFSETS;
    topics_request, topics_request_seeds, topics_response, topics_response_seeds: TOPICS;
    settings_request, settings_request_seeds, settings_response, settings_response_seeds: SETTINGS;
}

#[derive(Clone, Copy)]
enum Side {
    Request,
    Response,
}

impl Side {
    fn of(self, api: &'static Api) -> (&'static Schema, Recode) {
        let messages = api.messages();
        match self {
            Self::Request => (&messages.request, messages.recode_request),
            Self::Response => (&messages.response, messages.recode_response),
        }
    }
}

/// A byte for the request, a byte for the version, and the message.
fn recode_input(keys: &[ApiKey], side: Side, input: &[u8]) {
    let [key, version, message @ ..] = input else { return };
    let Some(api) = keys[usize::from(*key) % keys.len()].api() else { return };
    let (schema, recode) = side.of(api);
    let count = schema.versions.max - schema.versions.min + 1;
    let version = schema.versions.min + i16::from(*version) % count;
    let Ok(again) = recode(Bytes::copy_from_slice(message), version) else { return };
    let again = again.to_bytes().expect("in memory");
    let third = recode(again.clone(), version).expect("what was encoded can be decoded");
    assert!(again == third.to_bytes().expect("in memory"), "{} v{version}: two encodings", schema.name);
}

/// Each message in its oldest and newest version and one between, encoded by a second implementation.
fn seeds(keys: &[ApiKey], side: Side) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        let (schema, _) = side.of(key.api().expect("every request of a group is implemented"));
        let last = schema.versions.max - schema.versions.min;
        let mut versions = vec![0, last / 2, last];
        versions.dedup();
        for version in versions {
            let mut rng = Rng::with_seed(number as u64 + 1);
            let mut message = || random_message(schema, schema.versions.min + version, &mut rng);
            // A message with some fields, which is not too long.
            let mut candidates: Vec<Bytes> = (0..12).map(|_| message()).collect();
            candidates.sort_by_key(Bytes::len);
            let message = candidates.iter().rev().find(|message| message.len() < SEED_BYTES_MAX);
            if let Some(message) = message {
                seeds.push([&[number as u8, version as u8], &message[..]].concat());
            }
        }
    }
    seeds
}

/// The header of a request frame.
pub(crate) fn header(input: &[u8]) {
    let frame = Bytes::copy_from_slice(input);
    let _ = peek_correlation_id(&frame);
    let mut decoder = Decoder::new(frame);
    if let Ok(header) = RequestHeader::decode(&mut decoder) {
        assert!(decoder.position() + decoder.remaining() == input.len());
        // A byte that is not UTF-8 becomes three.
        assert!(header.client_id.is_none_or(|id| id.len() <= 3 * input.len()));
    }
}

pub(crate) fn header_seeds() -> Vec<Vec<u8>> {
    let head = |key: i16, version: i16| [key.to_be_bytes(), version.to_be_bytes(), [0, 0], [0, 9]].concat();
    let id = [&[0, 6][..], b"till-1"].concat();
    vec![
        [head(0, 3), id.clone()].concat(),
        [head(3, 12), id.clone(), vec![0]].concat(),
        [head(3, 12), vec![0xff, 0xff], vec![1, 5, 2, 1, 2]].concat(),
        [head(18, 4), id.clone(), vec![0]].concat(),
        [head(7, 0), id.clone()].concat(),
        [head(999, 1), id].concat(),
    ]
}

/// A member's subscription, as the leader of a group receives it from another member.
pub(crate) fn subscription(input: &[u8]) {
    let Ok(found) = ConsumerProtocolSubscription::from_bytes(Bytes::copy_from_slice(input)) else { return };
    let version = blob_version(input, *ConsumerProtocolSubscription::VERSIONS.end());
    let encoded = found.to_bytes(version).expect("what was decoded can be encoded");
    assert_eq!(ConsumerProtocolSubscription::from_bytes(encoded).as_ref(), Ok(&found));
}

pub(crate) fn subscription_seeds() -> Vec<Vec<u8>> {
    blobs(&ConsumerProtocolSubscription::SCHEMA)
}

/// An assignment, as a member receives it from the leader.
pub(crate) fn assignment(input: &[u8]) {
    let Ok(found) = ConsumerProtocolAssignment::from_bytes(Bytes::copy_from_slice(input)) else { return };
    let version = blob_version(input, *ConsumerProtocolAssignment::VERSIONS.end());
    let encoded = found.to_bytes(version).expect("what was decoded can be encoded");
    assert_eq!(ConsumerProtocolAssignment::from_bytes(encoded).as_ref(), Ok(&found));
}

pub(crate) fn assignment_seeds() -> Vec<Vec<u8>> {
    blobs(&ConsumerProtocolAssignment::SCHEMA)
}

/// The version with which a blob was decoded: of a newer one, the known fields.
fn blob_version(input: &[u8], newest: i16) -> i16 {
    input.first_chunk().map_or(0, |bytes| i16::from_be_bytes(*bytes)).min(newest)
}

fn blobs(schema: &Schema) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for version in schema.versions.min..=schema.versions.max {
        for seed in 0..4 {
            let message = random_message(schema, version, &mut Rng::with_seed(seed));
            if message.len() < SEED_BYTES_MAX {
                seeds.push([&version.to_be_bytes(), &message[..]].concat());
            }
        }
    }
    seeds
}
