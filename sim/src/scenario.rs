//! One run: load with faults, then a phase without faults in which everything must finish.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::{JoinSet, LocalSet};
use tokio::time::Instant;

use crate::checker::{Anomaly, History, Reader};
use crate::faults::Faults;
use crate::host::Host;
use crate::net::{Network, NetworkFaults};
use crate::options::Options;
use crate::producer::{World, produce};
use crate::rates::{BusiestWindow, Rates, requests_per_window_max};
use crate::reader::read;
use crate::trace::Trace;

/// Virtual time limit after the faults.
const LIVENESS_MAX: Duration = Duration::from_secs(200);
/// Interval at which progress is checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// The seed of the run.
    pub seed: u64,
    /// Every event, with virtual time.
    pub trace: Vec<String>,
    /// The anomalies; empty for a correct run.
    pub anomalies: Vec<Anomaly>,
    /// Number of acknowledged records.
    pub acked: usize,
    /// Number of reads, over all readers.
    pub read: usize,
    /// The busiest window of each API, by its number.
    pub busiest: BTreeMap<i16, BusiestWindow>,
}

/// Runs the scenario of this seed.
pub fn run(seed: u64) -> Report {
    run_with(seed, Options::draw(&mut fastrand::Rng::with_seed(seed)))
}

/// Runs a scenario with the given options; everything else is drawn from the seed.
pub fn run_with(seed: u64, options: Options) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing from the system");
    // A different random stream from that of the options.
    let rng = fastrand::Rng::with_seed(seed ^ 0x5eed_5eed_5eed_5eed);
    LocalSet::new().block_on(&runtime, scenario(seed, options, rng))
}

async fn scenario(seed: u64, options: Options, mut rng: fastrand::Rng) -> Report {
    let trace = Trace::begin();
    trace.note(format_args!("seed {seed}: {options:?}"));
    let net = Network::new(rng.u64(..), NetworkFaults::none(Duration::from_millis(1)), trace.clone());
    let history = Rc::new(RefCell::new(History::default()));
    let faults = Rc::new(Cell::new(true));
    let world = World {
        options: options.clone(),
        net: net.clone(),
        trace: trace.clone(),
        history: history.clone(),
        faults: faults.clone(),
    };
    let rates = Rates::new(net.clone());
    let mut host = Host::new(options.clone(), rng.u64(..), net.clone(), trace.clone(), rates.clone());
    let mut injector =
        Faults { options: options.clone(), rng: rng.fork(), net: net.clone(), trace: trace.clone() };

    let mut stuck: Vec<String> = Vec::new();
    let mut producers = JoinSet::new();
    let mut readers = JoinSet::new();
    let mut incarnations = Vec::new();
    let safety = async {
        host.start().await?;
        for id in 0..options.producers {
            producers.spawn_local(produce(world.clone(), id + 1, rng.fork()));
        }
        for id in 0..options.readers + options.members {
            let current = Rc::new(Cell::new(None));
            let base = Reader { id: id + 1, in_group: id >= options.readers };
            readers.spawn_local(read(world.clone(), base, current.clone(), rng.fork()));
            incarnations.push(current);
        }
        injector.run(&mut host).await?;
        faults.set(false);
        injector.heal(&mut host).await
    };
    let healed: Result<(), String> = safety.await;
    if let Err(error) = healed {
        stuck.push(format!("the broker does not start: {error}"));
    } else {
        let deadline = Instant::now() + LIVENESS_MAX;
        let all_sent = async { while producers.join_next().await.is_some_and(|done| done.is_ok()) {} };
        if tokio::time::timeout_at(deadline, all_sent).await.is_err() || !producers.is_empty() {
            stuck.push(format!("{} producers have records without a result", producers.len()));
        }
        let deadline = Instant::now() + LIVENESS_MAX;
        loop {
            let behind = behind(&host, &options, &history.borrow(), &incarnations);
            if behind.is_empty() {
                break;
            }
            if Instant::now() >= deadline {
                stuck.extend(behind);
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    for reader in incarnations.iter().filter_map(|incarnation| incarnation.get()) {
        history.borrow_mut().finish(reader);
    }
    let mut anomalies = history.borrow().check();
    anomalies.extend(stuck.into_iter().map(|what| Anomaly::Stuck { what }));
    anomalies.extend(net.frozen().map(|what| Anomaly::Livelock { what }));
    let busiest = rates.busiest();
    let busy = busiest.iter().filter(|(api, busiest)| busiest.requests > requests_per_window_max(**api));
    anomalies.extend(busy.map(|(_, busiest)| Anomaly::Busy { what: busiest.what.clone() }));
    let (acked, read) = history.borrow().counts();
    trace.note(format_args!("end: {acked} acknowledged, {read} read, {} anomalies", anomalies.len()));
    let lines = trace.lines();
    readers.shutdown().await;
    host.stop().await;
    Report { seed, trace: lines, anomalies, acked, read, busiest }
}

/// The readers that have not reached the end yet.
fn behind(
    host: &Host,
    options: &Options,
    history: &History,
    incarnations: &[Rc<Cell<Option<Reader>>>],
) -> Vec<String> {
    let mut behind = Vec::new();
    for partition in 0..options.partitions {
        let end = host.end_of(partition);
        for reader in incarnations.iter().filter_map(|incarnation| incarnation.get()) {
            let at = if reader.in_group {
                history.group_position(partition)
            } else {
                history.position(reader, partition)
            };
            if at < end {
                behind.push(format!("{reader:?} is at {at} of {end} in partition {partition}"));
            }
        }
    }
    behind
}
