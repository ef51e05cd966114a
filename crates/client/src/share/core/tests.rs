//! Stories of the core with leaders that the test plays.

use ottla_protocol::messages::share_acknowledge::{
    PartitionData as AckData, ShareAcknowledgeResponse, ShareAcknowledgeTopicResponse,
};
use ottla_protocol::messages::share_fetch::{
    AcquiredRecords, PartitionData, ShareFetchResponse, ShareFetchableTopicResponse,
};
use ottla_protocol::{ErrorCode, Uuid};

use super::*;

const KEY: TopicIdPartition = TopicIdPartition { topic_id: Uuid::ONE, partition: 0 };
const OTHER: TopicIdPartition = TopicIdPartition { topic_id: Uuid::ONE, partition: 1 };

/// Node 1 leads partition 0, and node 2 partition 1, unless it is moved.
struct Leaders {
    of_first: Option<i32>,
    room: usize,
}

impl ShareView for Leaders {
    fn leader(&self, key: TopicIdPartition, _at: &TopicPartition) -> Option<i32> {
        if key == KEY { self.of_first } else { Some(2) }
    }

    fn room(&self) -> usize {
        self.room
    }
}

struct Story {
    core: ShareCore,
    now: Instant,
    leaders: Leaders,
    ids: u64,
    polls_only: bool,
}

impl Story {
    fn new(acquire_mode: ShareAcquireMode, partitions: &[TopicIdPartition]) -> Self {
        let settings = ShareSettings {
            acquire_mode,
            max_poll_records: 500,
            fetch_max_bytes: 1 << 20,
            fetch_wait_max: Duration::from_millis(500),
            retry_backoff: Duration::from_millis(100),
        };
        let mut core = ShareCore::new(settings);
        let at = |key: &TopicIdPartition| (*key, TopicPartition::new("orders", key.partition));
        core.assign(partitions.iter().map(at).collect());
        let leaders = Leaders { of_first: Some(1), room: 8 << 20 };
        Self { core, now: Instant::now(), leaders, ids: 0, polls_only: false }
    }

    /// A round with this demand; returns the actions.
    fn round(&mut self, is_waiting: bool, queued: &[i32], acks: Vec<PartitionAcks>) -> Vec<ShareAction> {
        let queued = queued.iter().map(|node| (*node, 1)).collect();
        self.core.update(
            self.now,
            Demand { acks, is_waiting, polls_only: self.polls_only, queued },
            &self.leaders,
        );
        std::iter::from_fn(|| self.core.poll_action()).collect()
    }

    fn acks(&mut self, node: i32, key: TopicIdPartition, code: i8) -> PartitionAcks {
        self.ids += 1;
        let (at, ranges) =
            (TopicPartition::new("orders", key.partition), vec![AckRange::uniform(0, 4, code)]);
        PartitionAcks { id: self.ids, key, at, node, ranges, attempts: 0, retry_at: None, give_up_at: None }
    }

    /// The leader answers the fetch with records, or with none.
    fn fetched(
        &mut self,
        node: i32,
        key: TopicIdPartition,
        records: bool,
        ack: ErrorCode,
    ) -> Vec<ShareAction> {
        let acquired = AcquiredRecords { first_offset: 0, last_offset: 4, delivery_count: 1 };
        let partition = PartitionData {
            partition_index: key.partition,
            acknowledge_error_code: ack,
            acquired_records: if records { vec![acquired] } else { Vec::new() },
            ..Default::default()
        };
        let topic = ShareFetchableTopicResponse { topic_id: key.topic_id, partitions: vec![partition] };
        let response = ShareFetchResponse { responses: vec![topic], ..Default::default() };
        self.core.on_fetched(node, Ok(response), self.now);
        std::iter::from_fn(|| self.core.poll_action()).collect()
    }

    fn acknowledged(&mut self, node: i32, key: TopicIdPartition, error_code: ErrorCode) -> Vec<ShareAction> {
        let partition = AckData { partition_index: key.partition, error_code, ..Default::default() };
        let topic = ShareAcknowledgeTopicResponse { topic_id: key.topic_id, partitions: vec![partition] };
        let response = ShareAcknowledgeResponse { responses: vec![topic], ..Default::default() };
        self.core.on_acknowledged(node, Ok(response), self.now);
        std::iter::from_fn(|| self.core.poll_action()).collect()
    }

    /// Opens the session with the leader of a partition.
    fn open(&mut self, node: i32, key: TopicIdPartition) {
        self.round(true, &[], Vec::new());
        self.fetched(node, key, true, ErrorCode::None);
    }
}

fn fetch(actions: &[ShareAction]) -> Option<&FetchRequest> {
    actions.iter().find_map(|action| match action {
        ShareAction::Fetch(request) => Some(request),
        _ => None,
    })
}

fn acknowledge(actions: &[ShareAction]) -> Option<&AcknowledgeRequest> {
    actions.iter().find_map(|action| match action {
        ShareAction::Acknowledge(request) => Some(request),
        _ => None,
    })
}

fn settled(actions: &[ShareAction]) -> Vec<Option<ErrorCode>> {
    let code = |action: &ShareAction| match action {
        ShareAction::Settle(outcome) => Some(outcome.result.as_ref().err().and_then(Error::broker_code)),
        _ => None,
    };
    actions.iter().filter_map(code).collect()
}

#[test]
fn a_waiting_poll_fetches_for_long_and_a_taken_batch_fetches_ahead_with_its_acknowledgements() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY]);
    assert!(story.round(false, &[], Vec::new()).is_empty(), "no poll waits");
    let actions = story.round(true, &[], Vec::new());
    let first = fetch(&actions).expect("a fetch");
    assert_eq!((first.node, first.session.epoch, first.wait), (1, 0, Duration::from_millis(500)));
    assert!(matches!(story.fetched(1, KEY, true, ErrorCode::None)[..], [ShareAction::Deliver(_)]));
    assert!(story.round(false, &[1], Vec::new()).is_empty(), "the batch waits for a poll");
    let actions = story.round(false, &[], Vec::new());
    let ahead = fetch(&actions).expect("a fetch ahead");
    assert_eq!((ahead.session.epoch, ahead.wait), (1, Duration::ZERO));
    story.fetched(1, KEY, true, ErrorCode::None);
    let acks = story.acks(1, KEY, 1);
    let actions = story.round(false, &[], vec![acks]);
    let third = fetch(&actions).expect("a fetch with acknowledgements");
    assert_eq!(third.session.topics[0].partitions[0].acknowledgement_batches.len(), 1);
    assert!(story.core.has_unsettled(&(0..=1)));
    assert_eq!(settled(&story.fetched(1, KEY, false, ErrorCode::None)), [None]);
    assert!(!story.core.has_unsettled(&(0..=1)));
}

#[test]
fn without_fetches_ahead_only_a_waiting_poll_fetches() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY]);
    story.polls_only = true;
    story.open(1, KEY);
    assert!(story.round(false, &[], Vec::new()).is_empty(), "no poll waits");
    assert!(fetch(&story.round(true, &[], Vec::new())).is_some());
}

#[test]
fn acknowledgements_without_a_fetch_go_alone() {
    let mut story = Story::new(ShareAcquireMode::RecordLimit, &[KEY]);
    story.open(1, KEY);
    let acks = story.acks(1, KEY, 2);
    let actions = story.round(false, &[], vec![acks]);
    let request = acknowledge(&actions).expect("a ShareAcknowledge");
    assert_eq!((request.session.epoch, request.renews), (1, false));
    let results = story.acknowledged(1, KEY, ErrorCode::InvalidRecordState);
    assert_eq!(settled(&results), [Some(ErrorCode::InvalidRecordState)]);
}

/// The acknowledgements failed after three attempts without a pause, although their records were still locked.
#[test]
fn acknowledgements_are_repeated_with_pauses_while_the_coordinator_moves() {
    let mut story = Story::new(ShareAcquireMode::RecordLimit, &[KEY]);
    story.open(1, KEY);
    let mut acks = vec![story.acks(1, KEY, 1)];
    for attempt in 1..=6 {
        let actions = story.round(false, &[], std::mem::take(&mut acks));
        assert!(acknowledge(&actions).is_some(), "attempt {attempt}");
        assert!(settled(&story.acknowledged(1, KEY, ErrorCode::NotCoordinator)).is_empty());
        assert!(story.round(false, &[], Vec::new()).is_empty(), "no pause after attempt {attempt}");
        story.now = story.core.wake_at().expect("the end of the pause");
    }
    assert!(acknowledge(&story.round(false, &[], Vec::new())).is_some());
    assert_eq!(settled(&story.acknowledged(1, KEY, ErrorCode::None)), [None]);
}

#[test]
fn acknowledgements_fail_when_the_locks_have_ended_and_the_coordinator_still_moves() {
    let mut story = Story::new(ShareAcquireMode::RecordLimit, &[KEY]);
    story.open(1, KEY);
    let acks = story.acks(1, KEY, 1);
    story.round(false, &[], vec![acks]);
    assert!(settled(&story.acknowledged(1, KEY, ErrorCode::NotCoordinator)).is_empty());
    story.now += LOCK_TIMEOUT_DEFAULT;
    assert!(acknowledge(&story.round(false, &[], Vec::new())).is_some());
    let results = story.acknowledged(1, KEY, ErrorCode::NotCoordinator);
    assert_eq!(settled(&results), [Some(ErrorCode::NotCoordinator)]);
}

/// The pause was one of the leader: nothing was fetched from it, and no record of its other partitions was acknowledged.
#[test]
fn a_coordinator_that_moves_does_not_delay_the_other_partitions_of_a_leader() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY, OTHER]);
    story.leaders.of_first = Some(2);
    story.open(2, OTHER);
    let partitions = |actions: &[ShareAction]| -> Vec<i32> {
        let topics = acknowledge(actions).into_iter().flat_map(|request| &request.session.topics);
        topics.flat_map(|topic| &topic.partitions).map(|partition| partition.partition_index).collect()
    };
    let moving = story.acks(2, KEY, 1);
    assert_eq!(partitions(&story.round(false, &[2], vec![moving])), [KEY.partition]);
    assert!(settled(&story.acknowledged(2, KEY, ErrorCode::NotCoordinator)).is_empty());
    let other = story.acks(2, OTHER, 1);
    assert_eq!(partitions(&story.round(false, &[2], vec![other])), [OTHER.partition]);
    assert_eq!(settled(&story.acknowledged(2, OTHER, ErrorCode::None)), [None]);
    assert!(story.round(false, &[2], Vec::new()).is_empty());
    assert_eq!(story.core.wake_at(), Some(story.now + Duration::from_millis(100)));
    story.now += Duration::from_millis(100);
    assert_eq!(partitions(&story.round(false, &[2], Vec::new())), [KEY.partition]);
    assert_eq!(settled(&story.acknowledged(2, KEY, ErrorCode::None)), [None]);
}

/// The acknowledgement was sent again, and released or accepted records of the later acquisition that nothing had processed so far.
#[test]
fn acknowledgements_of_records_that_are_acquired_again_are_not_repeated() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY]);
    story.open(1, KEY);
    let acks = story.acks(1, KEY, 2);
    assert!(fetch(&story.round(true, &[], vec![acks])).is_some());
    let results = story.fetched(1, KEY, true, ErrorCode::NotCoordinator);
    assert_eq!(settled(&results), [Some(ErrorCode::InvalidRecordState)]);
    story.now += PAUSE_MAX;
    let acks = story.acks(1, KEY, 1);
    let actions = story.round(true, &[], vec![acks]);
    let request = fetch(&actions).expect("a fetch with acknowledgements");
    assert_eq!(request.session.topics[0].partitions[0].acknowledgement_batches.len(), 1);
}

/// All of a batch failed, also those of records that the broker had not given up.
#[test]
fn acknowledgements_of_a_batch_wait_further_for_the_records_that_are_not_acquired_again() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY]);
    story.open(1, KEY);
    let mut acks = story.acks(1, KEY, 1);
    acks.ranges = vec![AckRange::of_codes(3, &[1, 2, 1, 1]), AckRange::uniform(9, 9, 2)];
    assert!(fetch(&story.round(true, &[], vec![acks])).is_some());
    // The records 0 to 4 come again.
    let actions = story.fetched(1, KEY, true, ErrorCode::NotCoordinator);
    let outcomes: Vec<_> = actions
        .iter()
        .filter_map(|action| if let ShareAction::Settle(outcome) = action { Some(outcome) } else { None })
        .collect();
    assert_eq!(settled(&actions), [Some(ErrorCode::InvalidRecordState)]);
    assert_eq!(outcomes[0].ranges, [AckRange::of_codes(3, &[1, 2])]);
    assert!(story.core.has_unsettled(&(0..=1)));
    story.now += PAUSE_MAX;
    let actions = story.round(true, &[], Vec::new());
    let request = fetch(&actions).expect("a fetch with acknowledgements");
    let sent = &request.session.topics[0].partitions[0].acknowledgement_batches;
    let offsets: Vec<_> = sent.iter().map(|batch| (batch.first_offset, batch.last_offset)).collect();
    assert_eq!(offsets, [(5, 6), (9, 9)]);
    assert_eq!(settled(&story.fetched(1, KEY, false, ErrorCode::None)), [None]);
    assert!(!story.core.has_unsettled(&(0..=1)));
}

/// The time counted from the first response: acknowledgements were sent after the locks of their records had ended.
#[test]
fn acknowledgements_are_not_repeated_after_the_end_of_the_locks_that_the_acquisition_had() {
    let mut story = Story::new(ShareAcquireMode::RecordLimit, &[KEY]);
    story.open(1, KEY);
    let mut acks = story.acks(1, KEY, 1);
    acks.give_up_at = Some(story.now + Duration::from_millis(50));
    assert!(acknowledge(&story.round(false, &[], vec![acks])).is_some());
    let results = story.acknowledged(1, KEY, ErrorCode::NotCoordinator);
    assert_eq!(settled(&results), [Some(ErrorCode::NotCoordinator)]);
}

#[test]
fn renewals_and_commits_do_not_wait_for_records() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY]);
    story.open(1, KEY);
    let acks = story.acks(1, KEY, 4);
    let actions = story.round(true, &[], vec![acks]);
    assert!(acknowledge(&actions).is_some_and(|request| request.renews) && fetch(&actions).is_none());
    story.acknowledged(1, KEY, ErrorCode::None);
    story.core.commit();
    let acks = story.acks(1, KEY, 1);
    let actions = story.round(true, &[], vec![acks]);
    assert!(acknowledge(&actions).is_some_and(|request| !request.renews) && fetch(&actions).is_none());
}

/// The first and the last offset of each range in a request for one partition.
fn offsets(request: &AcknowledgeRequest) -> Vec<(i64, i64)> {
    let ranges = &request.session.topics[0].partitions[0].acknowledgement_batches;
    ranges.iter().map(|range| (range.first_offset, range.last_offset)).collect()
}

/// A broker without renewals (Apache Kafka 4.1) got none of both, and the records that were accepted came again.
#[test]
fn renewals_go_in_a_request_of_their_own_behind_the_others() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY]);
    story.open(1, KEY);
    let mut acks = story.acks(1, KEY, 1);
    acks.ranges = vec![AckRange::of_codes(0, &[1, 4, 4, 2])];
    let actions = story.round(true, &[], vec![acks]);
    let request = acknowledge(&actions).expect("the others");
    assert_eq!((request.renews, offsets(request)), (false, vec![(0, 0), (3, 3)]));
    assert_eq!(settled(&story.acknowledged(1, KEY, ErrorCode::None)), [None]);
    assert!(story.core.has_unsettled(&(0..=1)));
    let actions = story.round(true, &[], Vec::new());
    let request = acknowledge(&actions).expect("the renewals");
    assert_eq!((request.renews, offsets(request)), (true, vec![(1, 2)]));
    let unsupported = Error::Unsupported { address: "node 1".into(), reason: "no renewals".into() };
    story.core.on_acknowledged(1, Err(unsupported), story.now);
    let actions: Vec<_> = std::iter::from_fn(|| story.core.poll_action()).collect();
    assert!(matches!(&actions[..], [ShareAction::Settle(outcome)] if outcome.result.is_err()), "{actions:?}");
    assert!(!story.core.has_unsettled(&(0..=1)));
}

/// The records that were accepted beside a renewal were released.
#[test]
fn closing_sends_the_others_of_a_batch_with_renewals() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY]);
    story.open(1, KEY);
    story.core.close();
    let mut acks = story.acks(1, KEY, 1);
    acks.ranges = vec![AckRange::of_codes(0, &[1, 4])];
    let actions = story.round(false, &[], vec![acks]);
    let request = acknowledge(&actions).expect("the last request");
    assert_eq!((request.session.epoch, offsets(request)), (-1, vec![(0, 0)]));
    assert!(matches!(&actions[0], ShareAction::Settle(outcome) if outcome.result.is_err()), "{actions:?}");
}

#[test]
fn a_lost_session_fails_acknowledgements_because_the_broker_has_released_the_records() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY]);
    story.open(1, KEY);
    let (sent, waiting, late) = (story.acks(1, KEY, 1), story.acks(1, KEY, 1), story.acks(1, KEY, 1));
    story.round(true, &[], vec![sent]);
    story.round(true, &[], vec![waiting]);
    let lost = ShareFetchResponse { error_code: ErrorCode::ShareSessionNotFound, ..Default::default() };
    story.core.on_fetched(1, Ok(lost), story.now);
    let actions: Vec<_> = std::iter::from_fn(|| story.core.poll_action()).collect();
    let of_session = Some(ErrorCode::InvalidShareSessionEpoch);
    assert_eq!(settled(&actions), [Some(ErrorCode::ShareSessionNotFound), of_session]);
    assert!(actions.iter().any(|action| matches!(action, ShareAction::DropChunks { node: 1 })));
    let actions = story.round(true, &[], vec![late]);
    assert_eq!(settled(&actions), [of_session]);
    let opening = fetch(&actions).expect("a new session, at once");
    assert_eq!(opening.session.epoch, 0);
    assert!(opening.session.topics[0].partitions[0].acknowledgement_batches.is_empty());
}

#[test]
fn a_broken_connection_fails_what_was_sent_and_pauses() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY]);
    story.open(1, KEY);
    let acks = story.acks(1, KEY, 1);
    story.round(true, &[], vec![acks]);
    let error = Error::Transport { address: "node 1".into(), reason: "reset".into() };
    story.core.on_fetched(1, Err(error), story.now);
    let actions: Vec<_> = std::iter::from_fn(|| story.core.poll_action()).collect();
    assert_eq!(settled(&actions).len(), 1);
    assert!(story.round(true, &[], Vec::new()).is_empty());
    assert_eq!(story.core.wake_at(), Some(story.now + Duration::from_millis(100)));
    story.now += Duration::from_millis(100);
    assert!(fetch(&story.round(true, &[], Vec::new())).is_some());
}

/// librdkafka's test 0181: brokers return it for a while after they have deleted a topic of the session.
#[test]
fn an_error_without_a_known_cause_is_reported_once_when_it_does_not_pass() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY]);
    story.open(1, KEY);
    let mut reported = Vec::new();
    for attempt in 1..=13 {
        story.now += Duration::from_secs(2);
        assert!(fetch(&story.round(true, &[], Vec::new())).is_some(), "attempt {attempt}");
        let code = ErrorCode::UnknownServerError;
        let refused = ShareFetchResponse { error_code: code, ..Default::default() };
        story.core.on_fetched(1, Ok(refused), story.now);
        let actions = std::iter::from_fn(|| story.core.poll_action());
        let reports = actions.filter(|action| matches!(action, ShareAction::Report(_))).count();
        reported.extend(std::iter::repeat_n(attempt, reports));
    }
    assert_eq!(reported, [11]);
}

#[test]
fn a_moved_partition_is_fetched_from_its_leader_and_its_records_cannot_be_acknowledged() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY]);
    story.open(1, KEY);
    story.leaders.of_first = Some(2);
    let acks = story.acks(1, KEY, 1);
    let actions = story.round(true, &[], vec![acks]);
    assert_eq!(settled(&actions), [Some(ErrorCode::NotLeaderOrFollower)]);
    assert!(acknowledge(&actions).is_none());
    assert_eq!(fetch(&actions).map(|request| request.node), Some(2));
}

#[test]
fn with_a_record_limit_one_leader_at_a_time_is_fetched_in_turn_and_only_for_a_poll() {
    let mut story = Story::new(ShareAcquireMode::RecordLimit, &[KEY, OTHER]);
    let actions = story.round(true, &[], Vec::new());
    assert_eq!(actions.len(), 1);
    let first = fetch(&actions).expect("one fetch").node;
    let (key, other) = if first == 1 { (KEY, 2) } else { (OTHER, 1) };
    story.fetched(first, key, true, ErrorCode::None);
    assert!(story.round(false, &[], Vec::new()).is_empty(), "nothing is fetched ahead");
    assert_eq!(fetch(&story.round(true, &[], Vec::new())).map(|request| request.node), Some(other));
}

#[test]
fn empty_early_responses_cause_a_pause_from_the_second_on() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY]);
    for _ in 0..2 {
        assert!(fetch(&story.round(true, &[], Vec::new())).is_some());
        story.fetched(1, KEY, false, ErrorCode::None);
    }
    assert!(story.round(true, &[], Vec::new()).is_empty());
    assert!(story.core.wake_at().is_some());
}

#[test]
fn closing_sends_what_is_pending_and_ends_each_session() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY]);
    story.open(1, KEY);
    story.core.close();
    let (accepts, renews) = (story.acks(1, KEY, 1), story.acks(1, KEY, 4));
    let actions = story.round(false, &[], vec![accepts, renews]);
    let request = acknowledge(&actions).expect("the last request");
    assert_eq!((request.session.epoch, request.renews), (-1, false));
    assert_eq!(request.session.topics[0].partitions[0].acknowledgement_batches.len(), 1);
    assert!(!story.core.is_closed());
    story.acknowledged(1, KEY, ErrorCode::None);
    story.round(false, &[], Vec::new());
    assert!(story.core.is_closed());
}

#[test]
fn without_room_nothing_is_fetched() {
    let mut story = Story::new(ShareAcquireMode::BatchOptimized, &[KEY]);
    story.leaders.room = 0;
    assert!(story.round(true, &[], Vec::new()).is_empty());
    assert!(story.core.leaders[&1].waits_for_room);
}
