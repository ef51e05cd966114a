//! A snapshot of the statistics, from the counters of an interval and the facts about the client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use tokio::time::Instant;

use super::brokers::{idle_us, micros};
use super::buffers::PartitionBuffer;
use super::facts::ClientFacts;
use super::pushed::TopicTotals;
use super::share::ShareStatistics;
use super::snapshot::{self, Eos, NO_OFFSET, Partition, Share, Snapshot, Toppar};
use super::topics::{AssignedOffsets, TopicCounts};
use super::{Observer, State, Traffic};
use crate::clock::Stamper;
use crate::config::Isolation;
use crate::types::producer_id::ProducerId;

/// The time for which a topic stays in the statistics after the last metadata response in which it existed.
const UNNAMED_KEPT: Duration = Duration::from_secs(900);

impl Observer {
    /// Forgets the topics that have been gone for long. A client that publishes no statistics calls this before each push of metrics.
    pub(crate) fn forget_topics(&self, has_leader: impl Fn(&str) -> bool, now: Instant) {
        forget_topics(&mut self.state(), has_leader, now);
    }

    /// Returns `true` if the topic has counters.
    pub(crate) fn counts_topic(&self, topic: &str) -> bool {
        self.state().topics.contains_key(topic)
    }

    /// The statistics of the interval; the windows start again.
    pub(crate) fn snapshot(&self, facts: &ClientFacts<'_>, began: Instant, now: Instant) -> Snapshot {
        let mut state = self.state();
        let state = &mut *state;
        state.forget_brokers();
        // A deleted topic that is in use keeps its partitions in the metadata, without leaders.
        let has_leader = |topic: &str| (facts.leaders)(topic).iter().any(|leader| leader.node >= 0);
        forget_topics(state, has_leader, now);
        // Records can wait for a topic that no metadata has named yet.
        for held in &state.survey.partitions {
            state.topics.entry(held.topic.clone()).or_insert_with(|| TopicCounts::new(now));
        }
        let config = facts.config;
        let mut snapshot = Snapshot {
            name: self.name.to_string(),
            client_id: config.client_id.clone(),
            client_type: if state.consumes { "consumer" } else { "producer" }.into(),
            ts: micros(now.saturating_duration_since(began)),
            time: Stamper::default().stamp(&config.clock) / 1000,
            age: micros(now.saturating_duration_since(began)),
            replyq: (facts.unread_reports + self.statistics.len() + self.stalls.len()) as u64,
            msg_max: facts.memory.records_max as u64,
            msg_size: facts.memory.bytes_used as u64,
            msg_size_max: facts.memory.bytes_max as u64,
            metadata_cache_cnt: facts.topics as u64,
            brokers: brokers(state, now),
            ..Snapshot::default()
        };
        let Traffic { tx, tx_bytes, rx, rx_bytes, .. } = state.of_forgotten;
        (snapshot.tx, snapshot.tx_bytes, snapshot.rx, snapshot.rx_bytes) = (tx, tx_bytes, rx, rx_bytes);
        for broker in snapshot.brokers.values() {
            snapshot.tx += broker.tx;
            snapshot.tx_bytes += broker.txbytes;
            snapshot.rx += broker.rx;
            snapshot.rx_bytes += broker.rxbytes;
        }
        topics(state, facts, &mut snapshot, now);
        let TopicTotals { tx_records, tx_bytes, rx_records, rx_bytes } = state.of_forgotten_topics;
        (snapshot.txmsgs, snapshot.txmsg_bytes) = (tx_records, tx_bytes);
        (snapshot.rxmsgs, snapshot.rxmsg_bytes) = (rx_records, rx_bytes);
        for partition in snapshot.topics.values().flat_map(|topic| topic.partitions.values()) {
            snapshot.msg_cnt += partition.msgq_cnt + partition.xmit_msgq_cnt + partition.msgs_inflight;
            snapshot.txmsgs += partition.txmsgs;
            snapshot.txmsg_bytes += partition.txbytes;
            snapshot.rxmsgs += partition.rxmsgs;
            snapshot.rxmsg_bytes += partition.rxbytes;
        }
        snapshot.cgrp = state.group.as_ref().map(|group| group.snapshot(now));
        snapshot.share = state.share_consumers.total().map(share);
        snapshot.eos = config.enable_idempotence.then(|| {
            let age = |since: Instant| now.saturating_duration_since(since).as_millis() as i64;
            let (idempotence, since) = state.idempotence.unwrap_or(("Init", began));
            let transactions = facts.transactions;
            // In transactions, the coordinator assigns ids and epochs.
            let (id, epoch, count) = match (facts.has_transactional_id, state.producer_id) {
                (true, _) => {
                    let ProducerId { id, epoch } = transactions.producer;
                    (id, epoch, transactions.producer_ids)
                }
                (false, known) => {
                    let (id, epoch) = known.unwrap_or((-1, -1));
                    (id, epoch, state.producer_ids)
                }
            };
            Eos {
                idemp_state: idempotence.into(),
                idemp_stateage: age(since),
                txn_state: transactions.state.into(),
                txn_stateage: age(transactions.changed_at.unwrap_or(began)),
                txn_may_enq: transactions.takes_records,
                producer_id: id,
                producer_epoch: i64::from(epoch),
                epoch_cnt: count,
            }
        });
        snapshot
    }
}

fn share(total: ShareStatistics) -> Share {
    let ShareStatistics { records, batches, acknowledged, failed, expired, corrupt } = total;
    Share { records, batches, acknowledged, failed, expired, corrupt }
}

fn brokers(state: &mut State, now: Instant) -> BTreeMap<String, snapshot::Broker> {
    let node_at = |address: &str| state.nodes.iter().find(|(_, at)| ***at == *address).map(|(node, _)| *node);
    let mut snapshots = BTreeMap::new();
    for (address, broker) in &mut state.brokers {
        let node = node_at(address);
        let outgoing = |held: &&PartitionBuffer| held.leader.is_some() && held.leader == node;
        let name = node.map_or_else(|| format!("{address}/bootstrap"), |node| format!("{address}/{node}"));
        let (waiting, outbox): (Vec<_>, Vec<_>) =
            broker.flights.values().partition(|flight| flight.written.is_some());
        let snapshot = snapshot::Broker {
            name: name.clone(),
            nodeid: node.unwrap_or(-1),
            nodename: address.to_string(),
            source: if node.is_some() { "learned" } else { "configured" }.into(),
            state: broker.state.name().into(),
            stateage: micros(now.saturating_duration_since(broker.state_since)),
            outbuf_cnt: outbox.len() as u64,
            outbuf_msg_cnt: state.survey.partitions.iter().filter(outgoing).map(|held| held.outgoing.0).sum(),
            waitresp_cnt: waiting.len() as u64,
            waitresp_msg_cnt: node.and_then(|node| state.survey.in_flight.get(&node).copied()).unwrap_or(0),
            tx: broker.tx,
            txbytes: broker.tx_bytes,
            txerrs: broker.tx_errors,
            txretries: broker.retries,
            txidle: idle_us(broker.tx_at, now),
            req_timeouts: broker.timeouts,
            rx: broker.rx,
            rxbytes: broker.rx_bytes,
            rxerrs: broker.rx_errors,
            rxcorriderrs: broker.rx_correlation_errors,
            rxidle: idle_us(broker.rx_at, now),
            wakeups: broker.tx + broker.rx,
            req: broker.requests.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            connects: broker.connects,
            disconnects: broker.disconnects,
            int_latency: broker.int_latency.roll(),
            outbuf_latency: broker.outbuf_latency.roll(),
            rtt: broker.rtt.roll(),
            throttle: broker.throttle.roll(),
            ..snapshot::Broker::default()
        };
        snapshots.insert(name, snapshot);
    }
    snapshots
}

/// Forgets the topics that have no leader in the metadata, and that existed in no response for long: deleted ones, and those that the
/// application has left. The client's own counters never decrease.
fn forget_topics(state: &mut State, has_leader: impl Fn(&str) -> bool, now: Instant) {
    let State { topics, survey, of_forgotten_topics, .. } = state;
    let held: BTreeSet<&str> = survey.partitions.iter().map(|held| &*held.topic).collect();
    topics.retain(|name, counts| {
        let is_kept = now.saturating_duration_since(counts.metadata_at) < UNNAMED_KEPT
            || counts.is_assigned()
            || held.contains(&**name)
            || has_leader(name);
        if !is_kept {
            counts.add_to(of_forgotten_topics);
        }
        is_kept
    });
}

fn topics(state: &mut State, facts: &ClientFacts<'_>, snapshot: &mut Snapshot, now: Instant) {
    let ms = |at: Instant| now.saturating_duration_since(at).as_millis() as i64;
    let mut held_by_topic: BTreeMap<&str, BTreeMap<i32, &PartitionBuffer>> = BTreeMap::new();
    for held in &state.survey.partitions {
        held_by_topic.entry(&held.topic).or_default().insert(held.partition, held);
    }
    for (name, counts) in &mut state.topics {
        let mut topic = snapshot::Topic {
            topic: name.to_string(),
            age: ms(counts.seen_at),
            metadata_age: ms(counts.metadata_at),
            batchsize: counts.batch_bytes.roll(),
            batchcnt: counts.batch_records.roll(),
            ..snapshot::Topic::default()
        };
        let leaders = (facts.leaders)(name);
        let known = leaders.len() as i32;
        let held = held_by_topic.remove(&**name).unwrap_or_default();
        let mut numbers: Vec<i32> = (0..known).collect();
        numbers.extend(counts.partitions.keys().chain(held.keys()).filter(|at| !(0..known).contains(at)));
        for number in numbers {
            let leader = usize::try_from(number).ok().and_then(|at| leaders.get(at));
            let mut partition = Partition {
                partition: number,
                unknown: number >= known,
                leader: leader.map_or(-1, |leader| leader.node),
                leader_epoch: leader.map_or(-1, |leader| leader.epoch),
                ..Partition::default()
            };
            partition.broker = partition.leader;
            if let Some(counts) = counts.partitions.get(&number) {
                (partition.txmsgs, partition.txbytes) = (counts.tx_records, counts.tx_bytes);
                (partition.rxmsgs, partition.rxbytes) = (counts.rx_records, counts.rx_bytes);
                partition.desired = counts.fetched;
                partition.fetch_state = if counts.fetched { "active" } else { "none" }.into();
                (partition.next_offset, partition.app_offset) = (counts.next_offset, counts.next_offset);
                (partition.lo_offset, partition.hi_offset) = (counts.low, counts.high);
                partition.ls_offset = counts.high;
                if let Some(offsets) = counts.offsets.as_ref().and_then(Weak::upgrade) {
                    set_offsets(&mut partition, &offsets.offsets(), facts.config.isolation_level);
                }
            }
            if let Some(held) = held.get(&number) {
                (partition.msgq_cnt, partition.msgq_bytes) = held.queued;
                (partition.xmit_msgq_cnt, partition.xmit_msgq_bytes) = held.outgoing;
                partition.msgs_inflight = held.in_flight;
            }
            // The number of fetched records; for producers, of records sent or queued for the first time.
            partition.msgs =
                if partition.rxmsgs > 0 { partition.rxmsgs } else { partition.txmsgs + partition.msgq_cnt };
            let at = snapshot
                .brokers
                .values_mut()
                .find(|broker| broker.nodeid >= 0 && broker.nodeid == partition.leader);
            if let Some(broker) = at {
                let toppar = Toppar { topic: name.to_string(), partition: number };
                broker.toppars.insert(format!("{name}-{number}"), toppar);
            }
            topic.partitions.insert(number.to_string(), partition);
        }
        snapshot.topics.insert(name.to_string(), topic);
    }
}

/// The offsets of an assigned partition, and how far they are from its end.
fn set_offsets(partition: &mut Partition, offsets: &AssignedOffsets, isolation: Isolation) {
    let or_none = |known: Option<i64>| known.unwrap_or(NO_OFFSET);
    partition.app_offset = or_none(offsets.position);
    partition.stored_offset = or_none(offsets.stored);
    partition.committed_offset = or_none(offsets.committed);
    partition.commited_offset = partition.committed_offset;
    partition.eof_offset = or_none(offsets.end_reached);
    partition.ls_offset = or_none(offsets.last_stable);
    if offsets.stored.is_some() {
        partition.stored_leader_epoch = offsets.stored_leader_epoch;
    }
    let end = match isolation {
        Isolation::ReadCommitted => partition.ls_offset,
        Isolation::ReadUncommitted => partition.hi_offset,
    };
    let lag = |from: Option<i64>| from.filter(|from| *from <= end).map_or(-1, |from| end - from);
    partition.consumer_lag = lag(offsets.committed);
    partition.consumer_lag_stored = lag(offsets.stored);
}

#[cfg(test)]
mod tests {
    use ottla_protocol::ErrorCode;
    use ottla_protocol::messages::metadata::MetadataResponseTopic;

    use super::super::facts::{MemoryFacts, PartitionLeader, TransactionStatus};
    use super::*;
    use crate::config::Config;

    /// Topics that were deleted stayed in the statistics for good: a client of many short-lived topics used ever more memory.
    #[test]
    fn topics_without_metadata_leave_the_statistics_and_the_totals_stay() {
        let now = Instant::now();
        let mut state = State::default();
        for name in ["kept", "deleted"] {
            let mut counts = TopicCounts::new(now);
            counts.consumed(0, 3, 30, 3);
            state.topics.insert(name.into(), counts);
        }
        let has_leader = |name: &str| name == "kept";
        forget_topics(&mut state, has_leader, now + UNNAMED_KEPT / 2);
        assert_eq!(state.topics.len(), 2, "it may come back");
        forget_topics(&mut state, has_leader, now + UNNAMED_KEPT);
        assert_eq!(state.topics.keys().map(|name| &**name).collect::<Vec<_>>(), ["kept"]);
        let totals = TopicTotals { rx_records: 3, rx_bytes: 30, ..TopicTotals::default() };
        assert_eq!(state.of_forgotten_topics, totals);
    }

    /// Each refresh names the topics that the client has used, and they keep their partitions in the metadata: deleted ones stayed.
    #[tokio::test(start_paused = true)]
    async fn a_topic_that_responses_report_as_unknown_leaves_the_statistics() {
        let config = Config::new("a");
        let observer = Observer::new(&config, 1);
        observer.start_counting();
        let began = Instant::now();
        for name in ["kept", "deleted"] {
            observer.consumed(&name.into(), 0, 3, 30, 3);
        }
        let leaders =
            |name: &str| vec![PartitionLeader { node: if name == "kept" { 1 } else { -1 }, epoch: 0 }];
        let facts = ClientFacts {
            config: &config,
            memory: MemoryFacts { records_max: 1, bytes_used: 0, bytes_max: 1, is_full: false },
            unread_reports: 0,
            has_transactional_id: false,
            transactions: TransactionStatus {
                state: "Init",
                changed_at: None,
                takes_records: false,
                needs_epoch: false,
                producer: ProducerId { id: -1, epoch: -1 },
                producer_ids: 0,
            },
            topics: 2,
            leaders: &leaders,
        };
        let unknown = MetadataResponseTopic {
            error_code: ErrorCode::UnknownTopicOrPartition,
            name: Some("deleted".into()),
            ..Default::default()
        };
        for expected in [&["deleted", "kept"][..], &["kept"], &["kept"]] {
            tokio::time::advance(UNNAMED_KEPT / 2).await;
            observer.learned_topics(std::slice::from_ref(&unknown));
            let snapshot = observer.snapshot(&facts, began, Instant::now());
            assert_eq!(snapshot.topics.keys().collect::<Vec<_>>(), expected);
            assert_eq!((snapshot.rxmsgs, snapshot.rxmsg_bytes), (6, 60), "the totals stay");
        }
        assert!(observer.counts_topic("kept") && !observer.counts_topic("deleted"));
        // The same before a push of metrics.
        observer.forget_topics(|_| false, Instant::now());
        assert!(!observer.counts_topic("kept"));
        assert_eq!(observer.take_pushed_values(Isolation::ReadUncommitted).totals.rx_records, 6);
    }
}
