//! The run of a test on virtual time.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ottla_broker::{BrokerBuilder, StartError, Syncer};
use ottla_client::{Config, Error};
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::broker::VirtualBroker;
use crate::client::VirtualClient;
use crate::network::{Network, NetworkFaults};
use crate::panics;
use crate::trace::Trace;
use crate::wall_clock::WallClock;

/// Maximum latency of a write on the network of a run, until a test changes it.
const LATENCY_MAX: Duration = Duration::from_millis(1);

/// Runs a test on virtual time, in the calling thread, and returns its result.
///
/// `seed` determines latencies and every random choice of broker and clients. The test may use `tokio::time` and
/// `tokio::task::spawn_local`; tasks that still run at its end are dropped. The crate's documentation has an example and the
/// rules for tests.
///
/// # Panics
/// In a Tokio runtime: a test is a plain function (`#[test]`). A panic of the test is passed on. A panic of a task of the broker, of a
/// client or of the test makes the run fail at its end, unless the test takes it: see [`VirtualTime::take_panics`].
pub fn run<T>(seed: u64, test: impl AsyncFnOnce(VirtualTime) -> T) -> T {
    panics::begin();
    let result = run_on_virtual_time(seed, test);
    let panics = panics::take();
    assert!(panics.is_empty(), "{} panics of tasks:\n{}", panics.len(), panics.join("\n"));
    result
}

fn run_on_virtual_time<T>(seed: u64, test: impl AsyncFnOnce(VirtualTime) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing from the system");
    LocalSet::new().block_on(&runtime, async { test(VirtualTime::start(seed)).await })
}

/// The clock, the network and the trace of one run; see [`run`]. Clones share them.
#[derive(Clone, Debug)]
pub struct VirtualTime {
    started: Instant,
    wall: WallClock,
    network: Network,
    trace: Trace,
    rng: Rc<RefCell<fastrand::Rng>>,
}

impl VirtualTime {
    fn start(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let trace = Trace::begin(true);
        let network = Network::new(rng.u64(..), NetworkFaults::none(LATENCY_MAX), trace.clone());
        let (started, wall) = (Instant::now(), WallClock::start());
        Self { started, wall, network, trace, rng: Rc::new(RefCell::new(rng)) }
    }

    /// Starts a broker whose nodes are the hosts `node-1`, `node-2` and so on of [`network`](Self::network), port 9092.
    ///
    /// The builder's topics, settings and number of nodes apply. This call replaces its listeners, clock, syncer and seed. Keep
    /// the data in memory, the default: a directory needs real time.
    ///
    /// # Errors
    /// The errors of [`BrokerBuilder::start`].
    ///
    /// # Panics
    /// If a broker of this network is running: stop it first, or start the other one with [`on_another_network`](Self::on_another_network).
    pub async fn start_broker(&self, builder: BrokerBuilder) -> Result<VirtualBroker, StartError> {
        assert!(!self.network.is_served("node-1"), "a broker of this network is running");
        let builder = builder.no_listener().clock(self.wall.of_broker()).seed(self.seed());
        let broker = builder.syncer(Syncer::Inline(Duration::ZERO)).start().await?;
        Ok(VirtualBroker::serve(broker, self.network.clone()))
    }

    /// Creates a client that connects over [`network`](Self::network). Its clock is [`wall_clock`](Self::wall_clock).
    ///
    /// # Errors
    /// The errors of [`Client::new`](ottla_client::Client::new).
    pub fn client(&self, mut config: Config) -> Result<VirtualClient, Error> {
        config.clock = self.wall.of_client();
        VirtualClient::start(config, &self.network, self.seed())
    }

    /// Returns the same clocks and the same trace with a network of its own, for a second broker: a fork of the first one, for
    /// example (`snapshot.builder()`). Its hosts have the same names.
    pub fn on_another_network(&self) -> Self {
        let network = Network::new(self.seed(), NetworkFaults::none(LATENCY_MAX), self.trace.clone());
        Self { network, ..self.clone() }
    }

    /// The virtual time since the start of the run.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The wall clock in milliseconds since 1970: the timestamps of records, and the time of retention.
    pub fn now_ms(&self) -> i64 {
        self.wall.now_ms()
    }

    /// Returns the wall clock, which can jump.
    pub fn wall_clock(&self) -> &WallClock {
        &self.wall
    }

    /// Returns the network, whose latency and faults can be changed. Without changes a write takes up to 1 ms, and nothing fails.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the events of the run. The network notes its connections; a test adds its own events.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns the panics of this thread since the start of the run, and forgets them. [`run`] fails if any are left at its end.
    pub fn take_panics(&self) -> Vec<String> {
        panics::take()
    }

    fn seed(&self) -> u64 {
        self.rng.borrow_mut().u64(..)
    }
}
