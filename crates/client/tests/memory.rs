//! A consumer's memory stays within `queued.max.messages.kbytes`, counted at the allocator. The broker runs in
//! another process of this program, so that its memory is not counted.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]
#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ottla_broker::Broker;
use ottla_client::{Client, Config, Polled, Producer, Record, StartAt, TopicPartition};

/// The time limit for reading all messages.
const PATIENCE: Duration = Duration::from_secs(120);

const PARTITIONS: i32 = 1_000;
const MESSAGE_BYTES: usize = 1_000_000;
const BUDGET_BYTES: usize = 64 << 20;
/// Memory for the names, progress and cursors of a thousand partitions, and for the requests that name them.
const BOOKKEEPING_BYTES: usize = 4 << 20;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting does not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The environment variable that makes this program run as the broker.
const BE_THE_BROKER: &str = "OTTLA_TEST_IS_BROKER";

/// The broker's process: it reports its address, and exits when its input ends.
fn be_the_broker() {
    let broker = Broker::builder().memory().topic("blobs", PARTITIONS).spawn().expect("a broker in memory");
    println!("\nlistening at {}", broker.bootstrap_servers());
    let _ = std::io::stdin().read(&mut [0]);
}

/// A broker in another process, and its address.
fn broker_elsewhere() -> (Child, impl Iterator<Item = String>, String) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "a_thousand_partitions_of_large_messages_stay_within_the_budget", "--nocapture"])
        .env(BE_THE_BROKER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs once, so it runs twice");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let address = lines
        .find_map(|line| line.strip_prefix("listening at ").map(str::to_owned))
        .expect("the broker says where it is");
    (child, lines, address)
}

#[test]
fn a_thousand_partitions_of_large_messages_stay_within_the_budget() {
    if std::env::var_os(BE_THE_BROKER).is_some() {
        return be_the_broker();
    }
    let (mut child, _lines, address) = broker_elsewhere();
    // Every fifth value stays as large in the response; the others are compressible.
    {
        let value = vec![b'v'; MESSAGE_BYTES];
        for (codec, plain) in [("none", true), ("zstd", false)] {
            let mut config = Config::new(&address);
            config.set("compression.codec", codec).expect("a known property");
            config.set("message.max.bytes", "1048588").expect("a known property");
            let producer = Producer::new(config).expect("a producer");
            for partition in (0..PARTITIONS).filter(|partition| (partition % 5 == 0) == plain) {
                let record = Record::to("blobs").partition(partition).value(&value);
                drop(producer.enqueue_blocking(record).expect("taken"));
            }
            producer.flush_blocking(PATIENCE).expect("written");
        }
    }
    let client = Client::new(Config::new(&address)).expect("a client");
    let all: Vec<_> = (0..PARTITIONS)
        .map(|partition| (TopicPartition::new("blobs", partition), StartAt::Beginning))
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let baseline = LIVE.load(Ordering::Relaxed);
    PEAK.store(baseline, Ordering::Relaxed);
    let mut consumer = client.consumer();
    runtime.block_on(consumer.assign(&all)).expect("assigned");
    let mut seen = 0;
    while seen < PARTITIONS {
        match consumer.poll_blocking(PATIENCE).expect("no error") {
            Some(Polled::Records(batch)) => {
                for record in &batch {
                    assert_eq!(record.expect("sound").value.map(<[u8]>::len), Some(MESSAGE_BYTES));
                    seen += 1;
                }
            }
            other => panic!("{other:?} after {seen} records"),
        }
    }
    let peak = PEAK.load(Ordering::Relaxed) - baseline;
    let most = BUDGET_BYTES + MESSAGE_BYTES + BOOKKEEPING_BYTES;
    assert!(peak <= most, "{peak} bytes at the most, {most} allowed");
    drop(child.stdin.take());
    child.wait().expect("it ends");
}
