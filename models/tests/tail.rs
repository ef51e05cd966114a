//! The tail of a log: an append wakes each task and thread that waits for it.

use std::time::Duration;

use ottla_models::run::shuttle;
use shuttle::future::block_on;
use shuttle::thread;

const LONG: Duration = Duration::from_secs(3600);

/// Two tasks and a thread wait for two appends. A third task comes and goes, and all are woken without an append once. In
/// shuttle no wait ends by its time-out, so a lost wake-up ends the model as a deadlock.
macro_rules! model {
    ($variant:ident) => {
        shuttle(concat!("tail, ", stringify!($variant)), 6_000, || {
            use ottla_models::tail::$variant::tail::Tail;
            async fn follow(tail: &Tail, until: i64) {
                let mut seen = 0;
                while seen < until {
                    seen = tail.grown(seen).await;
                }
            }
            let tail = Tail::new(0, 0);
            let mut threads = Vec::new();
            for until in [1, 2] {
                let tail = tail.clone();
                threads.push(thread::spawn(move || block_on(follow(&tail, until))));
            }
            for until in [1, 2] {
                let tail = tail.clone();
                threads.push(thread::spawn(move || {
                    let mut seen = 0;
                    while seen < until {
                        seen = tail.wait_grown(seen, LONG);
                    }
                }));
            }
            let passing = tail.clone();
            threads.push(thread::spawn(move || {
                let mut waiter = passing.waiter();
                block_on(std::future::poll_fn(|cx| {
                    let _ = waiter.poll_grown(cx, 0);
                    std::task::Poll::Ready(())
                }));
            }));
            tail.wake_all();
            tail.advance_visible(1);
            tail.advance_visible(2);
            for thread in threads {
                thread.join().expect("it sees both appends");
            }
        })
    };
}

#[test]
fn an_append_wakes_all_who_wait_for_it() {
    model!(shipped);
}

#[test]
fn closing_a_tail_wakes_all_who_wait() {
    shuttle("tail, closed", 2_000, || {
        let tail = ottla_models::tail::shipped::tail::Tail::new(0, 0);
        let (task, blocked) = (tail.clone(), tail.clone());
        let threads = [
            thread::spawn(move || block_on(task.grown(0))),
            thread::spawn(move || blocked.wait_grown(0, LONG)),
        ];
        tail.close();
        for thread in threads {
            assert_eq!(thread.join().expect("it ends"), 0);
        }
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_task_must_look_again_after_it_is_listed() {
    model!(without_the_second_look);
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_append_must_look_for_waiters_after_it_is_visible() {
    model!(with_an_early_look_for_waiters);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_wake_up_must_remember_blocked_threads() {
    model!(with_a_wake_that_forgets_threads);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_woken_thread_must_remember_waiting_tasks() {
    model!(with_a_thread_that_forgets_tasks);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_task_that_leaves_must_remember_blocked_threads() {
    model!(with_a_task_that_forgets_threads);
}
