//! The contract of the inbox.

use futures_util::FutureExt;

use super::*;
use crate::fetch::progress::Ends;

const LIMIT: PrefetchLimit = PrefetchLimit { records: 2, bytes: 1 << 20 };

fn chunk(progress: &Arc<PartitionProgress>, from: i64, bytes: usize) -> Item {
    Item::Chunk(Chunk {
        progress: progress.clone(),
        generation: progress.generation(),
        from,
        next: from + 1,
        high_watermark: 100,
        node: 1,
        records: Bytes::from(vec![0; bytes]),
        count: 1,
        aborted: AbortedTransactions::new(Vec::new()),
    })
}

fn partitions(inbox: &Inbox, count: u32) -> Vec<(Slot, Arc<PartitionProgress>)> {
    let progress = |i| Arc::new(PartitionProgress::new(TopicPartition::new("orders", i as i32)));
    let partitions: Vec<_> = (0..count).map(|i| (Slot::new(i), progress(i))).collect();
    for (slot, progress) in &partitions {
        inbox.open(*slot, progress.clone());
    }
    partitions
}

/// Partition and offset of what is taken out, until nothing is left.
fn drain(inbox: &Inbox) -> Vec<(i32, i64)> {
    drain_of(inbox, QueueId::MAIN)
}

fn drain_of(inbox: &Inbox, queue: QueueId) -> Vec<(i32, i64)> {
    std::iter::from_fn(|| inbox.pop(queue, false))
        .map(|item| match item {
            Item::Chunk(chunk) => (chunk.progress.at.partition, chunk.from),
            _ => (-1, -1),
        })
        .collect()
}

#[test]
fn partitions_take_turns_and_events_come_first() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let partitions = partitions(&inbox, 3);
    for from in 0..3 {
        inbox.push_to(partitions[0].0, chunk(&partitions[0].1, from, 10));
    }
    inbox.push_to(partitions[2].0, chunk(&partitions[2].1, 0, 10));
    inbox.push(Item::Event(Event::Assigned(Vec::new())));
    assert_eq!(inbox.bytes(), 40);
    assert_eq!(drain(&inbox), [(-1, -1), (0, 0), (2, 0), (0, 1), (0, 2)]);
    assert_eq!(inbox.bytes(), 0);
}

/// A program that polls when it is notified was never notified again: a chunk of empty batches, as compaction leaves them, was taken for
/// nothing, and the queue signals nothing more until it is polled.
#[test]
fn a_chunk_without_records_waits_for_a_poll() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let partitions = partitions(&inbox, 1);
    let Item::Chunk(chunk) = chunk(&partitions[0].1, 0, 10) else { unreachable!() };
    assert!(!inbox.has_waiting_items(None));
    inbox.push_to(partitions[0].0, Item::Chunk(Chunk { count: 0, ..chunk }));
    assert!(inbox.has_waiting_items(None));
    assert_eq!(inbox.waiting_items(None), 0);
    drain(&inbox);
    assert!(!inbox.has_waiting_items(None));
}

/// A member lost a partition and got it again. Its application had not polled, and committed offsets of the first
/// assignment under the generation of the second.
#[test]
fn a_loss_is_unseen_until_it_is_polled() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let [lost, kept] = [0, 1].map(|partition| TopicPartition::new("orders", partition));
    inbox.push(Item::Event(Event::Assigned(vec![kept.clone()])));
    assert!(!inbox.has_unseen_loss(&lost));
    inbox.push(Item::Event(Event::Lost(vec![lost.clone()])));
    assert!(inbox.has_unseen_loss(&lost) && !inbox.has_unseen_loss(&kept));
    drop(inbox.pop(QueueId::MAIN, false));
    assert!(inbox.has_unseen_loss(&lost));
    drop(inbox.pop(QueueId::MAIN, false));
    assert!(!inbox.has_unseen_loss(&lost));
}

#[test]
fn a_full_partition_is_reported_when_it_is_drained() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let partitions = partitions(&inbox, 1);
    for from in 0..3 {
        inbox.push_to(partitions[0].0, chunk(&partitions[0].1, from, 10));
    }
    assert!(inbox.is_full(partitions[0].0));
    inbox.pop(QueueId::MAIN, false);
    assert_eq!(inbox.take_drained(), [], "there is still limit");
    inbox.pop(QueueId::MAIN, false);
    assert_eq!(inbox.take_drained(), [partitions[0].0]);
    assert!(!inbox.is_full(partitions[0].0));
}

#[test]
fn chunks_of_paused_partitions_make_room_the_newest_first() {
    let inbox = Inbox::new(1000, LIMIT);
    let partitions = partitions(&inbox, 2);
    for from in 0..3 {
        let Item::Chunk(mut parked) = chunk(&partitions[1].1, from, 0) else { unreachable!() };
        parked.records = inbox.budget.hold(vec![0; 300]);
        inbox.push_to(partitions[1].0, Item::Chunk(parked));
    }
    inbox.pause(&partitions[1].1.at, true);
    assert_eq!(inbox.drop_parked(500), [(partitions[1].0, 1)]);
    assert_eq!((inbox.budget.room(), inbox.bytes()), (700, 300));
}

/// They counted as waiting until a poll came to them, and the fetcher drops parked records for other partitions only if none waits. A
/// queue of a paused partition may never be polled.
#[test]
fn a_partition_that_is_paused_or_emptied_waits_for_no_poll() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let partitions = partitions(&inbox, 3);
    let own = inbox.split(&partitions[2].1.at).expect("assigned");
    for (slot, progress) in &partitions {
        inbox.push_to(*slot, chunk(progress, 0, 10));
    }
    inbox.pause(&partitions[0].1.at, true);
    inbox.purge(partitions[1].0);
    inbox.pause(&partitions[2].1.at, true);
    assert!(inbox.is_empty() && !inbox.has_waiting_items(None));
    inbox.pause(&partitions[0].1.at, false);
    inbox.push_to(partitions[1].0, chunk(&partitions[1].1, 1, 10));
    inbox.pause(&partitions[2].1.at, false);
    assert!(!inbox.is_empty());
    assert_eq!((drain(&inbox), drain_of(&inbox, own)), (vec![(0, 0), (1, 1)], vec![(2, 0)]));
    assert!(inbox.is_empty());
}

/// The records of the open chunk were parked unnoticed: the fetcher had looked for parked records before, and found none.
#[test]
fn the_fetcher_is_notified_of_records_that_are_put_back() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let (slot, progress) = partitions(&inbox, 1).remove(0);
    let is_notified = || inbox.emptied.notified().now_or_never().is_some();
    inbox.push_to(slot, chunk(&progress, 0, 10));
    let Some(Item::Chunk(opened)) = inbox.pop(QueueId::MAIN, false) else { panic!("a chunk") };
    inbox.pause(&progress.at, true);
    while is_notified() {}
    inbox.put_back(opened);
    assert!(is_notified());
}

/// It dropped no parked records while the event waited, and nothing notified it of the poll.
#[test]
fn the_fetcher_is_notified_when_the_last_event_is_polled() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let is_notified = || inbox.emptied.notified().now_or_never().is_some();
    inbox.push(Item::Event(Event::Assigned(Vec::new())));
    assert!(!is_notified());
    drop(inbox.pop(QueueId::MAIN, false));
    assert!(is_notified());
}

#[test]
fn a_paused_partition_keeps_its_items_and_a_removed_one_drops_late_answers() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let partitions = partitions(&inbox, 2);
    inbox.push_to(partitions[0].0, chunk(&partitions[0].1, 0, 10));
    inbox.push_to(partitions[1].0, chunk(&partitions[1].1, 0, 10));
    inbox.pause(&partitions[0].1.at, true);
    assert_eq!(drain(&inbox), [(1, 0)]);
    assert_eq!(inbox.bytes(), 10, "parked, not thrown away");
    inbox.pause(&partitions[0].1.at, false);
    assert_eq!(drain(&inbox), [(0, 0)]);

    let late = chunk(&partitions[0].1, 1, 10);
    partitions[0].1.next_generation();
    inbox.push_to(partitions[0].0, late);
    assert_eq!(drain(&inbox), []);

    inbox.close(partitions[1].0);
    inbox.push_to(partitions[1].0, chunk(&partitions[1].1, 1, 10));
    assert_eq!((drain(&inbox), inbox.bytes()), (vec![], 0));
    assert!(inbox.progress(&partitions[1].1.at).is_none());
}

#[test]
fn a_split_queue_has_its_partition_for_itself_until_it_ends() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let partitions = partitions(&inbox, 2);
    inbox.push_to(partitions[0].0, chunk(&partitions[0].1, 0, 10));
    let own = inbox.split(&partitions[0].1.at).expect("assigned");
    inbox.push_to(partitions[0].0, chunk(&partitions[0].1, 1, 10));
    inbox.push_to(partitions[1].0, chunk(&partitions[1].1, 7, 10));
    assert_eq!(drain(&inbox), [(1, 7)]);
    assert_eq!(drain_of(&inbox, own), [(0, 0), (0, 1)]);
    inbox.push_to(partitions[0].0, chunk(&partitions[0].1, 2, 10));
    inbox.rejoin(own);
    assert_eq!(drain(&inbox), [(0, 2)]);
}

/// The polling thread purges, and the engine may end the assignment at the same time.
#[test]
fn a_purge_of_an_assignment_removes_nothing_of_the_next_one() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let (slot, first) = partitions(&inbox, 1).remove(0);
    inbox.push_to(slot, chunk(&first, 0, 10));
    let end = Event::EndOfPartition { at: first.at.clone(), offset: 1, node: 1, high_watermark: 1 };
    inbox.push_to(slot, Item::Event(end));
    inbox.purge_of(&first);
    assert_eq!((drain(&inbox), inbox.bytes()), (Vec::new(), 0));
    inbox.close(slot);
    let (slot, second) = partitions(&inbox, 1).remove(0);
    inbox.push_to(slot, chunk(&second, 5, 10));
    inbox.purge_of(&first);
    assert_eq!(drain(&inbox), [(0, 5)]);
}

#[test]
fn a_kept_queue_has_its_partition_in_each_assignment() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let own = inbox.split_kept(&TopicPartition::new("orders", 0));
    for from in [0, 10] {
        let partitions = partitions(&inbox, 2);
        for (slot, progress) in &partitions {
            inbox.push_to(*slot, chunk(progress, from, 10));
        }
        assert_eq!((drain(&inbox), drain_of(&inbox, own)), (vec![(1, from)], vec![(0, from)]));
        inbox.push_to(partitions[0].0, chunk(&partitions[0].1, from + 1, 10));
        inbox.close(partitions[0].0);
        assert_eq!(drain_of(&inbox, own), [], "the assignment has ended");
        inbox.close(partitions[1].0);
    }
    let [(slot, progress), _] = &partitions(&inbox, 2)[..] else { panic!("two partitions") };
    inbox.push_to(*slot, chunk(progress, 20, 10));
    inbox.rejoin(own);
    assert_eq!(drain(&inbox), [(0, 20)]);
    inbox.close(*slot);
    inbox.open(*slot, progress.clone());
    inbox.push_to(*slot, chunk(progress, 30, 10));
    assert_eq!(drain(&inbox), [(0, 30)], "the queue is removed");
}

#[test]
fn forwarded_items_come_out_elsewhere_and_cycles_are_refused() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let partitions = partitions(&inbox, 2);
    let [first, second] = [0, 1].map(|i: usize| inbox.split(&partitions[i].1.at).expect("assigned"));
    inbox.push_to(partitions[0].0, chunk(&partitions[0].1, 0, 10));
    assert!(inbox.forward(first, Some(second)) && inbox.forward(second, Some(QueueId::MAIN)));
    assert!(!inbox.forward(QueueId::MAIN, Some(first)), "that would be a cycle");
    inbox.push_to(partitions[1].0, chunk(&partitions[1].1, 5, 10));
    assert_eq!(drain(&inbox), [(0, 0), (1, 5)]);
    assert!(inbox.forward(first, None));
    inbox.push_to(partitions[0].0, chunk(&partitions[0].1, 1, 10));
    assert_eq!((drain(&inbox), drain_of(&inbox, first)), (vec![], vec![(0, 1)]));
}

#[test]
fn a_partition_that_was_empty_at_a_poll_gets_a_higher_limit() {
    let inbox = Inbox::new(1 << 20, PrefetchLimit { records: 1000, bytes: 100 });
    let partitions = partitions(&inbox, 1);
    let (slot, progress) = &partitions[0];
    let mut offset = 0;
    let mut fill = || {
        let mut chunks = 0;
        while !inbox.is_full(*slot) {
            inbox.push_to(*slot, chunk(progress, offset, 100));
            (offset, chunks) = (offset + 1, chunks + 1);
        }
        chunks
    };
    assert_eq!(fill(), 1);
    assert!(inbox.pop(QueueId::MAIN, false).is_some());
    assert_eq!(inbox.take_drained(), [*slot]);
    assert_eq!(fill(), 1, "it came while the first was polled");
    assert_eq!(drain(&inbox).len(), 1);
    assert_eq!(fill(), 2, "the poll that found nothing had to wait");
}

#[test]
#[should_panic(expected = "records from 4 behind records up to 6")]
fn offsets_of_a_partition_never_fall() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let partitions = partitions(&inbox, 1);
    inbox.push_to(partitions[0].0, chunk(&partitions[0].1, 5, 10));
    inbox.push_to(partitions[0].0, chunk(&partitions[0].1, 4, 10));
}

/// The partition stayed in the list of the other queue. Its close subtracted it from the waiting items, and the next poll of
/// that queue did so again: the count fell below zero.
#[test]
fn a_partition_that_closes_after_a_forwarding_leaves_nothing_behind() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let partitions = partitions(&inbox, 2);
    let [first, second] = [0, 1].map(|i: usize| inbox.split(&partitions[i].1.at).expect("assigned"));
    assert!(inbox.forward(first, Some(second)));
    inbox.push_to(partitions[0].0, chunk(&partitions[0].1, 0, 10));
    assert!(inbox.forward(first, None));
    inbox.close(partitions[0].0);
    assert_eq!((drain_of(&inbox, second), drain_of(&inbox, first)), (vec![], vec![]));
    assert!(inbox.is_empty());
}

/// Partitions and events that the dropped queue listed for other queues were gone, and still counted as waiting.
#[test]
fn a_dropped_queue_gives_back_partitions_and_events_of_other_queues() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let partitions = partitions(&inbox, 2);
    let [first, second] = [0, 1].map(|i: usize| inbox.split(&partitions[i].1.at).expect("assigned"));
    assert!(inbox.forward(first, Some(second)) && inbox.forward(QueueId::MAIN, Some(second)));
    inbox.push(Item::Event(Event::Assigned(Vec::new())));
    for (slot, progress) in &partitions {
        inbox.push_to(*slot, chunk(progress, 0, 10));
    }
    inbox.rejoin(second);
    assert_eq!(drain(&inbox), [(-1, -1), (1, 0)]);
    assert_eq!(drain_of(&inbox, first), [(0, 0)]);
    assert!(inbox.is_empty());
}

/// They were unknown until the next fetch. librdkafka keeps them with the topic.
#[test]
fn watermarks_outlast_the_assignment() {
    let inbox = Inbox::new(1 << 20, LIMIT);
    let (slot, progress) = partitions(&inbox, 1).remove(0);
    let at = progress.at.clone();
    assert_eq!(inbox.watermarks(&at), None);
    progress.set_ends(Ends { log_start: 3, last_stable: 5, high_watermark: 7 });
    let known = Some(Watermarks { low: 3, high: 7 });
    assert_eq!(inbox.watermarks(&at), known);
    inbox.close(slot);
    assert_eq!(inbox.watermarks(&at), known, "after the assignment");
    inbox.open(slot, Arc::new(PartitionProgress::new(at.clone())));
    assert_eq!(inbox.watermarks(&at), known, "until the first fetch of the next one");
}
