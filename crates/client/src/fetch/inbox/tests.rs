//! What the inbox promises.

use super::*;

fn chunk(place: &Arc<Place>, from: i64, bytes: usize) -> Item {
    Item::Chunk(Chunk {
        place: place.clone(),
        turn: place.turn(),
        from,
        next: from + 1,
        high_watermark: 100,
        records: Bytes::from(vec![0; bytes]),
        count: 1,
        aborted: Aborted::new(Vec::new()),
    })
}

fn lanes(inbox: &Inbox, count: u32) -> Vec<(Slot, Arc<Place>)> {
    let place = |i| Arc::new(Place::new(TopicPartition::new("orders", i as i32)));
    let lanes: Vec<_> = (0..count).map(|i| (Slot::new(i), place(i))).collect();
    for (slot, place) in &lanes {
        inbox.open(*slot, place.clone());
    }
    lanes
}

/// Partition and offset of what is taken out, until nothing is left.
fn drain(inbox: &Inbox) -> Vec<(i32, i64)> {
    drain_of(inbox, RingId::MAIN)
}

fn drain_of(inbox: &Inbox, ring: RingId) -> Vec<(i32, i64)> {
    std::iter::from_fn(|| inbox.pop(ring, false))
        .map(|item| match item {
            Item::Chunk(chunk) => (chunk.place.at.partition, chunk.from),
            _ => (-1, -1),
        })
        .collect()
}

#[test]
fn lanes_take_turns_and_news_come_first() {
    let inbox = Inbox::new(1 << 20, 2);
    let lanes = lanes(&inbox, 3);
    for from in 0..3 {
        inbox.push_to(lanes[0].0, chunk(&lanes[0].1, from, 10));
    }
    inbox.push_to(lanes[2].0, chunk(&lanes[2].1, 0, 10));
    inbox.push(Item::Event(Event::Assigned(Vec::new())));
    assert_eq!(inbox.bytes(), 40);
    assert_eq!(drain(&inbox), [(-1, -1), (0, 0), (2, 0), (0, 1), (0, 2)]);
    assert_eq!(inbox.bytes(), 0);
}

#[test]
fn a_lane_with_enough_says_when_it_has_not() {
    let inbox = Inbox::new(1 << 20, 2);
    let lanes = lanes(&inbox, 1);
    for from in 0..3 {
        inbox.push_to(lanes[0].0, chunk(&lanes[0].1, from, 10));
    }
    assert!(inbox.is_full(lanes[0].0));
    inbox.pop(RingId::MAIN, false);
    assert_eq!(inbox.take_drained(), [], "there is still enough");
    inbox.pop(RingId::MAIN, false);
    assert_eq!(inbox.take_drained(), [lanes[0].0]);
    assert!(!inbox.is_full(lanes[0].0));
}

#[test]
fn parked_chunks_make_room_the_newest_first() {
    let inbox = Inbox::new(1000, 2);
    let lanes = lanes(&inbox, 2);
    for from in 0..3 {
        let Item::Chunk(mut parked) = chunk(&lanes[1].1, from, 0) else { unreachable!() };
        parked.records = inbox.budget.hold(vec![0; 300]);
        inbox.push_to(lanes[1].0, Item::Chunk(parked));
    }
    inbox.pause(&lanes[1].1.at, true);
    assert_eq!(inbox.drop_parked(500), [(lanes[1].0, 1)]);
    assert_eq!((inbox.budget.room(), inbox.bytes()), (700, 300));
}

#[test]
fn a_paused_lane_keeps_what_it_has_and_a_purged_one_drops_late_answers() {
    let inbox = Inbox::new(1 << 20, 2);
    let lanes = lanes(&inbox, 2);
    inbox.push_to(lanes[0].0, chunk(&lanes[0].1, 0, 10));
    inbox.push_to(lanes[1].0, chunk(&lanes[1].1, 0, 10));
    inbox.pause(&lanes[0].1.at, true);
    assert_eq!(drain(&inbox), [(1, 0)]);
    assert_eq!(inbox.bytes(), 10, "parked, not thrown away");
    inbox.pause(&lanes[0].1.at, false);
    assert_eq!(drain(&inbox), [(0, 0)]);

    let late = chunk(&lanes[0].1, 1, 10);
    lanes[0].1.next_turn();
    inbox.push_to(lanes[0].0, late);
    assert_eq!(drain(&inbox), []);

    inbox.close(lanes[1].0);
    inbox.push_to(lanes[1].0, chunk(&lanes[1].1, 1, 10));
    assert_eq!((drain(&inbox), inbox.bytes()), (vec![], 0));
    assert!(inbox.place(&lanes[1].1.at).is_none());
}

#[test]
fn a_split_queue_has_its_partition_for_itself_until_it_ends() {
    let inbox = Inbox::new(1 << 20, 2);
    let lanes = lanes(&inbox, 2);
    inbox.push_to(lanes[0].0, chunk(&lanes[0].1, 0, 10));
    let own = inbox.split(&lanes[0].1.at).expect("assigned");
    inbox.push_to(lanes[0].0, chunk(&lanes[0].1, 1, 10));
    inbox.push_to(lanes[1].0, chunk(&lanes[1].1, 7, 10));
    assert_eq!(drain(&inbox), [(1, 7)]);
    assert_eq!(drain_of(&inbox, own), [(0, 0), (0, 1)]);
    inbox.push_to(lanes[0].0, chunk(&lanes[0].1, 2, 10));
    inbox.rejoin(own);
    assert_eq!(drain(&inbox), [(0, 2)]);
}

#[test]
fn what_is_forwarded_comes_out_elsewhere_and_never_runs_in_a_circle() {
    let inbox = Inbox::new(1 << 20, 2);
    let lanes = lanes(&inbox, 2);
    let [first, second] = [0, 1].map(|i: usize| inbox.split(&lanes[i].1.at).expect("assigned"));
    inbox.push_to(lanes[0].0, chunk(&lanes[0].1, 0, 10));
    assert!(inbox.forward(first, Some(second)) && inbox.forward(second, Some(RingId::MAIN)));
    assert!(!inbox.forward(RingId::MAIN, Some(first)), "that would be a circle");
    inbox.push_to(lanes[1].0, chunk(&lanes[1].1, 5, 10));
    assert_eq!(drain(&inbox), [(0, 0), (1, 5)]);
    assert!(inbox.forward(first, None));
    inbox.push_to(lanes[0].0, chunk(&lanes[0].1, 1, 10));
    assert_eq!((drain(&inbox), drain_of(&inbox, first)), (vec![], vec![(0, 1)]));
}
