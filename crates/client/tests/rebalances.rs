//! The rebalance modes in which the consumer applies the assignment silently, or the application applies it.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

mod ends;

use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, BrokerThread, ErrorCode, Fault, FaultRule};
use ottla_client::{
    Config, Consumer, ConsumerControl, Event, GroupHabits, Polled, PolledRecord, Producer, Rebalance, Record,
    StartAt, TopicPartition,
};

const PATIENCE: Duration = Duration::from_secs(60);

fn broker() -> BrokerThread {
    let builder = Broker::builder().memory().topic("orders", 2).configure(|config| {
        for name in ["min.heartbeat.interval.ms", "heartbeat.interval.ms"] {
            config.set(&format!("group.consumer.{name}"), "100").expect("a property");
        }
    });
    let broker = builder.spawn().expect("a broker in memory");
    let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    for number in 0..20 {
        let record = Record::to("orders").partition(number % 2).value("paid");
        let _unawaited = producer.enqueue_blocking(record).expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("written");
    broker
}

fn member(broker: &BrokerThread, rebalance: Rebalance) -> Config {
    let mut config = Config::new(broker.bootstrap_servers());
    config
        .set_all([
            ("group.id", "billing"),
            ("auto.offset.reset", "earliest"),
            ("heartbeat.interval.ms", "50"),
            ("session.timeout.ms", "3000"),
        ])
        .expect("known properties");
    config.rebalance = rebalance;
    config
}

/// A consumer of `orders` whose assignment its application has seen.
fn joined(config: Config) -> (Consumer, ConsumerControl) {
    let mut consumer = Consumer::new(config).expect("a consumer");
    let control = consumer.control().clone();
    control.subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    poll_until(&mut consumer, |polled| matches!(polled, Polled::Event(Event::Assigned(_))));
    (consumer, control)
}

/// Polls until `seen` returns `true`.
fn poll_until(consumer: &mut Consumer, mut seen: impl FnMut(&Polled) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(polled) = consumer.poll_blocking(Duration::from_millis(100)).expect("no error")
            && seen(&polled)
        {
            return;
        }
    }
    panic!("not within {PATIENCE:?}");
}

fn count(polled: &Polled) -> usize {
    match polled {
        Polled::Records(batch) => batch.to_owned_records().expect("sound records").len(),
        _ => 0,
    }
}

#[test]
fn a_silent_consumer_hears_nothing_of_a_rebalance_and_lets_go_without_polling() {
    let broker = broker();
    let mut first = Consumer::new(member(&broker, Rebalance::Silent)).expect("a consumer");
    first.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    let mut records = 0;
    poll_until(&mut first, |polled| {
        assert!(matches!(polled, Polled::Records(_)), "{polled:?}");
        records += count(polled);
        records == 20
    });
    assert_eq!(first.assignment().len(), 2);

    // The second member gets its share although the first does not poll.
    let second = Consumer::new(member(&broker, Rebalance::Silent)).expect("a consumer");
    second.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    let deadline = Instant::now() + PATIENCE;
    while second.assignment().len() != 1 || first.assignment().len() != 1 {
        assert!(Instant::now() < deadline, "{:?} and {:?}", first.assignment(), second.assignment());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_application_that_assigns_itself_says_where_to_begin_and_is_waited_for_when_it_gives_up() {
    let broker = broker();
    let mut consumer = Consumer::new(member(&broker, Rebalance::Application)).expect("a consumer");
    let control = consumer.control().clone();
    control.subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    let mut given = Vec::new();
    poll_until(&mut consumer, |polled| match polled {
        Polled::Event(Event::Assigned(partitions)) => {
            given.clone_from(partitions);
            true
        }
        other => panic!("nothing is fetched before it is assigned: {other:?}"),
    });
    assert_eq!(given.len(), 2);
    assert!(control.assignment().is_empty(), "the application has not answered");

    // The application selects one of the two partitions and another offset.
    let one = TopicPartition::new("orders", 1);
    control.assign(&[(one.clone(), StartAt::Offset(7))]).wait(PATIENCE).expect("assigned");
    let mut offsets = Vec::new();
    poll_until(&mut consumer, |polled| {
        if let Polled::Records(batch) = polled {
            assert_eq!(batch.partition(), 1);
            offsets.extend(batch.iter().map(|record| record.expect("sound").offset));
        }
        offsets.len() == 3
    });
    assert_eq!(offsets, [7, 8, 9]);
    control
        .incremental_assign(&[(TopicPartition::new("orders", 0), StartAt::Committed)])
        .wait(PATIENCE)
        .expect("added");
    let mut others = 0;
    poll_until(&mut consumer, |polled| {
        others += count(polled);
        others == 10
    });

    // A second member joins: the eager first one must revoke its partitions, and the group waits for it.
    let mut second = Consumer::new(member(&broker, Rebalance::Silent)).expect("a consumer");
    second.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    poll_until(&mut consumer, |polled| matches!(polled, Polled::Event(Event::Revoked(_))));
    assert!(matches!(second.poll_blocking(Duration::from_millis(300)), Ok(None)), "it waits for the first");
    control.assign(&[]).wait(PATIENCE).expect("given up");
    poll_until(&mut consumer, |polled| match polled {
        Polled::Event(Event::Assigned(partitions)) => {
            assert_eq!(partitions.len(), 1);
            true
        }
        other => panic!("{other:?}"),
    });
    let committed = control.committed(&given).wait(PATIENCE).expect("answered");
    assert_eq!(committed.values().copied().collect::<Vec<_>>(), [10, 10], "what was done is committed first");
}

/// The coordinator accepts no commits until the fault with the returned id is removed.
fn refuse_commits(broker: &BrokerThread) -> u64 {
    let loading = Fault::Fail(ErrorCode::CoordinatorLoadInProgress);
    let rule = FaultRule::new(ApiKey::OffsetCommit, loading).times(u32::MAX);
    broker.cluster().add_fault(rule).expect("a sound rule")
}

/// Both partitions of `orders`, assigned by the application of a consumer.
fn both_assigned(control: &ConsumerControl) -> [TopicPartition; 2] {
    let both = [0, 1].map(|partition| TopicPartition::new("orders", partition));
    control.assign(&both.clone().map(|at| (at, StartAt::Beginning))).wait(PATIENCE).expect("assigned");
    both
}

/// The member entered the next generation, in which the coordinator refused the repeated commit.
#[test]
fn with_librdkafkas_habits_a_rebalance_waits_for_the_commits_of_the_application() {
    let broker = broker();
    let mut config = member(&broker, Rebalance::Application);
    config.set("enable.auto.commit", "false").expect("a known property");
    config.group_habits = GroupHabits::Librdkafka;
    let (mut first, control) = joined(config);
    let both = both_assigned(&control);
    let second = Consumer::new(member(&broker, Rebalance::Silent)).expect("a consumer");
    second.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    poll_until(&mut first, |polled| matches!(polled, Polled::Event(Event::Revoked(_))));

    let joins = broker.cluster().requests(ApiKey::JoinGroup);
    let loading = refuse_commits(&broker);
    let committing = control.commit_named_offsets(&[(both[0].clone(), 3.into())]);
    control.assign(&[]).wait(PATIENCE).expect("given up");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(broker.cluster().requests(ApiKey::JoinGroup), joins, "the commit comes first");
    broker.cluster().remove_fault(loading);
    let refused = committing.wait(PATIENCE).expect("committed in its generation");
    assert!(refused.is_empty(), "{refused:?}");
    poll_until(&mut first, |polled| matches!(polled, Polled::Event(Event::Assigned(_))));
}

/// The end of an earlier commit acknowledged the revocation: the partition was another member's before its application knew.
#[test]
fn a_commit_that_ends_during_a_revocation_does_not_acknowledge_it() {
    let broker = broker();
    let mut config = member(&broker, Rebalance::Application);
    config.set("auto.commit.interval.ms", "3600000").expect("a known property");
    let (mut first, control) = joined(config);
    let [gone, kept] = both_assigned(&control);
    control.store_offset(&gone, 3).expect("its own");
    let loading = refuse_commits(&broker);
    let removing = control.incremental_unassign(std::slice::from_ref(&gone));
    let second = Consumer::new(member(&broker, Rebalance::Silent)).expect("a consumer");
    second.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    let deadline = Instant::now() + PATIENCE;
    while control.unseen_revocations().is_empty() {
        assert!(Instant::now() < deadline, "the group asks for the partitions");
        std::thread::sleep(Duration::from_millis(5));
    }
    broker.cluster().remove_fault(loading);
    removing.wait(PATIENCE).expect("removed and committed");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(control.assignment(), [kept], "the application has not seen the revocation");
    poll_until(&mut first, |polled| matches!(polled, Polled::Event(Event::Revoked(_))));
    control.assign(&[]).wait(PATIENCE).expect("given up");
    poll_until(&mut first, |polled| matches!(polled, Polled::Event(Event::Assigned(_))));
}

/// The numbers of partitions that two applications, which assign themselves, are given, until the first has had `events`
/// assignments. The second joins after the first has all partitions.
fn given_to_two(properties: &[(&str, &str)], events: usize) -> [Vec<usize>; 2] {
    let broker = broker();
    let join = || {
        let mut config = Config::new(broker.bootstrap_servers());
        config.set("group.id", "billing").expect("a known property");
        config.set_all(properties.iter().copied()).expect("known properties");
        config.rebalance = Rebalance::Application;
        let consumer = Consumer::new(config).expect("a consumer");
        consumer.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
        consumer
    };
    // Applies the next event, if there is one. Returns the number of partitions of an assignment.
    let apply = |consumer: &mut Consumer| {
        let polled = consumer.poll_blocking(Duration::from_millis(50)).expect("no error");
        let control = consumer.control().clone();
        match polled {
            Some(Polled::Event(Event::Assigned(given))) => {
                let starts: Vec<_> = given.iter().map(|at| (at.clone(), StartAt::Beginning)).collect();
                control.incremental_assign(&starts).wait(PATIENCE).expect("assigned");
                Some(given.len())
            }
            Some(Polled::Event(Event::Revoked(gone))) => {
                control.incremental_unassign(&gone).wait(PATIENCE).expect("removed");
                None
            }
            _ => None,
        }
    };
    let mut first = join();
    let deadline = Instant::now() + PATIENCE;
    let mut given = [Vec::new(), Vec::new()];
    while given[0].is_empty() {
        assert!(Instant::now() < deadline);
        given[0].extend(apply(&mut first));
    }
    let mut second = join();
    while given[1].last() != Some(&1) || given[0].len() < events {
        assert!(Instant::now() < deadline, "{given:?}");
        given[0].extend(apply(&mut first));
        given[1].extend(apply(&mut second));
    }
    given
}

/// librdkafka's test 0113 counts the calls of its callback, also those without partitions.
#[test]
fn an_application_that_assigns_itself_gets_each_assignment_of_a_cooperative_group() {
    let cooperative =
        [("partition.assignment.strategy", "cooperative-sticky"), ("heartbeat.interval.ms", "50")];
    assert_eq!(given_to_two(&cooperative, 3), [vec![2, 0, 0], vec![0, 1]]);
}

/// librdkafka's tests 0018 and 0069 wait for the assignment after a revocation.
#[test]
fn an_application_that_assigns_itself_gets_an_assignment_after_each_revocation_of_the_new_protocol() {
    assert_eq!(given_to_two(&[("group.protocol", "consumer")], 2), [vec![2, 0], vec![1]]);
}

/// The revocation came after the rest of the open batch: 47 s in librdkafka's test 0113, which reads a message a second.
#[test]
fn a_revocation_comes_before_the_rest_of_a_batch_that_is_read_record_by_record() {
    let broker = Broker::builder().memory().topic("orders", 2).spawn().expect("a broker in memory");
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("linger.ms", "60000").expect("a known property");
    let producer = Producer::new(config).expect("a producer");
    for number in 0..20 {
        let record = Record::to("orders").partition(number % 2).value("paid");
        let _unawaited = producer.enqueue_blocking(record).expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("written as a batch of ten to each partition");
    let (mut first, control) = joined(member(&broker, Rebalance::Polled));
    let begun = first.next_record_blocking(PATIENCE).expect("no error");
    assert!(matches!(begun, Some(PolledRecord::Record(record)) if record.offset() == 0));

    let second = Consumer::new(member(&broker, Rebalance::Silent)).expect("a consumer");
    second.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    let deadline = Instant::now() + PATIENCE;
    while control.unseen_revocations().is_empty() {
        assert!(Instant::now() < deadline, "the group asks for the partitions");
        std::thread::sleep(Duration::from_millis(5));
    }
    let next = first.next_record_blocking(PATIENCE).expect("no error");
    assert!(matches!(next, Some(PolledRecord::Event(Event::Revoked(_)))), "{next:?}");
}

/// Only polls of the consumer itself answered. A member whose application polls a queue in its place never gave its partitions
/// up, and then it had not polled for too long.
#[test]
fn a_revocation_that_a_forwarded_queue_returns_is_answered() {
    let broker = broker();
    let mut config = member(&broker, Rebalance::Polled);
    config.set("max.poll.interval.ms", "3000").expect("a known property");
    let (mut first, control) = joined(config);
    let mut queue = first.split(&TopicPartition::new("orders", 0)).expect("assigned");
    first.forward_to(Some(&queue)).expect("no circle");
    let second = Consumer::new(member(&broker, Rebalance::Silent)).expect("a consumer");
    second.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    let (began, mut revoked) = (Instant::now(), false);
    let shares = || (control.assignment().len(), second.assignment().len());
    while !revoked || shares() != (1, 1) || began.elapsed() < Duration::from_secs(5) {
        assert!(began.elapsed() < PATIENCE, "{:?}, revoked: {revoked}", shares());
        let polled = queue.poll_blocking(Duration::from_millis(100)).expect("no error");
        revoked |= matches!(polled, Some(Polled::Event(Event::Revoked(_))));
    }
}

#[test]
fn lost_partitions_stay_assigned_until_the_application_removes_them_and_are_not_committed() {
    let broker = broker();
    let mut config = member(&broker, Rebalance::Application);
    config
        .set_all([("max.poll.interval.ms", "1000"), ("session.timeout.ms", "1000")])
        .expect("known properties");
    let (mut consumer, control) = joined(config);
    let given = [0, 1].map(|partition| TopicPartition::new("orders", partition));
    control.assign(&given.clone().map(|at| (at, StartAt::Beginning))).wait(PATIENCE).expect("assigned");

    // It does not poll for twice its interval: it loses its partitions, and another member gets them.
    std::thread::sleep(Duration::from_secs(2));
    let mut second = Consumer::new(member(&broker, Rebalance::Silent)).expect("a consumer");
    second.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    let mut others = 0;
    poll_until(&mut second, |polled| {
        others += count(polled);
        others == 20
    });
    let late = consumer.poll_blocking(PATIENCE);
    assert!(matches!(late, Err(ottla_client::Error::PollIntervalExceeded { .. })), "{late:?}");
    poll_until(&mut consumer, |polled| matches!(polled, Polled::Event(Event::Lost(lost)) if lost == &given));
    assert_eq!(control.assignment(), given, "the application has not removed them");
    let commit = control.commit_offsets(&[(given[0].clone(), 3.into())]).wait(PATIENCE);
    assert!(matches!(commit, Err(ottla_client::Error::NotAssigned { .. })), "{commit:?}");
    control.assign(&[]).wait(PATIENCE).expect("removed");
    assert_eq!(control.assignment(), []);
}

/// A member that had lost its partitions and joined again in the background got the new identity. Offsets of records from
/// the lost assignment were accepted with it, and the next assignment handled the same records again.
#[test]
fn group_metadata_is_that_of_the_lost_assignment_until_the_loss_is_polled() {
    let broker = broker();
    let (mut consumer, control) = joined(member(&broker, Rebalance::Polled));
    let before = control.group_metadata().wait(PATIENCE).expect("a member");
    assert!(before.generation >= 0 && !before.member_id.is_empty());

    let refused = Fault::Fail(ErrorCode::UnknownMemberId);
    broker.cluster().intercept(ApiKey::Heartbeat, None, 1, refused);
    let joins = broker.cluster().requests(ApiKey::SyncGroup);
    let deadline = Instant::now() + PATIENCE;
    while broker.cluster().requests(ApiKey::SyncGroup) == joins || !control.has_unseen_loss() {
        assert!(Instant::now() < deadline, "it joins again without a poll");
        assert_eq!(control.group_metadata().wait(PATIENCE).expect("a member"), before);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(control.group_metadata().wait(PATIENCE).expect("a member"), before);

    // The seek was meant for the lost assignment, and moved the next one.
    let at = TopicPartition::new("orders", 0);
    let seek = control.seek(&at, StartAt::Offset(7)).wait(PATIENCE);
    assert!(matches!(seek, Err(ottla_client::Error::NotAssigned { .. })), "{seek:?}");

    poll_until(&mut consumer, |polled| matches!(polled, Polled::Event(Event::Lost(_))));
    poll_until(&mut consumer, |polled| matches!(polled, Polled::Event(Event::Assigned(_))));
    let after = control.group_metadata().wait(PATIENCE).expect("a member");
    assert!(after != before && after.generation >= 0, "{after:?}");
    control.seek(&at, StartAt::Offset(7)).wait(PATIENCE).expect("assigned");
}

/// A seek fetched from the revoked partition again, and its records reached this member and the next owner.
#[test]
fn a_partition_that_is_revoked_cannot_be_moved_to_another_position() {
    let broker = broker();
    let (mut first, control) = joined(member(&broker, Rebalance::Polled));
    let second = Consumer::new(member(&broker, Rebalance::Silent)).expect("a consumer");
    second.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    let mut revoked = Vec::new();
    poll_until(&mut first, |polled| match polled {
        Polled::Event(Event::Revoked(partitions)) => {
            revoked.clone_from(partitions);
            true
        }
        _ => false,
    });
    assert_eq!(revoked.len(), 2);
    for at in &revoked {
        let seek = control.seek(at, StartAt::Beginning).wait(PATIENCE);
        assert!(matches!(seek, Err(ottla_client::Error::NotAssigned { .. })), "{seek:?}");
    }
    std::thread::sleep(Duration::from_millis(200));

    // In the next assignment it can.
    let mut kept = Vec::new();
    poll_until(&mut first, |polled| match polled {
        Polled::Event(Event::Assigned(partitions)) => {
            kept.clone_from(partitions);
            true
        }
        other => panic!("{other:?} of a revoked partition"),
    });
    assert_eq!(kept.len(), 1);
    control.seek(&kept[0], StartAt::Offset(7)).wait(PATIENCE).expect("assigned");
    poll_until(&mut first, |polled| {
        let Polled::Records(batch) = polled else { return false };
        assert_eq!(batch.iter().next().expect("a record").expect("sound").offset, 7);
        true
    });
}

/// The member kept its partitions until a heartbeat was refused, and other members could own them by then.
#[test]
fn a_commit_that_is_refused_loses_the_assignment_and_the_member_joins_again() {
    for code in [ErrorCode::IllegalGeneration, ErrorCode::UnknownMemberId] {
        let broker = broker();
        let (mut consumer, control) = joined(member(&broker, Rebalance::Polled));
        let before = control.group_metadata().wait(PATIENCE).expect("a member");

        broker.cluster().intercept(ApiKey::OffsetCommit, None, 1, Fault::Fail(code));
        let at = TopicPartition::new("orders", 0);
        let commit = control.commit_offsets(&[(at.clone(), 3.into())]).wait(PATIENCE);
        assert!(
            matches!(&commit, Err(ottla_client::Error::Broker { code: found, .. }) if *found == code),
            "{commit:?}"
        );
        poll_until(
            &mut consumer,
            |polled| matches!(polled, Polled::Event(Event::Lost(lost)) if lost.contains(&at)),
        );
        poll_until(&mut consumer, |polled| matches!(polled, Polled::Event(Event::Assigned(_))));
        let after = control.group_metadata().wait(PATIENCE).expect("a member");
        assert!(after != before && after.generation >= 0, "{after:?}");
        control.commit_offsets(&[(at, 3.into())]).wait(PATIENCE).expect("a member again");
    }
}

/// Makes a member join again, and returns when the request is there. Its response takes 500 ms.
fn rejoin_with_late(api: ApiKey, broker: &BrokerThread, control: &ConsumerControl) {
    let before = broker.cluster().requests(api);
    broker.cluster().intercept(api, None, 1, Fault::AnswerAfter(Duration::from_millis(500)));
    control.subscribe(&["orders", "refunds"]).wait(PATIENCE).expect("subscribed");
    let deadline = Instant::now() + PATIENCE;
    while broker.cluster().requests(api) == before {
        assert!(Instant::now() < deadline, "the member joins again");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The member sent no heartbeats while its application finished with the topic that it no longer subscribes to. Its session
/// ended, and it joined as another member.
#[test]
fn a_cooperative_member_stays_in_the_group_while_it_gives_up_a_topic() {
    let broker = broker();
    let mut config = member(&broker, Rebalance::Polled);
    config
        .set_all([("partition.assignment.strategy", "cooperative-sticky"), ("session.timeout.ms", "1000")])
        .expect("known properties");
    let (mut consumer, control) = joined(config);
    let before = control.group_metadata().wait(PATIENCE).expect("a member");

    control.subscribe(&["refunds"]).wait(PATIENCE).expect("subscribed");
    poll_until(&mut consumer, |polled| matches!(polled, Polled::Event(Event::Revoked(_))));
    std::thread::sleep(Duration::from_millis(2500));
    poll_until(&mut consumer, |polled| matches!(polled, Polled::Event(Event::Assigned(_))));
    let after = control.group_metadata().wait(PATIENCE).expect("a member");
    assert_eq!((&after.member_id, after.generation), (&before.member_id, before.generation + 1));
}

/// A group is in its next generation before its members know: the commits of that moment were refused, although a member
/// of a cooperative group owns its partitions all the time.
#[test]
fn a_commit_during_a_cooperative_rebalance_follows_in_the_next_generation() {
    let broker = broker();
    let mut config = member(&broker, Rebalance::Polled);
    config.set("partition.assignment.strategy", "cooperative-sticky").expect("a known property");
    let (_consumer, control) = joined(config);
    let before = control.group_metadata().wait(PATIENCE).expect("a member");

    rejoin_with_late(ApiKey::JoinGroup, &broker, &control);
    let at = TopicPartition::new("orders", 0);
    control
        .commit_offsets(&[(at.clone(), 3.into())])
        .wait(PATIENCE)
        .expect("committed in the next generation");
    let after = control.group_metadata().wait(PATIENCE).expect("a member");
    assert_eq!((&after.member_id, after.generation), (&before.member_id, before.generation + 1));
    assert_eq!(control.committed(std::slice::from_ref(&at)).wait(PATIENCE).expect("read"), [(at, 3)].into());
}

/// The refusal can arrive after the response that makes the member a member of the generation.
#[test]
fn a_commit_whose_refusal_comes_after_the_assignment_is_sent_again() {
    let broker = broker();
    let mut config = member(&broker, Rebalance::Polled);
    config.set("partition.assignment.strategy", "cooperative-sticky").expect("a known property");
    let (mut consumer, control) = joined(config);

    let refusal = Fault::FailAfter(ErrorCode::RebalanceInProgress, Duration::from_secs(1));
    broker.cluster().intercept(ApiKey::OffsetCommit, None, 1, refusal);
    rejoin_with_late(ApiKey::SyncGroup, &broker, &control);
    let at = TopicPartition::new("orders", 0);
    let committing = control.commit_offsets(&[(at.clone(), 3.into())]);
    let is_refunds = |at: &TopicPartition| &*at.topic == "refunds";
    poll_until(
        &mut consumer,
        |polled| matches!(polled, Polled::Event(Event::Assigned(added)) if added.iter().any(is_refunds)),
    );
    committing.wait(PATIENCE).expect("committed at the second attempt");
    assert_eq!(control.committed(std::slice::from_ref(&at)).wait(PATIENCE).expect("read"), [(at, 3)].into());
}

/// A partition that was given up can have another owner's offset by the time it comes back.
#[test]
fn a_commit_of_an_earlier_assignment_is_refused_although_its_partition_came_back() {
    let broker = broker();
    let (mut consumer, control) = joined(member(&broker, Rebalance::Polled));

    // The response comes when the member has its partitions again, in the next generation.
    broker.cluster().intercept(
        ApiKey::OffsetCommit,
        None,
        1,
        Fault::FailAfter(ErrorCode::IllegalGeneration, Duration::from_secs(1)),
    );
    let at = TopicPartition::new("orders", 0);
    let committing = control.commit_offsets(&[(at.clone(), 3.into())]);
    control.subscribe(&["orders", "refunds"]).wait(PATIENCE).expect("subscribed");
    poll_until(&mut consumer, |polled| matches!(polled, Polled::Event(Event::Revoked(_))));
    poll_until(&mut consumer, |polled| matches!(polled, Polled::Event(Event::Assigned(_))));
    let commit = committing.wait(PATIENCE);
    assert!(
        commit.as_ref().is_err_and(|error| error.broker_code() == Some(ErrorCode::IllegalGeneration)),
        "{commit:?}"
    );
    assert_eq!(control.committed(&[at]).wait(PATIENCE).expect("read"), [].into());
}

#[test]
fn a_static_member_whose_commit_is_fenced_is_out_of_the_group() {
    let broker = broker();
    let mut config = member(&broker, Rebalance::Polled);
    config.set("group.instance.id", "till-1").expect("a known property");
    let (mut consumer, control) = joined(config);

    broker.cluster().intercept(ApiKey::OffsetCommit, None, 1, Fault::Fail(ErrorCode::FencedInstanceId));
    let commit = control.commit_offsets(&[(TopicPartition::new("orders", 0), 3.into())]).wait(PATIENCE);
    assert!(commit.is_err(), "{commit:?}");
    let deadline = Instant::now() + PATIENCE;
    let fenced = loop {
        match consumer.poll_blocking(Duration::from_millis(100)) {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < deadline, "it learns that it is fenced"),
        }
    };
    assert!(fenced.to_string().contains("OffsetCommit") && fenced.to_string().contains("till-1"), "{fenced}");
}

#[test]
fn an_application_that_assigns_itself_is_waited_for_when_it_unsubscribes() {
    let broker = broker();
    let (mut consumer, control) = joined(member(&broker, Rebalance::Application));
    let given = [0, 1].map(|partition| TopicPartition::new("orders", partition));
    control.assign(&given.clone().map(|at| (at, StartAt::Beginning))).wait(PATIENCE).expect("assigned");

    control.unsubscribe(PATIENCE).wait(PATIENCE).expect("begun");
    assert_eq!(control.assignment(), given, "a poll still has to return the revocation");
    let mut second = Consumer::new(member(&broker, Rebalance::Silent)).expect("a consumer");
    second.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    assert!(matches!(second.poll_blocking(Duration::from_millis(300)), Ok(None)), "it waits for the first");
    poll_until(&mut consumer, |polled| matches!(polled, Polled::Event(Event::Revoked(_))));
    control.assign(&[]).wait(PATIENCE).expect("given up");
    let mut others = 0;
    poll_until(&mut second, |polled| {
        others += count(polled);
        others == 20
    });
}

/// A commit is repeated only while its partitions are the member's, and the member had disowned them before it left.
#[test]
fn a_refused_commit_of_partitions_that_are_given_up_is_repeated_before_the_member_leaves() {
    let broker = broker();
    let mut config = Config::new(broker.bootstrap_servers());
    let later = ("auto.commit.interval.ms", "3600000");
    config
        .set_all([("group.id", "billing"), ("group.protocol", "consumer"), later])
        .expect("known properties");
    config.rebalance = Rebalance::Application;
    let (mut consumer, control) = joined(config);
    let at = TopicPartition::new("orders", 0);
    control.assign(&[(at.clone(), StartAt::End)]).wait(PATIENCE).expect("assigned");
    control.store_offset(&at, 3).expect("its own");
    control.unsubscribe(PATIENCE).wait(PATIENCE).expect("begun");
    poll_until(&mut consumer, |polled| matches!(polled, Polled::Event(Event::Revoked(_))));
    broker.cluster().intercept(ApiKey::OffsetCommit, None, 1, Fault::Fail(ErrorCode::StaleMemberEpoch));
    control.assign(&[]).wait(PATIENCE).expect("given up");
    let other = Consumer::new(member(&broker, Rebalance::Silent)).expect("a consumer");
    let committed = other.control().committed(std::slice::from_ref(&at)).wait(PATIENCE);
    assert_eq!(committed.expect("read"), [(at, 3)].into());
}

/// The application got the error, although the next heartbeat response had the epoch, or the member joined again.
#[test]
fn a_refused_epoch_of_a_lookup_of_committed_offsets_is_no_error_of_the_application() {
    let broker = broker();
    let mut config = Config::new(broker.bootstrap_servers());
    config.set_all([("group.id", "billing"), ("group.protocol", "consumer")]).expect("known properties");
    config.rebalance = Rebalance::Application;
    let (mut consumer, control) = joined(config);
    let at = TopicPartition::new("orders", 0);
    control.commit_named_offsets(&[(at.clone(), 3.into())]).wait(PATIENCE).expect("committed");

    let refuse = |code| broker.cluster().intercept(ApiKey::OffsetFetch, None, 1, Fault::Fail(code));
    refuse(ErrorCode::StaleMemberEpoch);
    let committed = control.committed(std::slice::from_ref(&at)).wait(PATIENCE);
    assert_eq!(committed.expect("read again"), [(at.clone(), 3)].into());

    refuse(ErrorCode::StaleMemberEpoch);
    refuse(ErrorCode::UnknownMemberId);
    control.assign(&[(at, StartAt::Committed)]).wait(PATIENCE).expect("assigned");
    let mut first = None;
    poll_until(&mut consumer, |polled| {
        if let Polled::Records(batch) = polled {
            first = batch.iter().next().map(|record| record.expect("sound").offset);
        }
        first.is_some()
    });
    assert_eq!(first, Some(3));
}

#[test]
fn a_late_offset_of_an_earlier_assignment_does_not_move_the_next_one() {
    let broker = broker();
    let mut consumer = Consumer::new(member(&broker, Rebalance::Silent)).expect("a consumer");
    let control = consumer.control().clone();
    let at = TopicPartition::new("orders", 0);
    control.commit_offsets(&[(at.clone(), 2.into())]).wait(PATIENCE).expect("committed");

    // The response to the first lookup comes after the partition was removed and assigned again.
    let lookups = broker.cluster().requests(ApiKey::OffsetFetch);
    broker.cluster().intercept(ApiKey::OffsetFetch, None, 1, Fault::Delay(Duration::from_secs(1)));
    let start = [(at.clone(), StartAt::Committed)];
    control.incremental_assign(&start).wait(PATIENCE).expect("assigned");
    let deadline = Instant::now() + PATIENCE;
    while broker.cluster().requests(ApiKey::OffsetFetch) == lookups {
        assert!(Instant::now() < deadline, "the offset is looked up");
        std::thread::sleep(Duration::from_millis(5));
    }
    control.incremental_unassign(std::slice::from_ref(&at)).wait(PATIENCE).expect("removed");
    // The commit follows the first lookup on its connection, so that lookup still returns the earlier offset.
    let committing = control.commit_offsets(&[(at.clone(), 5.into())]);
    control.incremental_assign(&start).wait(PATIENCE).expect("assigned");
    committing.wait(PATIENCE).expect("committed");
    let mut first = None;
    poll_until(&mut consumer, |polled| {
        if let Polled::Records(batch) = polled {
            first = batch.iter().next().map(|record| record.expect("sound").offset);
        }
        first.is_some()
    });
    assert_eq!(first, Some(5));
}

#[test]
fn what_is_handed_out_is_done_where_librdkafkas_rule_holds() {
    let broker = broker();
    let mut config = member(&broker, Rebalance::Silent);
    config.done_when_returned = true;
    let mut consumer = Consumer::new(config).expect("a consumer");
    let at = TopicPartition::new("orders", 0);
    let assigned = consumer.control().assign(&[(at.clone(), StartAt::Beginning)]);
    assigned.wait(PATIENCE).expect("assigned");
    let next = consumer.next_record_blocking(PATIENCE).expect("no error");
    assert!(matches!(next, Some(PolledRecord::Record(record)) if record.offset() == 0));
    assert_eq!(consumer.positions()[&at], 1, "the record is done although none was asked for after it");
}
