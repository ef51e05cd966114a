//! The share consumer.

mod batch;
mod delivered;
mod open;
mod renewals;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::Uuid;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

pub use self::batch::{ShareBatch, ShareRecord, ShareRecords};
use self::delivered::DeliveredBatch;
use self::open::{OpenedChunk, open};
use self::renewals::Renewals;
use crate::blocking;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::consumer::EngineReply;
use crate::consumer::open_chunk::ReadContext;
use crate::error::Error;
use crate::group::poll_activity::PollActivity;
use crate::notification_queue::NotificationQueue;
use crate::panics::guarded;
use crate::share::acknowledgements::{PartitionAcks, TopicIdPartition};
use crate::share::commands::{CommitResults, ShareCommand};
use crate::share::links::ShareLinks;
use crate::share::queue::{AcquiredChunk, ShareItem, ShareQueue};
use crate::stats::events::OnDemandQueue;
use crate::stats::polls::PollTimes;
use crate::stats::pushed::Role;
use crate::stats::share::{ShareCounters, ShareStatistics};
use crate::timer;
use crate::types::topic_name::check_all;
use crate::types::{AcknowledgeType, AcknowledgementResult, ShareAcknowledgementMode, TopicPartition};

/// The results of acknowledgements that wait to be read; older ones are dropped.
const RESULTS_MAX: usize = 1000;
/// The time that the engine may be late with a reply at a deadline.
const ENGINE_REPLIES_WITHIN: Duration = Duration::from_secs(1);

/// Reads records in a share group (KIP-932): the group delivers each record to one of its members, also of one partition, and
/// again until a member accepts or rejects it. Needs Apache Kafka 4.2 or later.
///
/// With `share.acknowledgement.mode=implicit`, the default, the next [`poll`](Self::poll) or [`commit`](Self::commit) accepts all
/// records of the last poll. With `explicit`, the application calls [`acknowledge`](Self::acknowledge) for each record before it
/// polls again. A record that is not acknowledged within [`acquisition_lock_timeout`](Self::acquisition_lock_timeout) is
/// delivered again.
///
/// ```
/// use std::time::Duration;
/// use ottla_client::{AcknowledgeType, Config, Producer, Record, ShareConsumer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ottla_client::Error> {
/// # let broker = ottla_broker::Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
/// let mut config = Config::new(broker.bootstrap_servers());
/// config.set("group.id", "billing")?;
/// config.set("share.acknowledgement.mode", "explicit")?;
///
/// let mut consumer = ShareConsumer::new(config.clone())?;
/// consumer.subscribe(&["orders"]).await?;
/// # // A group begins with the next record, unless `share.auto.offset.reset` of the group is `earliest`.
/// # while consumer.poll(Duration::from_millis(50)).await?.is_none() && consumer.acquisition_lock_timeout().is_none() {}
///
/// Producer::new(config)?.send(Record::to("orders").value("paid")).await?;
/// let mut accepted = 0;
/// while accepted < 1 {
///     let Some(batch) = consumer.poll(Duration::from_secs(10)).await? else { continue };
///     for record in &batch {
///         let outcome = match record.value() {
///             Some(_) => AcknowledgeType::Accept,
///             None if record.delivery_count() < 3 => AcknowledgeType::Release,
///             None => AcknowledgeType::Reject,
///         };
///         consumer.acknowledge(&record, outcome)?;
///         accepted += usize::from(outcome == AcknowledgeType::Accept);
///     }
/// }
/// for (_, stored) in consumer.commit().await? {
///     stored?;
/// }
/// consumer.close(Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ShareConsumer {
    client: Client,
    links: ShareLinks,
    sender: mpsc::UnboundedSender<ShareCommand>,
    reading: ReadContext,
    mode: ShareAcknowledgementMode,
    delivered: VecDeque<DeliveredBatch>,
    /// `true` if records may have been acknowledged that are not settled.
    has_unsettled: bool,
    /// Settled acknowledgements that the engine does not have.
    unsent: Vec<PartitionAcks>,
    renewals: Renewals,
    next_id: u64,
    /// The leader of the last records.
    last_leader: Option<i32>,
    is_subscribed: bool,
    /// The number of subscriptions so far, as the engine counts them.
    subscriptions: u64,
    refused: Option<Error>,
}

/// The engine fetches for a poll until this is dropped, also with the poll's future: later records would be locked for no poll.
struct FetchingPoll<'a>(&'a ShareQueue);

impl Drop for FetchingPoll<'_> {
    fn drop(&mut self) {
        self.0.stop_waiting();
    }
}

/// A batch for a poll with its partition, and the end of its locks if it is known.
type LockedBatch = (TopicIdPartition, ShareBatch, Option<Instant>);

impl Client {
    /// Creates a share consumer that shares this client's engine thread and connections.
    ///
    /// # Errors
    /// [`Error::Config`] without a `group.id`.
    pub fn share_consumer(&self) -> Result<ShareConsumer, Error> {
        let config = self.config().clone();
        let Some(group) = config.group_id.clone() else {
            return Err(Error::Config("a share consumer needs group.id".into()));
        };
        let links = ShareLinks {
            queue: ShareQueue::new(config.queued_max_messages_bytes),
            polls: Arc::new(PollActivity::new(Instant::now())),
            counters: Arc::default(),
            results: Arc::new(OnDemandQueue::keeping(RESULTS_MAX)),
            refusals: Arc::new(OnDemandQueue::keeping(usize::MAX)),
        };
        let observer = &self.produce().observer;
        observer.has_role(Role::Consumer);
        observer.follow_share_consumer(&links.counters);
        let polls: Arc<dyn PollTimes> = links.polls.clone();
        observer.follow_polls(Arc::downgrade(&polls));
        let (sender, receiver) = mpsc::unbounded_channel();
        let of_engine = links.clone();
        self.start(|cluster: Rc<Cluster>| {
            let observer = cluster.observer.clone();
            observer.watched("share consumer", crate::share::run(cluster, group, of_engine, receiver))
        });
        let reading = ReadContext {
            config: config.clone(),
            budget: links.queue.budget.clone(),
            observer: self.produce().observer.clone(),
        };
        Ok(ShareConsumer {
            client: self.clone(),
            links,
            sender,
            reading,
            mode: config.share_acknowledgement_mode,
            delivered: VecDeque::new(),
            has_unsettled: false,
            unsent: Vec::new(),
            renewals: Renewals::default(),
            next_id: 1,
            last_leader: None,
            is_subscribed: false,
            subscriptions: 0,
            refused: None,
        })
    }
}

impl ShareConsumer {
    /// Creates a share consumer with its own client and engine thread.
    ///
    /// # Errors
    /// The errors of [`Client::new`] and [`Client::share_consumer`].
    pub fn new(config: Config) -> Result<Self, Error> {
        Client::new(config)?.share_consumer()
    }

    /// Returns the client that the consumer runs on.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Calls [`Client::client_instance_id`].
    ///
    /// # Errors
    /// The errors of [`Client::client_instance_id`].
    pub async fn client_instance_id(&self, timeout: Duration) -> Result<Uuid, Error> {
        self.client.client_instance_id(timeout).await
    }

    /// Joins the group `group.id` for these topics, in place of the previous ones. Without topics, it leaves the group.
    ///
    /// # Errors
    /// [`Error::Config`] for an empty name. [`poll`](Self::poll) returns later errors of the group and of topics.
    pub async fn subscribe(&mut self, topics: &[&str]) -> Result<(), Error> {
        if topics.iter().any(|topic| topic.is_empty()) {
            return Err(Error::Config("a share consumer is to subscribe to a topic without a name".into()));
        }
        if let Err(error) = check_all(topics.iter().copied()) {
            tracing::warn!(%error, "a share consumer subscribes to a name that no topic can have");
        }
        let topics: BTreeSet<Arc<str>> = topics.iter().map(|topic| Arc::from(*topic)).collect();
        self.is_subscribed = !topics.is_empty();
        self.subscriptions += u64::from(self.is_subscribed);
        self.refused = None;
        self.ask(|reply| ShareCommand::Subscribe(topics, reply)).await
    }

    /// [`ShareConsumer::subscribe`] for threads without a runtime.
    ///
    /// # Errors
    /// The errors of [`ShareConsumer::subscribe`]; [`Error::TimedOut`] if the engine does not respond within `timeout`.
    pub fn subscribe_blocking(&mut self, topics: &[&str], timeout: Duration) -> Result<(), Error> {
        let subscribing = self.subscribe(topics);
        blocking::block_on(timeout, subscribing).unwrap_or_else(|| {
            Err(Error::TimedOut {
                what: "subscribing a share consumer".into(),
                waited_ms: timeout.as_millis(),
            })
        })
    }

    /// Leaves the group; records that were delivered can still be acknowledged.
    ///
    /// # Errors
    /// [`Error::Closed`] after the client has stopped.
    pub async fn unsubscribe(&mut self) -> Result<(), Error> {
        self.subscribe(&[]).await
    }

    /// Returns the partitions that the group assigned to this member. Other members may have them too.
    ///
    /// # Errors
    /// [`Error::Closed`] after the client has stopped.
    pub async fn assignment(&self) -> Result<Vec<TopicPartition>, Error> {
        self.ask(ShareCommand::Assignment).await
    }

    /// [`ShareConsumer::assignment`] for threads without a runtime.
    ///
    /// # Errors
    /// The errors of [`ShareConsumer::assignment`]; [`Error::TimedOut`] if the engine does not respond within `timeout`.
    pub fn assignment_blocking(&self, timeout: Duration) -> Result<Vec<TopicPartition>, Error> {
        blocking::block_on(timeout, self.assignment()).unwrap_or_else(|| {
            Err(Error::TimedOut {
                what: "reading the assignment of a share consumer".into(),
                waited_ms: timeout.as_millis(),
            })
        })
    }

    /// With librdkafka's defaults, returns the reason why the group refuses this member, if it does: for instance, it is not
    /// authorized, or the group is full. Every poll returns it, until the application subscribes again. With the native defaults
    /// there is none: the poll after the error tries again.
    pub fn refusal(&self) -> Option<&Error> {
        self.refused.as_ref()
    }

    /// Returns the next records, all of one partition; `None` after `timeout`.
    ///
    /// With implicit acknowledgement, it accepts the records of the last poll. With explicit acknowledgement, it sends the
    /// acknowledgements since the last poll, and returns renewed records again. It does not wait for their results: see
    /// [`acknowledgement_results`](Self::acknowledgement_results).
    ///
    /// # Errors
    /// [`Error::IllegalState`] without a subscription, or if records of the last poll are not acknowledged, with explicit
    /// acknowledgement; the records stay delivered. Also errors of the group and of partitions. Cancel safe.
    pub async fn poll(&mut self, timeout: Duration) -> Result<Option<ShareBatch>, Error> {
        self.begin_poll()?;
        if let Some(batch) = self.take()? {
            return Ok(Some(batch));
        }
        let deadline = timer::deadline_after(timeout);
        let links = self.links.clone();
        let _waiting = links.polls.wait();
        let _fetching = FetchingPoll(&links.queue);
        loop {
            let in_time = timer::timeout_at(deadline, links.queue.filled.notified()).await.is_some();
            let taken = self.take();
            if !in_time || !matches!(taken, Ok(None)) {
                return taken;
            }
        }
    }

    /// [`ShareConsumer::poll`] for threads without a runtime.
    ///
    /// # Errors
    /// The errors of [`ShareConsumer::poll`].
    pub fn poll_blocking(&mut self, timeout: Duration) -> Result<Option<ShareBatch>, Error> {
        self.begin_poll()?;
        let mut taken = self.take();
        if matches!(taken, Ok(None)) {
            let links = self.links.clone();
            let _waiting = links.polls.wait();
            blocking::wait_until(timeout, &links.queue.filled, || {
                taken = self.take();
                !matches!(taken, Ok(None))
            });
            links.queue.stop_waiting();
        }
        taken
    }

    /// Begins a poll without waiting, for applications that wait for other things as well: settles the records of the last poll as
    /// [`poll`](Self::poll) does. [`take_ready`](Self::take_ready) returns the records.
    ///
    /// # Errors
    /// [`Error::IllegalState`], as from [`poll`](Self::poll).
    pub fn begin_poll(&mut self) -> Result<(), Error> {
        self.links.polls.pass();
        if self.mode == ShareAcknowledgementMode::Explicit {
            let unacknowledged: usize = self.delivered.iter().map(DeliveredBatch::unacknowledged).sum();
            if unacknowledged > 0 {
                return Err(Error::IllegalState(format!(
                    "poll: {unacknowledged} records of the last poll are not acknowledged, with share.acknowledgement.mode=explicit"
                )));
            }
        }
        if !self.is_subscribed {
            return Err(Error::IllegalState(
                "poll: the share consumer is not subscribed to any topic".into(),
            ));
        }
        self.settle_delivered();
        Ok(())
    }

    /// Returns records that have arrived, all of one partition, as a part of the poll that has begun. Without records, the engine
    /// fetches until [`end_poll`](Self::end_poll); [`on_filled`](Self::on_filled) notifies of their arrival. The fetch carries the
    /// acknowledgements since the last call. A poll that lasts calls this within `max.poll.interval.ms`.
    ///
    /// # Errors
    /// Errors of the group and of partitions, as from [`poll`](Self::poll).
    pub fn take_ready(&mut self) -> Result<Option<ShareBatch>, Error> {
        self.links.polls.pass();
        if std::mem::take(&mut self.has_unsettled) {
            self.settle_delivered();
        }
        self.take()
    }

    /// Returns further records that have arrived from the leader of the last ones. Unlike [`take_ready`](Self::take_ready), the engine does not fetch for it.
    /// A poll that lasts calls one of both within `max.poll.interval.ms`.
    ///
    /// # Errors
    /// Errors of the group and of partitions, as from [`poll`](Self::poll).
    pub fn take_more(&mut self) -> Result<Option<ShareBatch>, Error> {
        self.links.polls.pass();
        if let Some(error) = &self.refused {
            return Err(error.clone());
        }
        let leader = self.last_leader;
        self.take_from(|queue| queue.take_arrived(leader))
    }

    /// Returns records that have arrived, of any leader. Unlike [`take_ready`](Self::take_ready), the engine does not fetch for it.
    /// A poll that lasts and does not fetch calls this, so that records and renewals do not wait behind those of another leader.
    ///
    /// # Errors
    /// Errors of the group and of partitions, each once. Records may follow: also the [`refusal`](Self::refusal) of a member ends neither
    /// its renewals nor its acknowledgements.
    pub fn take_arrived(&mut self) -> Result<Option<ShareBatch>, Error> {
        self.links.polls.pass();
        self.take_from(|queue| queue.take_arrived(None))
    }

    /// Ends a poll that has begun: the engine begins no further fetch that waits for records.
    pub fn end_poll(&self) {
        self.links.queue.stop_waiting();
    }

    /// Turns off fetches ahead of polls: from now on, the engine fetches only while a poll waits. Records fetched ahead are locked for
    /// this member before it can handle or renew them.
    pub fn fetch_for_polls_only(&self) {
        self.links.queue.fetch_for_polls_only();
    }

    /// Acknowledges a record of the last poll. The next poll or commit sends it; until then, another call replaces it.
    ///
    /// # Errors
    /// [`Error::IllegalState`] with implicit acknowledgement, and for a record that is not delivered to this consumer or whose
    /// acknowledgement was sent.
    pub fn acknowledge(&mut self, record: &ShareRecord<'_>, outcome: AcknowledgeType) -> Result<(), Error> {
        self.acknowledge_offset(record.at(), record.offset(), outcome)
    }

    /// [`ShareConsumer::acknowledge`] by the record's offset.
    ///
    /// # Errors
    /// The errors of [`ShareConsumer::acknowledge`].
    pub fn acknowledge_offset(
        &mut self,
        partition: &TopicPartition,
        offset: i64,
        outcome: AcknowledgeType,
    ) -> Result<(), Error> {
        self.acknowledge_offsets(partition, offset..=offset, outcome)
    }

    /// [`ShareConsumer::acknowledge`] of all records at these offsets. It costs less than one call per record.
    ///
    /// # Errors
    /// The errors of [`ShareConsumer::acknowledge`], about the first record that cannot be acknowledged. Those before it are
    /// acknowledged.
    pub fn acknowledge_offsets(
        &mut self,
        partition: &TopicPartition,
        offsets: RangeInclusive<i64>,
        outcome: AcknowledgeType,
    ) -> Result<(), Error> {
        self.check_explicit()?;
        self.has_unsettled = true;
        let (mut offset, last) = offsets.into_inner();
        while offset <= last {
            // The newest first: the same offset may have been delivered again.
            let mut newest_first = self.delivered.iter_mut().rev();
            let mut end = last;
            let acknowledged = newest_first.find_map(|delivered| {
                let records = delivered.acknowledge(partition, offset..=end, outcome.code());
                end = delivered.next_after(partition, offset).map_or(end, |next| end.min(next - 1));
                (records > 0).then_some(records)
            });
            let Some(records) = acknowledged else {
                return Err(Error::IllegalState(format!(
                    "acknowledge: {partition} offset {offset} is not delivered to this consumer, or is acknowledged"
                )));
            };
            offset += records as i64;
        }
        Ok(())
    }

    /// Acknowledges all records of the last polls that have no acknowledgement.
    ///
    /// # Errors
    /// [`Error::IllegalState`] with implicit acknowledgement.
    pub fn acknowledge_rest(&mut self, outcome: AcknowledgeType) -> Result<(), Error> {
        self.check_explicit()?;
        self.has_unsettled = true;
        self.delivered.iter_mut().for_each(|delivered| delivered.acknowledge_rest(outcome.code()));
        Ok(())
    }

    /// Sends the acknowledgements and waits for their results: with implicit acknowledgement, it accepts all records of the last
    /// poll first. Returns the results since the last commit by partition, those of earlier polls included; the first error of a
    /// partition counts. A commit whose future is dropped before its results arrive leaves them to the next one.
    ///
    /// # Errors
    /// [`Error::Closed`] after the client has stopped.
    pub async fn commit(&mut self) -> Result<BTreeMap<TopicPartition, Result<(), Error>>, Error> {
        let acks = self.take_acknowledgements();
        let up_to = self.next_id - 1;
        self.ask(|reply| ShareCommand::Commit { acks, from: None, up_to, reply_at: None, reply }).await
    }

    /// [`ShareConsumer::commit`] for threads without a runtime.
    ///
    /// # Errors
    /// The errors of [`ShareConsumer::commit`]; [`Error::TimedOut`] if the results take longer than `timeout`.
    pub fn commit_blocking(
        &mut self,
        timeout: Duration,
    ) -> Result<BTreeMap<TopicPartition, Result<(), Error>>, Error> {
        let committing = self.commit();
        blocking::block_on(timeout, committing).unwrap_or_else(|| {
            Err(Error::TimedOut {
                what: "committing acknowledgements".into(),
                waited_ms: timeout.as_millis(),
            })
        })
    }

    /// Sends the acknowledgements since the last poll or commit as [`commit`](Self::commit) does, and returns the results of these
    /// alone: nothing if there are none. A partition without a result within `timeout` has [`Error::TimedOut`].
    ///
    /// # Errors
    /// [`Error::Closed`] after the client has stopped.
    pub fn commit_unsent_blocking(
        &mut self,
        timeout: Duration,
    ) -> Result<BTreeMap<TopicPartition, Result<(), Error>>, Error> {
        let acks = self.take_acknowledgements();
        let partitions: Vec<TopicPartition> = acks.iter().map(|acks| acks.at.clone()).collect();
        let reply_at = Some(timer::deadline_after(timeout));
        let Some(reply) = self.commit_these(acks, reply_at) else { return Ok(BTreeMap::new()) };
        // The engine replies in time, with the results that it has.
        let replied = blocking::block_on(timeout.saturating_add(ENGINE_REPLIES_WITHIN), reply);
        let mut results = replied.unwrap_or_else(|| Ok(BTreeMap::new()))?;
        for at in partitions {
            results.entry(at).or_insert_with(|| {
                let what = "committing acknowledgements".to_owned();
                Err(Error::TimedOut { what, waited_ms: timeout.as_millis() })
            });
        }
        Ok(results)
    }

    /// Sends the acknowledgements as [`commit`](Self::commit) does, without waiting for their results: see
    /// [`acknowledgement_results`](Self::acknowledgement_results).
    pub fn commit_unobserved(&mut self) {
        let acks = self.take_acknowledgements();
        // The engine sends pending acknowledgements at once when it gets the command. Its reply has no reader.
        drop(self.commit_these(acks, None));
    }

    /// Returns the queue of results of acknowledgements. It is filled from the first call on and keeps the last 1000.
    pub fn acknowledgement_results(&self) -> NotificationQueue<AcknowledgementResult> {
        self.links.results.activate()
    }

    /// Returns the queue of refused acknowledgements: the results with an error. It is filled from the first call on. It drops none, so
    /// that an application can know the locks of its records: one that calls this reads the queue between its acknowledgements.
    pub fn refused_acknowledgements(&self) -> NotificationQueue<AcknowledgementResult> {
        self.links.refusals.activate()
    }

    /// Returns the duration of the acquisition lock of records (`group.share.record.lock.duration.ms`); `None` before the first
    /// response of a broker.
    pub fn acquisition_lock_timeout(&self) -> Option<Duration> {
        self.links.counters.lock_timeout()
    }

    /// Returns the counters of this consumer.
    pub fn statistics(&self) -> ShareStatistics {
        self.links.counters.snapshot()
    }

    /// Calls `wake` whenever there is something to poll, in the engine's thread. `wake` must not block.
    pub fn on_filled(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.links.queue.listen(Some(Arc::new(guarded(wake))));
    }

    /// Sends explicit acknowledgements that were not sent, releases all other records, leaves the group, and stops, within
    /// `timeout`. It does not accept the records of the last poll: call [`commit`](Self::commit) for that.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if the engine does not respond in time.
    pub async fn close(mut self, timeout: Duration) -> Result<(), Error> {
        let closing = self.begin_close(timeout);
        timer::timeout(timeout, closing).await.unwrap_or_else(|| Err(close_timed_out(timeout)))
    }

    /// [`ShareConsumer::close`] for threads without a runtime.
    ///
    /// # Errors
    /// The errors of [`ShareConsumer::close`].
    pub fn close_blocking(mut self, timeout: Duration) -> Result<(), Error> {
        let closing = self.begin_close(timeout);
        blocking::block_on(timeout, closing).unwrap_or_else(|| Err(close_timed_out(timeout)))
    }

    fn begin_close(&mut self, timeout: Duration) -> EngineReply<()> {
        if self.mode == ShareAcknowledgementMode::Explicit {
            self.settle_delivered();
        }
        let acks = std::mem::take(&mut self.unsent);
        self.ask(|reply| ShareCommand::Close { acks, timeout, reply })
    }

    fn check_explicit(&self) -> Result<(), Error> {
        match self.mode {
            ShareAcknowledgementMode::Explicit => Ok(()),
            ShareAcknowledgementMode::Implicit => Err(Error::IllegalState(
                "acknowledge: share.acknowledgement.mode is `implicit`, so that polls and commits accept records; set it to `explicit`".into(),
            )),
        }
    }

    /// Settles acknowledgements of delivered records. With implicit acknowledgement, these are all records.
    fn settle_delivered(&mut self) {
        if self.mode == ShareAcknowledgementMode::Implicit {
            for delivered in std::mem::take(&mut self.delivered) {
                self.unsent.push(delivered.into_accepted(self.next_id));
                self.next_id += 1;
            }
            return;
        }
        for delivered in &mut self.delivered {
            let Some(taken) = delivered.take(self.next_id) else { continue };
            self.renewals.add(&taken, delivered.batch());
            self.next_id += 1;
            self.unsent.push(taken);
        }
        self.delivered.retain(DeliveredBatch::has_unacknowledged);
    }

    /// Settles acknowledgements and takes those that the engine does not have.
    fn take_acknowledgements(&mut self) -> Vec<PartitionAcks> {
        self.settle_delivered();
        std::mem::take(&mut self.unsent)
    }

    /// Sends acknowledgements and asks for their results; `None` if there are none.
    fn commit_these(
        &self,
        acks: Vec<PartitionAcks>,
        reply_at: Option<Instant>,
    ) -> Option<EngineReply<CommitResults>> {
        let (from, up_to) = (Some(acks.first()?.id), acks.last()?.id);
        Some(self.ask(|reply| ShareCommand::Commit { acks, from, up_to, reply_at, reply }))
    }

    /// Passes acknowledgements to the engine and takes the next records.
    fn take(&mut self) -> Result<Option<ShareBatch>, Error> {
        let mut unsent = std::mem::take(&mut self.unsent);
        if let Some(error) = &self.refused {
            // Without an exchange: the sessions with the leaders outlive the refusal of the group.
            self.links.queue.acknowledge(unsent);
            return Err(error.clone());
        }
        self.take_from(|queue| queue.exchange(std::mem::take(&mut unsent)))
    }

    /// Takes items from the queue until one has records.
    fn take_from(
        &mut self,
        mut next: impl FnMut(&ShareQueue) -> Option<ShareItem>,
    ) -> Result<Option<ShareBatch>, Error> {
        loop {
            let batch = match next(&self.links.queue) {
                Some(ShareItem::Chunk(chunk)) => self.open(chunk),
                // The result does not have the end of the new locks.
                Some(ShareItem::Renewed(outcome)) => {
                    self.renewals.settle(&outcome).map(|(key, batch)| (key, batch, None))
                }
                Some(ShareItem::Error(error)) => return Err(error),
                // The application may have subscribed again meanwhile.
                Some(ShareItem::Refused(_, subscription)) if subscription != self.subscriptions => None,
                Some(ShareItem::Refused(error, _)) => {
                    self.refused = Some(error.clone());
                    return Err(error);
                }
                None => return Ok(None),
            };
            let Some((key, batch, locked_until)) = batch else { continue };
            let counters = &self.links.counters;
            ShareCounters::add(&counters.records, batch.len() as u64);
            ShareCounters::add(&counters.batches, 1);
            let keeps = self.mode == ShareAcknowledgementMode::Explicit;
            if keeps {
                self.forget_earlier(&batch);
            }
            self.delivered.push_back(DeliveredBatch::new(key, &batch, locked_until, keeps));
            return Ok(Some(batch));
        }
    }

    /// Forgets earlier deliveries of records that come again, as after a lost session. Batches of which no record is left go.
    fn forget_earlier(&mut self, again: &ShareBatch) {
        let forgotten = self.delivered.iter_mut().fold(false, |any, delivered| delivered.forget(again) | any);
        if forgotten {
            self.delivered.retain(|delivered| delivered.has_unacknowledged() || delivered.has_unsent());
        }
    }

    /// Opens a chunk, unless its acquisition has ended. Offsets without a readable record are acknowledged at once.
    fn open(&mut self, chunk: AcquiredChunk) -> Option<LockedBatch> {
        let counters = self.links.counters.clone();
        let locked_until = chunk.locked_until;
        if locked_until.is_some_and(|until| until <= Instant::now()) {
            ShareCounters::add(&counters.expired, chunk.offsets());
            return None;
        }
        let (key, at, node) = (chunk.key, chunk.at.clone(), chunk.node);
        let OpenedChunk { batch, unreadable, corrupt } = open(chunk, &self.reading);
        if !unreadable.is_empty() {
            ShareCounters::add(&counters.corrupt, corrupt);
            let id = self.next_id;
            self.next_id += 1;
            let (ranges, give_up_at) = (unreadable, locked_until);
            let acks = PartitionAcks { id, key, at, node, ranges, attempts: 0, retry_at: None, give_up_at };
            self.links.queue.acknowledge(vec![acks]);
        }
        self.last_leader = Some(node);
        Some((key, batch?, locked_until))
    }

    fn ask<T>(&self, make: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> ShareCommand) -> EngineReply<T> {
        let (reply, received) = oneshot::channel();
        // Without an engine nothing sends the reply, and waiting for it fails.
        let _ = self.sender.send(make(reply));
        EngineReply::new(received)
    }
}

fn close_timed_out(timeout: Duration) -> Error {
    Error::TimedOut { what: "closing the share consumer".into(), waited_ms: timeout.as_millis() }
}
