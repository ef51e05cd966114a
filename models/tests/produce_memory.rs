//! The memory of a producer: a thread that waits for room gets it, and no more is booked than there is.

use std::time::Duration;

use ottla_models::neighbours::produce_memory::Push;
use ottla_models::run::shuttle;
use shuttle::sync::mpsc;
use shuttle::thread;

const LONG: Duration = Duration::from_secs(3600);
const BYTES_MAX: usize = 6;

/// Two producing threads book four batches of two bytes after one that took all memory, and the engine releases each. There
/// is room for three, and for two while the engine cannot follow. Another thread gives up at the first wake-up.
macro_rules! model {
    ($variant:ident) => {
        shuttle(concat!("produce_memory, ", stringify!($variant)), 4_000, || {
            use ottla_models::produce_memory::$variant::{blocking, memory};
            let memory = memory::Memory::new(BYTES_MAX, 0, 1);
            let (sender, engine) = mpsc::channel();
            let mut threads = Vec::new();
            assert_eq!(memory.reserve(BYTES_MAX, Push::Normal), Ok(()), "an unused budget has room");
            sender.send(BYTES_MAX).expect("the engine runs");
            for batches in [2, 2] {
                let (memory, sender) = (memory.clone(), sender.clone());
                threads.push(thread::spawn(move || {
                    for _ in 0..batches {
                        if memory.reserve(2, Push::Patient).is_err() {
                            let _waiting = memory.wait();
                            blocking::wait_until(LONG, &memory.freed, || {
                                memory.reserve(2, Push::Patient).is_ok()
                            });
                        }
                        assert!(memory.used() <= BYTES_MAX, "no more is booked than there is");
                        sender.send(2).expect("the engine runs");
                    }
                }));
            }
            let other = memory.clone();
            threads.push(thread::spawn(move || {
                let mut looks = 0;
                let give_up = || {
                    looks += 1;
                    looks == 2 || other.used() == 0
                };
                blocking::wait_until(LONG, &other.freed, give_up);
            }));
            drop(sender);
            while let Ok(bytes) = engine.recv() {
                memory.release(bytes, 0);
            }
            for thread in threads {
                thread.join().expect("its batches are booked");
            }
            assert_eq!(memory.used(), 0, "all was released");
        })
    };
}

#[test]
fn producers_that_wait_get_room_and_never_more_than_there_is() {
    model!(shipped);
}

#[test]
#[should_panic(expected = "no more is booked than there is")]
fn memory_must_be_booked_in_one_step() {
    model!(with_two_steps);
}

#[test]
#[should_panic(expected = "deadlock")]
fn released_memory_must_wake_all_producers() {
    model!(with_one_wake_up_for_all);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_producer_must_be_let_go_below_the_limit() {
    model!(with_a_limit_that_is_not_met);
}
