//! A consumer's tasks in the engine: what to fetch, the group's membership, and commits.

mod application;
pub(crate) mod assignor;
mod classic;
pub(crate) mod commit;
pub(crate) mod coordinator;
mod heart;
mod membership;
mod next_gen;
pub(crate) mod polls;
mod standing;
mod started;
pub(crate) mod subscription;
mod watch;
mod wire;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::application::Told;
use self::commit::{commit_offsets, fetch_committed};
use self::coordinator::Coordinator;
use self::membership::Membership;
use self::polls::Polls;
use self::standing::{Standing, Step};
use crate::cluster::Cluster;
use crate::config::{OffsetReset, Rebalance};
use crate::consumer::offsets::not_assigned;
use crate::consumer::{Change, Control, OffsetAndMetadata, TopicPartition};
use crate::error::Error;
use crate::fetch::cursor::{Position, StartAt};
use crate::fetch::cursors::Cursors;
use crate::fetch::fetcher::{Fetcher, reset_to};
use crate::fetch::inbox::{Inbox, Item};
use crate::fetch::offset_files::OffsetFiles;
use crate::fetch::place::Place;
use crate::log::Context;
use crate::stats::wanted::AutoCommitted;
use crate::transaction::GroupMetadata;

/// What the tasks of one consumer share.
pub(crate) struct Shared {
    pub(crate) cluster: Rc<Cluster>,
    pub(crate) cursors: Rc<Cursors>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) polls: Arc<Polls>,
    /// None without a `group.id`.
    pub(crate) coordinator: Option<Coordinator>,
    /// Where offsets are kept instead of with the coordinator.
    pub(crate) files: Option<OffsetFiles>,
    standing: Standing,
    /// What the group gave this member, where the application decides what of it is fetched.
    given: RefCell<BTreeSet<TopicPartition>>,
    /// What was started one by one, and whether it commits by itself.
    started: RefCell<BTreeMap<TopicPartition, bool>>,
}

impl Shared {
    /// Fetches these partitions too, each from where it says. What is fetched of others is untouched; one that is
    /// assigned already goes on as it is.
    pub(crate) fn add_partitions(&self, partitions: &[(TopicPartition, StartAt)]) {
        let mut table = self.cursors.table();
        for (at, start) in partitions {
            if table.slot(at).is_none() {
                let place = Arc::new(Place::new(at.clone()));
                let slot = table.add(place.clone(), *start);
                self.inbox.open(slot, place);
                self.cluster.want(&at.topic);
            }
        }
        self.count(table.len());
    }

    /// Fetches these no more and throws away what was fetched of them. Until they are removed, what is done of them
    /// can be committed.
    pub(crate) fn stop_partitions(&self, partitions: &[TopicPartition]) {
        for at in partitions {
            let slot = self.cursors.update(at, |cursor| {
                cursor.place.next_turn();
                cursor.position = Position::Failed;
                cursor.slot
            });
            if let Some(slot) = slot {
                self.inbox.purge(slot);
            }
        }
    }

    /// The membership's next step.
    fn step(&self, step: Step) {
        self.standing.step(step, self.coordinator.as_ref());
    }

    /// These are no longer this consumer's: what was fetched is thrown away, late answers are dropped, and so is
    /// progress that the application reports from now on.
    pub(crate) fn remove_partitions(&self, partitions: &[TopicPartition]) {
        let mut table = self.cursors.table();
        for at in partitions {
            if let Some(slot) = table.slot(at) {
                table.remove(slot);
                self.inbox.close(slot);
            }
            self.started.borrow_mut().remove(at);
        }
        self.count(table.len());
    }

    /// Replaces what is fetched: everything that was is removed, and everything that will be begins anew.
    pub(crate) fn replace_assignment(&self, partitions: &[(TopicPartition, StartAt)]) {
        self.remove_partitions(&self.assigned());
        self.add_partitions(partitions);
    }

    /// What is assigned, in order.
    pub(crate) fn assigned(&self) -> Vec<TopicPartition> {
        self.inbox.places().iter().map(|place| place.at.clone()).collect()
    }

    /// What the group gave this member.
    pub(crate) fn owned(&self) -> Vec<TopicPartition> {
        match self.cluster.config.rebalance {
            Rebalance::Application => self.given.borrow().iter().cloned().collect(),
            _ => self.assigned(),
        }
    }

    fn own(&self, partitions: &[TopicPartition]) {
        self.given.borrow_mut().extend(partitions.iter().cloned());
    }

    fn disown(&self, partitions: &[TopicPartition]) {
        self.given.borrow_mut().retain(|at| !partitions.contains(at));
    }

    /// What is done and not committed, of everything that is assigned.
    pub(crate) fn uncommitted(&self) -> BTreeMap<TopicPartition, OffsetAndMetadata> {
        let places = self.inbox.places();
        places.iter().filter_map(|place| Some((place.at.clone(), place.uncommitted()?))).collect()
    }

    /// These offsets are committed.
    pub(crate) fn committed(&self, offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>) {
        for (at, offset) in offsets {
            if let Some(place) = self.inbox.place(at) {
                place.set_committed(offset.offset);
            }
        }
    }

    fn count(&self, partitions: usize) {
        self.cluster.observer.assigned(self.cluster.config.group_id.as_deref(), partitions);
        self.cursors.changed.notify_one();
    }

    /// Turns `StartAt::Committed` into the committed offset, or into what `auto.offset.reset` says.
    pub(crate) async fn start_at_committed(
        &self,
        partitions: Vec<TopicPartition>,
    ) -> Result<Vec<(TopicPartition, StartAt)>, Error> {
        let config = &self.cluster.config;
        let own = |at: &TopicPartition| self.inbox.place(at).map(|place| place.reset(config));
        self.start_at_committed_or(partitions, |at| own(at).unwrap_or(config.offset_reset)).await
    }

    /// The same, where something else says where to start without a committed offset.
    async fn start_at_committed_or(
        &self,
        partitions: Vec<TopicPartition>,
        reset: impl Fn(&TopicPartition) -> OffsetReset,
    ) -> Result<Vec<(TopicPartition, StartAt)>, Error> {
        let committed = self.committed_offsets(&partitions).await?;
        Ok(partitions
            .into_iter()
            .map(|at| {
                let start = match committed.get(&at) {
                    None => reset_to(reset(&at), &self.cluster.config),
                    Some(OffsetAndMetadata { offset, leader_epoch: None, .. }) => StartAt::Offset(*offset),
                    Some(OffsetAndMetadata { offset, leader_epoch: Some(epoch), .. }) => {
                        StartAt::OffsetInEpoch { offset: *offset, leader_epoch: *epoch }
                    }
                };
                (at, start)
            })
            .collect())
    }

    /// What is committed of these partitions, wherever that is kept.
    async fn committed_offsets(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, OffsetAndMetadata>, Error> {
        if let Some(files) = &self.files {
            let read = |at: &TopicPartition| Some((at.clone(), files.read(at).transpose()?));
            return partitions.iter().filter_map(read).map(|(at, offset)| Ok((at, offset?.into()))).collect();
        }
        let Some(coordinator) = &self.coordinator else {
            return Err(Error::Config("committed offsets need group.id".into()));
        };
        fetch_committed(coordinator, Some(partitions), self.cluster.config.isolation).await
    }

    /// Whether there is anywhere to commit to.
    fn can_commit(&self) -> bool {
        self.coordinator.is_some() || self.files.is_some()
    }
}

/// Serves one consumer until it is closed or dropped.
pub(crate) async fn run(
    cluster: Rc<Cluster>,
    inbox: Arc<Inbox>,
    polls: Arc<Polls>,
    mut control: mpsc::UnboundedReceiver<Control>,
) {
    let cursors = Rc::new(Cursors::default());
    let coordinator = cluster.config.group_id.clone().map(|group| Coordinator::new(cluster.clone(), group));
    let files = OffsetFiles::of(&cluster.config);
    let shared = Rc::new(Shared {
        cluster: cluster.clone(),
        cursors: cursors.clone(),
        inbox,
        polls,
        coordinator,
        files,
        standing: Standing::new(Instant::now()),
        given: RefCell::default(),
        started: RefCell::default(),
    });
    let mut tasks = JoinSet::new();
    tasks.spawn_local(Fetcher::run(cluster.clone(), cursors, shared.inbox.clone()));
    tasks.spawn_local(watch::run(shared.clone()));
    let mut membership: Option<Membership> = None;
    let mut commit_at = Instant::now() + cluster.config.auto_commit_interval;
    // One automatic commit at a time: while the coordinator does not answer they must not pile up and be sent all at once.
    let is_committing = Rc::new(Cell::new(false));

    loop {
        tokio::select! {
            biased;
            command = control.recv() => match command {
                Some(Control::Close(timeout, done)) => {
                    let _ = done.send(leave(&shared, membership.take(), timeout).await);
                    return;
                }
                Some(command) => on_control(&shared, &mut membership, &mut tasks, command).await,
                // The consumer was dropped without close: the session runs out by itself.
                None => return,
            },
            Some(_) = tasks.join_next() => {}
            () = tokio::time::sleep_until(commit_at), if cluster.config.auto_commit && shared.can_commit() => {
                commit_at = Instant::now() + cluster.config.auto_commit_interval;
                if is_committing.replace(true) {
                    continue;
                }
                let (shared, is_committing) = (shared.clone(), is_committing.clone());
                tasks.spawn_local(async move {
                    if let Err(error) = commit_automatically(&shared, false).await {
                        tracing::debug!(%error, "auto commit");
                    }
                    is_committing.set(false);
                });
            }
        }
    }
}

async fn on_control(
    shared: &Rc<Shared>,
    membership: &mut Option<Membership>,
    tasks: &mut JoinSet<()>,
    command: Control,
) {
    let tell =
        |text: &dyn Fn() -> String| shared.cluster.observer.log.debug(Context::Consumer, "CONSUMER", text);
    match command {
        Control::Assign(change, partitions, done)
            if shared.cluster.config.rebalance == Rebalance::Application =>
        {
            tell(&|| format!("{change:?}: {} partition(s)", partitions.len()));
            let _ = done.send(change_assignment(shared, tasks, change, partitions).await);
            if let Some(membership) = membership {
                membership.tell(Told::Answered);
            }
        }
        Control::Assign(Change::Add | Change::Remove, _, done) => {
            let reason = "the consumer keeps the assignment itself: see Config::rebalance";
            let _ = done.send(Err(Error::Config(format!("incremental assignment: {reason}"))));
        }
        Control::Assign(Change::Replace, partitions, done) => {
            tell(&|| format!("assign: {} partition(s)", partitions.len()));
            if let Some(membership) = membership.take() {
                membership.leave(shared.cluster.config.request_timeout).await;
            }
            let _ = done.send(assign(shared, partitions).await);
        }
        Control::Subscribe(subscription, done) => {
            tell(&|| format!("subscribe: {subscription:?}"));
            if membership.as_mut().is_some_and(|membership| !membership.is_alive()) {
                *membership = None;
            }
            if let Some(membership) = membership {
                membership.tell(Told::Subscribed(subscription));
            } else {
                shared.replace_assignment(&[]);
                *membership = Some(Membership::start(shared.clone(), subscription));
            }
            let _ = done.send(Ok(()));
        }
        Control::Start(at, from, own, done) => {
            let _ = done.send(match membership {
                Some(_) => Err(assigned_by_group("start")),
                None => started::start(shared, tasks, at, from, own).await,
            });
        }
        Control::Stop(at, done) => {
            let _ = done.send(match membership {
                Some(_) => Err(assigned_by_group("stop")),
                None => started::stop(shared, at).await,
            });
        }
        Control::Unsubscribe(timeout, done) => {
            let _ = done.send(leave(shared, membership.take(), timeout).await);
            shared.replace_assignment(&[]);
        }
        Control::Seek(at, to, done) => {
            tell(&|| format!("seek: {at} to {to:?}"));
            let slot = shared.cursors.update(&at, |cursor| {
                cursor.seek(to);
                cursor.slot
            });
            if let Some(slot) = slot {
                shared.inbox.purge(slot);
            }
            let result = slot.map(|_| ()).ok_or_else(|| not_assigned(&at));
            if result.is_ok() && to == StartAt::Committed {
                tasks.spawn_local(start_where_left_off(shared.clone(), vec![at]));
            }
            let _ = done.send(result);
        }
        Control::Pause(partitions, paused) => {
            tell(&|| {
                format!("{}: {} partition(s)", if paused { "pause" } else { "resume" }, partitions.len())
            });
            for at in partitions {
                shared.cursors.update(&at, |cursor| cursor.paused = paused);
            }
        }
        Control::Commit(done) => {
            let shared = shared.clone();
            tasks.spawn_local(async move {
                let _ = done.send(commit_done(&shared).await);
            });
        }
        Control::CommitOffsets(offsets, done) => {
            let taken_back = |at: &&TopicPartition| shared.inbox.place(at).is_none();
            // Whoever is in no group may commit what they like.
            if membership.is_some()
                && let Some(at) = offsets.keys().find(taken_back)
            {
                let _ = done.send(Err(not_assigned(at)));
                return;
            }
            let shared = shared.clone();
            tasks.spawn_local(async move {
                let _ = done.send(commit(&shared, &offsets).await);
            });
        }
        Control::GroupMetadata(done) => {
            let metadata = match &shared.coordinator {
                Some(coordinator) => {
                    let mut metadata = GroupMetadata::new(coordinator.group());
                    let identity = coordinator.identity();
                    metadata.generation = identity.epoch.unwrap_or(-1);
                    metadata.member_id.clone_from(&identity.member_id);
                    metadata.instance_id = identity.instance_id.clone().filter(|_| membership.is_some());
                    Ok(metadata)
                }
                None => Err(Error::Config("group metadata needs group.id".into())),
            };
            let _ = done.send(metadata);
        }
        Control::Committed(partitions, done) => {
            let shared = shared.clone();
            tasks.spawn_local(async move {
                let committed = shared.committed_offsets(&partitions).await;
                let offset = |(at, found): (TopicPartition, OffsetAndMetadata)| (at, found.offset);
                let _ = done.send(committed.map(|found| found.into_iter().map(offset).collect()));
            });
        }
        Control::CommittedOffsets(partitions, done) => {
            let shared = shared.clone();
            tasks.spawn_local(async move {
                let _ = done.send(shared.committed_offsets(&partitions).await);
            });
        }
        Control::RevokeSeen if shared.cluster.config.rebalance == Rebalance::Application => {}
        Control::RevokeSeen => {
            if let Some(membership) = membership {
                membership.tell(Told::Answered);
            }
        }
        Control::Close(_, done) => drop(done),
    }
}

async fn assign(shared: &Shared, partitions: Vec<(TopicPartition, StartAt)>) -> Result<(), Error> {
    let (committed, mut fixed): (Vec<_>, Vec<_>) =
        partitions.into_iter().partition(|(_, start)| *start == StartAt::Committed);
    if !committed.is_empty() {
        fixed.extend(shared.start_at_committed(committed.into_iter().map(|(at, _)| at).collect()).await?);
    }
    shared.replace_assignment(&fixed);
    Ok(())
}

/// Does what the application says to do with the assignment. What it gives up is committed first, if commits are
/// automatic; from where a partition begins that goes on where the group left off is found out later.
async fn change_assignment(
    shared: &Rc<Shared>,
    tasks: &mut JoinSet<()>,
    change: Change,
    partitions: Vec<(TopicPartition, StartAt)>,
) -> Result<(), Error> {
    let named: Vec<_> = partitions.iter().map(|(at, _)| at.clone()).collect();
    let gone = match change {
        Change::Replace => shared.assigned(),
        Change::Remove => named.clone(),
        Change::Add => Vec::new(),
    };
    if shared.cluster.config.auto_commit && shared.can_commit() {
        let mut offsets = shared.uncommitted();
        offsets.retain(|at, _| gone.contains(at));
        if let Err(error) = commit_unasked(shared, &offsets).await {
            tracing::debug!(%error, "commit before giving partitions up");
        }
    }
    shared.remove_partitions(&gone);
    if change == Change::Remove {
        return Ok(());
    }
    let known = shared.assigned();
    if let Some(at) = named.iter().find(|at| known.contains(at)) {
        return Err(Error::Config(format!("incremental_assign: {at} is assigned already")));
    }
    shared.add_partitions(&partitions);
    let left_off = |(at, start): (TopicPartition, StartAt)| (start == StartAt::Committed).then_some(at);
    let pending: Vec<_> = partitions.into_iter().filter_map(left_off).collect();
    if !pending.is_empty() {
        tasks.spawn_local(start_where_left_off(shared.clone(), pending));
    }
    Ok(())
}

/// Finds out where the group left off, for as long as it takes, and begins there.
async fn start_where_left_off(shared: Rc<Shared>, mut pending: Vec<TopicPartition>) {
    loop {
        pending.retain(|at| {
            shared.cursors.update(at, |cursor| cursor.position == Position::Unresolved(StartAt::Committed))
                == Some(true)
        });
        if pending.is_empty() {
            return;
        }
        match shared.start_at_committed(pending.clone()).await {
            Ok(starts) => {
                for (at, start) in starts {
                    shared.cursors.update(&at, |cursor| {
                        if cursor.position == Position::Unresolved(StartAt::Committed) {
                            cursor.seek(start);
                        }
                    });
                }
                return;
            }
            Err(error) if error.is_retriable() => {}
            Err(error) => shared.inbox.push(Item::Error(error)),
        }
        tokio::time::sleep(shared.cluster.config.retry_backoff.max(Duration::from_millis(100))).await;
    }
}

fn assigned_by_group(what: &str) -> Error {
    Error::Config(format!("{what}: the group assigns the partitions; assign() ends that"))
}

/// Commits as the member that this consumer is, and refuses for one that is in no generation.
async fn commit_as_member(
    shared: &Shared,
    coordinator: &Coordinator,
    offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>,
) -> Result<(), Error> {
    let deadline = Instant::now() + coordinator.request_timeout();
    loop {
        let committed = commit_offsets(coordinator, offsets, coordinator.member()?).await;
        // In KIP-848's protocol the epoch may have moved on since; the next heartbeat brings the new one. Under that one
        // only what is still owned may be committed: the coordinator does not look.
        let is_stale = matches!(&committed, Err(Error::Broker { code: ErrorCode::StaleMemberEpoch, .. }));
        let owned = || offsets.keys().all(|at| shared.inbox.place(at).is_some());
        if is_stale && owned() && Instant::now() < deadline {
            tokio::time::sleep(shared.cluster.config.retry_backoff).await;
            continue;
        }
        committed?;
        shared.committed(offsets);
        return Ok(());
    }
}

/// Commits what is done and was not committed yet, of all that commits by itself; what is started one by one may have its
/// own interval for that, and with `all` is committed too.
async fn commit_automatically(shared: &Shared, all: bool) -> Result<(), Error> {
    commit_unasked(shared, &automatic(shared, all)).await
}

fn automatic(shared: &Shared, all: bool) -> BTreeMap<TopicPartition, OffsetAndMetadata> {
    let started = shared.started.borrow();
    let mut offsets = shared.uncommitted();
    offsets.retain(|at, _| match started.get(at) {
        Some(commits) => all && *commits,
        None => shared.cluster.config.auto_commit,
    });
    offsets
}

/// Commits what is done and was not committed yet.
async fn commit_done(shared: &Shared) -> Result<(), Error> {
    commit(shared, &shared.uncommitted()).await
}

async fn commit(shared: &Shared, offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>) -> Result<(), Error> {
    if let Some(files) = &shared.files {
        for (at, offset) in offsets {
            files.write(at, offset.offset)?;
        }
        shared.committed(offsets);
        return Ok(());
    }
    let Some(coordinator) = &shared.coordinator else {
        return Err(Error::Config("commit needs group.id".into()));
    };
    if !offsets.is_empty() {
        commit_as_member(shared, coordinator, offsets).await?;
    }
    Ok(())
}

/// Commits what nobody asked to be committed, and tells whoever wants to know.
async fn commit_unasked(
    shared: &Shared,
    offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>,
) -> Result<(), Error> {
    if offsets.is_empty() {
        return Ok(());
    }
    let result = commit(shared, offsets).await;
    shared.cluster.observer.auto_commits.push_if_wanted(|| {
        let offsets = offsets.iter().map(|(at, offset)| (at.clone(), offset.clone())).collect();
        Some(AutoCommitted { offsets, result: result.clone() })
    });
    result
}

/// Commits what is done if that is automatic, and leaves the group: each in half of the time at most.
async fn leave(shared: &Shared, membership: Option<Membership>, timeout: Duration) -> Result<(), Error> {
    let mut result = Ok(());
    if shared.can_commit() && !automatic(shared, true).is_empty() {
        let committing = tokio::time::timeout(timeout / 2, commit_automatically(shared, true)).await;
        result = committing.unwrap_or_else(|_| {
            let waited_ms = (timeout / 2).as_millis();
            Err(Error::TimedOut { what: "the commit before leaving the group".into(), waited_ms })
        });
    }
    if let Some(membership) = membership {
        membership.leave(timeout / 2).await;
    }
    result
}
