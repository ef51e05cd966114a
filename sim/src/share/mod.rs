//! A share group: its members accept, release, reject and renew the records of the ordinary topics, and die.
//!
//! ```text
//!   member --acknowledgements, confirmed--> ShareHistory <--acquired, acknowledged, released-- Witness in the broker
//! ```
//!
//! A record that a member has polled may have lost its lock meanwhile. So the history has the broker's side as well: the moment at
//! which a record was acquired decides, not the moment at which a member sees it.

mod history;
mod member;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_broker::{AnsweredRequest, RequestObserver, ShareEvent};
use ottla_client::{Admin, AlterOptions, ConfigChange, ConfigResource, TopicPartition};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) use self::history::ShareHistory;
pub(crate) use self::member::slow_handling_in_all;
use crate::host::Host;
use crate::options::Options;
use crate::world::World;

/// The group.
pub(crate) const SHARERS: &str = "sharers";
/// Time limit of a call of the admin client. It is repeated.
const CALL_WITHIN: Duration = Duration::from_secs(2);
/// Interval at which the start offsets are read after the faults.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The history, shared with the observer in the broker.
#[derive(Clone, Debug)]
pub(crate) struct SharedShareHistory(Arc<Mutex<ShareHistory>>);

impl SharedShareHistory {
    pub(crate) fn new(options: &Options) -> Self {
        let deliveries_max = i16::try_from(options.deliveries_max).unwrap_or(i16::MAX);
        let has_disk_faults = options.disk > 0 || options.disk_outage > 0;
        Self(Arc::new(Mutex::new(ShareHistory::new(deliveries_max, !has_disk_faults))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ShareHistory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The observer of the broker's side.
#[derive(Debug)]
pub(crate) struct Witness {
    pub(crate) history: SharedShareHistory,
    pub(crate) options: Options,
}

impl RequestObserver for Witness {
    fn on_answered(&self, _request: AnsweredRequest<'_>) {}

    fn on_share_event(&self, event: ShareEvent<'_>) {
        let slot = self.options.slot(event.topic, event.partition);
        self.history.lock().observe(Instant::now(), slot, event.member, event.kind);
    }
}

/// The members of a run.
#[derive(Debug)]
pub(crate) struct ShareLoad {
    tasks: JoinSet<()>,
    pub(crate) history: SharedShareHistory,
}

impl Options {
    /// Returns `true` if the run has a share group.
    pub(crate) fn has_share_group(&self) -> bool {
        self.sharers > 0
    }
}

impl ShareLoad {
    pub(crate) fn new(history: SharedShareHistory) -> Self {
        Self { tasks: JoinSet::new(), history }
    }

    /// Starts the members that the options name.
    pub(crate) fn start(&mut self, world: &World, seed: u64) {
        if !world.options.has_share_group() {
            return;
        }
        let configured = Rc::new(tokio::sync::Notify::new());
        for id in 0..world.options.sharers as u32 {
            let rng = World::rng(seed, 8, u64::from(id));
            let (world, history, configured) = (world.clone(), self.history.clone(), configured.clone());
            self.tasks.spawn_local(async move {
                configured.notified().await;
                // The next member.
                configured.notify_one();
                member::consume(world, history, id, rng).await;
            });
        }
        let rng = World::rng(seed, 9, 0);
        self.tasks.spawn_local(administer(world.clone(), self.history.clone(), configured, rng));
    }

    /// The partitions that the group has not completed.
    pub(crate) fn unfinished(&self, options: &Options, host: &Host) -> Vec<String> {
        if !options.has_share_group() {
            return Vec::new();
        }
        let history = self.history.lock();
        let unfinished = (0..options.slots()).filter_map(|slot| {
            let (start, end) = (history.start_of(slot), host.end_of(slot));
            (start < end).then(|| format!("the share group has completed {start} of {end} in slot {slot}"))
        });
        unfinished.collect()
    }

    /// Ends all clients.
    pub(crate) async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
    }
}

/// Lets the group begin at the first record, and reads its start offsets after the faults.
async fn administer(
    world: World,
    history: SharedShareHistory,
    configured: Rc<tokio::sync::Notify>,
    mut rng: fastrand::Rng,
) {
    let mut config = world.config();
    config.client_id = "share-admin".into();
    let (client, _tasks) = world.client(config, rng.u64(..)).expect("a sound configuration");
    let admin = client.admin();
    while !configure(&admin).await {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    world.trace.note(format_args!("the share group begins at the first record"));
    configured.notify_one();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if world.faults.get() {
            continue;
        }
        if let Some(starts) = starts(&admin).await {
            let slot =
                |(at, start): (TopicPartition, i64)| (world.options.slot(&at.topic, at.partition), start);
            let starts: BTreeMap<i32, i64> = starts.into_iter().map(slot).collect();
            world.trace.note(format_args!("share group: starts {starts:?}"));
            history.lock().set_starts(starts);
        }
    }
}

async fn configure(admin: &Admin) -> bool {
    let earliest = ("share.auto.offset.reset".to_owned(), ConfigChange::Set("earliest".into()));
    let changes = [(ConfigResource::group(SHARERS), vec![earliest])];
    let altering = admin.incremental_alter_configs(&changes, AlterOptions::default());
    let altered = tokio::time::timeout(CALL_WITHIN, altering).await;
    altered.is_ok_and(|altered| {
        altered.is_ok_and(|results| results.into_iter().all(|(_, result)| result.is_ok()))
    })
}

/// The start offsets, if all partitions report one or none.
async fn starts(admin: &Admin) -> Option<Vec<(TopicPartition, i64)>> {
    let listing = admin.list_share_group_offsets(SHARERS, None, ottla_client::Timeouts::within(CALL_WITHIN));
    let mut starts = Vec::new();
    for (at, offset) in listing.await.ok()? {
        starts.extend(offset.ok()?.map(|offset| (at, offset.start_offset)));
    }
    Some(starts)
}
