//! The effect of responses on sessions and acknowledgements.

use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::share_acknowledge::ShareAcknowledgeResponse;
use ottla_protocol::messages::share_fetch::{PartitionData, ShareFetchResponse};
use tokio::time::Instant;

use super::{InFlight, ShareAction, ShareCore, settled, without_session};
use crate::error::Error;
use crate::share::acknowledgements::{AckRange, PartitionAcks, TopicIdPartition};
use crate::share::queue::{AckOutcome, AcquiredChunk, AcquiredRange};
use crate::types::TopicPartition;
use crate::watchdog::cause::{Cause, StallReason};

/// The pause after an error that an administrator has to mend.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// So many errors without a known cause in a row are not reported. With the default back-off they take eight seconds.
const UNKNOWN_ERRORS_PASSED: u32 = 10;

impl ShareCore {
    /// Handles the end of a ShareFetch.
    pub(in crate::share) fn on_fetched(
        &mut self,
        node: i32,
        result: Result<ShareFetchResponse, Error>,
        now: Instant,
    ) {
        let Some(in_flight) = self.take_in_flight(node) else { return };
        let response = match result {
            Ok(response) if response.error_code == ErrorCode::None => response,
            Ok(response) => {
                let error = refusal(node, "ShareFetch", response.error_code, response.error_message);
                return self.on_request_failed(node, in_flight, error, now);
            }
            Err(error) => return self.on_request_failed(node, in_flight, error, now),
        };
        self.on_request_done(node);
        let due = in_flight.due;
        let mut unsettled = in_flight.acks;
        let locked_until = lock_end(now, response.acquisition_lock_timeout_ms);
        self.note_lock_timeout(response.acquisition_lock_timeout_ms);
        let mut chunks = Vec::new();
        let mut with_error = false;
        for topic in response.responses {
            for partition in topic.partitions {
                let key = TopicIdPartition { topic_id: topic.topic_id, partition: partition.partition_index };
                let (code, message) =
                    (partition.acknowledge_error_code, partition.acknowledge_error_message.clone());
                self.settle_partition(key, code, message, &mut unsettled, now);
                if partition.error_code != ErrorCode::None {
                    with_error = true;
                    self.on_partition_error(node, key, &partition);
                } else if let Some(at) = self.names.get(&key)
                    && let Some(chunk) = chunk_of(node, key, at.clone(), partition, locked_until)
                {
                    self.settle_overtaken(&chunk);
                    chunks.push(chunk);
                }
            }
        }
        self.settle_unmentioned(unsettled);
        let with_records = !chunks.is_empty();
        if with_records {
            self.actions.push_back(ShareAction::Deliver(chunks));
        }
        self.bound_rate(node, with_records, with_error, now < due, now);
    }

    /// Handles the end of a ShareAcknowledge.
    pub(in crate::share) fn on_acknowledged(
        &mut self,
        node: i32,
        result: Result<ShareAcknowledgeResponse, Error>,
        now: Instant,
    ) {
        let Some(in_flight) = self.take_in_flight(node) else { return };
        let closes = in_flight.closes;
        let response = match result {
            Ok(response) if response.error_code == ErrorCode::None => response,
            Ok(response) => {
                let error = refusal(node, "ShareAcknowledge", response.error_code, response.error_message);
                return self.on_request_failed(node, in_flight, error, now);
            }
            Err(error) => return self.on_request_failed(node, in_flight, error, now),
        };
        self.on_request_done(node);
        self.note_lock_timeout(response.acquisition_lock_timeout_ms);
        let mut unsettled = in_flight.acks;
        for topic in response.responses {
            for partition in topic.partitions {
                let key = TopicIdPartition { topic_id: topic.topic_id, partition: partition.partition_index };
                let leader = (partition.current_leader.leader_id, partition.current_leader.leader_epoch);
                if partition.error_code.needs_metadata_refresh() {
                    self.learn_leader(node, key, leader);
                }
                let (code, message) = (partition.error_code, partition.error_message);
                self.settle_partition(key, code, message, &mut unsettled, now);
            }
        }
        self.settle_unmentioned(unsettled);
        if closes {
            self.forget_session(node);
        }
    }

    fn take_in_flight(&mut self, node: i32) -> Option<InFlight> {
        self.leaders.get_mut(&node)?.in_flight.take()
    }

    fn note_lock_timeout(&mut self, timeout_ms: i32) {
        if let Some(timeout) = lock_timeout(timeout_ms) {
            self.lock_timeout = timeout;
        }
    }

    fn on_request_done(&mut self, node: i32) {
        let Some(leader) = self.leaders.get_mut(&node) else { return };
        leader.session.advance();
        leader.responses += 1;
        (leader.failures, leader.unanswered) = (0, 0);
        (leader.blocked_until, leader.last_error) = (None, None);
    }

    /// A request failed as a whole. The broker has processed no acknowledgement of a request that it refused. After an error of
    /// the connection this is not known, and the broker releases the records with the connection.
    fn on_request_failed(&mut self, node: i32, in_flight: InFlight, error: Error, now: Instant) {
        let code = error.broker_code();
        let is_about_session = matches!(
            code,
            Some(
                ErrorCode::ShareSessionNotFound
                    | ErrorCode::InvalidShareSessionEpoch
                    | ErrorCode::ShareSessionLimitReached
            )
        );
        let InFlight { closes, is_fetch, acks: sent, .. } = in_flight;
        // With the session the broker has released the records, so that another attempt has nothing to acknowledge.
        for acks in sent {
            self.actions.push_back(settled(acks, Err(error.clone())));
        }
        if !is_fetch && !closes && matches!(error, Error::Unsupported { .. }) {
            // The broker does not renew locks: the request was not sent, and the session continues.
            return;
        }
        if code.is_none() || code == Some(ErrorCode::ShareSessionNotFound) {
            self.actions.push_back(ShareAction::DropChunks { node });
        }
        if code.is_none_or(ErrorCode::needs_metadata_refresh) {
            self.actions.push_back(ShareAction::RefreshMetadata);
        }
        if closes {
            return self.forget_session(node);
        }
        let Some(leader) = self.leaders.get_mut(&node) else { return };
        leader.session.restart();
        let pending = std::mem::take(&mut leader.pending);
        // A broker of which a topic was just deleted answers so for a while.
        let may_pass = code == Some(ErrorCode::UnknownServerError) && leader.failures < UNKNOWN_ERRORS_PASSED;
        let is_final = !error.is_retriable() && !may_pass;
        let pause = if is_final { REFUSED_PAUSE } else { self.settings.pause(leader.failures) };
        // A session that the broker dropped is opened again at once.
        let is_first_loss = is_about_session && leader.failures == 0;
        leader.blocked_until = (!is_first_loss).then(|| now + pause);
        leader.last_error = Some(StallReason::of(&error));
        let is_unanswered = matches!(&leader.last_error, Some(reason) if reason.cause == Cause::NoAnswer);
        leader.unanswered = if is_unanswered { leader.unanswered + 1 } else { 0 };
        leader.failures += 1;
        // Reported once in a row; the requests are repeated.
        let passed = if code == Some(ErrorCode::UnknownServerError) { UNKNOWN_ERRORS_PASSED } else { 0 };
        if is_final && leader.failures == passed + 1 {
            self.actions.push_back(ShareAction::Report(error));
        }
        self.actions.extend(pending.into_iter().map(without_session));
    }

    fn on_partition_error(&mut self, node: i32, key: TopicIdPartition, partition: &PartitionData) {
        let code = partition.error_code;
        if code.needs_metadata_refresh() {
            let leader = (partition.current_leader.leader_id, partition.current_leader.leader_epoch);
            self.learn_leader(node, key, leader);
            // Other partitions may have moved as well.
            return self.actions.push_back(ShareAction::RefreshMetadata);
        }
        let what = self.names.get(&key).map_or_else(|| "a partition".into(), TopicPartition::to_string);
        let error = refusal(node, &format!("ShareFetch of {what}"), code, partition.error_message.clone());
        let Some(leader) = self.leaders.get_mut(&node) else { return };
        let is_new = leader.last_error.replace(StallReason::of(&error)).is_none();
        // A topic that was just deleted is answered like that, too; the assignment changes soon.
        let may_pass = error.is_retriable() || code == ErrorCode::UnknownServerError;
        if !may_pass && is_new && leader.useless_responses == 0 {
            self.actions.push_back(ShareAction::Report(error));
        }
    }

    fn learn_leader(&mut self, node: i32, key: TopicIdPartition, (leader, leader_epoch): (i32, i32)) {
        if let Some(at) = self.names.get(&key).cloned() {
            self.actions.push_back(ShareAction::LearnLeader { at, named_by: node, leader, leader_epoch });
        }
    }

    /// Settles the acknowledgements of one partition with its result. If the coordinator of the share group's state is moving, they are
    /// sent again after a pause, until the locks of the records have ended.
    fn settle_partition(
        &mut self,
        key: TopicIdPartition,
        code: ErrorCode,
        message: Option<String>,
        unsettled: &mut Vec<PartitionAcks>,
        now: Instant,
    ) {
        let (of_it, others) = std::mem::take(unsettled).into_iter().partition(|acks| acks.key == key);
        *unsettled = others;
        for mut acks in of_it {
            let may_pass = matches!(
                code,
                ErrorCode::CoordinatorLoadInProgress
                    | ErrorCode::CoordinatorNotAvailable
                    | ErrorCode::NotCoordinator
            );
            let give_up_at = *acks.give_up_at.get_or_insert(now + self.lock_timeout);
            let pause = self.settings.pause(acks.attempts);
            if may_pass && now + pause < give_up_at && !self.closes {
                acks.attempts += 1;
                acks.retry_at = Some(now + pause);
                self.leaders.entry(acks.node).or_default().pending.push(acks);
                continue;
            }
            let what = format!("acknowledging records of {}", acks.at);
            let result = if code == ErrorCode::None {
                Ok(())
            } else {
                Err(match message.clone().filter(|text| !text.is_empty()) {
                    Some(message) => Error::Refused { what, code, message },
                    None => Error::Broker { what, code },
                })
            };
            self.actions.push_back(settled(acks, result));
        }
    }

    /// Settles the waiting acknowledgements of records that are acquired again. They concern the earlier acquisition, whose locks have
    /// ended, and the broker would take them as acknowledgements of the new one. Those of other records of their batch wait further.
    fn settle_overtaken(&mut self, chunk: &AcquiredChunk) {
        for leader in self.leaders.values_mut() {
            for acks in leader.pending.iter_mut().filter(|acks| acks.key == chunk.key) {
                let ranges = take_acquired(&mut acks.ranges, &chunk.acquired);
                if !ranges.is_empty() {
                    let (id, at) = (acks.id, acks.at.clone());
                    let what = format!("acknowledging records of {at}");
                    let result = Err(Error::Broker { what, code: ErrorCode::InvalidRecordState });
                    self.actions.push_back(ShareAction::Settle(AckOutcome { id, at, ranges, result }));
                }
            }
            leader.pending.retain(|acks| !acks.ranges.is_empty());
        }
    }

    /// Settles acknowledgements that a successful response does not mention: the broker did not process them.
    fn settle_unmentioned(&mut self, unsettled: Vec<PartitionAcks>) {
        for acks in unsettled {
            let what = format!("acknowledging records of {}", acks.at);
            let code = ErrorCode::UnknownTopicOrPartition;
            self.actions.push_back(settled(acks, Err(Error::Broker { what, code })));
        }
    }

    /// Prevents a loop of requests whose responses have no records: the second one in a row causes a pause.
    fn bound_rate(&mut self, node: i32, with_records: bool, with_error: bool, is_early: bool, now: Instant) {
        let settings = self.settings;
        let Some(leader) = self.leaders.get_mut(&node) else { return };
        leader.prefetches = with_records;
        if with_records || !(with_error || is_early) {
            leader.useless_responses = 0;
            return;
        }
        if leader.useless_responses > 0 {
            let until = now + settings.pause(leader.useless_responses - 1);
            leader.blocked_until = leader.blocked_until.max(Some(until));
        }
        leader.useless_responses += 1;
    }

    /// The session with a leader is closed.
    fn forget_session(&mut self, node: i32) {
        if let Some(leader) = self.leaders.get_mut(&node) {
            leader.session.restart();
            (leader.blocked_until, leader.prefetches) = (None, false);
        }
        self.fail_pending(node);
    }
}

/// Removes the acquired offsets, which are in order, from acknowledgements, and returns them.
fn take_acquired(ranges: &mut Vec<AckRange>, acquired: &[AcquiredRange]) -> Vec<AckRange> {
    let (mut taken, mut left) = (Vec::new(), Vec::new());
    for range in std::mem::take(ranges) {
        let mut next = range.first;
        for again in acquired.iter().filter(|again| again.first <= range.last && range.first <= again.last) {
            let (first, last) = (again.first.max(range.first), again.last.min(range.last));
            if next < first {
                left.push(range.part(next, first - 1));
            }
            taken.push(range.part(first, last));
            next = last + 1;
        }
        if next <= range.last {
            left.push(range.part(next, range.last));
        }
    }
    *ranges = left;
    taken
}

fn refusal(node: i32, request: &str, code: ErrorCode, message: Option<String>) -> Error {
    let what = format!("{request} at node {node}");
    match message.filter(|text| !text.is_empty()) {
        Some(message) => Error::Refused { what, code, message },
        None => Error::Broker { what, code },
    }
}

/// The end of the acquisition locks of a response; `None` if the broker reports no timeout.
fn lock_end(now: Instant, timeout_ms: i32) -> Option<Instant> {
    now.checked_add(lock_timeout(timeout_ms)?)
}

fn lock_timeout(timeout_ms: i32) -> Option<Duration> {
    let timeout = u64::try_from(timeout_ms).ok().filter(|timeout| *timeout > 0)?;
    Some(Duration::from_millis(timeout))
}

/// The records of a partition's answer; `None` if it acquired none.
fn chunk_of(
    node: i32,
    key: TopicIdPartition,
    at: TopicPartition,
    partition: PartitionData,
    locked_until: Option<Instant>,
) -> Option<AcquiredChunk> {
    let is_range = |range: &AcquiredRange| range.first >= 0 && range.first <= range.last;
    let range = |range: &ottla_protocol::messages::share_fetch::AcquiredRecords| AcquiredRange {
        first: range.first_offset,
        last: range.last_offset,
        delivery_count: range.delivery_count,
    };
    let mut acquired: Vec<AcquiredRange> =
        partition.acquired_records.iter().map(range).filter(is_range).collect();
    acquired.sort_unstable_by_key(|range| range.first);
    // Ranges that overlap contradict each other; the first one counts.
    let mut next = 0;
    acquired.retain(|range| {
        let follows = range.first >= next;
        next = next.max(range.last.saturating_add(1));
        follows
    });
    if acquired.is_empty() {
        return None;
    }
    let records = partition.records.to_bytes().ok()?;
    Some(AcquiredChunk { key, at, node, records, acquired, locked_until })
}
