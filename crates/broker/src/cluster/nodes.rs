//! The nodes of a cluster: the brokers that clients see.

use std::ops::Index;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::cluster::client_addresses::ClientAddresses;
use crate::cluster::{Cluster, lock};
use crate::config::FIRST_NODE_ID;
use crate::fetch_sessions::{FetchSessions, SessionLimits};
use crate::partition::NO_LEADER;
use crate::switch::{Followers, Switch};
use crate::topics::Assignments;

/// One broker of the cluster.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: i32,
    /// The addresses that clients receive, by listener.
    addresses: Mutex<Vec<(String, u16)>>,
    /// The address that a test has set in place of the first listener's.
    instead: Mutex<Option<(String, u16)>>,
    pub(crate) up: Switch,
    /// False while a test has cut the node off: it accepts no connections, and stays leader of its partitions.
    pub(crate) reachable: Switch,
    /// Off while a test has paused the node.
    running: Switch,
    /// The listeners, which follow `up` and `reachable`.
    pub(crate) listeners: Followers,
    pub(crate) sessions: FetchSessions,
    pub(crate) connections: AtomicUsize,
    pub(crate) client_addresses: ClientAddresses,
    has_address: AtomicBool,
    /// True after a test has removed the node: it may be added again.
    removed: AtomicBool,
}

/// Nodes that a test may add while the cluster runs. Each has a slot from the start, so that a lookup takes no lock.
const ADDED_MAX: usize = 64;

/// The id of the first node in the journal: replicas and settings of nodes are stored as if the first node had it. So they belong
/// to the same nodes when `node.id` changes between two starts. Earlier versions had no other ids.
const STORED_FIRST_ID: i32 = 1;

/// The nodes of the start with consecutive ids, and the nodes that were added later.
#[derive(Debug)]
pub(crate) struct Nodes {
    first_id: i32,
    first: Vec<Node>,
    /// The first slots are set.
    added: Vec<OnceLock<Box<Node>>>,
    /// Held while a node is added.
    adding: Mutex<()>,
}

/// The reasons why a node cannot be added to a running cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AddNodeError {
    /// The cluster has the node.
    #[error("node {0} exists")]
    Exists(i32),
    /// The id is below 0.
    #[error("node id {0}: an id is 0 or above")]
    InvalidId(i32),
    /// No more nodes can be added.
    #[error("node {0}: {ADDED_MAX} nodes were added to this cluster, which is the maximum")]
    TooMany(i32),
    /// The node has no listener: its address is taken, or its broker has stopped.
    #[error("node {0} cannot listen")]
    NoListener(i32),
}

impl Nodes {
    pub(crate) fn new(first: Vec<Node>) -> Self {
        Self {
            first_id: first.first().map_or(FIRST_NODE_ID, |node| node.id),
            first,
            added: (0..ADDED_MAX).map(|_| OnceLock::new()).collect(),
            adding: Mutex::default(),
        }
    }

    /// The id of the first node of the start.
    pub(crate) const fn first_id(&self) -> i32 {
        self.first_id
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.first.iter().chain(self.added.iter().map_while(|slot| slot.get().map(|node| &**node)))
    }

    /// The number of nodes, with removed ones.
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    /// The node with that id, if it was not removed.
    fn get(&self, id: i32) -> Option<&Node> {
        self.find(id).filter(|node| !node.is_removed())
    }

    fn find(&self, id: i32) -> Option<&Node> {
        let at = id.checked_sub(self.first_id).and_then(|at| usize::try_from(at).ok());
        let first = at.and_then(|at| self.first.get(at));
        first.or_else(|| self.iter().skip(self.first.len()).find(|node| node.id == id))
    }

    /// Returns the node with that id; a new one is made by `node`.
    fn add(&self, id: i32, node: impl FnOnce() -> Node) -> Result<&Node, AddNodeError> {
        let _adding = lock(&self.adding);
        match self.find(id) {
            Some(node) if node.is_removed() => {
                node.removed.store(false, Ordering::Release);
                Ok(node)
            }
            Some(_) => Err(AddNodeError::Exists(id)),
            None if id < 0 => Err(AddNodeError::InvalidId(id)),
            None => {
                let free = self.added.iter().find(|slot| slot.get().is_none());
                Ok(free.ok_or(AddNodeError::TooMany(id))?.get_or_init(|| Box::new(node())))
            }
        }
    }
}

impl Index<usize> for Nodes {
    type Output = Node;

    fn index(&self, index: usize) -> &Node {
        match self.first.get(index) {
            Some(node) => node,
            None => self.added[index - self.first.len()].get().expect("an index below `len`"),
        }
    }
}

impl Node {
    /// A node that is up and has no address yet.
    pub(crate) fn new(id: i32, sessions: FetchSessions) -> Self {
        let up = Switch::default();
        Self {
            id,
            addresses: Mutex::new(vec![("127.0.0.1".into(), 0)]),
            instead: Mutex::default(),
            reachable: up.beside(),
            running: up.beside(),
            up,
            listeners: Followers::default(),
            sessions,
            connections: AtomicUsize::new(0),
            client_addresses: ClientAddresses::default(),
            has_address: AtomicBool::new(false),
            removed: AtomicBool::new(false),
        }
    }

    fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Returns `true` if a listener has set the node's address.
    pub(crate) fn has_address(&self) -> bool {
        self.has_address.load(Ordering::Acquire)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.is_on()
    }

    /// Takes the node up or down. Returns `false` if it was so before.
    pub(crate) fn turn(&self, up: bool) -> bool {
        if !self.up.turn(up) {
            return false;
        }
        // A new process knows none, and requests that are ending can have begun some.
        self.sessions.end_all();
        if !up {
            // It starts again as a new process would.
            self.set_paused(false);
        }
        true
    }

    /// Returns `true` if the node accepts connections.
    pub(crate) fn is_open(&self) -> bool {
        self.is_up() && self.reachable.is_on()
    }

    /// Returns the number of changes so far that listeners follow, for [`Node::turned_since`].
    pub(crate) fn flips(&self) -> u64 {
        self.up.flips() + self.reachable.flips()
    }

    /// Waits until the node is not as open as it was at `flips`, or is so again. Cancel safe.
    pub(crate) async fn turned_since(&self, flips: u64) {
        self.up.until(|| self.flips() != flips).await;
    }

    /// Pauses the node, or resumes it.
    pub(crate) fn set_paused(&self, paused: bool) {
        self.running.turn(!paused);
    }

    /// Returns `true` while a test has paused the node. One that is closed is not paused: it has no connections.
    pub(crate) fn is_paused(&self) -> bool {
        !self.running.is_on() && self.is_open()
    }

    /// Returns the number of beginnings and ends of pauses so far, for [`Node::changed_since`].
    pub(crate) fn pause_flips(&self) -> u64 {
        self.running.flips()
    }

    /// The same as [`Node::turned_since`], which ends also with the beginning or the end of a pause.
    pub(crate) async fn changed_since(&self, flips: u64, pause_flips: u64) {
        self.up.until(|| self.flips() != flips || self.pause_flips() != pause_flips).await;
    }

    /// Waits until the node is not paused. Cancel safe.
    pub(crate) async fn resumed(&self) {
        self.up.until(|| !self.is_paused()).await;
    }

    /// The address that clients of a listener connect to; the first listener's if the node does not have that one.
    pub(crate) fn address_at(&self, listener: usize) -> (String, u16) {
        let addresses = lock(&self.addresses);
        match addresses.get(listener).filter(|(_, port)| listener > 0 && *port != 0) {
            Some(own) => own.clone(),
            None => lock(&self.instead).clone().unwrap_or_else(|| addresses[0].clone()),
        }
    }

    /// The address that clients of the first listener connect to, as `host:port`.
    pub(crate) fn advertised(&self) -> String {
        self.advertised_at(0)
    }

    /// The address that clients of a listener connect to, as `host:port`.
    pub(crate) fn advertised_at(&self, listener: usize) -> String {
        let (host, port) = self.address_at(listener);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Sets the address that clients of the first listener connect to.
    pub(crate) fn advertise(&self, host: &str, port: u16) {
        self.advertise_at(0, host, port);
    }

    /// Sets the address that clients of the first listener connect to, for a test: until the node is removed.
    pub(crate) fn advertise_instead(&self, host: &str, port: u16) {
        *lock(&self.instead) = Some((host.to_owned(), port));
        self.has_address.store(true, Ordering::Release);
    }

    /// Sets the address that clients of a listener connect to.
    pub(crate) fn advertise_at(&self, listener: usize, host: &str, port: u16) {
        let mut addresses = lock(&self.addresses);
        if addresses.len() <= listener {
            addresses.resize(listener + 1, (String::new(), 0));
        }
        addresses[listener] = (host.to_owned(), port);
        self.has_address.store(true, Ordering::Release);
    }
}

impl Cluster {
    /// The node with that id.
    pub(crate) fn node(&self, id: i32) -> Option<&Node> {
        self.nodes.get(id)
    }

    /// The node with that id, also while it is removed: its listeners stay, for when it is added again.
    pub(crate) fn node_or_removed(&self, id: i32) -> Option<&Node> {
        self.nodes.find(id)
    }

    /// The rack of a node: the one that a test has set, or else that of `broker.rack`.
    pub(crate) fn rack(&self, node: i32) -> Option<String> {
        self.overrides.rack(node, self.config.rack_of(node))
    }

    /// The nodes that metadata lists: up, with an address, and not hidden by a test.
    pub(crate) fn nodes_up(&self) -> impl Iterator<Item = &Node> {
        let hidden = self.overrides.hidden();
        let hides_unreachable = self.overrides.hides_unreachable();
        let is_listed = move |node: &&Node| {
            node.is_up()
                && node.has_address()
                && (node.reachable.is_on() || !hides_unreachable)
                && !hidden.contains(&node.id)
        };
        self.nodes.iter().filter(is_listed)
    }

    /// The nodes of a rack that metadata lists.
    pub(crate) fn nodes_of_rack(&self, rack: &str) -> Vec<i32> {
        let is_in_rack = |node: &&Node| self.rack(node.id).is_some_and(|of_node| of_node == rack);
        self.nodes_up().filter(is_in_rack).map(|node| node.id).collect()
    }

    /// The nodes that have had an address, and are down.
    pub(crate) fn nodes_down(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| !node.is_up() && !node.is_removed() && node.has_address())
    }

    /// Ids of all nodes.
    pub(crate) fn node_ids(&self) -> impl Iterator<Item = i32> {
        self.nodes.iter().filter(|node| !node.is_removed()).map(|node| node.id)
    }

    /// The number of a node in the journal.
    pub(crate) fn stored_node(&self, id: i32) -> i32 {
        // It wraps for the largest ids, and so does the way back.
        id.wrapping_sub(self.nodes.first_id()).wrapping_add(STORED_FIRST_ID)
    }

    /// The node that has this number in the journal, whether it exists or not. `None` if no node can have the id.
    pub(crate) fn node_of_stored(&self, number: i32) -> Option<i32> {
        let id = number.wrapping_sub(STORED_FIRST_ID).wrapping_add(self.nodes.first_id());
        (id >= 0).then_some(id)
    }

    /// Replicas as the journal has them.
    pub(crate) fn stored_assignments(&self, assignments: &Assignments) -> Assignments {
        let stored = |ids: &[i32]| -> Vec<i32> { ids.iter().map(|id| self.stored_node(*id)).collect() };
        assignments.iter().map(|(partition, ids)| (*partition, stored(ids))).collect()
    }

    /// The replicas of the journal.
    pub(crate) fn assignments_of_stored(&self, stored: &Assignments) -> Assignments {
        let known = |numbers: &[i32]| -> Vec<i32> {
            numbers.iter().filter_map(|number| self.node_of_stored(*number)).collect()
        };
        let all = stored.iter().map(|(partition, numbers)| (*partition, known(numbers)));
        all.filter(|(_, ids)| !ids.is_empty()).collect()
    }

    /// Adds a node without a listener, or a removed one again. The node is up and reachable, and leads its preferred partitions.
    pub(crate) fn add_node(&self, id: i32) -> Result<&Node, AddNodeError> {
        let node = self.nodes.add(id, || {
            let sessions = FetchSessions::new(SessionLimits::of(&self.config), lock(&self.rng).fork());
            Node::new(id, sessions)
        })?;
        let _leaders = lock(&self.leader_changes);
        node.sessions.end_all();
        node.up.turn(true);
        node.reachable.turn(true);
        self.lead_preferred(id);
        Ok(node)
    }

    /// Takes a node down for good; only [`Cluster::add_node`] returns it. Its partitions are led by another replica, or else by the next
    /// node that is up. `false` if there is no such node.
    pub(crate) fn remove_node(&self, id: i32) -> bool {
        let Some(node) = self.node(id) else { return false };
        let _leaders = lock(&self.leader_changes);
        node.turn(false);
        *lock(&node.instead) = None;
        node.removed.store(true, Ordering::Release);
        self.lead_without(id);
        true
    }

    /// Adds and removes nodes until there are these, each without a listener. The partitions have leaders as if they were opened then.
    pub(crate) fn set_nodes(&self, wanted: &[i32]) {
        let surplus: Vec<i32> = self.node_ids().filter(|id| !wanted.contains(id)).collect();
        for id in wanted.iter().filter(|id| self.node(**id).is_none()) {
            if let Err(error) = self.add_node(*id) {
                tracing::warn!(%error, node = id, "a node of the snapshot is missing");
            }
        }
        for id in surplus {
            self.remove_node(id);
        }
        self.lead_as_opened();
    }

    /// The node that answers for the cluster's metadata, or the id that a test has set.
    pub(crate) fn controller(&self) -> i32 {
        let first = || self.nodes.iter().find(|node| node.is_up()).map_or(NO_LEADER, |node| node.id);
        self.overrides.controller().unwrap_or_else(first)
    }

    pub(crate) fn is_node_up(&self, id: i32) -> bool {
        self.node(id).is_some_and(Node::is_up)
    }

    /// Returns `true` if the cluster has the node, and it is not up.
    pub(crate) fn is_node_down(&self, id: i32) -> bool {
        self.node(id).is_some_and(|node| !node.is_up())
    }
}
