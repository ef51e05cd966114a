//! One run: load with faults, then a phase without faults in which everything must finish.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ottla_testkit::{Network, NetworkFaults, Trace, VirtualTime};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::checker::{Anomaly, History, Reader};
use crate::compacted::CompactedLoad;
use crate::faults::Faults;
use crate::host::{Host, Running, observe_commits};
use crate::options::Options;
use crate::processor::process;
use crate::producer::produce;
use crate::rates::{BusiestWindow, Rates, requests_per_window_max};
use crate::reader::read;
use crate::share::{ShareLoad, SharedShareHistory, slow_handling_in_all};
use crate::topics::PROCESSORS;
use crate::transactions::Transactions;
use crate::world::World;

/// Virtual time limit after the faults, times `Options::density`; share groups have more.
const LIVENESS_MAX: Duration = Duration::from_secs(200);
/// Interval at which progress and committed offsets are checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// After the last transaction has ended, `read_committed` readers have this time for entries that nothing requires, such as
/// those of a transaction whose writer does not know its outcome.
const SETTLED_FOR: Duration = Duration::from_secs(5);

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// The seed of the run.
    pub seed: u64,
    /// The options of the run.
    pub options: Options,
    /// Every event, with virtual time, if they were wanted.
    pub trace: Vec<String>,
    /// The anomalies; empty for a correct run.
    pub anomalies: Vec<Anomaly>,
    /// Number of acknowledged records.
    pub acked: usize,
    /// Number of reads, over all readers.
    pub read: usize,
    /// Number of transactions whose commit succeeded.
    pub committed: usize,
    /// Number of records whose acceptance by the share group was confirmed.
    pub accepted: usize,
    /// The busiest window of each API, by its number.
    pub busiest: BTreeMap<i16, BusiestWindow>,
}

/// Parts of a run that are not drawn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    /// Keeps the events.
    pub traced: bool,
    /// The disk ignores syncs: for the proof that the checker finds that.
    pub syncs_ignored: bool,
    /// The clients check no checksums: the same.
    pub unchecked: bool,
    /// A task of the broker panics: for the proof that a panic is reported.
    pub panics: bool,
}

/// Runs the scenario of this seed, and keeps its events.
pub fn run(seed: u64) -> Report {
    run_with(
        seed,
        &Options::draw(&mut fastrand::Rng::with_seed(seed)),
        Mode { traced: true, ..Mode::default() },
    )
}

/// Runs a scenario with the given options; everything else is drawn from the seed.
pub fn run_with(seed: u64, options: &Options, mode: Mode) -> Report {
    ottla_testkit::run(seed, async |time| scenario(&time, seed, options.clone(), mode).await)
}

/// The consumers of a run: each with its current incarnation.
#[derive(Default)]
struct Consumers {
    tasks: JoinSet<()>,
    current: Vec<Rc<Cell<Option<Reader>>>>,
}

impl Consumers {
    fn start(&mut self, world: &World, seed: u64) {
        let options = world.options.clone();
        let counts = [
            (None, options.readers),
            (Some(0), options.members),
            (Some(1), options.members_second),
            (Some(PROCESSORS), options.processors),
        ];
        let readers = counts.into_iter().flat_map(|(group, count)| (0..count).map(move |_| group));
        for (id, group) in (1..).zip(readers) {
            let is_ordered = group != Some(PROCESSORS);
            let base = Reader { id, group, is_ordered };
            let current = Rc::new(Cell::new(None));
            let rng = World::rng(seed, 2, u64::from(id));
            if is_ordered {
                self.tasks.spawn_local(read(world.clone(), base, current.clone(), rng));
            } else {
                self.tasks.spawn_local(process(world.clone(), base, current.clone(), rng));
            }
            self.current.push(current);
        }
    }

    /// The current incarnations.
    fn readers(&self) -> impl Iterator<Item = Reader> {
        self.current.iter().filter_map(|current| current.get())
    }

    /// Waits until all readers have reached the end, and returns those that do not in time.
    async fn all_read(&self, host: &Host, options: &Options, history: &RefCell<History>) -> Vec<String> {
        let deadline = Instant::now() + liveness_max(options);
        loop {
            let behind = self.behind(host, options, &history.borrow());
            if behind.is_empty() || Instant::now() >= deadline {
                return behind;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The readers that have not reached the end yet.
    fn behind(&self, host: &Host, options: &Options, history: &History) -> Vec<String> {
        let mut behind = Vec::new();
        for slot in 0..options.slots() {
            let end = host.end_of(slot);
            for reader in self.readers() {
                let at = match reader.group {
                    Some(group) => history.group_position(group, slot),
                    None => history.position(reader, slot),
                };
                if at < end {
                    behind.push(format!("{reader:?} is at {at} of {end} in slot {slot}"));
                }
            }
        }
        behind
    }
}

/// The loads that have histories of their own.
struct Loads {
    transactions: Transactions,
    compacted: CompactedLoad,
    share: ShareLoad,
}

impl Loads {
    fn new(share: SharedShareHistory) -> Self {
        let (transactions, compacted) = (Transactions::default(), CompactedLoad::default());
        Self { transactions, compacted, share: ShareLoad::new(share) }
    }

    fn start(&mut self, world: &World, seed: u64) {
        self.transactions.start(world, seed);
        self.compacted.start(world, seed);
        self.share.start(world, seed);
    }

    /// Waits until every transaction has ended, all readers have read to the end, and the share group has completed all records.
    /// Returns the work that is not finished in time.
    async fn settle(&mut self, host: &Host, options: &Options) -> Vec<String> {
        let deadline = Instant::now() + liveness_max(options);
        loop {
            let mut unfinished = self.transactions.unfinished(options, host.cluster().as_deref());
            unfinished.extend(self.compacted.unfinished());
            unfinished.extend(self.share.unfinished(options, host));
            if unfinished.is_empty() {
                break;
            }
            if Instant::now() >= deadline {
                return unfinished;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        if options.writers > 0 {
            tokio::time::sleep(SETTLED_FOR).await;
        }
        self.transactions.unfinished(options, host.cluster().as_deref())
    }

    fn check(&self, options: &Options, is_stuck: bool) -> Vec<Anomaly> {
        let mut anomalies = Vec::new();
        if !is_stuck {
            anomalies.extend(self.transactions.history.borrow().check(options.copiers > 0));
        }
        anomalies.extend(self.compacted.history.borrow().check());
        anomalies.extend(self.share.history.lock().check());
        anomalies
    }

    async fn shutdown(&mut self) {
        self.transactions.shutdown().await;
        self.compacted.shutdown().await;
        self.share.shutdown().await;
    }
}

async fn scenario(time: &VirtualTime, seed: u64, options: Options, mode: Mode) -> Report {
    // A different random stream from that of the options.
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed_5eed_5eed_5eed);
    let trace = Trace::begin(mode.traced);
    trace.note(format_args!("seed {seed}: {options}"));
    let options = Rc::new(options);
    let net = Network::new(rng.u64(..), NetworkFaults::none(Duration::from_millis(1)), trace.clone());
    let world = World {
        options: options.clone(),
        net: net.clone(),
        trace: trace.clone(),
        history: Rc::default(),
        faults: Rc::new(Cell::new(true)),
        unchecked: mode.unchecked,
    };
    let rates = Rates::new(net.clone());
    let history = world.history.clone();
    let share = SharedShareHistory::new(&options);
    let mut host = Host::new(&world, rng.u64(..), rates.clone(), share.clone());
    if mode.syncs_ignored {
        host.ignore_syncs();
    }
    let mut injector = Faults { world: world.clone(), rng: rng.fork(), is_disk_damaged: false };

    let mut stuck: Vec<String> = Vec::new();
    let mut producers = JoinSet::new();
    let mut consumers = Consumers::default();
    let mut loads = Loads::new(share);
    let safety = async {
        host.start().await?;
        if mode.panics {
            host.panic_at_next_request();
        }
        for id in 1..=options.producers {
            let rng = World::rng(seed, 1, id as u64);
            producers.spawn_local(produce(world.clone(), id as u32, rng));
        }
        consumers.start(&world, seed);
        loads.start(&world, seed);
        consumers.tasks.spawn_local(observe(options.clone(), host.running(), history.clone()));
        injector.run(&mut host).await?;
        world.faults.set(false);
        injector.heal(&mut host).await
    };
    let healed: Result<(), String> = safety.await;
    if let Err(error) = healed {
        stuck.push(format!("the broker does not start: {error}"));
    } else {
        stuck.extend(all_results(&mut producers, &options).await);
        stuck.extend(consumers.all_read(&host, &options, &history).await);
        stuck.extend(loads.settle(&host, &options).await);
    }
    for reader in consumers.readers() {
        history.borrow_mut().finish(reader);
    }
    let mut anomalies = history.borrow().check();
    anomalies.extend(loads.check(&options, !stuck.is_empty()));
    anomalies.extend(stuck.into_iter().map(|what| Anomaly::Stuck { what }));
    anomalies.extend(net.frozen().map(|what| Anomaly::Livelock { what }));
    let busiest = rates.busiest();
    anomalies.extend(busy_clients(&busiest, &options));
    anomalies.extend(panics(time));
    for anomaly in &anomalies {
        trace.note(format_args!("{anomaly:?}"));
    }
    let (acked, read) = history.borrow().counts();
    let committed = loads.transactions.history.borrow().committed();
    let accepted = loads.share.history.lock().accepted();
    trace.note(format_args!(
        "end: {acked} acknowledged, {read} read, {committed} committed, {accepted} accepted, {} anomalies",
        anomalies.len()
    ));
    let lines = trace.lines();
    consumers.tasks.shutdown().await;
    loads.shutdown().await;
    host.stop().await;
    anomalies.extend(panics(time));
    let options = (*options).clone();
    Report { seed, options, trace: lines, anomalies, acked, read, committed, accepted, busiest }
}

/// The panics of tasks since the last call.
fn panics(time: &VirtualTime) -> impl Iterator<Item = Anomaly> + use<> {
    time.take_panics().into_iter().map(|what| Anomaly::Panicked { what })
}

/// The windows with more requests than a client may send.
fn busy_clients(busiest: &BTreeMap<i16, BusiestWindow>, options: &Options) -> Vec<Anomaly> {
    let is_busy =
        |(api, busiest): &(&i16, &BusiestWindow)| busiest.requests > requests_per_window_max(options, **api);
    let busy = busiest.iter().filter(is_busy);
    busy.map(|(_, busiest)| Anomaly::Busy { what: busiest.what.clone() }).collect()
}

fn liveness_max(options: &Options) -> Duration {
    let max = LIVENESS_MAX * u32::try_from(options.density).unwrap_or(1).max(1);
    if options.sharers > 0 { max + slow_handling_in_all(options) } else { max }
}

/// Waits until every record has a result, and returns the number of producers that have none in time.
async fn all_results(producers: &mut JoinSet<()>, options: &Options) -> Option<String> {
    let mut panicked = 0;
    let all_sent = async {
        while let Some(done) = producers.join_next().await {
            panicked += usize::from(done.is_err());
        }
    };
    // Those that are late are still in the set.
    drop(tokio::time::timeout(liveness_max(options), all_sent).await);
    let without_result = producers.len() + panicked;
    (without_result > 0).then(|| format!("{without_result} producers have records without a result"))
}

/// Records the committed offsets of the running broker from time to time.
async fn observe(options: Rc<Options>, running: Running, history: Rc<RefCell<History>>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(cluster) = running.borrow().as_ref() {
            observe_commits(&options, cluster, &mut history.borrow_mut(), false);
        }
    }
}
