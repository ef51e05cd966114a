//! Injects faults during the safety phase of a run, and removes them before the liveness phase.

mod disk;

use std::rc::Rc;
use std::time::Duration;

use ottla_broker::Fault;
use ottla_log::storage::mem::Fault as DiskFault;
use ottla_protocol::{ApiKey, ErrorCode};
use ottla_testkit::NetworkFaults;
use tokio::time::Instant;

use crate::host::{Host, NODES};
use crate::options::{Options, ms};
use crate::share::SHARERS;
use crate::topics::GROUPS;
use crate::world::World;

/// The kinds of faults.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// Power loss: each unsynced write may be lost.
    PowerCut,
    /// The process is killed; the disk keeps all writes.
    Kill,
    /// The broker is stopped and restarted.
    Restart,
    /// A leader moves.
    MoveLeader,
    /// A group's coordinator moves.
    MoveCoordinator,
    /// A node goes down or up.
    Node,
    /// Requests of an API fail, wait, or lose their connection.
    Intercept,
    /// Connections of a node break.
    Cut,
    /// A disk call fails; its log is offline until the next start.
    Disk,
    /// A file or the whole disk fails for a time, and the broker is killed.
    DiskOutage,
    /// A file is damaged while the broker is down.
    Damage,
    /// A bit of a log flips while the broker runs.
    BitRot,
    /// The wall clock jumps.
    Clock,
}

/// The kinds with their weights.
fn weights(options: &Options) -> [(Kind, i64); 13] {
    [
        (Kind::PowerCut, options.power_cut),
        (Kind::Kill, options.kill),
        (Kind::Restart, options.restart),
        (Kind::MoveLeader, options.move_leader),
        (Kind::MoveCoordinator, options.move_coordinator),
        (Kind::Node, options.node),
        (Kind::Intercept, options.intercept),
        (Kind::Cut, options.cut),
        (Kind::Disk, options.disk),
        (Kind::DiskOutage, options.disk_outage),
        (Kind::Damage, options.damage),
        (Kind::BitRot, options.bit_rot),
        (Kind::Clock, options.clock),
    ]
}

/// The other requests. Produce is there three times: it fails most often.
const DATA_APIS: [ApiKey; 7] = [
    ApiKey::Produce,
    ApiKey::Produce,
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::Metadata,
    ApiKey::InitProducerId,
    ApiKey::ListOffsets,
];

/// Transient error codes, after which a client recovers.
const CODES: [ErrorCode; 5] = [
    ErrorCode::NotLeaderOrFollower,
    ErrorCode::RequestTimedOut,
    ErrorCode::UnknownTopicOrPartition,
    ErrorCode::KafkaStorageError,
    ErrorCode::NetworkException,
];

/// The requests that a coordinator answers.
const COORDINATOR_APIS: [ApiKey; 6] = [
    ApiKey::OffsetFetch,
    ApiKey::OffsetCommit,
    ApiKey::JoinGroup,
    ApiKey::FindCoordinator,
    ApiKey::EndTxn,
    ApiKey::TxnOffsetCommit,
];

/// Transient error codes of a coordinator.
const GROUP_CODES: [ErrorCode; 3] =
    [ErrorCode::NotCoordinator, ErrorCode::CoordinatorLoadInProgress, ErrorCode::CoordinatorNotAvailable];

/// The requests of share groups.
const SHARE_APIS: [ApiKey; 3] = [ApiKey::ShareFetch, ApiKey::ShareAcknowledge, ApiKey::ShareGroupHeartbeat];

/// Transient error codes of their sessions.
const SHARE_CODES: [ErrorCode; 4] = [
    ErrorCode::ShareSessionNotFound,
    ErrorCode::InvalidShareSessionEpoch,
    ErrorCode::ShareSessionLimitReached,
    ErrorCode::RequestTimedOut,
];

/// Commits are delayed for less than their client waits.
const COMMIT_DELAY_MAX: Duration = Duration::from_millis(1000);

/// The jumps of the wall clock.
const JUMPS: [Duration; 4] = [
    Duration::from_secs(2),
    Duration::from_secs(3600),
    Duration::from_secs(24 * 3600),
    Duration::from_secs(3 * 24 * 3600),
];

pub(crate) struct Faults {
    pub(crate) world: World,
    pub(crate) rng: fastrand::Rng,
    /// A damaged disk is in use: it had no visible damage. A second damage could add to it.
    pub(crate) is_disk_damaged: bool,
}

impl Faults {
    /// Injects faults until the phase is over.
    pub(crate) async fn run(&mut self, host: &mut Host) -> Result<(), String> {
        let options: Rc<Options> = self.world.options.clone();
        self.world.net.set_faults(options.network_faults());
        let until = Instant::now() + ms(options.faults_for);
        loop {
            let pause = self.up_to(ms(options.fault_pause_max));
            if Instant::now() + pause >= until {
                tokio::time::sleep_until(until).await;
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            self.world.net.end_stalls();
            if let Some(kind) = self.draw() {
                self.strike(kind, host).await?;
            }
        }
    }

    /// Removes all faults.
    pub(crate) async fn heal(&mut self, host: &mut Host) -> Result<(), String> {
        self.world.trace.note(format_args!("heal"));
        self.world.net.set_faults(NetworkFaults::none(Duration::from_millis(1)));
        self.world.net.end_stalls();
        host.disk().heal();
        // A log that met a disk failure stays offline until it is reopened.
        if let Some(cluster) = host.cluster() {
            cluster.clear_intercepts();
        }
        host.crash(false).await;
        host.start().await
    }

    fn draw(&mut self) -> Option<Kind> {
        let weights = weights(&self.world.options);
        let total: i64 = weights.iter().map(|(_, weight)| weight).sum();
        let mut left = self.rng.i64(0..total.max(1));
        for (kind, weight) in weights {
            if left < weight {
                return Some(kind);
            }
            left -= weight;
        }
        None
    }

    async fn strike(&mut self, kind: Kind, host: &mut Host) -> Result<(), String> {
        match kind {
            Kind::PowerCut | Kind::Kill | Kind::Restart => {
                self.end_process(kind, host).await;
                tokio::time::sleep(self.up_to(Duration::from_millis(500))).await;
                return self.start_again(host).await;
            }
            Kind::Damage => {
                let kind = [Kind::PowerCut, Kind::Kill, Kind::Restart][self.rng.usize(0..3)];
                self.end_process(kind, host).await;
                self.damage(host, kind == Kind::PowerCut).await;
                return self.start_again(host).await;
            }
            Kind::DiskOutage => return self.disk_outage(host).await,
            Kind::BitRot => return self.bit_rot(host).await,
            Kind::Cut => {
                let (node, per_mille) = (self.node(), self.rng.u32(100..=1000));
                self.world.net.cut(&format!("node-{node}"), per_mille);
            }
            Kind::Disk => {
                let nth = self.rng.u64(0..30);
                let fault = [DiskFault::Io, DiskFault::NoSpace, DiskFault::ShortWrite][self.rng.usize(0..3)];
                self.world.trace.note(format_args!("disk: call {nth} from now: {fault:?}"));
                host.disk().fail_nth(nth, fault, false);
            }
            Kind::Clock => {
                let jump = JUMPS[self.rng.usize(0..JUMPS.len())];
                host.jump(jump, self.rng.bool());
            }
            Kind::MoveLeader | Kind::MoveCoordinator | Kind::Node | Kind::Intercept => {
                self.meddle(kind, host);
            }
        }
        Ok(())
    }

    async fn end_process(&mut self, kind: Kind, host: &mut Host) {
        match kind {
            Kind::Restart => host.stop().await,
            other => host.crash(other == Kind::PowerCut).await,
        }
    }

    /// Starts the broker. It may refuse to start on a failing disk, but not on a working one.
    async fn start_again(&mut self, host: &mut Host) -> Result<(), String> {
        let Err(error) = host.start().await else { return Ok(()) };
        self.world.trace.note(format_args!("broker: {error}"));
        host.disk().heal();
        host.crash(false).await;
        host.start().await
    }

    fn meddle(&mut self, kind: Kind, host: &Host) {
        let Some(cluster) = host.cluster() else { return };
        let trace = self.world.trace.clone();
        let node = self.node();
        match kind {
            Kind::MoveLeader => {
                let (topic, partition) = self.partition();
                let done = cluster.set_leader(topic, partition, node);
                trace.note(format_args!("leader of {topic}-{partition}: {node}, {done}"));
            }
            Kind::MoveCoordinator => {
                let ids = self.world.options.transactional_ids();
                if !ids.is_empty() && self.rng.bool() {
                    let id = &ids[self.rng.usize(0..ids.len())];
                    let done = cluster.set_transaction_coordinator(id, node);
                    trace.note(format_args!("coordinator of {id}: {node}, {done}"));
                    return;
                }
                let is_share = self.world.options.has_share_group() && self.rng.u8(0..3) == 0;
                let group = if is_share { SHARERS } else { GROUPS[self.rng.usize(0..GROUPS.len())] };
                let done = cluster.set_coordinator(group, node);
                trace.note(format_args!("coordinator of {group}: {node}, {done}"));
            }
            Kind::Node => {
                let up = self.rng.bool();
                trace.note(format_args!("node {node} up: {up}"));
                if up {
                    cluster.take_up(node)
                } else {
                    cluster.take_down(node)
                };
            }
            _ => {
                let (api, codes) = self.intercepted();
                let fault = match self.rng.u8(0..4) {
                    0 => Fault::Fail(codes[self.rng.usize(0..codes.len())]),
                    // A commit that is handled after its connection has ended may overwrite a later one: the protocol
                    // has no order between connections.
                    1 if api != ApiKey::OffsetCommit => Fault::Delay(self.up_to(Duration::from_secs(3))),
                    1 => Fault::Delay(self.up_to(COMMIT_DELAY_MAX)),
                    2 => Fault::Cut,
                    _ => Fault::CutAfter,
                };
                let count = self.rng.u32(1..5);
                trace.note(format_args!("intercept {count} {api}: {fault:?}"));
                cluster.intercept(api, None, count, fault);
            }
        }
    }

    /// An API, and the error codes that it may have.
    fn intercepted(&mut self) -> (ApiKey, &'static [ErrorCode]) {
        if self.world.options.has_share_group() && self.rng.u8(0..3) == 0 {
            let drawn = self.rng.usize(0..SHARE_APIS.len());
            let codes: &[ErrorCode] =
                if SHARE_APIS[drawn] == ApiKey::ShareGroupHeartbeat { &GROUP_CODES } else { &SHARE_CODES };
            return (SHARE_APIS[drawn], codes);
        }
        let drawn = self.rng.usize(0..DATA_APIS.len() + COORDINATOR_APIS.len());
        match drawn.checked_sub(DATA_APIS.len()) {
            Some(at) => (COORDINATOR_APIS[at], &GROUP_CODES),
            None => (DATA_APIS[drawn], &CODES),
        }
    }

    /// A partition of any topic.
    fn partition(&mut self) -> (&'static str, i32) {
        let options = self.world.options.clone();
        let topics = options.topics().chain(options.transactional_topics());
        let all: Vec<_> =
            topics.flat_map(|(topic, count)| (0..count).map(move |partition| (topic, partition))).collect();
        all[self.rng.usize(0..all.len())]
    }

    fn node(&mut self) -> i32 {
        self.rng.i32(1..=NODES)
    }

    pub(crate) fn up_to(&mut self, max: Duration) -> Duration {
        Duration::from_millis(self.rng.u64(0..=max.as_millis() as u64))
    }
}
