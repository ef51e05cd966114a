//! Patterns of topics that the coordinator matches.
//!
//! The syntax is RE2's, as in Apache Kafka: linear time and no look-around.

mod re2;

use std::collections::BTreeSet;

use regex_lite::{Regex, RegexBuilder};

/// The longest pattern: it is kept with the member, and compiled at each change of the topics.
const PATTERN_BYTES_MAX: usize = 4096;

/// The memory of a compiled pattern. Repetitions in repetitions multiply it, and the time of a match with it.
const COMPILED_BYTES_MAX: usize = 64 << 10;

/// The topics that a pattern matches.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ResolvedPattern {
    pub(crate) topics: BTreeSet<String>,
    /// The version of the topics that were matched.
    pub(crate) version: i64,
    pub(crate) at_ms: i64,
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
