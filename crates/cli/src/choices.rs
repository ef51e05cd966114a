//! Arguments with known values. An unknown filter would select nothing without a word.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};

/// A parser whose values shells complete. The values are not checked twice: the parser decides, and its error lists them.
#[derive(Clone, Debug)]
pub(crate) struct Completed<P> {
    parse: P,
    values: &'static [&'static str],
}

/// Adds values for the completion of shells to a parser.
pub(crate) const fn completed<P>(parse: P, values: &'static [&'static str]) -> Completed<P> {
    Completed { parse, values }
}

impl<P: TypedValueParser> TypedValueParser for Completed<P> {
    type Value = P::Value;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<P::Value, Error> {
        self.parse.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.values.iter().map(|value| PossibleValue::new(*value))))
    }
}

/// The states of groups: classic ones, those of KIP-848, and those of streams groups.
pub(crate) const GROUP_STATES: &[&str] = &[
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Stable",
    "Dead",
    "NotReady",
];
/// The types of groups.
pub(crate) const GROUP_TYPES: &[&str] = &["classic", "consumer", "share", "streams"];
/// The states of transactional ids.
pub(crate) const TRANSACTION_STATES: &[&str] = &[
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

/// The places of acknowledged records.
pub(crate) const DURABILITIES: &[&str] = &["disk", "os", "memory"];
/// The releases of Apache Kafka that a broker answers as.
pub(crate) const VERSIONS: &[&str] = &["0.11", "2.8", "3.9", "4.1", "4.3"];
/// The codecs of batches.
pub(crate) const CODECS: &[&str] = &["none", "gzip", "snappy", "lz4", "zstd"];
/// The orders of a processor.
pub(crate) const ORDERS: &[&str] = &["none", "partition", "key"];
/// The operations of ACLs.
pub(crate) const OPERATIONS: &[&str] = &[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster-action",
    "describe-configs",
    "alter-configs",
    "idempotent-write",
    "create-tokens",
    "describe-tokens",
    "two-phase-commit",
];

/// Parses the state of a group, in upper or lower case.
pub(crate) fn group_state(text: &str) -> Result<String, String> {
    one_of(text, "state of a group", GROUP_STATES)
}

/// Parses the type of a group.
pub(crate) fn group_type(text: &str) -> Result<String, String> {
    one_of(text, "type of a group", GROUP_TYPES)
}

/// Parses the state of a transactional id.
pub(crate) fn transaction_state(text: &str) -> Result<String, String> {
    one_of(text, "state of a transaction", TRANSACTION_STATES)
}

fn one_of(text: &str, what: &str, known: &[&str]) -> Result<String, String> {
    let found = known.iter().find(|known| known.eq_ignore_ascii_case(text));
    found
        .map(|found| (*found).to_owned())
        .ok_or_else(|| format!("`{text}` is no {what}: use one of {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_filter_is_refused_with_the_values_that_exist() {
        assert_eq!(group_state("stable").as_deref(), Ok("Stable"));
        let refused = group_state("stabel").expect_err("no such state");
        assert_eq!(refused.split(": ").next(), Some("`stabel` is no state of a group"));
        assert!(refused.contains("Stable"), "{refused}");
        assert!(group_type("foo").is_err() && transaction_state("foo").is_err());
    }
}
