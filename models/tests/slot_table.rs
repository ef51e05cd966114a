//! The handles of C: a call uses the object of its handle or none, and each object is dropped once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use ottla_models::run::{loom, shuttle};

/// An object without memory, so that a defect of a weakened variant reads none that is freed.
struct Object;

/// An object that exists. Its cell lets loom report a drop that is not ordered after each use.
#[derive(Clone)]
struct Live {
    number: u32,
    cell: Option<Arc<UnsafeCell<()>>>,
}

thread_local! {
    /// By address. A model runs in one thread of the system.
    static LIVE: RefCell<BTreeMap<usize, Live>> = const { RefCell::new(BTreeMap::new()) };
    static DROPPED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

fn begin() {
    LIVE.with_borrow_mut(BTreeMap::clear);
    DROPPED.with_borrow_mut(Vec::clear);
}

fn object(number: u32, cell: Option<UnsafeCell<()>>) -> Arc<Object> {
    let object = Arc::new(Object);
    let live = Live { number, cell: cell.map(Arc::new) };
    LIVE.with_borrow_mut(|objects| objects.insert(Arc::as_ptr(&object).addr(), live));
    object
}

/// Uses what a call found for the handle of the object `number`.
fn check(found: &Object, number: u32) {
    let live = LIVE.with_borrow(|objects| objects.get(&std::ptr::from_ref(found).addr()).cloned());
    let live = live.expect("an object in use is alive");
    assert_eq!(live.number, number, "an object in use is that of its handle");
    if let Some(cell) = live.cell {
        cell.with(|_| ());
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let live = LIVE.with_borrow_mut(|objects| objects.remove(&std::ptr::from_ref(self).addr()));
        if let Some(live) = live {
            DROPPED.with_borrow_mut(|dropped| dropped.push(live.number));
            if let Some(cell) = live.cell {
                cell.with_mut(|_| ());
            }
        }
    }
}

fn assert_dropped(expected: &[u32]) {
    let mut dropped = DROPPED.with_borrow(Clone::clone);
    dropped.sort_unstable();
    assert_eq!(dropped, expected, "each object is dropped once");
}

/// A call finds an object by its mark while another thread destroys it and makes the next one in its slot.
macro_rules! marked {
    ($variant:ident) => {
        loom(concat!("slot_table, ", stringify!($variant)), 4, || {
            use ottla_models::slot_table::$variant::slot_table::SlotTable;
            begin();
            let table: &'static SlotTable<Object> = Box::leak(Box::new(SlotTable::new(1)));
            let insert = |number| {
                let handle = table.reserve().expect("the table has room");
                table.publish(handle, object(number, Some(UnsafeCell::new(()))));
                handle
            };
            let first = insert(1);
            let call = loom::thread::spawn(move || {
                if let Some(found) = table.find(first) {
                    check(&found, 1);
                }
            });
            assert!(table.retire(first), "the first time");
            let second = insert(2);
            assert!(!table.retire(first), "the second time");
            assert!(table.find(first).is_none(), "the handle is stale");
            check(&table.find(second).expect("the second object exists"), 2);
            call.join().expect("the call ends");
            assert_dropped(&[1]);
            assert!(table.retire(second));
            assert_dropped(&[1, 2]);
        })
    };
}

/// Calls use two objects at a time, one of them by a count, while other threads destroy both.
macro_rules! counted {
    ($variant:ident) => {
        shuttle(concat!("slot_table_counted, ", stringify!($variant)), 6_000, || {
            use ottla_models::slot_table_counted::$variant::slot_table::SlotTable;
            begin();
            let table: &'static SlotTable<Object> = Box::leak(Box::new(SlotTable::new(1)));
            let insert = |number| {
                let handle = table.reserve().expect("the table has room");
                table.publish(handle, object(number, None));
                handle
            };
            let handles = [insert(1), insert(2)];
            let call = || {
                shuttle::thread::spawn(move || {
                    let uses = handles.map(|handle| table.find(handle));
                    for (found, number) in uses.iter().zip(1..) {
                        if let Some(found) = found {
                            check(found, number);
                            shuttle::thread::yield_now();
                            check(found, number);
                            check(&found.shared(), number);
                        }
                    }
                })
            };
            let destroy = |handle| shuttle::thread::spawn(move || table.retire(handle));
            let calls = [call(), call()];
            let destroys = [handles[0], handles[0], handles[1]].map(destroy);
            let ended = destroys.map(|destroy| destroy.join().expect("the destroy ends"));
            assert!(ended[0] != ended[1] && ended[2], "a handle ends once");
            let third = insert(3);
            check(&table.find(third).expect("the third object exists"), 3);
            for call in calls {
                call.join().expect("the call ends");
            }
            assert_dropped(&[1, 2]);
            assert!(handles.iter().all(|handle| table.find(*handle).is_none()), "the handles are stale");
            assert!(table.retire(third));
            assert_dropped(&[1, 2, 3]);
        })
    };
}

#[test]
fn a_call_uses_an_object_that_another_thread_destroys() {
    marked!(shipped);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_destroy_must_run_a_barrier_before_it_looks_at_marks() {
    marked!(without_the_barrier);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_call_must_set_its_mark_before_it_looks_at_the_slot() {
    marked!(without_a_fence_after_the_mark);
}

#[test]
#[should_panic(expected = "each object is dropped once")]
fn a_call_must_clear_its_mark_before_it_looks_for_waiting_objects() {
    marked!(without_a_fence_after_the_use);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_call_must_release_its_mark() {
    marked!(with_a_relaxed_end_of_use);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_destroy_must_acquire_the_marks() {
    marked!(with_a_relaxed_look_at_marks);
}

#[test]
#[should_panic(expected = "the second time")]
fn each_use_of_a_slot_needs_a_generation_of_its_own() {
    marked!(with_one_generation);
}

#[test]
fn calls_with_marks_and_counts_use_objects_that_other_threads_destroy() {
    counted!(shipped);
}

#[test]
#[should_panic(expected = "an object in use")]
fn a_destroy_must_look_at_the_count() {
    counted!(without_a_look_at_the_count);
}

#[test]
#[should_panic(expected = "an object in use")]
fn a_destroy_must_look_at_the_marks() {
    counted!(without_a_look_at_the_marks);
}

#[test]
#[should_panic(expected = "an object in use")]
fn a_call_must_be_counted_before_it_looks_at_the_slot() {
    counted!(with_a_late_count);
}

#[test]
#[should_panic(expected = "each object is dropped once")]
fn the_last_use_must_look_for_waiting_objects() {
    counted!(without_the_last_uses_look);
}

#[test]
#[should_panic(expected = "each object is dropped once")]
fn a_destroy_must_look_for_objects_that_no_call_uses() {
    counted!(without_the_retirers_look);
}
