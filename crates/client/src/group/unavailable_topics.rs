//! Subscribed topics that cannot be read: each is reported once per error, and again when its error changes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::Shared;
use super::subscription::Subscription;
use crate::cluster::Cluster;
use crate::fetch::inbox::Item;
use crate::types::Event;

/// The subscription, and the errors of its topics that the application knows.
#[derive(Debug, Default)]
pub(super) struct UnavailableTopics {
    subscription: RefCell<Option<Subscription>>,
    reported: RefCell<BTreeMap<Arc<str>, ErrorCode>>,
}

impl UnavailableTopics {
    /// Watches the topics of another subscription; `None` ends that.
    pub(super) fn watch(&self, subscription: Option<Subscription>, cluster: &Cluster) {
        for topic in subscription.iter().flat_map(Subscription::names) {
            cluster.want(topic);
        }
        if subscription.is_none() {
            self.reported.borrow_mut().clear();
        }
        *self.subscription.borrow_mut() = subscription;
    }

    /// The errors that are not reported yet. A topic that has become available may be reported again later.
    fn news(
        &self,
        error_of: impl Fn(&Subscription) -> BTreeMap<Arc<str>, ErrorCode>,
    ) -> Vec<(Arc<str>, ErrorCode)> {
        let subscription = self.subscription.borrow();
        let Some(subscription) = &*subscription else { return Vec::new() };
        let current = error_of(subscription);
        let mut reported = self.reported.borrow_mut();
        let is_new = |(topic, code): &(&Arc<str>, &ErrorCode)| reported.get(*topic) != Some(*code);
        let news = current.iter().filter(is_new).map(|(topic, code)| (topic.clone(), *code)).collect();
        *reported = current;
        news
    }
}

/// Reports the errors of subscribed topics after each metadata response, until its owner drops it.
pub(super) async fn run(shared: Rc<Shared>) {
    let mut changes = shared.cluster.changes();
    loop {
        changes.changed().await;
        for (topic, error) in shared.unavailable.news(|subscription| errors(subscription, &shared.cluster)) {
            shared.inbox.push(Item::Event(Event::TopicUnavailable { topic, error }));
        }
    }
}

fn errors(subscription: &Subscription, cluster: &Cluster) -> BTreeMap<Arc<str>, ErrorCode> {
    if subscription.has_patterns() && !cluster.lists_all_topics() {
        // The list of all topics decides, and it has not arrived.
        return BTreeMap::new();
    }
    let names = subscription.names().iter();
    let mut errors: BTreeMap<_, _> =
        names.filter_map(|topic| Some((topic.clone(), cluster.lasting_error(topic)?))).collect();
    if subscription.has_patterns() && cluster.lists_all_topics() {
        // The list of all topics does not contain those that this client may not see.
        for code in errors.values_mut() {
            *code = ErrorCode::UnknownTopicOrPartition;
        }
        let visible = cluster.visible_topics();
        for pattern in subscription.patterns_without(&visible) {
            errors.insert(pattern, ErrorCode::UnknownTopicOrPartition);
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_reported_once_and_again_after_a_change() {
        let topics = UnavailableTopics::default();
        let state = |errors: &[(&str, ErrorCode)]| -> BTreeMap<Arc<str>, ErrorCode> {
            errors.iter().map(|(topic, code)| (Arc::from(*topic), *code)).collect()
        };
        let (unknown, forbidden) = (ErrorCode::UnknownTopicOrPartition, ErrorCode::TopicAuthorizationFailed);
        assert!(topics.news(|_| state(&[("a", unknown)])).is_empty(), "nothing is subscribed");
        *topics.subscription.borrow_mut() = Some(Subscription::default());
        let both = [("a", unknown), ("b", forbidden)];
        assert_eq!(topics.news(|_| state(&both)).len(), 2);
        assert!(topics.news(|_| state(&both)).is_empty());
        assert_eq!(topics.news(|_| state(&[("a", forbidden)])), [(Arc::from("a"), forbidden)]);
        assert_eq!(topics.news(|_| state(&[("a", forbidden), ("b", forbidden)])).len(), 1, "b again");
    }
}
