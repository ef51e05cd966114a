//! Members of a group, polled in turn by one thread that records their partitions and records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ottla_client::{Config, Consumer, Error, Event, Polled, TopicPartition};

/// The time limit for a rebalance.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);
const TURN: Duration = Duration::from_millis(10);

/// One member, as its application sees it.
pub(crate) struct Seat {
    pub(crate) name: String,
    pub(crate) consumer: Option<Consumer>,
    pub(crate) owned: BTreeSet<TopicPartition>,
    pub(crate) events: Vec<Event>,
    pub(crate) errors: Vec<Error>,
    /// `true` if [`Seats::drive`] skips it.
    pub(crate) stalls: bool,
}

/// All members.
#[derive(Default)]
pub(crate) struct Seats {
    pub(crate) list: Vec<Seat>,
    /// The number of times that each record was seen, by partition and offset.
    pub(crate) seen: BTreeMap<(TopicPartition, i64), usize>,
    /// The coordinator forgets its members: an owner may learn of it after the next one has joined.
    pub(crate) forgetful: bool,
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

impl Seats {
    pub(crate) fn join(&mut self, name: &str, config: Config, topics: &[&str]) {
        self.join_with(name, Consumer::new(config).expect("a consumer"), topics);
    }

    pub(crate) fn join_with(&mut self, name: &str, mut consumer: Consumer, topics: &[&str]) {
        block_on(consumer.subscribe(topics)).expect("subscribed");
        let (owned, events, errors) = Default::default();
        let consumer = Some(consumer);
        self.list.push(Seat { name: name.to_owned(), consumer, owned, events, errors, stalls: false });
    }

    pub(crate) fn seat(&mut self, name: &str) -> &mut Seat {
        self.list.iter_mut().find(|seat| seat.name == name).expect("a member of that name")
    }

    pub(crate) fn leave(&mut self, name: &str) {
        let at = self.list.iter().position(|seat| seat.name == name).expect("a member of that name");
        let consumer = self.list.remove(at).consumer.expect("a consumer");
        consumer.close_blocking(PATIENCE).expect("closed");
    }

    /// The member stops without leaving the group.
    pub(crate) fn kill(&mut self, name: &str) {
        self.list.retain(|seat| seat.name != name);
    }

    pub(crate) fn owned_by(&self, name: &str) -> BTreeSet<TopicPartition> {
        self.list.iter().find(|seat| seat.name == name).expect("a member of that name").owned.clone()
    }

    /// Polls all members in turn until `done`. No partition may have two owners at any moment, unless one of them
    /// stalls and cannot know.
    pub(crate) fn drive(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < deadline, "{what}: not after {PATIENCE:?}: {:?}", self.shares());
            for at in 0..self.list.len() {
                if !self.list[at].stalls {
                    self.poll(at);
                }
            }
        }
    }

    /// Polls for this time.
    pub(crate) fn drive_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        self.drive("time passes", |_| Instant::now() >= until);
    }

    /// Polls until all `count` partitions are owned and the shares are balanced.
    pub(crate) fn settle(&mut self, what: &str, count: usize) {
        self.drive(what, |seats| {
            let shares: Vec<usize> =
                seats.list.iter().filter(|seat| !seat.stalls).map(|seat| seat.owned.len()).collect();
            let (least, most) = (shares.iter().min().unwrap_or(&0), shares.iter().max().unwrap_or(&0));
            shares.iter().sum::<usize>() == count && most - least <= 1
        });
    }

    fn poll(&mut self, at: usize) {
        let polled = match self.list[at].consumer.as_mut().expect("a consumer").poll_blocking(TURN) {
            Ok(polled) => polled,
            Err(error) => return self.list[at].errors.push(error),
        };
        match polled {
            Some(Polled::Event(event)) => {
                match &event {
                    Event::Assigned(partitions) => {
                        for (other, seat) in self.list.iter().enumerate() {
                            let twice = partitions.iter().find(|partition| seat.owned.contains(partition));
                            assert!(
                                other == at || seat.stalls || self.forgetful || twice.is_none(),
                                "{twice:?} is given to {} while {} owns it",
                                self.list[at].name,
                                seat.name
                            );
                        }
                        self.list[at].owned.extend(partitions.iter().cloned());
                    }
                    Event::Revoked(partitions) | Event::Lost(partitions) => {
                        let owned = &mut self.list[at].owned;
                        for partition in partitions {
                            owned.remove(partition);
                        }
                    }
                    _ => {}
                }
                self.list[at].events.push(event);
            }
            Some(Polled::Records(batch)) => {
                let partition = TopicPartition::new(batch.topic(), batch.partition());
                for record in &batch {
                    let offset = record.expect("a sound record").offset;
                    *self.seen.entry((partition.clone(), offset)).or_default() += 1;
                }
            }
            _ => {}
        }
    }

    fn shares(&self) -> Vec<(&str, usize, &[Error])> {
        self.list.iter().map(|seat| (&*seat.name, seat.owned.len(), &*seat.errors)).collect()
    }
}
