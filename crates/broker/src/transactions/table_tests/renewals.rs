//! Producers after a restore, which has lost the states of some of them.

use super::*;

/// After a restore: the epoch that follows in the snapshot can be that of a client which is still there.
#[test]
fn a_new_producer_gets_another_id_in_place_of_one_whose_later_epochs_are_lost() {
    let mut story = Story::new();
    let first = story.init().expect("new");
    story.add(first, 0).expect("added");
    story.table.renew_producers_below(101);
    assert_eq!(story.init(), CONCURRENT, "the open transaction ends first");
    story.write_markers();
    let next = story.init().expect("the abort is complete");
    assert_eq!(next, ProducerIdentity { id: 101, epoch: 0 });
    for lost in [bumped(first), bumped(bumped(first))] {
        assert_eq!(story.add(lost, 0), INVALID_MAPPING);
    }
    assert_eq!(story.init(), Ok(bumped(next)), "once");
}

/// It got the id and the epoch of a producer that had fenced it after the snapshot, and that was still there: also by the abort of its
/// own transaction.
#[test]
fn a_producer_that_continues_gets_another_id_if_its_later_epochs_are_lost() {
    for is_in_transaction in [false, true] {
        let mut story = Story::new();
        let first = story.init().expect("new");
        let second = story.init_as(Some(first)).expect("it continues");
        story.table.renew_producers_below(101);
        if is_in_transaction {
            story.add(second, 0).expect("added");
            assert_eq!(story.init_as(Some(second)), CONCURRENT, "the open transaction ends first");
            story.write_markers();
        }
        let next = story.init_as(Some(second)).expect("a producer of the snapshot");
        assert_eq!(next, ProducerIdentity { id: 101, epoch: 0 });
        assert_eq!(story.add(bumped(second), 0), INVALID_MAPPING, "the producer of before is fenced");
        assert_eq!(story.init_as(Some(second)), Ok(next), "the answer was lost, and the request is repeated");
        assert_eq!(story.init_as(Some(first)), FENCED);
        assert_eq!(story.init_as(Some(next)), Ok(bumped(next)), "once");
    }
}

/// The end of its transaction gave it the epoch of that producer.
#[test]
fn a_producer_that_ends_its_transaction_gets_another_id_if_its_later_epochs_are_lost() {
    for epoch in [0, 7] {
        let mut story = Story::new();
        story.init().expect("new");
        let producer = story.set_epoch(epoch);
        story.add(producer, 0).expect("added");
        story.table.renew_producers_below(101);
        let next = story.commit(producer).expect("committed");
        assert_eq!(next, ProducerIdentity { id: 101, epoch: 0 });
        story.write_markers();
        assert_eq!(story.current(), next);
        assert_eq!(story.add(bumped(producer), 0), INVALID_MAPPING, "the producer of before is fenced");
        assert_eq!(story.commit(producer), Ok(next), "the answer was lost, and the request is repeated");
        story.add(next, 0).expect("added");
        assert_eq!(story.commit(producer), INVALID_MAPPING, "it comes late");
        assert_eq!(story.commit(next), Ok(bumped(next)), "once");
    }
}
