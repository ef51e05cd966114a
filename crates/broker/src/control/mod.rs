//! The requests of tests in any language to a running broker: an HTTP method, a path, and a body of JSON.
//!
//! - `routes`: each request, and what it does to the broker.
//! - `bodies`: the JSON of the requests.

mod bodies;
mod routes;

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::cluster::{AddNodeError, Cluster};

/// The requests of a control address, without its HTTP server: faults, nodes, leaders, periodic work, waits.
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
    cluster: Arc<Cluster>,
    new_nodes: mpsc::UnboundedSender<NewNode>,
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

/// A node to add, which the owner of the listeners does, and where the result goes.
#[derive(Debug)]
pub(crate) struct NewNode {
    pub(crate) id: i32,
    pub(crate) done: oneshot::Sender<Result<(), AddNodeError>>,
}

impl Control {
    pub(crate) fn new(cluster: Arc<Cluster>, new_nodes: mpsc::UnboundedSender<NewNode>) -> Self {
        Self { cluster, new_nodes }
    }

    /// Carries out a request. A dropped wait has no effect; a request that changes something is carried out or not.
    pub async fn answer(&self, method: &str, path: &str, body: &[u8]) -> ControlAnswer {
        match self.route(method, path, body).await {
            Ok(body) => ControlAnswer { status: 200, body },
            Err(refusal) => ControlAnswer { status: refusal.status(), body: refusal.json() },
        }
    }

    /// Asks the owner of the listeners for a node, and waits until it listens.
    pub(crate) async fn add_node(&self, id: i32) -> Result<(), AddNodeError> {
        let (done, added) = oneshot::channel();
        let stopped = |_| AddNodeError::NoListener(id);
        self.new_nodes.send(NewNode { id, done }).map_err(|_| AddNodeError::NoListener(id))?;
        added.await.map_err(stopped)?
    }
}
