//! `--as-version`: the broker answers the versions and features of an older release of Apache Kafka.
//!
//! Nothing is converted: records keep their format. Lower bounds stay as they are, so that old and new clients connect.

use std::str::FromStr;

use ottla_protocol::ApiKey;

/// A release of Apache Kafka whose API versions are the highest that the broker answers.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum KafkaLevel {
    /// 0.11: the first with record batches, idempotent producers and transactions.
    V0_11,
    /// 2.8.
    V2_8,
    /// 3.9: the last with ZooKeeper.
    V3_9,
    /// 4.1.
    V4_1,
    /// 4.3.
    #[default]
    V4_3,
}

impl KafkaLevel {
    /// All levels, the oldest first.
    pub const ALL: [Self; 5] = [Self::V0_11, Self::V2_8, Self::V3_9, Self::V4_1, Self::V4_3];

    /// The name in `--as-version`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V0_11 => "0.11",
            Self::V2_8 => "2.8",
            Self::V3_9 => "3.9",
            Self::V4_1 => "4.1",
            Self::V4_3 => "4.3",
        }
    }

    /// The versions of an API that this level has, of those that are advertised. The first is above the second if it has
    /// none.
    pub(crate) fn versions(self, api: ApiKey, (min, max): (i16, i16)) -> (i16, i16) {
        if self == Self::V4_3 {
            return (min, max);
        }
        match LEVELS.iter().find(|(key, _)| *key == api.code()) {
            Some((_, maxima)) => (min, max.min(maxima[self as usize])),
            None => (min, max),
        }
    }

    /// Returns whether this level has finalized features: transactions with the epoch bump came with 4.0.
    pub(crate) fn has_transaction_version_2(self) -> bool {
        self >= Self::V4_1
    }
}

impl FromStr for KafkaLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|level| level.name() == text)
            .ok_or_else(|| format!("unknown version `{text}`: use {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The highest versions of 0.11, 2.8, 3.9 and 4.1 by API, where one of them differs from 4.3's; -1 for none. Read from the
/// client of each release.
const LEVELS: &[(i16, [i16; 4])] = &[
    (0, [3, 9, 11, 13]),
    (1, [5, 12, 17, 18]),
    (2, [2, 6, 9, 10]),
    (3, [4, 11, 12, 13]),
    (8, [3, 8, 9, 9]),
    (9, [3, 7, 9, 9]),
    (10, [1, 3, 6, 6]),
    (11, [2, 7, 9, 9]),
    (12, [1, 4, 4, 4]),
    (13, [1, 4, 5, 5]),
    (14, [1, 5, 5, 5]),
    (15, [1, 5, 5, 6]),
    (16, [1, 4, 5, 5]),
    (17, [0, 1, 1, 1]),
    (18, [1, 3, 4, 4]),
    (19, [2, 7, 7, 7]),
    (20, [1, 6, 6, 6]),
    (21, [0, 2, 2, 2]),
    (22, [0, 4, 5, 5]),
    (23, [0, 4, 4, 4]),
    (24, [0, 3, 5, 5]),
    (25, [0, 3, 4, 4]),
    (26, [0, 3, 4, 5]),
    (27, [0, 1, 1, 1]),
    (28, [0, 3, 4, 5]),
    (29, [0, 2, 3, 3]),
    (30, [0, 2, 3, 3]),
    (31, [0, 2, 3, 3]),
    (32, [0, 4, 4, 4]),
    (33, [0, 2, 2, 2]),
    (34, [-1, 2, 2, 2]),
    (35, [-1, 2, 4, 4]),
    (36, [-1, 2, 2, 2]),
    (37, [-1, 3, 3, 3]),
    (38, [-1, 2, 3, 3]),
    (39, [-1, 2, 2, 2]),
    (40, [-1, 2, 2, 2]),
    (41, [-1, 2, 3, 3]),
    (42, [-1, 2, 2, 2]),
    (43, [-1, 2, 2, 2]),
    (44, [-1, 1, 1, 1]),
    (45, [-1, 0, 0, 1]),
    (46, [-1, 0, 0, 0]),
    (47, [-1, 0, 0, 0]),
    (48, [-1, 1, 1, 1]),
    (49, [-1, 1, 1, 1]),
    (50, [-1, 0, 0, 0]),
    (51, [-1, 0, 0, 0]),
    (55, [-1, 0, 2, 2]),
    (57, [-1, 0, 1, 2]),
    (60, [-1, 0, 1, 2]),
    (61, [-1, 0, 0, 0]),
    (64, [-1, 0, 0, 0]),
    (65, [-1, -1, 0, 0]),
    (66, [-1, -1, 1, 2]),
    // 3.9 has version 0, and refuses it by default.
    (68, [-1, -1, -1, 1]),
    (69, [-1, -1, -1, 1]),
    (71, [-1, -1, 0, 0]),
    (72, [-1, -1, 0, 0]),
    (74, [-1, -1, 0, 1]),
    (75, [-1, -1, 0, 0]),
    // Share groups: a preview in 4.1, and off by default.
    (76, [-1, -1, -1, -1]),
    (77, [-1, -1, -1, -1]),
    (78, [-1, -1, -1, -1]),
    (79, [-1, -1, -1, -1]),
    (80, [-1, -1, 0, 0]),
    (81, [-1, -1, 0, 0]),
    (83, [-1, -1, -1, -1]),
    (84, [-1, -1, -1, -1]),
    (85, [-1, -1, -1, -1]),
    (86, [-1, -1, -1, -1]),
    (87, [-1, -1, -1, -1]),
    (90, [-1, -1, -1, -1]),
    (91, [-1, -1, -1, -1]),
    (92, [-1, -1, -1, -1]),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// 0.11 was shown with SaslAuthenticate, which came with 1.0: clients never used the dialogue without frames.
    #[test]
    fn a_login_at_0_11_has_no_frames() {
        let old = KafkaLevel::V0_11;
        assert_eq!(old.versions(ApiKey::SaslHandshake, (0, 1)), (0, 0));
        assert_eq!(old.versions(ApiKey::SaslAuthenticate, (0, 2)), (0, -1));
    }

    #[test]
    fn a_level_never_has_more_than_the_next_one() {
        for (key, (min, max)) in crate::api::advertised() {
            let maxima = KafkaLevel::ALL.map(|level| level.versions(key, (min, max)).1);
            assert!(maxima.is_sorted() && maxima[4] == max, "{key} {maxima:?}");
        }
        assert_eq!(KafkaLevel::V0_11.versions(ApiKey::Fetch, (4, 18)), (4, 5));
        assert_eq!(KafkaLevel::V0_11.versions(ApiKey::ElectLeaders, (0, 2)), (0, -1), "since Kafka 2.2");
        assert_eq!("3.9".parse(), Ok(KafkaLevel::V3_9));
        assert!("3.8".parse::<KafkaLevel>().is_err_and(|error| error.contains("4.3")));
    }
}
