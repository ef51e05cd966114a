//! The unsettled batches of a producer: each flush ends after the last of them.

use std::sync::Arc;
use std::time::Duration;

use ottla_models::run::shuttle;
use shuttle::future::block_on;
use shuttle::thread;

/// Two tasks and a thread flush, while one thread settles two batches and another begins and settles one more.
macro_rules! model {
    ($variant:ident) => {
        shuttle(concat!("unsettled, ", stringify!($variant)), 4_000, || {
            use ottla_models::unsettled::$variant::unsettled::Unsettled;
            let unsettled = Arc::new(Unsettled::new());
            unsettled.begin();
            unsettled.begin();
            let tasks = [(); 2].map(|()| {
                let unsettled = unsettled.clone();
                thread::spawn(move || block_on(unsettled.settled()))
            });
            let blocked = {
                let unsettled = unsettled.clone();
                thread::spawn(move || unsettled.wait_settled(Duration::from_secs(3600)))
            };
            let other = {
                let unsettled = unsettled.clone();
                thread::spawn(move || {
                    unsettled.begin();
                    usize::from(unsettled.end())
                })
            };
            let mine = [(); 2].map(|()| usize::from(unsettled.end())).into_iter().sum::<usize>();
            let lasts = mine + other.join().expect("it ends");
            assert!((1..=2).contains(&lasts), "the last batch is noticed: {lasts}");
            for task in tasks {
                task.join().expect("the flush ends");
            }
            assert!(blocked.join().expect("it ends"), "the flush sees the last batch");
        })
    };
}

#[test]
fn the_last_batch_ends_all_flushes() {
    model!(shipped);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_flush_must_wait_before_it_looks() {
    model!(with_a_late_waiter);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_last_batch_must_wake_all_flushes() {
    model!(with_one_wake_up_for_all);
}

#[test]
#[should_panic(expected = "the last batch is noticed")]
fn the_end_of_a_batch_must_be_one_step() {
    model!(with_a_look_after_the_end);
}
