//! The queues of C: a poll without a time limit gets each operation, wherever it comes from, and ends when the queue closes.

use std::sync::Arc;

use ottla_models::neighbours::op_queue::Op;
use ottla_models::run::shuttle;
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;

/// Two threads poll a queue. Two operations and those of a source come to another queue, which is forwarded meanwhile. No
/// wait ends by its time-out, so a poll cannot find an operation by chance.
macro_rules! model {
    ($variant:ident) => {
        shuttle(concat!("op_queue, ", stringify!($variant)), 4_000, || {
            use ottla_models::op_queue::$variant::op_queue::{OpQueue, OpSource};
            #[derive(Default)]
            struct Source(AtomicU32);
            impl OpSource for Source {
                fn draw(&self) -> Option<Op> {
                    let one_less = |left: u32| left.checked_sub(1);
                    self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).ok().map(|_| Op(0))
                }
                fn len(&self) -> usize {
                    self.0.load(Ordering::SeqCst) as usize
                }
            }
            let (main, application, source) = (OpQueue::new(), OpQueue::new(), Arc::new(Source::default()));
            main.set_source(Some(source.clone()));
            let polled = Arc::new(AtomicU32::new(0));
            let polls = [(); 2].map(|()| {
                let (application, polled) = (application.clone(), polled.clone());
                thread::spawn(move || {
                    while application.poll(None).is_some() {
                        if polled.fetch_add(1, Ordering::SeqCst) == 3 {
                            application.close();
                        }
                    }
                })
            });
            let other_poll = {
                let main = main.clone();
                thread::spawn(move || main.poll(None))
            };
            let pushes = {
                let main = main.clone();
                thread::spawn(move || {
                    for number in 1..=2 {
                        main.push(Op(number));
                    }
                })
            };
            let forwarding = {
                let (main, application) = (main.clone(), application.clone());
                thread::spawn(move || main.forward_to(Some(&application)))
            };
            for _ in 0..2 {
                source.0.fetch_add(1, Ordering::SeqCst);
                main.ring();
            }
            forwarding.join().expect("it ends");
            pushes.join().expect("it ends");
            // The fifth is for the poll of the forwarded queue, if the others have got four.
            main.push(Op(5));
            for poll in polls {
                poll.join().expect("the poll ends");
            }
            let other = other_poll.join().expect("the poll of the forwarded queue ends");
            let polled = polled.load(Ordering::SeqCst) + u32::from(other.is_some());
            assert!((4..=5).contains(&polled), "each operation is polled once: {polled} of 5");
        })
    };
}

/// A thread polls a queue that is forwarded to one with an operation.
macro_rules! forwarding {
    ($variant:ident) => {
        shuttle(concat!("op_queue, forwarding, ", stringify!($variant)), 1_000, || {
            use ottla_models::op_queue::$variant::op_queue::OpQueue;
            let (main, application) = (OpQueue::new(), OpQueue::new());
            application.push(Op(1));
            let poll = {
                let main = main.clone();
                thread::spawn(move || main.poll(None))
            };
            main.forward_to(Some(&application));
            assert_eq!(poll.join().expect("the poll ends"), Some(Op(1)));
        })
    };
}

#[test]
fn a_poll_of_a_queue_follows_its_forwarding() {
    forwarding!(shipped);
}

#[test]
fn a_poll_of_a_queue_gets_each_operation() {
    model!(shipped);
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_operation_must_be_there_before_it_rings() {
    model!(with_an_early_ring);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_poll_must_look_for_rings_before_it_waits() {
    model!(without_a_look_at_the_rings);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_forwarding_must_wake_polls() {
    forwarding!(with_a_forwarding_that_wakes_no_poll);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_end_of_a_queue_must_wake_polls() {
    model!(with_a_close_that_wakes_no_poll);
}

#[test]
#[should_panic(expected = "max_steps")]
fn a_poll_must_follow_the_forwarding() {
    forwarding!(with_a_poll_that_stays);
}
