//! The requests of tests in any language to a running broker: an HTTP method, a path, and a body of JSON.
//!
//! - `routes`: each request, and what it does to the broker.
//! - `bodies`: the JSON of the requests.
//! - `clients`: the clients that push their metrics.
//! - `disk`: the faults of the disk.
//! - `snapshots`: the snapshots and the forks that requests have made.

mod bodies;
mod clients;
mod disk;
mod routes;
mod snapshots;

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::current_cluster::CurrentCluster;
use super::{Snapshot, SnapshotError};
use crate::cluster::{AddNodeError, Cluster};
use routes::{number, parts_of};
use snapshots::Snapshots;

/// The requests of a control address, without its HTTP server: faults, nodes, leaders, periodic work, waits, snapshots and forks.
///
/// docs/TESTING.md lists the requests. `ottla broker --control` serves them at an address, and `ottla_broker_control()`
/// of `ottla.h` passes them on.
///
/// ```
/// use ottla_broker::Broker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::builder().memory().topic("orders", 1).start().await?;
/// let fault = br#"{ "api": "Produce", "action": "fail", "error": "NOT_ENOUGH_REPLICAS" }"#;
/// let answer = broker.control().answer("POST", "/faults", fault).await;
/// assert_eq!((answer.status, answer.body["id"].as_u64()), (200, Some(1)));
/// # broker.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Control {
    current: CurrentCluster,
    asks: mpsc::UnboundedSender<Ask>,
    snapshots: Arc<Snapshots>,
}

/// The answer to a request of a control address.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlAnswer {
    /// The status of HTTP: 200; 400 if the request is wrong, 404 if there is no such thing, 409 if the broker cannot do
    /// it now, 504 if a wait has ended without its state.
    pub status: u16,
    /// The answer; with another status than 200 it has a text `error`.
    pub body: Value,
}

/// Work for the owner of the listeners, and the place of its result.
#[derive(Debug)]
pub(crate) enum Ask {
    AddNode { id: i32, done: oneshot::Sender<Result<(), AddNodeError>> },
    Restore { snapshot: Box<Snapshot>, done: oneshot::Sender<Result<(), SnapshotError>> },
}

impl Control {
    pub(crate) fn new(current: CurrentCluster, asks: mpsc::UnboundedSender<Ask>) -> Self {
        Self { current, asks, snapshots: Arc::default() }
    }

    /// See [`Broker::cluster`](crate::Broker::cluster).
    pub fn cluster(&self) -> Arc<Cluster> {
        self.current.get()
    }

    /// Carries out a request. A dropped wait has no effect; a request that changes something is carried out or not.
    pub async fn answer(&self, method: &str, path: &str, body: &[u8]) -> ControlAnswer {
        let parts: Vec<&str> = parts_of(path).collect();
        let answer = match &*parts {
            ["forks", id, rest @ ..] if method != "DELETE" || !rest.is_empty() => match number(id) {
                Ok(id) => self.answer_of_fork(id, method, &rest.join("/"), body).await,
                Err(refusal) => Err(refusal),
            },
            _ => self.route(method, &parts, body).await.map(|body| ControlAnswer { status: 200, body }),
        };
        answer.unwrap_or_else(|refusal| ControlAnswer { status: refusal.status(), body: refusal.json() })
    }

    /// Asks the owner of the listeners for a node, and waits until it listens.
    pub(crate) async fn add_node(&self, id: i32) -> Result<(), AddNodeError> {
        let (done, added) = oneshot::channel();
        let stopped = |_| AddNodeError::NoListener(id);
        self.asks.send(Ask::AddNode { id, done }).map_err(|_| AddNodeError::NoListener(id))?;
        added.await.map_err(stopped)?
    }

    pub(crate) fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        self.current.snapshot()
    }

    /// Asks the owner of the listeners to restore a snapshot, and waits until it listens again.
    pub(crate) async fn restore(&self, snapshot: Snapshot) -> Result<(), SnapshotError> {
        let (done, restored) = oneshot::channel();
        let snapshot = Box::new(snapshot);
        self.asks.send(Ask::Restore { snapshot, done }).map_err(|_| SnapshotError::Stopped)?;
        restored.await.map_err(|_| SnapshotError::Stopped)?
    }

    /// Stops the forks that requests have started.
    pub(crate) async fn end_forks(&self) {
        self.snapshots.end_forks().await;
    }
}
