//! Patterns of topics that the coordinator matches.
//!
//! The syntax is RE2's, as in Apache Kafka: linear time and no look-around.

mod re2;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use regex_lite::{Regex, RegexBuilder};

use crate::coordinator::deadlines::is_interval_over;

/// The longest pattern: it is kept with the member, and compiled at each change of the topics.
const PATTERN_BYTES_MAX: usize = 4096;

/// The memory of a compiled pattern. Repetitions in repetitions multiply it, and the time of a match with it.
const COMPILED_BYTES_MAX: usize = 64 << 10;

/// A pattern is matched again after this time: the default of `group.consumer.regex.refresh.interval.ms` in Kafka 4.4.
const REFRESH_INTERVAL: Duration = Duration::from_secs(600);

/// The topics and the ACLs that a pattern is matched with, by their versions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatternVersions {
    pub(crate) topics: u64,
    pub(crate) acls: u64,
}

/// The topics that a pattern matches.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ResolvedPattern {
    /// The names belong to the topics of the cluster.
    pub(crate) topics: BTreeSet<Arc<str>>,
    /// The version of the topics that were matched.
    pub(crate) version: i64,
    /// The version of the ACLs, which decide about the topics that the member may see. It is not stored.
    pub(crate) acls_version: u64,
    pub(crate) at_ms: i64,
}

impl ResolvedPattern {
    /// The memory of a pattern and of the places of its topics, in trees whose nodes are at least five elevenths full.
    pub(super) fn bytes(&self, pattern: &str) -> usize {
        3 * size_of::<(String, Self)>() + pattern.len() + self.topics.len() * 3 * size_of::<Arc<str>>()
    }

    /// Returns `true` if the pattern need not be matched again.
    pub(super) fn is_current(&self, versions: PatternVersions, now_ms: i64) -> bool {
        self.version == versions.topics as i64
            && self.acls_version == versions.acls
            && !is_interval_over(self.at_ms, REFRESH_INTERVAL, now_ms)
    }
}

/// Compiles a pattern, which must match whole names.
///
/// # Errors
/// A sentence that says why.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        let bytes = pattern.len();
        return Err(format!("the pattern has {bytes} bytes, more than {PATTERN_BYTES_MAX}"));
    }
    let translated =
        re2::translate(pattern).map_err(|error| format!("`{pattern}` is no regular expression: {error}"))?;
    // The pattern alone first: `a)(b` is none.
    compiled(&translated).map_err(|error| format!("`{pattern}` is no regular expression: {error}"))?;
    compiled(&format!(r"\A(?:{translated})\z")).map_err(|error| format!("`{pattern}`: {error}"))
}

fn compiled(pattern: &str) -> Result<Regex, regex_lite::Error> {
    RegexBuilder::new(pattern).size_limit(COMPILED_BYTES_MAX).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_matched_again_after_a_change_of_topics_or_acls_and_after_ten_minutes() {
        let resolved = ResolvedPattern { version: 7, acls_version: 3, at_ms: 1_000, ..Default::default() };
        let is_current = |topics, acls, now_ms| resolved.is_current(PatternVersions { topics, acls }, now_ms);
        assert!(is_current(7, 3, 1_000) && is_current(7, 3, 600_999));
        assert!(!is_current(8, 3, 1_000) && !is_current(7, 4, 1_000));
        assert!(!is_current(7, 3, 601_000) && !is_current(7, 3, 999));
    }

    #[test]
    fn a_pattern_matches_whole_names() {
        let pattern = compile("orders-(eu|us)|bills").expect("a pattern");
        assert!(pattern.is_match("orders-eu") && pattern.is_match("bills"));
        assert!(!pattern.is_match("orders-eu2") && !pattern.is_match("my-bills"));
        // The last one has 29 bytes, and took 8 MiB.
        for bad in ["(", "a)(b", r"(?=a)", r"(a)\1", &"a".repeat(5000), "(?:(?:a?){1000}){60}[a-z0-9]*"] {
            assert!(compile(bad).is_err(), "{bad}");
        }
    }
}
