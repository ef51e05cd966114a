//! The application's subscription: topics by name and by pattern.

use std::collections::BTreeSet;
use std::sync::Arc;

use regex_lite::Regex;

use crate::error::Error;
use crate::types::pattern;

/// Topic names and patterns; patterns start with `^`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subscription {
    names: BTreeSet<Arc<str>>,
    patterns: Vec<Regex>,
}

impl Subscription {
    pub(crate) fn parse(topics: &[&str]) -> Result<Self, Error> {
        let mut subscription = Self::default();
        for topic in topics {
            if topic.starts_with('^') {
                subscription.patterns.push(pattern(topic)?);
            } else {
                subscription.names.insert(Arc::from(*topic));
            }
        }
        Ok(subscription)
    }

    pub(crate) fn names(&self) -> &BTreeSet<Arc<str>> {
        &self.names
    }

    pub(crate) fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// The names, and the known topics that a pattern matches.
    pub(crate) fn topics<'a>(&self, known: impl IntoIterator<Item = &'a Arc<str>>) -> Vec<Arc<str>> {
        let matches = |topic: &&Arc<str>| self.patterns.iter().any(|pattern| pattern.is_match(topic));
        let matching = known.into_iter().filter(matches).cloned();
        matching.chain(self.names.iter().cloned()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The patterns that match none of these topics.
    pub(crate) fn patterns_without(&self, known: &[Arc<str>]) -> Vec<Arc<str>> {
        let unmatched =
            self.patterns.iter().filter(|pattern| !known.iter().any(|topic| pattern.is_match(topic)));
        unmatched.map(|pattern| Arc::from(pattern.as_str())).collect()
    }

    /// The patterns as one regular expression for the coordinator. The coordinator matches whole names, the client
    /// matches parts of them.
    pub(crate) fn server_pattern(&self) -> Option<String> {
        let one = |pattern: &Regex| format!(".*(?:{pattern}).*");
        let all: Vec<String> = self.patterns.iter().map(one).collect();
        (!all.is_empty()).then(|| all.join("|"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_is_known_and_names_stand_for_themselves() {
        let subscription = Subscription::parse(&["^orders\\.", "payments"]).unwrap();
        let known: Vec<Arc<str>> = ["orders.eu", "orders.us", "reorders.eu", "refunds"].map(Arc::from).into();
        let topics = subscription.topics(&known);
        assert_eq!(topics, ["orders.eu", "orders.us", "payments"].map(Arc::from));
        assert_eq!(subscription.server_pattern().as_deref(), Some(".*(?:^orders\\.).*"));
    }

    #[test]
    fn a_broken_pattern_is_refused_by_name() {
        let error = Subscription::parse(&["^orders["]).unwrap_err();
        assert!(error.to_string().contains("`^orders[`"), "{error}");
    }
}
