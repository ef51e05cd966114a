//! The ring of small batches: a reader sees a whole batch or none.

use std::sync::Arc;

use loom::thread;
use ottla_models::run::loom;

/// A writer overwrites the only slot while a reader reads it, with the right hint as a reader of one append after another.
macro_rules! model {
    ($variant:ident) => {
        loom(concat!("ring, ", stringify!($variant)), 2, || {
            let ring = Arc::new(ottla_models::ring::$variant::ring::Ring::default());
            ring.push(0, 1, &[1; 16]);
            let reader = {
                let ring = ring.clone();
                thread::spawn(move || {
                    for offset in 0..2 {
                        if let Some(bytes) = ring.read(offset, 2, &mut (offset as u64)) {
                            assert_eq!(bytes[..], [offset as u8 + 1; 16], "a batch is read whole");
                        }
                    }
                })
            };
            ring.push(1, 2, &[2; 16]);
            reader.join().expect("the reader ends");
            let newest = ring.read(1, 2, &mut 0).expect("the newest batch is found");
            assert_eq!(newest[..], [2; 16]);
        })
    };
}

/// A truncation clears the ring, and the next append has the offset of a batch that is gone.
#[test]
fn a_truncation_of_the_ring_shows_the_old_batch_or_the_new_one() {
    loom("ring, truncated", 2, || {
        let ring = Arc::new(ottla_models::ring::shipped::ring::Ring::default());
        ring.push(0, 1, &[1; 16]);
        let reader = {
            let ring = ring.clone();
            thread::spawn(move || ring.read(0, 1, &mut 0))
        };
        ring.clear();
        assert_eq!(ring.read(0, 1, &mut 0), None, "the batch is gone");
        ring.push(0, 1, &[2; 16]);
        if let Some(bytes) = reader.join().expect("the reader ends") {
            assert!(bytes[..] == [1; 16] || bytes[..] == [2; 16], "a batch is read whole: {bytes:?}");
        }
    });
}

#[test]
fn a_reader_of_the_ring_never_sees_half_a_batch() {
    model!(shipped);
}

#[test]
#[should_panic(expected = "a batch is read whole")]
fn the_ring_needs_the_writers_fence() {
    model!(without_the_writers_fence);
}

#[test]
#[should_panic(expected = "a batch is read whole")]
fn the_ring_needs_the_readers_fence() {
    model!(without_the_readers_fence);
}

#[test]
#[should_panic(expected = "a batch is read whole")]
fn the_ring_needs_a_turn_that_publishes() {
    model!(with_a_relaxed_turn);
}

#[test]
#[should_panic(expected = "a batch is read whole")]
fn the_ring_needs_a_look_at_the_turn_that_acquires() {
    model!(with_a_relaxed_look_at_the_turn);
}

#[test]
#[should_panic(expected = "a batch is read whole")]
fn the_ring_needs_the_odd_turn() {
    model!(without_the_odd_turn);
}
