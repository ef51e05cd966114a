//! A broker and its clients in one thread, on virtual time and a simulated network: tests without sockets, threads or waits.
//!
//! ```text
//!   run(seed, test) --> VirtualTime --client--> VirtualClient --+
//!                           |                                   +--> Network (latency, cuts) --> VirtualBroker --> memory
//!                           +------start_broker-----------------+
//! ```
//!
//! Time is Tokio's paused clock: it jumps to the next timer when no task can run. So a session timeout of 45 seconds and a
//! retention of a week pass in milliseconds. The seed determines latencies and every random choice of both sides. The same
//! seed and the same test give the same [`Trace`], line by line.
//!
//! ```
//! use std::time::Duration;
//!
//! use ottla_broker::Broker;
//! use ottla_client::{Config, Record};
//!
//! let offset = ottla_testkit::run(7, async |time| {
//!     let broker = time.start_broker(Broker::builder().topic("orders", 1)).await.expect("a new broker");
//!     let client = time.client(Config::new(broker.bootstrap_servers())).expect("a valid configuration");
//!     tokio::time::sleep(Duration::from_secs(3600)).await;
//!     let delivery = client.producer().enqueue(Record::to("orders").value("paid")).await.expect("an empty queue");
//!     let written = delivery.await.expect("a broker that works");
//!     assert!(time.elapsed() > Duration::from_secs(3600), "virtual time");
//!     broker.stop().await;
//!     written.offset
//! });
//! assert_eq!(offset, Some(0));
//! ```
//!
//! # Rules for tests
//!
//! - Sleep and wait with `tokio::time`. A wait in real time (`std::thread::sleep`, the calls named `_blocking`) blocks the only
//!   thread, broker included.
//! - A wait for something that never happens does not end, because the broker's own timers keep time moving: put it into
//!   `tokio::time::timeout`.
//! - `tokio::time::advance` skips the timers in between. Sleep instead.
//! - To get the same trace for the same seed, write `tokio::select!` with `biased;`, and do not iterate over a `HashMap` with a
//!   random hasher.
//! - More than 10,000 connection attempts at one instant are a livelock. The network then stops all traffic, and
//!   [`Network::frozen`] returns the reason.
//! - Tasks of a test are `tokio::task::spawn_local` tasks. They end with the test.
//! - A panic in a task of the broker, of a client or of the test fails the run at its end. [`VirtualTime::take_panics`] is for
//!   tests that expect one.

mod broker;
mod client;
mod network;
mod panics;
mod trace;
mod virtual_time;
mod wall_clock;

pub use broker::VirtualBroker;
pub use client::VirtualClient;
pub use network::{Cut, Network, NetworkFaults, Pipe, PlannedCut};
pub use trace::Trace;
pub use virtual_time::{VirtualTime, run};
pub use wall_clock::{EPOCH_MS, WallClock};
