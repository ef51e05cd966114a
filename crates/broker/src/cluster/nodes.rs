//! The nodes of a cluster: the brokers that clients see.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::cluster::{Cluster, lock};
use crate::fetch_sessions::FetchSessions;
use crate::partition::NO_LEADER;
use crate::switch::Switch;

/// One broker of the cluster.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: i32,
    /// The address that clients receive.
    address: Mutex<(String, u16)>,
    pub(crate) up: Switch,
    /// True while the node accepts connections; an unreachable node stays leader of its partitions.
    pub(crate) reachable: Switch,
    pub(crate) sessions: FetchSessions,
    pub(crate) connections: AtomicUsize,
    has_address: AtomicBool,
}

impl Node {
    /// A node that is up and has no address yet.
    pub(crate) fn new(id: i32, sessions: FetchSessions) -> Self {
        Self {
            id,
            address: Mutex::new(("127.0.0.1".into(), 0)),
            up: Switch::default(),
            reachable: Switch::default(),
            sessions,
            connections: AtomicUsize::new(0),
            has_address: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.is_on()
    }

    /// The address that clients connect to.
    pub(crate) fn address(&self) -> (String, u16) {
        lock(&self.address).clone()
    }

    /// Sets the address that clients connect to.
    pub(crate) fn advertise(&self, host: &str, port: u16) {
        *lock(&self.address) = (host.to_owned(), port);
        self.has_address.store(true, Ordering::Release);
    }
}

impl Cluster {
    /// The node with that id.
    pub(crate) fn node(&self, id: i32) -> Option<&Node> {
        self.nodes.get(usize::try_from(id).ok()?.checked_sub(1)?)
    }

    /// The nodes that metadata lists: up, with an address, and not hidden by a test.
    pub(crate) fn nodes_up(&self) -> impl Iterator<Item = &Node> {
        let hidden = self.overrides.hidden();
        let known = |node: &&Node| node.is_up() && node.has_address.load(Ordering::Acquire);
        self.nodes.iter().filter(known).filter(move |node| !hidden.contains(&node.id))
    }

    /// Ids of all nodes, 1 and up.
    pub(crate) fn node_ids(&self) -> impl Iterator<Item = i32> + use<> {
        1..=self.nodes.len() as i32
    }

    /// The node that answers for the cluster's metadata.
    pub(crate) fn controller(&self) -> i32 {
        let first = self.nodes.iter().find(|node| node.is_up()).map_or(NO_LEADER, |node| node.id);
        self.overrides.controller().filter(|id| self.is_node_up(*id)).unwrap_or(first)
    }

    pub(crate) fn is_node_up(&self, id: i32) -> bool {
        self.node(id).is_some_and(Node::is_up)
    }
}
