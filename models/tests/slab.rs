//! The messages of C: what a slab's messages share is dropped once, after the last of them, and then the slab is reused.

use std::sync::Arc;

use loom::thread;
use ottla_models::neighbours::slab::{Bytes, RecordView, Shared, Watch};
use ottla_models::run::loom;

/// Fills a slab, and returns its messages and watches on the topic and the response that they share.
macro_rules! fill {
    ($filler:ident) => {{
        let watches = [Watch::default(), Watch::default()];
        let topic = Arc::new(Shared(watches[0].clone()));
        let bytes = Bytes(Arc::new(Shared(watches[1].clone())));
        ([(); 2].map(|()| $filler.message(&topic, &RecordView(&bytes))), watches)
    }};
}

/// The next slab of the pool is `first`, and the one after it is not.
macro_rules! assert_returned_once {
    ($filler:ty, $first:expr) => {
        let slabs = [(); 2].map(|()| {
            let mut filler = <$filler>::default();
            let ([message, _], _) = fill!(filler);
            std::mem::forget(filler);
            message.slab
        });
        assert_eq!(slabs[0], $first, "the slab is reused");
        assert_ne!(slabs[1], $first, "the slab is reused once");
    };
}

/// Two threads use and destroy a message each, while a third ends the filler.
macro_rules! destroys {
    ($variant:ident) => {
        loom(concat!("slab, ", stringify!($variant)), 4, || {
            use ottla_models::slab::$variant::message_slab::{MessageFiller, Slab};
            let mut filler = MessageFiller::default();
            let (messages, watches) = fill!(filler);
            let threads = messages.map(|message| {
                let watches = watches.clone();
                thread::spawn(move || {
                    watches.iter().for_each(Watch::read);
                    Slab::release(message.slab.cast(), message.bit)
                })
            });
            filler.release();
            for thread in threads {
                assert!(thread.join().expect("it ends"), "a message is destroyed once");
            }
            assert_eq!(watches.map(|watch| watch.drops()), [1, 1], "what they share is dropped once");
            assert_returned_once!(MessageFiller, messages[0].slab);
        })
    };
}

/// Two threads destroy the same message, while a third destroys the other one.
macro_rules! second_destroy {
    ($variant:ident) => {
        loom(concat!("slab, second destroy, ", stringify!($variant)), 4, || {
            use ottla_models::slab::$variant::message_slab::{MessageFiller, Slab};
            let mut filler = MessageFiller::default();
            let ([first, second], watches) = fill!(filler);
            filler.release();
            let threads = [first, first]
                .map(|message| thread::spawn(move || Slab::release(message.slab.cast(), message.bit)));
            assert!(Slab::release(second.slab.cast(), second.bit), "the other message");
            let [one, other] = threads.map(|thread| thread.join().expect("it ends"));
            assert!(one != other, "one of the two destroys the message");
            assert_eq!(watches.map(|watch| watch.drops()), [1, 1], "what they share is dropped once");
            assert_returned_once!(MessageFiller, first.slab);
        })
    };
}

#[test]
fn the_last_of_a_slabs_messages_frees_what_they_share() {
    destroys!(shipped);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_destroyed_message_must_release_what_it_used() {
    destroys!(with_a_relaxed_release);
}

#[test]
fn one_of_two_destroys_of_a_message_returns_the_slab() {
    second_destroy!(shipped);
}

#[test]
#[should_panic(expected = "the slab is reused once")]
fn a_second_destroy_must_not_return_the_slab() {
    second_destroy!(with_a_second_return);
}
