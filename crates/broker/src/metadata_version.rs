//! The levels of the feature `metadata.version`: in Apache Kafka, formats of the records of KRaft's metadata log.

/// A level of `metadata.version`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MetadataVersion {
    pub(crate) level: i16,
    /// The release and a number in it, as in `4.3-IV0`.
    pub(crate) name: &'static str,
    /// `true` if the log has other records than at the level before. Kafka refuses to go back behind such a level.
    changes_records: bool,
}

impl MetadataVersion {
    /// The first level that a release without ZooKeeper has.
    pub(crate) const MIN: i16 = 7;
    /// The highest level of Kafka 4.1.
    pub(crate) const MAX_OF_4_1: i16 = 27;
    /// The highest level of Kafka 4.3.
    pub(crate) const MAX_OF_4_3: i16 = 30;
    /// The highest level that Kafka 4.3 has for tests.
    pub(crate) const MAX_OF_TESTS: i16 = 31;
    /// The first level with SCRAM credentials.
    pub(crate) const WITH_SCRAM: i16 = 11;

    const fn new(level: i16, name: &'static str, changes_records: bool) -> Self {
        Self { level, name, changes_records }
    }

    /// The version with this level.
    pub(crate) fn of_level(level: i16) -> Option<&'static Self> {
        ALL.iter().find(|version| version.level == level)
    }

    /// The version with this name, of those up to a level. A release, such as `4.3` or `4.3.1`, is the last version of it that is for
    /// production.
    ///
    /// # Errors
    /// Kafka's text, with the names of all versions.
    pub(crate) fn of_name(name: &str, max: i16) -> Result<&'static Self, String> {
        let mut parts = name.split('.');
        let release = match (parts.next(), parts.next()) {
            (Some(major), Some(minor)) => format!("{major}.{minor}"),
            _ => name.to_owned(),
        };
        let is_meant = |version: &&Self| {
            let is_release = version.level <= Self::MAX_OF_4_3 && version.release() == release;
            version.name == release || is_release
        };
        let known = || ALL.iter().filter(move |version| version.level <= max);
        known().rfind(is_meant).ok_or_else(|| {
            let names: Vec<&str> = known().map(|version| version.name).collect();
            format!("Unknown metadata.version '{name}'. Supported metadata.version are: {}", names.join(", "))
        })
    }

    /// Returns `true` if the records differ between two levels.
    pub(crate) fn records_differ(low: i16, high: i16) -> bool {
        ALL.iter().any(|version| version.changes_records && version.level > low && version.level <= high)
    }

    fn release(&self) -> &'static str {
        self.name.split('-').next().unwrap_or(self.name)
    }
}

/// All versions, the oldest first. Read from Apache Kafka 4.3.1.
const ALL: &[MetadataVersion] = &[
    MetadataVersion::new(7, "3.3-IV3", true),
    MetadataVersion::new(8, "3.4-IV0", true),
    MetadataVersion::new(9, "3.5-IV0", false),
    MetadataVersion::new(10, "3.5-IV1", false),
    MetadataVersion::new(11, "3.5-IV2", true),
    MetadataVersion::new(12, "3.6-IV0", false),
    MetadataVersion::new(13, "3.6-IV1", true),
    MetadataVersion::new(14, "3.6-IV2", true),
    MetadataVersion::new(15, "3.7-IV0", true),
    MetadataVersion::new(16, "3.7-IV1", false),
    MetadataVersion::new(17, "3.7-IV2", true),
    MetadataVersion::new(18, "3.7-IV3", false),
    MetadataVersion::new(19, "3.7-IV4", false),
    MetadataVersion::new(20, "3.8-IV0", false),
    MetadataVersion::new(21, "3.9-IV0", false),
    MetadataVersion::new(22, "4.0-IV0", false),
    MetadataVersion::new(23, "4.0-IV1", true),
    MetadataVersion::new(24, "4.0-IV2", false),
    MetadataVersion::new(25, "4.0-IV3", false),
    MetadataVersion::new(26, "4.1-IV0", false),
    MetadataVersion::new(27, "4.1-IV1", false),
    MetadataVersion::new(28, "4.2-IV0", false),
    MetadataVersion::new(29, "4.2-IV1", false),
    MetadataVersion::new(30, "4.3-IV0", true),
    MetadataVersion::new(31, "4.4-IV0", false),
];

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: i16 = MetadataVersion::MAX_OF_4_3;

    #[test]
    fn the_levels_follow_each_other_from_the_first_to_the_last() {
        assert!(
            ALL.iter().map(|version| version.level).eq(MetadataVersion::MIN..=MetadataVersion::MAX_OF_TESTS)
        );
        assert_eq!(MetadataVersion::of_level(30).map(|version| version.name), Some("4.3-IV0"));
        assert_eq!(MetadataVersion::of_level(6), None);
    }

    #[test]
    fn a_release_is_its_last_version() {
        let level = |name: &str, max| MetadataVersion::of_name(name, max).map(|version| version.level);
        for (name, expected) in
            [("3.3-IV3", 7), ("3.7", 19), ("3.7-IV0", 15), ("4.1.2", 27), ("4.3", 30), ("4.3-IV0", 30)]
        {
            assert_eq!(level(name, MAX), Ok(expected), "{name}");
        }
        assert_eq!(level("4.4-IV0", MetadataVersion::MAX_OF_TESTS), Ok(31));
        for (name, max) in
            [("4.4-IV0", MAX), ("4.4", MetadataVersion::MAX_OF_TESTS), ("3.3-IV1", MAX), ("foo", MAX)]
        {
            let error = level(name, max).expect_err(name);
            let start = format!(
                "Unknown metadata.version '{name}'. Supported metadata.version are: 3.3-IV3, 3.4-IV0, "
            );
            assert!(error.starts_with(&start), "{error}");
        }
    }

    #[test]
    fn records_differ_across_a_level_that_changes_them() {
        for (low, high, differ) in [
            (7, 8, true),
            (8, 10, false),
            (17, 22, false),
            (22, 23, true),
            (29, 30, true),
            (30, 31, false),
            (9, 9, false),
        ] {
            assert_eq!(MetadataVersion::records_differ(low, high), differ, "{low} {high}");
        }
    }
}
