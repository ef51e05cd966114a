//! The queues of notifications: each is returned once, and a caller that waits gets one.

use ottla_models::run::shuttle;
use shuttle::future::block_on;
use shuttle::thread;
use std::time::Duration;

/// A task and a thread wait for a notification each, and another thread adds one of the two.
macro_rules! model {
    ($variant:ident) => {
        shuttle(concat!("notification_queue, ", stringify!($variant)), 4_000, || {
            use ottla_models::notification_queue::$variant::notification_queue::NotificationQueue;
            let queue = NotificationQueue::keeping(2);
            let (task, blocked, other) = (queue.clone(), queue.clone(), queue.clone());
            let task = thread::spawn(move || block_on(task.next()));
            let blocked = thread::spawn(move || blocked.next_blocking(Duration::from_secs(3600)));
            let other = thread::spawn(move || other.push(1));
            queue.push(2);
            other.join().expect("it ends");
            let mut got = [task.join().ok(), blocked.join().expect("it ends")];
            got.sort_unstable();
            assert_eq!(got, [Some(1), Some(2)], "each notification is returned once");
        })
    };
}

#[test]
fn a_caller_that_waits_gets_a_notification() {
    model!(shipped);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_notification_must_wake_callers() {
    model!(without_a_wake_up);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_caller_must_wait_before_it_looks_for_notifications() {
    model!(with_a_late_waiter);
}
