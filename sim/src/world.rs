//! The state that all clients of a run share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_client::{Client, Config, Error};
use ottla_testkit::{Network, Trace};
use tokio::task::JoinSet;

use crate::checker::History;
use crate::options::Options;

/// The state that all clients share. Clones are the same world.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) options: Rc<Options>,
    pub(crate) net: Network,
    pub(crate) trace: Trace,
    pub(crate) history: Rc<RefCell<History>>,
    /// `true` while clients may be crashed.
    pub(crate) faults: Rc<Cell<bool>>,
    /// Clients check no checksums: for the proof that the checker finds damage.
    pub(crate) unchecked: bool,
}

impl World {
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new("node-1:9092,node-2:9092");
        config.socket_timeout = Duration::from_secs(2);
        config.socket_connection_setup_timeout = Duration::from_secs(1);
        config.metadata_max_age = Duration::from_secs(5);
        config.check_crcs = !self.unchecked;
        config
    }

    /// A client whose engine is a task of the returned set. Dropping the set is a crash.
    pub(crate) fn client(&self, config: Config, seed: u64) -> Result<(Client, JoinSet<()>), Error> {
        let (client, engine) = Client::with_engine(config, Arc::new(self.net.clone()), seed)?;
        let mut tasks = JoinSet::new();
        tasks.spawn_local(async move {
            let _ = engine.run().await;
        });
        Ok((client, tasks))
    }

    /// A random stream of its own for each client: options that concern other clients do not change it.
    pub(crate) fn rng(seed: u64, role: u64, id: u64) -> fastrand::Rng {
        let mut rng = fastrand::Rng::with_seed(seed ^ (role << 40) ^ (id << 48));
        rng.fork()
    }
}
