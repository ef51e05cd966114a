//! The flag for a partition's sync: each append is synced by a task, and one task syncs at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ottla_models::run::shuttle;
use shuttle::sync::Mutex;
use shuttle::thread;

/// Three appends at once, each followed by what `Partition::start_sync` does.
///
/// Not with loom: that lets a read-modify-write see either of two writes at once, of which one must be the last.
macro_rules! model {
    ($variant:ident) => {
        shuttle(concat!("sync_flag, ", stringify!($variant)), 4_000, || {
            use ottla_models::sync_flag::$variant::sync_flag::SyncFlag;
            #[derive(Default)]
            struct Partition {
                /// The end of the log, and the end of what is synced.
                log: Mutex<(u32, u32)>,
                flag: SyncFlag,
                syncing: AtomicBool,
            }
            fn append(partition: &Partition) {
                partition.log.lock().expect("no panic").0 += 1;
                if !partition.flag.begin() {
                    return;
                }
                loop {
                    let (end, synced) = *partition.log.lock().expect("no panic");
                    if end > synced {
                        let other = partition.syncing.swap(true, Ordering::Relaxed);
                        assert!(!other, "one task syncs at a time");
                        thread::yield_now();
                        partition.syncing.store(false, Ordering::Relaxed);
                        partition.log.lock().expect("no panic").1 = end;
                    }
                    let is_pending = || {
                        let (end, synced) = *partition.log.lock().expect("no panic");
                        end > synced
                    };
                    if !partition.flag.end(is_pending) {
                        return;
                    }
                }
            }
            let partition = Arc::new(Partition::default());
            let others = [(); 2].map(|()| {
                let partition = partition.clone();
                thread::spawn(move || append(&partition))
            });
            append(&partition);
            for other in others {
                other.join().expect("the other append ends");
            }
            assert_eq!(*partition.log.lock().expect("no panic"), (3, 3), "each append is synced");
        })
    };
}

#[test]
fn each_append_is_synced_by_one_task_at_a_time() {
    model!(shipped);
}

#[test]
#[should_panic(expected = "each append is synced")]
fn a_sync_must_look_for_appends_when_it_ends() {
    model!(without_the_second_look);
}

#[test]
#[should_panic(expected = "each append is synced")]
fn a_sync_must_look_for_appends_after_it_cleared_the_flag() {
    model!(with_an_early_look);
}

#[test]
#[should_panic(expected = "one task syncs at a time")]
fn the_flag_must_be_taken_in_one_step() {
    model!(with_two_steps);
}
