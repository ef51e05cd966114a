//! The values that a client pushes to a broker that subscribes to its metrics (KIP-714).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::topics::{AssignedOffsets, TopicCounts};
pub(crate) use super::window::Sums;
use super::{Observer, State};
use crate::config::Isolation;

/// The limit of nodes, topics and partitions with values of their own in one push; others have none.
const SERIES_MAX: usize = 1_000;

/// A kind of handle on a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Role {
    Producer = 1,
    Consumer = 2,
}

/// The durations of rebalances in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rebalances {
    since_push: Sums,
    count: u64,
    total_ms: u64,
}

impl Rebalances {
    pub(super) fn record(&mut self, took: Duration) {
        let ms = took.as_millis() as u64;
        self.since_push.add(ms, 1);
        self.count += 1;
        self.total_ms = self.total_ms.saturating_add(ms);
    }
}

/// A client's values. Totals count from the client's start, or from the first subscription to its metrics if
/// `statistics.interval.ms` is 0; windows contain the values since the last push.
#[derive(Clone, Debug, Default)]
pub(crate) struct PushedValues {
    pub(crate) is_producer: bool,
    pub(crate) is_consumer: bool,
    pub(crate) member_id: Option<String>,
    /// Connections that were opened.
    pub(crate) opened: u64,
    pub(crate) open: u64,
    pub(crate) tx: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) rx: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) in_flight: u64,
    pub(crate) throttle_ms: Sums,
    pub(crate) queue_time_us: Sums,
    pub(crate) batch_bytes: Sums,
    pub(crate) produce_us: Sums,
    pub(crate) fetch_us: Sums,
    pub(crate) commit_us: Sums,
    pub(crate) assigned_partitions: u64,
    pub(crate) rebalance_ms: Sums,
    pub(crate) rebalances: u64,
    pub(crate) rebalance_total_ms: u64,
    /// The time that polls waited since the last push, on average over the consumers.
    pub(crate) poll_wait: Duration,
    /// The round-trip times in microseconds, by node id.
    pub(crate) nodes: BTreeMap<i32, Sums>,
    pub(crate) topics: BTreeMap<Arc<str>, TopicTotals>,
    /// The totals of all topics, also of forgotten ones and of those that `topics` has no room for.
    pub(crate) totals: TopicTotals,
    /// The records between the position of an assigned partition and its end.
    pub(crate) lags: BTreeMap<(Arc<str>, i32), u64>,
    /// The largest of all lags, also of those that `lags` has no room for.
    pub(crate) lag_max: Option<u64>,
}

/// The records and bytes of a topic.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct TopicTotals {
    pub(crate) tx_records: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) rx_records: u64,
    pub(crate) rx_bytes: u64,
}

impl TopicTotals {
    fn merge(&mut self, other: Self) {
        self.tx_records += other.tx_records;
        self.tx_bytes += other.tx_bytes;
        self.rx_records += other.rx_records;
        self.rx_bytes += other.rx_bytes;
    }
}

impl Observer {
    /// Returns the values for a push; the windows start again.
    pub(crate) fn take_pushed_values(&self, isolation: Isolation) -> PushedValues {
        let roles = self.roles.load(Ordering::Relaxed);
        let mut state = self.state();
        let state = &mut *state;
        let mut values = PushedValues {
            is_producer: roles & Role::Producer as u8 != 0,
            is_consumer: roles & Role::Consumer as u8 != 0,
            member_id: state.member_id.clone(),
            assigned_partitions: state.group.as_ref().map_or(0, |group| group.partitions),
            rebalance_ms: std::mem::take(&mut state.rebalances.since_push),
            rebalances: state.rebalances.count,
            rebalance_total_ms: state.rebalances.total_ms,
            poll_wait: poll_wait(state),
            // The sums of a client never fall.
            opened: state.of_forgotten.opened,
            tx: state.of_forgotten.tx,
            tx_bytes: state.of_forgotten.tx_bytes,
            rx: state.of_forgotten.rx,
            rx_bytes: state.of_forgotten.rx_bytes,
            totals: state.of_forgotten_topics,
            ..PushedValues::default()
        };
        add_brokers(state, &mut values);
        for (name, counts) in &mut state.topics {
            values.batch_bytes.merge(counts.batch_bytes.take_since_push());
            add_topic(name, counts, isolation, &mut values);
        }
        values
    }
}

fn poll_wait(state: &mut State) -> Duration {
    let waits: Vec<u64> = state.polls.iter_mut().filter_map(super::FollowedPolls::take_waited_us).collect();
    let count = waits.len().max(1) as u64;
    Duration::from_micros(waits.iter().sum::<u64>() / count)
}

fn add_brokers(state: &mut State, values: &mut PushedValues) {
    for (address, broker) in &mut state.brokers {
        values.opened += broker.opened;
        values.open += u64::from(broker.open);
        values.tx += broker.tx;
        values.tx_bytes += broker.tx_bytes;
        values.rx += broker.rx;
        values.rx_bytes += broker.rx_bytes;
        values.in_flight += broker.flights.len() as u64;
        values.throttle_ms.merge(broker.throttle.take_since_push());
        values.queue_time_us.merge(broker.int_latency.take_since_push());
        let latencies = std::mem::take(&mut broker.latencies);
        values.produce_us.merge(latencies.produce);
        values.fetch_us.merge(latencies.fetch);
        values.commit_us.merge(latencies.commit);
        let rtt = broker.rtt.take_since_push();
        let node = state.nodes.iter().find(|(_, at)| **at == *address).map(|(node, _)| *node);
        if let Some(node) = node
            && rtt.count > 0
            && values.nodes.len() < SERIES_MAX
        {
            values.nodes.insert(node, rtt);
        }
    }
}

fn add_topic(name: &Arc<str>, counts: &TopicCounts, isolation: Isolation, values: &mut PushedValues) {
    let mut totals = TopicTotals::default();
    counts.add_to(&mut totals);
    for (number, partition) in &counts.partitions {
        let offsets = partition.offsets.as_ref().and_then(Weak::upgrade).map(|source| source.offsets());
        let lag = offsets.and_then(|offsets| lag(&offsets, partition.high, isolation));
        values.lag_max = values.lag_max.max(lag);
        if let Some(lag) = lag.filter(|_| values.lags.len() < SERIES_MAX) {
            values.lags.insert((name.clone(), *number), lag);
        }
    }
    values.totals.merge(totals);
    let is_used = totals.tx_records > 0 || totals.rx_records > 0;
    if is_used && values.topics.len() < SERIES_MAX {
        values.topics.insert(name.clone(), totals);
    }
}

fn lag(offsets: &AssignedOffsets, high: i64, isolation: Isolation) -> Option<u64> {
    let end = match isolation {
        Isolation::ReadCommitted => offsets.last_stable?,
        Isolation::ReadUncommitted => high,
    };
    u64::try_from(end.checked_sub(offsets.position?)?).ok()
}

/// Values of each kind, for tests: windows have one value of 2000.
#[cfg(test)]
pub(crate) fn sample() -> PushedValues {
    let mut window = Sums::default();
    window.add(2000, 1);
    let totals = TopicTotals { tx_records: 1, tx_bytes: 2, rx_records: 3, rx_bytes: 4 };
    PushedValues {
        opened: 7,
        throttle_ms: window,
        queue_time_us: window,
        batch_bytes: window,
        produce_us: window,
        fetch_us: window,
        commit_us: window,
        rebalance_ms: window,
        nodes: BTreeMap::from([(1, window)]),
        topics: BTreeMap::from([("orders".into(), totals)]),
        totals,
        lags: BTreeMap::from([(("orders".into(), 0), 5)]),
        lag_max: Some(5),
        ..PushedValues::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::topics::OffsetSource;
    use super::*;
    use crate::config::Config;
    use crate::types::TopicPartition;

    #[derive(Debug)]
    struct FixedPosition(i64);

    impl OffsetSource for FixedPosition {
        fn offsets(&self) -> AssignedOffsets {
            AssignedOffsets {
                position: Some(self.0),
                stored: None,
                stored_leader_epoch: -1,
                committed: None,
                end_reached: None,
                last_stable: None,
            }
        }
    }

    fn counting() -> Arc<Observer> {
        let observer = Observer::new(&Config::new("a"), 1);
        observer.start_counting();
        observer
    }

    /// The totals were sums over a list that was cut off after a thousand topics.
    #[test]
    fn totals_contain_the_topics_above_the_limit() {
        let observer = counting();
        for number in 0..=SERIES_MAX {
            let topic: Arc<str> = format!("topic-{number}").into();
            observer.consumed(&topic, 0, 2, 10, 2);
        }
        let values = observer.take_pushed_values(Isolation::ReadUncommitted);
        assert_eq!(values.topics.len(), SERIES_MAX);
        assert_eq!((values.totals.rx_records, values.totals.rx_bytes), (2_002, 10_010));
    }

    /// The largest lag was that of a list that was cut off after a thousand partitions: this one had none.
    #[test]
    fn the_largest_lag_may_be_that_of_a_partition_above_the_limit() {
        let observer = counting();
        let source: Arc<dyn OffsetSource> = Arc::new(FixedPosition(7));
        let topic: Arc<str> = "orders".into();
        let last = SERIES_MAX as i32;
        for partition in 0..=last {
            observer.follow(&TopicPartition::new("orders", partition), Arc::downgrade(&source));
            let high = if partition == last { 12 } else { 7 };
            observer.fetched(1, &topic, partition, 0, (0, high));
        }
        let values = observer.take_pushed_values(Isolation::ReadUncommitted);
        assert_eq!(values.lags.len(), SERIES_MAX);
        assert!(values.lags.values().all(|lag| *lag == 0));
        assert_eq!(values.lag_max, Some(5));
    }
}
