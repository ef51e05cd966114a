//! The path of a record allocates no memory per record, neither in the calling thread nor in the engine.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]
#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ottla_broker::Broker;
use ottla_client::{Config, Producer, Record};

/// The time limit for the delivery of all records.
const PATIENCE: Duration = Duration::from_secs(60);

const RECORDS: u64 = 300_000;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static HERE: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting does not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        HERE.with(|here| here.set(here.get() + 1));
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_record_allocates_nothing_on_its_way() {
    let broker = Broker::builder().memory().topic("orders", 2).spawn().expect("a broker in memory");
    let mut config = Config::new(broker.bootstrap_servers());
    config.delivery_reports = true;
    let producer = Producer::new(config).expect("a producer");
    let reports = producer.reports().expect("they are on");
    let orders = producer.topic("orders");
    let value = [b'x'; 100];
    let record = Record::to("orders").value(&value);
    let send = |count: u64| {
        let (mut reported, mut in_calls) = (0, 0);
        for _ in 0..count {
            let before = HERE.get();
            orders.send_unobserved_blocking(&record).expect("taken");
            in_calls += HERE.get() - before;
            while let Some(report) = reports.try_next() {
                reported += report.len() as u64;
            }
        }
        producer.flush_blocking(PATIENCE).expect("acknowledged");
        reported += std::iter::from_fn(|| reports.try_next()).map(|report| report.len() as u64).sum::<u64>();
        assert_eq!(reported, count);
        in_calls
    };
    send(RECORDS);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let in_calls = send(RECORDS);
    let all = ALLOCATIONS.load(Ordering::Relaxed) - before;
    // Allocations occur per batch and, because the broker runs in this process, per request.
    assert!(in_calls < RECORDS / 20, "{in_calls} allocations in {RECORDS} calls");
    assert!(all < RECORDS / 4, "{all} allocations for {RECORDS} records in the whole process");
}
