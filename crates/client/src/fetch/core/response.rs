//! The effect of fetch responses on sources and cursors.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::fetch::{FetchResponse, PartitionData};
use ottla_wire::Chain;
use tokio::time::Instant;

use super::FetchCore;
use super::action::{Action, CursorRef, EpochEnd, EpochQuestion, FetchView, LeaderHint};
use super::source::InFlight;
use crate::config::OffsetReset;
use crate::error::{Error, PartitionRequest};
use crate::fetch::cursor::{AnswerOutcome, Cursor, PartitionAnswer, Position};
use crate::fetch::cursors::Table;
use crate::fetch::inbox::Item;
use crate::fetch::progress::Ends;
use crate::fetch::session::Session;
use crate::types::{StartAt, TopicPartition};
use crate::watchdog::cause::{Cause, StallReason};

/// The pause after an authentication or TLS failure: an administrator must act before an attempt can succeed.
const SECURITY_PAUSE: Duration = Duration::from_secs(1);

/// The offsets of requests for the beginning and the end of a partition.
const BEGINNING: i64 = -2;
const END: i64 = -1;

/// The contents of a response.
#[derive(Clone, Copy, Debug, Default)]
struct ResponseSummary {
    /// Partitions with records.
    with_records: usize,
    /// Partitions with an error.
    with_error: usize,
    /// Partitions that were not requested.
    unrequested: usize,
}

impl ResponseSummary {
    /// Returns `true` if it has no records, but has errors or partitions that were not requested.
    const fn is_useless(self) -> bool {
        self.with_records == 0 && (self.with_error > 0 || self.unrequested > 0)
    }
}

impl FetchCore {
    /// Handles the end of the fetch in a broker's session. `arrived_at` is the time of the response's first bytes.
    pub(in crate::fetch) fn on_fetched(
        &mut self,
        node: i32,
        result: Result<FetchResponse, Error>,
        arrived_at: Option<Instant>,
        now: Instant,
        table: &mut Table,
        view: &dyn FetchView,
    ) {
        let Some(source) = self.sources.get_mut(&node) else { return };
        let in_flight = source.in_flight.take();
        if let (Some(fetch), Ok(response)) = (&in_flight, &result) {
            let arrived_at = arrived_at.unwrap_or(now);
            let (waited, transfer) = (arrived_at - fetch.sent_at, now - arrived_at);
            source.fetch_size.on_response(fetch.records_bytes, bytes_of(response), waited, transfer);
        }
        self.count_response(node, &result, in_flight, now);
        let Some(source) = self.sources.get_mut(&node) else { return };
        let (error, session_id) = result
            .as_ref()
            .map_or((ErrorCode::NetworkException, 0), |response| (response.error_code, response.session_id));
        let session_continues = source.session.on_response(error, session_id);
        match result {
            Ok(response) if error == ErrorCode::None => {
                source.failures = 0;
                source.blocked_until = None;
                let session = std::mem::take(&mut source.session);
                let summary = self.on_response(node, &session, response, now, table, view);
                if !session_continues {
                    session.slots().into_iter().for_each(|slot| table.touch(slot));
                }
                self.restore_session(node, session);
                let is_early = in_flight.is_some_and(|fetch| now < fetch.due);
                self.bound_rate(node, summary, is_early, now);
            }
            Ok(_) => self.on_fetch_failed(node, error, error.to_string(), now, table),
            Err(failure) => self.on_fetch_failed(node, error, failure.to_string(), now, table),
        }
    }

    /// Puts a session back whose response was processed.
    fn restore_session(&mut self, node: i32, session: Session) {
        if let Some(source) = self.sources.get_mut(&node) {
            source.session = session;
        }
    }

    /// Updates what a source records about its responses.
    fn count_response(
        &mut self,
        node: i32,
        result: &Result<FetchResponse, Error>,
        in_flight: Option<InFlight>,
        now: Instant,
    ) {
        let Some(source) = self.sources.get_mut(&node) else { return };
        source.responses += u64::from(result.is_ok());
        source.last_error = match result {
            Ok(response) if response.error_code == ErrorCode::None => None,
            Ok(response) => Some(StallReason::of_code(response.error_code)),
            Err(error) => Some(StallReason::of(error)),
        };
        let unanswered = source.last_error.as_ref().is_some_and(|error| error.cause == Cause::NoAnswer);
        // The wait stays longer, so that the client does not abandon a slow broker again.
        let is_slow =
            in_flight.zip(self.settings.slow_after).is_some_and(|(fetch, after)| fetch.due + after <= now);
        source.unanswered = match (unanswered, is_slow) {
            (true, _) => source.unanswered + 1,
            (false, true) => source.unanswered,
            (false, false) => 0,
        };
    }

    /// A fetch in a session failed as a whole.
    fn on_fetch_failed(
        &mut self,
        node: i32,
        error: ErrorCode,
        reason: String,
        now: Instant,
        table: &mut Table,
    ) {
        let Some(source) = self.sources.get_mut(&node) else { return };
        self.actions.push_back(Action::LogFailure { node, reason });
        // A session that the broker dropped is restarted at once; other errors cause a pause.
        if !is_about_session(error) || source.failures > 0 {
            source.blocked_until = Some(now + self.settings.pause(source.failures));
        }
        source.failures += 1;
        if error.needs_metadata_refresh()
            || matches!(error, ErrorCode::NetworkException | ErrorCode::OffsetNotAvailable)
        {
            self.actions.push_back(Action::RefreshMetadata);
        }
        // The partitions may have other leaders by now.
        for slot in source.session.slots() {
            if let Some(cursor) = table.get_mut(slot) {
                cursor.replica = None;
            }
            table.touch(slot);
        }
    }

    /// Handles the end of the fetch outside a broker's session. Its partitions join the session.
    pub(in crate::fetch) fn on_fetched_outside_session(
        &mut self,
        node: i32,
        result: Result<FetchResponse, Error>,
        now: Instant,
        table: &mut Table,
        view: &dyn FetchView,
    ) {
        let session = self.sources.get_mut(&node).and_then(|source| source.outside_session.take());
        let Some(mut session) = session else { return };
        for slot in session.slots() {
            // The cursor may be queued at another broker by now, or its slot belong to another partition.
            let is_here =
                |cursor: &&mut Cursor| session.has(slot, &cursor.progress) && cursor.queued_at == Some(node);
            match table.get_mut(slot).filter(is_here) {
                Some(cursor) => {
                    cursor.queued_at = None;
                    table.touch(slot);
                }
                None => session.forget(slot),
            }
        }
        let reason = match result {
            Ok(response) if response.error_code == ErrorCode::None => {
                let summary = self.on_response(node, &session, response, now, table, view);
                if summary.is_useless() {
                    self.block_outside_session(node, now);
                }
                return;
            }
            Ok(response) => response.error_code.to_string(),
            Err(error) => error.to_string(),
        };
        self.actions.push_back(Action::LogFailure { node, reason });
        self.actions.push_back(Action::RefreshMetadata);
        self.block_outside_session(node, now);
        for slot in session.slots() {
            if let Some(cursor) = table.get_mut(slot) {
                self.settings.block(cursor, now);
                cursor.replica = None;
            }
        }
    }

    fn block_outside_session(&mut self, node: i32, now: Instant) {
        if let Some(source) = self.sources.get_mut(&node) {
            source.outside_blocked_until = Some(now + self.settings.pause(0));
        }
    }

    /// Prevents a loop of requests whose responses have no records: the second one in a row causes a pause. A
    /// response with partitions that were not requested shows that the broker's session differs: a new one starts.
    fn bound_rate(&mut self, node: i32, summary: ResponseSummary, is_early: bool, now: Instant) {
        let Some(source) = self.sources.get_mut(&node) else { return };
        if summary.unrequested > 0 {
            let partitions = summary.unrequested;
            tracing::debug!(node, partitions, "fetch response with unrequested partitions: new session");
            source.session.restart();
        }
        if !summary.is_useless() && (summary.with_records > 0 || !is_early) {
            source.useless_responses = 0;
            return;
        }
        if source.useless_responses > 0 {
            source.blocked_until = Some(now + self.settings.pause(source.useless_responses - 1));
        }
        source.useless_responses += 1;
    }

    fn on_response(
        &mut self,
        node: i32,
        session: &Session,
        response: FetchResponse,
        now: Instant,
        table: &mut Table,
        view: &dyn FetchView,
    ) -> ResponseSummary {
        let mut summary = ResponseSummary::default();
        for topic in response.responses {
            for answer in topic.partitions {
                summary.with_error += usize::from(answer.error_code != ErrorCode::None);
                let found = session.find(topic.topic_id, &topic.topic, answer.partition_index);
                let Some((slot, requested)) = found else {
                    let is_leaving = session.is_leaving(topic.topic_id, &topic.topic, answer.partition_index);
                    summary.unrequested += usize::from(!is_leaving);
                    continue;
                };
                let offset = requested.requested.offset;
                let is_current = |cursor: &&mut Cursor| {
                    Arc::ptr_eq(&cursor.progress, &requested.progress) && cursor.is_at(offset)
                };
                if let Some(cursor) = table.get_mut(slot).filter(is_current) {
                    let with_records = self.on_answer(node, cursor, offset, answer, now, view);
                    summary.with_records += usize::from(with_records);
                    table.touch(slot);
                }
            }
        }
        summary
    }

    /// Processes the answer for one partition. Returns whether it has records.
    fn on_answer(
        &mut self,
        node: i32,
        cursor: &mut Cursor,
        offset: i64,
        answer: PartitionData,
        now: Instant,
        view: &dyn FetchView,
    ) -> bool {
        if cursor.replica.is_some() && answer.error_code != ErrorCode::None {
            // Only the leader's errors count: a replica may lag behind, or have lost the partition.
            cursor.replica = None;
            // The leader may name the same replica again: that must not become a loop without a pause. The pause does not grow,
            // because the leader itself has the records.
            if cursor.failures > 0 {
                self.block_until(cursor, now + self.settings.retry_backoff);
            }
            cursor.failures = 1;
            return false;
        }
        let preferred = answer.preferred_read_replica;
        if preferred >= 0 && preferred != node && answer.error_code == ErrorCode::None {
            if view.knows_node(preferred) {
                cursor.replica = Some((preferred, now + self.settings.metadata_max_age));
            } else {
                self.on_unknown_replica(cursor, preferred, now);
            }
            return false;
        }
        let ends = Ends {
            log_start: answer.log_start_offset,
            last_stable: answer.last_stable_offset,
            high_watermark: answer.high_watermark,
        };
        let at = cursor.progress.at.clone();
        self.actions.push_back(Action::RecordEnds { node, at, offset, ends });
        let mut aborted: Vec<_> = answer
            .aborted_transactions
            .unwrap_or_default()
            .iter()
            .map(|transaction| (transaction.first_offset, transaction.producer_id))
            .collect();
        // Kafka sorts them; some other brokers do not.
        aborted.sort_unstable();
        let records = answer.records.and_then(|chain| chain.to_bytes().ok());
        let hint = (answer.current_leader.leader_id, answer.current_leader.leader_epoch);
        let answer = PartitionAnswer { node, offset, error: answer.error_code, ends, records, aborted };
        let outcome = cursor.on_answer(answer, self.settings.decompressed_max_bytes);
        let with_records = matches!(outcome, AnswerOutcome::Deliver(_));
        self.on_outcome((node, offset), cursor, outcome, hint, now, view);
        if let Some(offset) = cursor.end_reached(self.settings.isolation) {
            cursor.progress.set_end_reached(offset);
            if self.settings.enable_partition_eof {
                let event = cursor.end_event(offset);
                // The polling thread may find a corrupt batch in the records before it, and begin another generation.
                let (slot, generation) = (cursor.slot, cursor.generation);
                self.actions.push_back(Action::DeliverIn { slot, generation, item: Item::Event(event) });
            }
        }
        with_records
    }

    /// The leader prefers a replica that the metadata does not have. Without fresh metadata, the partition would get no records until
    /// `metadata.max.age.ms`. The leader is fetched from meanwhile, after a pause: it answers without records as long as it prefers a
    /// replica.
    fn on_unknown_replica(&mut self, cursor: &mut Cursor, preferred: i32, now: Instant) {
        tracing::debug!(at = %cursor.progress.at, preferred, "the metadata does not have the preferred replica");
        self.actions.push_back(Action::RefreshMetadata);
        self.settings.block_from_second(cursor, now);
    }

    fn on_outcome(
        &mut self,
        (node, fetched): (i32, i64),
        cursor: &mut Cursor,
        outcome: AnswerOutcome,
        (leader, leader_epoch): (i32, i32),
        now: Instant,
        view: &dyn FetchView,
    ) {
        let slot = cursor.slot;
        let (topic, partition) = (&cursor.progress.at.topic.clone(), cursor.progress.at.partition);
        match outcome {
            AnswerOutcome::Deliver(chunk) => {
                assert!(
                    chunk.next >= chunk.from,
                    "{topic}-{partition}: {} before {}",
                    chunk.next,
                    chunk.from
                );
                self.actions.push_back(Action::Deliver { slot, item: Item::Chunk(chunk) });
            }
            AnswerOutcome::Nothing => {}
            AnswerOutcome::Retry { refresh: true } => {
                let cursor = CursorRef::of(cursor);
                let hint = LeaderHint { cursor, named_by: node, leader, leader_epoch };
                self.actions.push_back(Action::LearnLeader(hint));
            }
            AnswerOutcome::Retry { refresh: false } => self.settings.block(cursor, now),
            // A fetch continues behind a batch by its header, before its checksum is compared. So a damaged header leads
            // anywhere, and the application is the first to know, when it gets there.
            AnswerOutcome::OutOfRange(offset)
                if cursor.progress.position().is_some_and(|next| next < offset) =>
            {
                tracing::debug!(%topic, partition, offset, "offset out of range behind records that are not read yet");
                self.settings.block(cursor, now);
            }
            AnswerOutcome::OutOfRange(offset) => {
                match cursor.progress.reset(self.settings.offset_reset) {
                    OffsetReset::Error => {
                        cursor.position = Position::Failed;
                        let topic = topic.to_string();
                        self.fail(cursor, Error::OffsetOutOfRange { topic, partition, offset });
                    }
                    reset => {
                        tracing::info!(%topic, partition, offset, ?reset, "offset out of range");
                        let failures = cursor.failures;
                        cursor.seek(view.start_of(reset));
                        cursor.failures = failures;
                        // The offset that the broker returns next may be out of range again.
                        self.settings.block_from_second(cursor, now);
                    }
                }
            }
            AnswerOutcome::Unauthorized { is_new } => {
                if is_new {
                    let error = fetch_error((node, fetched), cursor, ErrorCode::TopicAuthorizationFailed);
                    self.fail(cursor, error);
                }
                self.settings.block(cursor, now);
            }
            AnswerOutcome::ServerFailed { is_new } => {
                let error = fetch_error((node, fetched), cursor, ErrorCode::UnknownServerError);
                self.on_server_failure(cursor, error, is_new, now);
            }
            AnswerOutcome::Fail(code) => self.fail(cursor, fetch_error((node, fetched), cursor, code)),
            AnswerOutcome::Corrupt(offset, reason) => {
                let topic = topic.to_string();
                self.fail(cursor, Error::Corrupt { topic, partition, offset, reason });
            }
        }
    }

    /// The broker answered with UNKNOWN_SERVER_ERROR, which may pass: the request is repeated after a pause. The first of several such
    /// errors is reported to the application, as librdkafka does, or logged, as Java's client does.
    fn on_server_failure(&mut self, cursor: &mut Cursor, error: Error, is_new: bool, now: Instant) {
        if is_new && self.settings.reports_server_failures {
            self.fail(cursor, error);
        } else if is_new {
            tracing::warn!(%error, "the request is repeated");
        }
        self.settings.block(cursor, now);
    }

    /// Delivers an error behind the records that were fetched before.
    fn fail(&mut self, cursor: &Cursor, error: Error) {
        self.actions.push_back(Action::Deliver { slot: cursor.slot, item: Item::Error(error) });
    }

    /// The leader that a broker named was stored, if `learned`: it can be sent a fetch at once (KIP-951). Brokers that
    /// name each other in turn are sent fetches with a pause.
    pub(in crate::fetch) fn on_leader_hint(
        &mut self,
        hint: &LeaderHint,
        learned: bool,
        now: Instant,
        table: &mut Table,
    ) {
        let Some(cursor) = current(table, &hint.cursor) else { return };
        if learned {
            self.settings.block_from_second(cursor, now);
        } else {
            self.settings.block(cursor, now);
            self.actions.push_back(Action::ForgetLeader(cursor.progress.at.clone()));
        }
    }

    /// The topic of these cursors is known now, or was not found in time.
    pub(in crate::fetch) fn on_topic_awaited(
        &mut self,
        cursors: &[(CursorRef, StartAt)],
        result: Result<(), Error>,
        now: Instant,
        table: &mut Table,
    ) {
        for (cursor_ref, start) in cursors {
            match &result {
                Ok(()) => {
                    if let Some(cursor) = current(table, cursor_ref) {
                        cursor.position = Position::Unresolved(*start);
                    }
                }
                Err(error) => self.on_offset(cursor_ref, *start, Err(error.clone()), now, table),
            }
        }
    }

    /// The leader's response with the start offset of a cursor.
    pub(in crate::fetch) fn on_offset(
        &mut self,
        cursor_ref: &CursorRef,
        start: StartAt,
        result: Result<i64, Error>,
        now: Instant,
        table: &mut Table,
    ) {
        let Some(cursor) = current(table, cursor_ref) else { return };
        let reason = result.as_ref().err().map(StallReason::of);
        let is_new = cursor.last_error != reason;
        cursor.last_error = reason;
        match result {
            Ok(offset) => {
                cursor.requested_at = None;
                cursor.start_at(offset);
            }
            Err(error) if error.is_retriable() => {
                cursor.position = Position::Unresolved(start);
                cursor.blocked_until = Some(now + self.settings.retry_backoff);
                self.refresh_unless_answered(&error);
            }
            Err(error) if error.broker_code() == Some(ErrorCode::UnknownServerError) => {
                cursor.position = Position::Unresolved(start);
                self.on_server_failure(cursor, error, is_new, now);
            }
            // The application gets the error; the certificate or password may be corrected meanwhile.
            Err(error) if error.is_security() => {
                cursor.position = Position::Unresolved(start);
                cursor.blocked_until = Some(now + SECURITY_PAUSE);
                self.actions.push_back(Action::ReportError(error));
            }
            Err(error) => {
                cursor.position = Position::Failed;
                let error = match (cursor.progress.reset(self.settings.offset_reset), error) {
                    (OffsetReset::Error, Error::Broker { code, .. }) => {
                        let TopicPartition { topic, partition } = &cursor.progress.at;
                        Error::NoStartOffset { topic: topic.to_string(), partition: *partition, code }
                    }
                    (_, Error::Broker { code, .. }) => {
                        let offset = if start == StartAt::Beginning { BEGINNING } else { END };
                        refused(cursor, PartitionRequest::ListOffsets, offset, code)
                    }
                    (_, error) => error,
                };
                self.fail(cursor, error);
            }
        }
    }

    /// The leader's response with the offset at which its log diverges from the one that was read.
    pub(in crate::fetch) fn on_epoch_end(
        &mut self,
        question: &EpochQuestion,
        result: Result<EpochEnd, Error>,
        now: Instant,
        table: &mut Table,
        view: &impl FetchView,
    ) {
        let EpochQuestion { offset, leader_epoch, .. } = *question;
        let Some(cursor) = current(table, &question.cursor) else { return };
        // Dropped parked records move the position back within the generation. It is validated again before the next fetch.
        if cursor.position != Position::Validating(offset) {
            return;
        }
        cursor.position = Position::At(offset);
        let reason = result.as_ref().err().map(StallReason::of);
        let cause = reason.as_ref().map(|reason| reason.cause);
        let last_error = std::mem::replace(&mut cursor.last_error, reason);
        match result {
            Ok(EpochEnd::At(end)) if end < offset => self.on_truncated(cursor, offset, Some(end), view),
            Ok(EpochEnd::Undefined) => self.on_truncated(cursor, offset, None, view),
            Ok(_) => cursor.validated_epoch = leader_epoch,
            Err(error) => {
                tracing::debug!(%error, at = %cursor.progress.at, "offset for leader epoch");
                self.settings.block(cursor, now);
                self.refresh_unless_answered(&error);
                // The question is repeated, as permissions can change. The application learns of the first of several such errors.
                let is_new = last_error.map(|last| last.cause) != cause;
                if is_new && error.is_security() {
                    self.actions.push_back(Action::ReportError(error));
                } else if is_new && !error.is_retriable() {
                    self.fail(cursor, error);
                }
            }
        }
    }

    /// Requests fresh metadata if a leader could not be asked about an offset: it may be down, and another one lead its partitions. No
    /// fetch finds that out, because none is sent before the answer.
    fn refresh_unless_answered(&mut self, error: &Error) {
        if error.is_retriable() && error.broker_code().is_none() {
            self.actions.push_back(Action::RefreshMetadata);
        }
    }

    /// The topic was deleted and created again: the position means nothing in its log. Reading continues at the start, whatever
    /// `auto.offset.reset` says, because all its records are newer than those that were read. Records of the deleted topic
    /// that were fetched reach the application first.
    pub(super) fn on_topic_created_again(
        &mut self,
        cursor: &mut Cursor,
        offset: i64,
        now: Instant,
        view: &dyn FetchView,
    ) {
        let at = cursor.progress.at.clone();
        if cursor.progress.position().is_some_and(|next| next < offset) {
            return self.block_until(cursor, now + self.settings.retry_backoff);
        }
        if cursor.progress.reset(self.settings.offset_reset) == OffsetReset::Error {
            cursor.position = Position::Failed;
            let (topic, partition) = (at.topic.to_string(), at.partition);
            let error = Error::LogTruncated { topic, partition, offset, end: None };
            cursor.last_error = Some(StallReason::of(&error));
            return self.fail(cursor, error);
        }
        tracing::warn!(%at, offset, "the topic was created again: fetching from its start");
        cursor.progress.forget_offsets();
        cursor.seek(StartAt::Beginning);
        self.resolve(cursor, StartAt::Beginning, now, view);
    }

    /// The leader's log ends, or diverges, before the position: at `end`, or at an offset that the leader does not know.
    fn on_truncated(&mut self, cursor: &mut Cursor, offset: i64, end: Option<i64>, view: &impl FetchView) {
        let at = cursor.progress.at.clone();
        let reset = cursor.progress.reset(self.settings.offset_reset);
        if reset == OffsetReset::Error {
            cursor.position = Position::Failed;
            let (topic, partition) = (at.topic.to_string(), at.partition);
            let error = Error::LogTruncated { topic, partition, offset, end };
            cursor.last_error = Some(StallReason::of(&error));
            return self.fail(cursor, error);
        }
        if let Some(end) = end {
            tracing::warn!(%at, offset, end, "the leader's log is truncated: fetching from its end");
            let given = cursor.progress.position().unwrap_or(offset);
            cursor.truncate_to(end.min(given));
        } else {
            tracing::warn!(%at, offset, ?reset, "the leader's log is older than what was read: the position is reset");
            cursor.seek(view.start_of(reset));
        }
        self.actions.push_back(Action::Purge(cursor.slot));
    }
}

/// The error of a fetch from the cursor's partition at this node and offset.
fn fetch_error((node, offset): (i32, i64), cursor: &Cursor, code: ErrorCode) -> Error {
    refused(cursor, PartitionRequest::Fetch { node, leader_epoch: cursor.last_epoch() }, offset, code)
}

fn refused(cursor: &Cursor, request: PartitionRequest, offset: i64, code: ErrorCode) -> Error {
    let TopicPartition { topic, partition } = &cursor.progress.at;
    Error::Partition { request, topic: topic.to_string(), partition: *partition, offset, code }
}

/// The cursor that a result is about, marked as changed; `None` if it was removed or moved since.
fn current<'a>(table: &'a mut Table, cursor_ref: &CursorRef) -> Option<&'a mut Cursor> {
    table.get_mut(cursor_ref.slot).filter(|cursor| cursor_ref.is(cursor))?;
    table.touch(cursor_ref.slot);
    table.get_mut(cursor_ref.slot)
}

const fn is_about_session(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::FetchSessionIdNotFound
            | ErrorCode::InvalidFetchSessionEpoch
            | ErrorCode::FetchSessionTopicIdError
    )
}

/// Bytes of records in a response.
fn bytes_of(response: &FetchResponse) -> usize {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.filter_map(|answer| answer.records.as_ref()).map(Chain::len).sum()
}
