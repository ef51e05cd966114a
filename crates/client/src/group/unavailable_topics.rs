//! Subscribed topics that cannot be read: each is reported once per error, and again when its error changes. A pattern
//! without a topic is reported after a second look only, or before the first records of other topics: programs often subscribe just
//! before they create the first topic.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use super::Shared;
use super::subscription::Subscription;
use crate::cluster::Cluster;
use crate::config::{GroupHabits, GroupProtocol};
use crate::fetch::inbox::Item;
use crate::types::Event;

/// The time for which a pattern may be without a topic before it is reported.
const PATTERN_GRACE: Duration = Duration::from_millis(500);

/// The subscription, and the errors of its topics that the application knows.
#[derive(Debug, Default)]
pub(super) struct UnavailableTopics {
    subscription: RefCell<Option<Subscription>>,
    reported: RefCell<BTreeMap<Arc<str>, ErrorCode>>,
    /// Patterns without a topic, with the time from which they are reported.
    lonely_patterns: RefCell<BTreeMap<Arc<str>, Instant>>,
}

impl UnavailableTopics {
    /// Watches the topics of another subscription; `None` ends that.
    pub(super) fn watch(&self, subscription: Option<Subscription>, cluster: &Cluster) {
        if let Some(subscription) = &subscription {
            want_topics(subscription, cluster);
        }
        if subscription.is_none() {
            self.reported.borrow_mut().clear();
            self.lonely_patterns.borrow_mut().clear();
        }
        *self.subscription.borrow_mut() = subscription;
    }

    /// The topics are in use while they are subscribed.
    fn want_again(&self, cluster: &Cluster) {
        if let Some(subscription) = &*self.subscription.borrow() {
            want_topics(subscription, cluster);
        }
    }

    /// The errors that are not reported yet. A topic that has become available may be reported again later.
    fn news(
        &self,
        now: Instant,
        grace: Grace,
        current: impl FnOnce(&Subscription) -> Errors,
    ) -> Vec<(Arc<str>, ErrorCode)> {
        let subscription = self.subscription.borrow();
        let Some(subscription) = &*subscription else { return Vec::new() };
        let Errors { mut topics, patterns } = current(subscription);
        let (mut lonely, mut reported) = (self.lonely_patterns.borrow_mut(), self.reported.borrow_mut());
        lonely.retain(|pattern, _| patterns.contains(pattern));
        for pattern in patterns {
            let due = *lonely.entry(pattern.clone()).or_insert(now + PATTERN_GRACE);
            if now >= due || matches!(grace, Grace::Over) || reported.contains_key(&pattern) {
                topics.insert(pattern, ErrorCode::UnknownTopicOrPartition);
            }
        }
        let is_new = |(topic, code): &(&Arc<str>, &ErrorCode)| reported.get(*topic) != Some(*code);
        let news = topics.iter().filter(is_new).map(|(topic, code)| (topic.clone(), *code)).collect();
        *reported = topics;
        news
    }

    /// When to look again at the patterns without a topic that are not reported yet.
    fn second_look(&self) -> Option<Instant> {
        let reported = self.reported.borrow();
        let lonely = self.lonely_patterns.borrow();
        lonely.iter().filter(|(pattern, _)| !reported.contains_key(*pattern)).map(|(_, at)| *at).min()
    }
}

/// Keeps the metadata of subscribed topics fresh. As in librdkafka, topics beside a pattern are not created by that. In the new protocol
/// the coordinator compares patterns with its topics, and the client does not list them.
pub(super) fn want_topics(subscription: &Subscription, cluster: &Cluster) {
    let lists_topics = cluster.config.group_protocol == GroupProtocol::Classic && subscription.has_patterns();
    for topic in subscription.names() {
        if lists_topics {
            cluster.want_existing(topic);
        } else {
            cluster.want(topic);
        }
    }
}

/// Reports the errors of subscribed topics after each metadata response, until its owner drops it.
pub(super) async fn run(shared: Rc<Shared>) {
    let mut changes = shared.cluster.changes();
    let mut asked_for = None;
    loop {
        // One request per second look: without a response there is nothing to report.
        let second_look = shared.unavailable.second_look().filter(|at| asked_for != Some(*at));
        tokio::select! {
            () = changes.changed() => {
                shared.unavailable.want_again(&shared.cluster);
                report(&shared, Grace::Lasts);
            }
            () = tokio::time::sleep_until(second_look.unwrap_or_else(Instant::now)), if second_look.is_some() => {
                asked_for = second_look;
                shared.cluster.refresh();
            }
        }
    }
}

/// Reports the errors before the member reads its partitions: a program that reads to their end sees them.
pub(super) fn report_before_records(shared: &Shared) {
    report(shared, Grace::Over);
}

fn report(shared: &Shared, grace: Grace) {
    let config = &shared.cluster.config;
    if config.group_protocol == GroupProtocol::Consumer && config.group_habits == GroupHabits::Librdkafka {
        // In the new protocol librdkafka leaves the topics to the coordinator, and reports only what that refuses.
        return;
    }
    let current = |subscription: &Subscription| errors(subscription, &shared.cluster);
    for (topic, error) in shared.unavailable.news(Instant::now(), grace, current) {
        shared.inbox.push(Item::Event(Event::TopicUnavailable { topic, error }));
    }
}

/// The time for which patterns may be without a topic.
#[derive(Clone, Copy, Debug)]
enum Grace {
    Lasts,
    Over,
}

/// The parts of a subscription that cannot be read.
#[derive(Debug, Default)]
struct Errors {
    topics: BTreeMap<Arc<str>, ErrorCode>,
    /// The patterns that no topic matches.
    patterns: Vec<Arc<str>>,
}

fn errors(subscription: &Subscription, cluster: &Cluster) -> Errors {
    let has_patterns = subscription.has_patterns();
    if has_patterns && !cluster.lists_all_topics() {
        // The list of all topics decides, and it has not arrived.
        return Errors::default();
    }
    let names = subscription.names().iter();
    let error_of = |topic: &Arc<str>| {
        let code = cluster.lasting_error(topic)?;
        // The list of all topics does not contain those that this client may not see.
        Some((topic.clone(), if has_patterns { ErrorCode::UnknownTopicOrPartition } else { code }))
    };
    let topics = names.filter_map(error_of).collect();
    let patterns =
        if has_patterns { subscription.patterns_without(&cluster.visible_topics()) } else { Vec::new() };
    Errors { topics, patterns }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: ErrorCode = ErrorCode::UnknownTopicOrPartition;
    const FORBIDDEN: ErrorCode = ErrorCode::TopicAuthorizationFailed;

    fn topics(errors: &[(&str, ErrorCode)]) -> Errors {
        let topics = errors.iter().map(|(topic, code)| (Arc::from(*topic), *code)).collect();
        Errors { topics, patterns: Vec::new() }
    }

    fn patterns(patterns: &[&str]) -> Errors {
        Errors {
            topics: BTreeMap::new(),
            patterns: patterns.iter().map(|pattern| Arc::from(*pattern)).collect(),
        }
    }

    #[test]
    fn an_error_is_reported_once_and_again_after_a_change() {
        let (unavailable, now) = (UnavailableTopics::default(), Instant::now());
        assert!(
            unavailable.news(now, Grace::Lasts, |_| topics(&[("a", UNKNOWN)])).is_empty(),
            "nothing is subscribed"
        );
        *unavailable.subscription.borrow_mut() = Some(Subscription::default());
        let both = [("a", UNKNOWN), ("b", FORBIDDEN)];
        assert_eq!(unavailable.news(now, Grace::Lasts, |_| topics(&both)).len(), 2);
        assert!(unavailable.news(now, Grace::Lasts, |_| topics(&both)).is_empty());
        assert_eq!(
            unavailable.news(now, Grace::Lasts, |_| topics(&[("a", FORBIDDEN)])),
            [(Arc::from("a"), FORBIDDEN)]
        );
        let again = unavailable.news(now, Grace::Lasts, |_| topics(&[("a", FORBIDDEN), ("b", FORBIDDEN)]));
        assert_eq!(again, [(Arc::from("b"), FORBIDDEN)]);
    }

    #[test]
    fn a_pattern_without_a_topic_is_reported_at_the_second_look() {
        let (unavailable, now) = (UnavailableTopics::default(), Instant::now());
        *unavailable.subscription.borrow_mut() = Some(Subscription::default());
        assert!(unavailable.news(now, Grace::Lasts, |_| patterns(&["^a"])).is_empty());
        assert_eq!(unavailable.second_look(), Some(now + PATTERN_GRACE));
        assert!(
            unavailable.news(now + PATTERN_GRACE / 2, Grace::Lasts, |_| patterns(&["^a"])).is_empty(),
            "too early"
        );
        let late = now + PATTERN_GRACE;
        assert_eq!(unavailable.news(late, Grace::Lasts, |_| patterns(&["^a"])), [(Arc::from("^a"), UNKNOWN)]);
        assert_eq!(unavailable.second_look(), None, "it is reported");
        assert!(unavailable.news(late, Grace::Lasts, |_| patterns(&["^a"])).is_empty(), "once");
    }

    #[test]
    fn a_pattern_without_a_topic_is_reported_before_the_records_of_other_topics() {
        let (unavailable, now) = (UnavailableTopics::default(), Instant::now());
        *unavailable.subscription.borrow_mut() = Some(Subscription::default());
        assert!(unavailable.news(now, Grace::Lasts, |_| patterns(&["^a"])).is_empty());
        assert_eq!(unavailable.news(now, Grace::Over, |_| patterns(&["^a"])), [(Arc::from("^a"), UNKNOWN)]);
        assert!(unavailable.news(now, Grace::Lasts, |_| patterns(&["^a"])).is_empty(), "once");
    }

    #[test]
    fn a_pattern_that_finds_its_first_topic_in_time_is_not_reported() {
        let (unavailable, now) = (UnavailableTopics::default(), Instant::now());
        *unavailable.subscription.borrow_mut() = Some(Subscription::default());
        assert!(unavailable.news(now, Grace::Lasts, |_| patterns(&["^a"])).is_empty());
        assert!(unavailable.news(now, Grace::Lasts, |_| patterns(&[])).is_empty());
        assert_eq!(unavailable.second_look(), None);
        let late = now + PATTERN_GRACE;
        assert!(
            unavailable.news(late, Grace::Lasts, |_| patterns(&["^a"])).is_empty(),
            "its grace begins again"
        );
    }
}
