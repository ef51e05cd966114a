//! The task that creates a snapshot at each interval and checks for stalls.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::brokers::{idle_us, micros};
use super::snapshot::{self, Eos, Group, Partition, Snapshot, Toppar};
use super::{Observer, State};
use crate::clock::Stamper;
use crate::cluster::Cluster;
use crate::produce::Produce;
use crate::produce::idempotence::ProducerId;
use crate::produce::snapshot::PartitionBuffer;
use crate::watchdog::Watchdog;

/// The number of the watchdog's checks within the time after which a stall is reported.
pub(crate) const LOOKS: u32 = 5;

/// Runs for one engine until the engine drops it.
pub(crate) async fn run(cluster: Rc<Cluster>, produce: Arc<Produce>) {
    let observer = produce.observer.clone();
    let began = Instant::now();
    let interval = produce.config.statistics_interval;
    let look_every = observer.stall_after / LOOKS;
    let next = |every: Duration| (!every.is_zero()).then(|| Instant::now() + every);
    let (mut snapshot_at, mut look_at) = (next(interval), next(look_every));
    let mut watchdog = Watchdog::default();
    loop {
        let Some(wake_at) = snapshot_at.into_iter().chain(look_at).min() else { return };
        tokio::time::sleep_until(wake_at).await;
        observer.survey_wanted.store(true, std::sync::atomic::Ordering::Relaxed);
        produce.queues.wake.notify_one();
        observer.surveyed.notified().await;
        let now = Instant::now();
        if look_at.is_some_and(|at| at <= now) {
            let stalls = observer.active_stalls(&produce, now);
            for report in watchdog.look(now, observer.stall_after, stalls) {
                observer.stalled(report);
            }
            look_at = next(look_every);
        }
        if let Some(at) = snapshot_at.filter(|at| *at <= now) {
            let snapshot = Arc::new(observer.snapshot(&cluster, &produce, began, now));
            #[cfg(feature = "metrics")]
            super::metrics_export::publish(&snapshot);
            observer.state().last = Some(snapshot.clone());
            observer.statistics.push(snapshot);
            // The next interval starts at a fixed time, independently of the duration of this one.
            snapshot_at = Some((at + interval).max(now));
        }
    }
}

impl Observer {
    /// The statistics of the interval; the windows start again.
    fn snapshot(&self, cluster: &Cluster, produce: &Produce, began: Instant, now: Instant) -> Snapshot {
        let mut state = self.state();
        let state = &mut *state;
        let memory = &produce.queues.memory;
        let mut snapshot = Snapshot {
            name: self.name.to_string(),
            client_id: produce.config.client_id.clone(),
            client_type: if state.consumes { "consumer" } else { "producer" }.into(),
            ts: micros(now.saturating_duration_since(began)),
            time: Stamper::default().stamp(&produce.config.clock) / 1000,
            age: micros(now.saturating_duration_since(began)),
            replyq: (produce.reports.len() + self.statistics.len() + self.stalls.len()) as u64,
            msg_max: memory.records_max() as u64,
            msg_size: memory.used() as u64,
            msg_size_max: memory.max() as u64,
            metadata_cache_cnt: cluster.topic_count() as u64,
            brokers: brokers(state, now),
            ..Snapshot::default()
        };
        for broker in snapshot.brokers.values() {
            snapshot.tx += broker.tx;
            snapshot.tx_bytes += broker.txbytes;
            snapshot.rx += broker.rx;
            snapshot.rx_bytes += broker.rxbytes;
        }
        topics(state, cluster, &mut snapshot, now);
        for partition in snapshot.topics.values().flat_map(|topic| topic.partitions.values()) {
            snapshot.msg_cnt += partition.msgq_cnt + partition.xmit_msgq_cnt + partition.msgs_inflight;
            snapshot.txmsgs += partition.txmsgs;
            snapshot.txmsg_bytes += partition.txbytes;
            snapshot.rxmsgs += partition.rxmsgs;
            snapshot.rxmsg_bytes += partition.rxbytes;
        }
        snapshot.cgrp = state.group.as_ref().map(|group| {
            let age = now.saturating_duration_since(group.rebalanced_at).as_millis() as i64;
            Group {
                state: "up".into(),
                stateage: age,
                join_state: "steady".into(),
                rebalance_age: age,
                rebalance_cnt: group.rebalances,
                rebalance_reason: String::new(),
                assignment_size: group.partitions,
            }
        });
        snapshot.eos = produce.config.enable_idempotence.then(|| {
            let age = |since: Instant| now.saturating_duration_since(since).as_millis() as i64;
            let (idempotence, since) = state.idempotence.unwrap_or(("Init", began));
            let transactions = produce.transactions.status();
            // In transactions, the coordinator assigns ids and epochs.
            let (id, epoch, count) = match (&produce.transactions.id, state.producer_id) {
                (Some(_), _) => {
                    let ProducerId { id, epoch } = transactions.producer;
                    (id, epoch, transactions.producer_ids)
                }
                (None, known) => {
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

fn topics(state: &mut State, cluster: &Cluster, snapshot: &mut Snapshot, now: Instant) {
    let ms = |at: Instant| now.saturating_duration_since(at).as_millis() as i64;
    for (name, counts) in &mut state.topics {
        let mut topic = snapshot::Topic {
            topic: name.to_string(),
            age: ms(counts.seen_at),
            metadata_age: ms(counts.metadata_at),
            batchsize: counts.batch_bytes.roll(),
            batchcnt: counts.batch_records.roll(),
            ..snapshot::Topic::default()
        };
        let layout = cluster.topic(name);
        let known = layout.as_ref().map_or(0, |layout| layout.partitions.len() as i32);
        let held = state.survey.partitions.iter().filter(|held| held.topic == *name);
        let held: BTreeMap<i32, &PartitionBuffer> = held.map(|held| (held.partition, held)).collect();
        let mut numbers: Vec<i32> = (0..known).collect();
        numbers.extend(counts.partitions.keys().chain(held.keys()).filter(|at| !(0..known).contains(at)));
        for number in numbers {
            let mut partition = Partition {
                partition: number,
                unknown: number >= known,
                leader: layout.as_ref().and_then(|layout| layout.leader(number)).unwrap_or(-1),
                leader_epoch: layout.as_ref().and_then(|layout| layout.leader_epoch(number)).unwrap_or(-1),
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
                if counts.next_offset >= 0 && counts.high >= 0 {
                    partition.consumer_lag = (counts.high - counts.next_offset).max(0);
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
