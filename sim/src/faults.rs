//! Injects faults during the safety phase of a run, and removes them before the liveness phase.

use std::time::Duration;

use ottla_broker::Fault;
use ottla_log::storage::mem::Fault as DiskFault;
use ottla_protocol::{ApiKey, ErrorCode};
use tokio::time::Instant;

use crate::host::{Host, NODES, TOPIC};
use crate::net::{Network, NetworkFaults};
use crate::options::Options;
use crate::trace::Trace;

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
    /// The group's coordinator moves.
    MoveCoordinator,
    /// A node goes down or up.
    Node,
    /// Requests of an API fail, wait, or lose their connection.
    Intercept,
    /// Connections of a node break.
    Cut,
    /// A disk call fails; its log is offline until the next start.
    Disk,
}

const KINDS: [Kind; 9] = [
    Kind::PowerCut,
    Kind::Kill,
    Kind::Restart,
    Kind::MoveLeader,
    Kind::MoveCoordinator,
    Kind::Node,
    Kind::Intercept,
    Kind::Cut,
    Kind::Disk,
];

const APIS: [ApiKey; 10] = [
    ApiKey::Produce,
    ApiKey::Produce,
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::Metadata,
    ApiKey::InitProducerId,
    ApiKey::ListOffsets,
    ApiKey::OffsetCommit,
    ApiKey::JoinGroup,
    ApiKey::FindCoordinator,
];

/// Transient error codes, after which a client recovers.
const CODES: [ErrorCode; 5] = [
    ErrorCode::NotLeaderOrFollower,
    ErrorCode::RequestTimedOut,
    ErrorCode::UnknownTopicOrPartition,
    ErrorCode::KafkaStorageError,
    ErrorCode::NetworkException,
];

/// Transient error codes of group requests.
const GROUP_CODES: [ErrorCode; 3] =
    [ErrorCode::NotCoordinator, ErrorCode::CoordinatorLoadInProgress, ErrorCode::CoordinatorNotAvailable];

pub(crate) struct Faults {
    pub(crate) options: Options,
    pub(crate) rng: fastrand::Rng,
    pub(crate) net: Network,
    pub(crate) trace: Trace,
}

impl Faults {
    /// Injects faults until the phase is over.
    pub(crate) async fn run(&mut self, host: &mut Host) -> Result<(), String> {
        self.net.set_faults(self.options.network_faults);
        let until = Instant::now() + self.options.faults_for;
        loop {
            let pause = self.up_to(self.options.fault_pause_max);
            if Instant::now() + pause >= until {
                tokio::time::sleep_until(until).await;
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            self.net.end_stalls();
            if let Some(kind) = self.draw() {
                self.strike(kind, host).await?;
            }
        }
    }

    /// Removes all faults.
    pub(crate) async fn heal(&mut self, host: &mut Host) -> Result<(), String> {
        self.trace.note(format_args!("heal"));
        self.net.set_faults(NetworkFaults::none(Duration::from_millis(1)));
        self.net.end_stalls();
        host.disk().heal();
        // A log that met a disk failure stays offline until it is reopened.
        if let Some(cluster) = host.cluster() {
            cluster.clear_intercepts();
        }
        host.crash(false).await;
        host.start().await
    }

    fn draw(&mut self) -> Option<Kind> {
        let total: u32 = self.options.fault_weights.iter().sum();
        let mut left = self.rng.u32(0..total.max(1));
        let weighed = KINDS.iter().zip(self.options.fault_weights);
        for (kind, weight) in weighed {
            if left < weight {
                return Some(*kind);
            }
            left -= weight;
        }
        None
    }

    async fn strike(&mut self, kind: Kind, host: &mut Host) -> Result<(), String> {
        match kind {
            Kind::PowerCut | Kind::Kill | Kind::Restart => {
                match kind {
                    Kind::Restart => host.stop().await,
                    other => host.crash(other == Kind::PowerCut).await,
                }
                tokio::time::sleep(self.up_to(Duration::from_millis(500))).await;
                if let Err(error) = host.start().await {
                    // A broker may refuse to start on a failing disk, but not on a working one.
                    self.trace.note(format_args!("broker: {error}"));
                    host.disk().heal();
                    host.crash(false).await;
                    return host.start().await;
                }
            }
            Kind::Cut => {
                let (node, per_mille) = (self.node(), self.rng.u32(100..=1000));
                self.net.cut(&format!("node-{node}"), per_mille);
            }
            Kind::Disk => {
                let nth = self.rng.u64(0..30);
                let fault = [DiskFault::Io, DiskFault::NoSpace, DiskFault::ShortWrite][self.rng.usize(0..3)];
                self.trace.note(format_args!("disk: call {nth} from now: {fault:?}"));
                host.disk().fail_nth(nth, fault, false);
            }
            Kind::MoveLeader | Kind::MoveCoordinator | Kind::Node | Kind::Intercept => {
                self.meddle(kind, host);
            }
        }
        Ok(())
    }

    fn meddle(&mut self, kind: Kind, host: &Host) {
        let Some(cluster) = host.cluster() else { return };
        let node = self.node();
        match kind {
            Kind::MoveLeader => {
                let partition = self.rng.i32(0..self.options.partitions);
                let done = cluster.set_leader(TOPIC, partition, node);
                self.trace.note(format_args!("leader of {partition}: {node}, {done}"));
            }
            Kind::MoveCoordinator => {
                let done = cluster.set_coordinator(crate::reader::GROUP, node);
                self.trace.note(format_args!("coordinator: {node}, {done}"));
            }
            Kind::Node => {
                let up = self.rng.bool();
                self.trace.note(format_args!("node {node} up: {up}"));
                if up {
                    cluster.take_up(node)
                } else {
                    cluster.take_down(node)
                };
            }
            _ => {
                let api = APIS[self.rng.usize(0..APIS.len())];
                let in_group =
                    [ApiKey::OffsetCommit, ApiKey::JoinGroup, ApiKey::FindCoordinator].contains(&api);
                let codes: &[ErrorCode] = if in_group { &GROUP_CODES } else { &CODES };
                let fault = match self.rng.u8(0..4) {
                    0 => Fault::Fail(codes[self.rng.usize(0..codes.len())]),
                    1 => Fault::Delay(self.up_to(Duration::from_secs(3))),
                    2 => Fault::Cut,
                    _ => Fault::CutAfter,
                };
                let count = self.rng.u32(1..5);
                self.trace.note(format_args!("intercept {count} {api}: {fault:?}"));
                cluster.intercept(api, None, count, fault);
            }
        }
    }

    fn node(&mut self) -> i32 {
        self.rng.i32(1..=NODES)
    }

    fn up_to(&mut self, max: Duration) -> Duration {
        Duration::from_millis(self.rng.u64(0..=max.as_millis() as u64))
    }
}
