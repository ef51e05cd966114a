//! API versions of brokers that are not asked or do not answer: the highest version of each request, by release.

use ottla_protocol::messages::produce::ProduceRequest;
use ottla_protocol::{ApiKey, Message};
use rustc_hash::FxHashMap;

use crate::types::broker_version::BrokerVersion;

impl BrokerVersion {
    /// The column of this release in the rows of [`TABLE`].
    const fn column(self) -> usize {
        (self as usize).saturating_sub(Self::V0_11 as usize)
    }

    /// The supported requests, each with its lowest and highest version.
    pub(crate) fn requests(self) -> impl Iterator<Item = (i16, (i16, i16))> {
        let column = self.column();
        TABLE.iter().filter_map(move |(key, highest)| {
            let highest = highest[column];
            (highest >= 0).then_some((key.code(), (0, highest)))
        })
    }
}

/// Returns `true` if a throttling broker responds to this version at once and leaves the wait to the client. KIP-219,
/// in Kafka 2.0, raised the version of every request for that.
pub(crate) fn client_throttles(key: ApiKey, version: i16) -> bool {
    let row = TABLE.iter().find(|(listed, _)| *listed == key);
    row.is_none_or(|(_, highest)| version >= highest[BrokerVersion::V2_0.column()])
}

/// The first version of Produce that supports zstd (KIP-110).
const PRODUCE_ZSTD: i16 = 7;

/// The problem with a broker that cannot store our record batches. A broker that takes no records at all, such as a
/// controller, is not too old.
pub(crate) fn too_old(versions: &FxHashMap<i16, (i16, i16)>) -> Option<String> {
    let (_, highest) = versions.get(&ApiKey::Produce.code())?;
    let needed = *ProduceRequest::VERSIONS.start();
    (*highest < needed).then(|| {
        format!(
            "it is older than Apache Kafka 0.11, the oldest release that this client speaks with: it knows Produce \
             up to version {highest}, and version {needed} is the first that takes our record batches"
        )
    })
}

/// The reason why a broker that supports Produce up to version `produce` refuses zstd batches.
pub(crate) fn zstd_refused(produce: i16) -> Option<String> {
    (produce < PRODUCE_ZSTD).then(|| {
        format!(
            "compression.codec=zstd needs Apache Kafka 2.1 or newer: it knows Produce up to version {produce}, and \
             version {PRODUCE_ZSTD} is the first that takes zstd"
        )
    })
}

/// Per release from 0.11 to 2.1; -1 where the request does not exist yet.
const TABLE: &[(ApiKey, [i16; 5])] = &[
    (ApiKey::Produce, [3, 5, 5, 6, 7]),
    (ApiKey::Fetch, [5, 6, 7, 8, 10]),
    (ApiKey::ListOffsets, [2, 2, 2, 3, 4]),
    (ApiKey::Metadata, [4, 5, 5, 6, 7]),
    (ApiKey::OffsetCommit, [3, 3, 3, 4, 6]),
    (ApiKey::OffsetFetch, [3, 3, 3, 4, 5]),
    (ApiKey::FindCoordinator, [1, 1, 1, 2, 2]),
    (ApiKey::JoinGroup, [2, 2, 2, 3, 3]),
    (ApiKey::Heartbeat, [1, 1, 1, 2, 2]),
    (ApiKey::LeaveGroup, [1, 1, 1, 2, 2]),
    (ApiKey::SyncGroup, [1, 1, 1, 2, 2]),
    (ApiKey::DescribeGroups, [1, 1, 1, 2, 2]),
    (ApiKey::ListGroups, [1, 1, 1, 2, 2]),
    (ApiKey::SaslHandshake, [0, 1, 1, 1, 1]),
    (ApiKey::ApiVersions, [1, 1, 1, 2, 2]),
    (ApiKey::CreateTopics, [2, 2, 2, 3, 3]),
    (ApiKey::DeleteTopics, [1, 1, 1, 2, 3]),
    (ApiKey::DeleteRecords, [0, 0, 0, 1, 1]),
    (ApiKey::InitProducerId, [0, 0, 0, 1, 1]),
    (ApiKey::OffsetForLeaderEpoch, [0, 0, 0, 1, 2]),
    (ApiKey::AddPartitionsToTxn, [0, 0, 0, 1, 1]),
    (ApiKey::AddOffsetsToTxn, [0, 0, 0, 1, 1]),
    (ApiKey::EndTxn, [0, 0, 0, 1, 1]),
    (ApiKey::TxnOffsetCommit, [0, 0, 0, 1, 2]),
    (ApiKey::DescribeConfigs, [0, 0, 1, 2, 2]),
    (ApiKey::AlterConfigs, [0, 0, 0, 1, 1]),
    (ApiKey::SaslAuthenticate, [-1, 0, 0, 0, 0]),
    (ApiKey::CreatePartitions, [-1, 0, 0, 1, 1]),
    (ApiKey::DeleteGroups, [-1, -1, 0, 1, 1]),
];

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::REQUESTS;

    use super::*;

    #[test]
    fn releases_are_read() {
        for (text, version) in [
            ("0.11.0.0", Some(BrokerVersion::V0_11)),
            ("1.0.0", Some(BrokerVersion::V1_0)),
            ("1.1", Some(BrokerVersion::V1_1)),
            ("2.0.1", Some(BrokerVersion::V2_0)),
            ("4.1.0", Some(BrokerVersion::V2_1)),
            ("0.10.2.1", Some(BrokerVersion::V0_10)),
            ("0.9", Some(BrokerVersion::V0_10)),
            ("new", None),
            ("2.x", None),
        ] {
            assert_eq!(BrokerVersion::parse(text), version, "{text}");
        }
    }

    #[test]
    fn no_release_takes_anything_back() {
        for (key, highest) in TABLE {
            assert!(highest.is_sorted(), "{key}");
        }
        let old: Vec<_> = BrokerVersion::V0_11.requests().collect();
        assert!(old.contains(&(ApiKey::Produce.code(), (0, 3))));
        assert!(old.iter().all(|(key, _)| *key != ApiKey::SaslAuthenticate.code()));
    }

    #[test]
    fn every_request_of_each_release_has_a_version_of_ours() {
        for release in [BrokerVersion::V0_11, BrokerVersion::V1_0, BrokerVersion::V1_1, BrokerVersion::V2_1] {
            for (code, (_, highest)) in release.requests() {
                let Some(ours) = REQUESTS.iter().find(|api| api.key.code() == code) else { continue };
                // Consumers detect truncated logs only with brokers that report the epoch's end (version 2, Kafka
                // 2.0).
                if ours.key == ApiKey::OffsetForLeaderEpoch {
                    continue;
                }
                // Version 0 has a separate message definition.
                let least = if ours.key == ApiKey::DescribeConfigs { 0 } else { ours.versions.min };
                assert!(least <= highest, "{}: {highest} in {}", ours.key, release.name());
            }
        }
    }

    #[test]
    fn brokers_before_0_11_are_too_old_and_controllers_are_not() {
        // The versions that Apache Kafka 0.10.2 reports.
        let of_0_10 = FxHashMap::from_iter([(0, (0, 2)), (1, (0, 3)), (3, (0, 2)), (18, (0, 0))]);
        let reason = too_old(&of_0_10).expect("too old");
        assert!(reason.contains("older than Apache Kafka 0.11") && reason.contains("version 2"), "{reason}");
        let of_0_11 = BrokerVersion::V0_11.requests().collect();
        assert_eq!(too_old(&of_0_11), None);
        assert_eq!(too_old(&FxHashMap::from_iter([(18, (0, 4))])), None, "a controller takes no records");
    }

    #[test]
    fn zstd_needs_2_1() {
        for (produce, refused) in [(3, true), (6, true), (7, false), (12, false)] {
            assert_eq!(zstd_refused(produce).is_some(), refused, "{produce}");
        }
    }
}
