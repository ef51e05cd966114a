//! The inbox of a consumer: a poll that waits wakes for each record and event, and a fetch that waits wakes for room.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_models::neighbours::inbox::{AbortedTransactions, Event, PartitionProgress, Slot, TopicPartition};
use ottla_models::run::shuttle;
use shuttle::future::block_on;
use shuttle::thread;

const LONG: Duration = Duration::from_secs(3600);

/// The engine adds two chunks for each of two partitions that have room for one, and an event. Meanwhile the application
/// pauses one of them and resumes it. Another thread polls.
macro_rules! model {
    ($variant:ident) => {
        shuttle(concat!("inbox, ", stringify!($variant)), 4_000, || {
            use inbox::{Chunk, Inbox, Item, PrefetchLimit, QueueId};
            use ottla_models::inbox::$variant::{blocking, inbox};
            let inbox = Inbox::new(usize::MAX, PrefetchLimit { records: 1, bytes: 1 << 20 });
            let partitions = [0, 1].map(|number| {
                let progress = Arc::new(PartitionProgress::new(TopicPartition(number)));
                inbox.open(Slot(number as usize), progress.clone());
                progress
            });
            let poll = {
                let inbox = inbox.clone();
                thread::spawn(move || {
                    let signal = inbox.signal(QueueId::MAIN);
                    let (mut chunks, mut events) = (0, 0);
                    while (chunks, events) != (4, 1) {
                        blocking::wait_until(LONG, &signal.filled, || {
                            let item = inbox.pop(QueueId::MAIN, false);
                            chunks += usize::from(matches!(item, Some(Item::Chunk(_))));
                            events += usize::from(matches!(item, Some(Item::Event(_))));
                            item.is_some()
                        });
                    }
                })
            };
            let application = {
                let inbox = inbox.clone();
                thread::spawn(move || {
                    for paused in [true, false] {
                        inbox.pause(&TopicPartition(0), paused);
                    }
                })
            };
            for offset in 0..2 {
                for (slot, progress) in partitions.iter().enumerate() {
                    while inbox.is_full(Slot(slot)) {
                        block_on(inbox.emptied.notified());
                        inbox.take_drained();
                    }
                    let chunk = Chunk {
                        progress: progress.clone(),
                        generation: 0,
                        from: offset,
                        next: offset + 1,
                        high_watermark: 2,
                        node: 1,
                        records: Bytes::from_static(b"a record"),
                        count: 1,
                        aborted: AbortedTransactions,
                    };
                    inbox.push_to(Slot(slot), Item::Chunk(chunk));
                }
            }
            inbox.push(Item::Event(Event::Lost(Vec::new())));
            application.join().expect("it ends");
            poll.join().expect("it gets everything");
            assert!(inbox.is_empty() && inbox.bytes() == 0, "nothing is left");
        })
    };
}

#[test]
fn a_poll_wakes_for_all_records_and_events() {
    model!(shipped);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_resumed_partition_must_wake_a_poll() {
    model!(with_a_resume_that_wakes_no_poll);
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_event_must_wake_a_poll() {
    model!(with_an_event_that_wakes_no_poll);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_poll_must_wake_a_fetch_that_waits_for_room() {
    model!(with_a_pop_that_wakes_no_fetch);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_first_partition_of_a_queue_must_wake_a_poll() {
    model!(with_a_late_notification);
}
