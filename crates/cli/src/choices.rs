//! Filters with known values: an unknown one would select nothing without a word.

/// The states of groups: classic ones, those of KIP-848, and those of streams groups.
const GROUP_STATES: &[&str] = &[
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
const GROUP_TYPES: &[&str] = &["classic", "consumer", "share", "streams"];
/// The states of transactional ids.
const TRANSACTION_STATES: &[&str] = &[
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
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
