//! The tasks of a consumer in the engine: assignment, group membership and commits.

mod application;
mod classic;
pub(crate) mod commands;
pub(crate) mod commit;
mod control;
pub(crate) mod coordinator;
mod first_join;
mod heartbeat;
mod leaving;
mod member_commit;
pub(crate) mod membership;
pub(crate) mod membership_status;
mod next_gen;
pub(crate) mod poll_activity;
mod standalone_partitions;
pub(crate) mod subscription;
mod unapplied_target;
mod unavailable_topics;
mod watch;
mod wire;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::commands::{ConsumerCommand, RefusedOffsets};
use self::commit::fetch_committed;
use self::control::on_control;
use self::coordinator::Coordinator;
use self::heartbeat::CommitRefusals;
use self::member_commit::{AwaitedCommits, CommitClaim, commit_as_member};
use self::membership::{LeavingFor, Membership};
use self::membership_status::{MembershipStatus, MembershipStep};
use self::poll_activity::PollActivity;
use self::unavailable_topics::UnavailableTopics;
use crate::cluster::Cluster;
use crate::config::{GroupHabits, OffsetReset, Rebalance};
use crate::error::Error;
use crate::fetch::cursor::Position;
use crate::fetch::cursors::Cursors;
use crate::fetch::fetcher::{Fetcher, reset_to};
use crate::fetch::inbox::{Inbox, Item};
use crate::fetch::offset_files::OffsetFiles;
use crate::fetch::progress::PartitionProgress;
use crate::stats::Observer;
use crate::stats::events::AutoCommitEvent;
use crate::stats::topics::OffsetSource;

use crate::types::{OffsetAndMetadata, StartAt, TopicPartition};

type Offsets = BTreeMap<TopicPartition, OffsetAndMetadata>;

/// The state that the tasks of one consumer share.
pub(crate) struct Shared {
    pub(crate) cluster: Rc<Cluster>,
    pub(crate) cursors: Rc<Cursors>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) polls: Arc<PollActivity>,
    /// `None` without a `group.id`.
    pub(crate) coordinator: Option<Coordinator>,
    /// The files that store offsets in place of the coordinator.
    files: Option<Rc<OffsetFiles>>,
    status: MembershipStatus,
    /// The partitions assigned by the group, if the application may change the assignment of a member.
    given: RefCell<BTreeSet<TopicPartition>>,
    /// The number of times that the group has taken partitions from this member.
    releases: Cell<u64>,
    /// The partitions of a revocation that the application has not answered.
    revoking: RefCell<Vec<TopicPartition>>,
    /// The lost partitions that the application has not given up: other members may own them.
    lost: RefCell<BTreeSet<TopicPartition>>,
    /// The epoch and the member id of the last assignment, and of the last one that was lost.
    assigned_as: RefCell<Option<(i32, String)>>,
    lost_as: RefCell<Option<(i32, String)>>,
    /// The partitions that were started one by one.
    standalone: RefCell<BTreeMap<TopicPartition, StandaloneCommits>>,
    unavailable: UnavailableTopics,
    commit_refusals: CommitRefusals,
    /// Commits are sent one after the other, in the order of their calls.
    commit_order: tokio::sync::Mutex<()>,
    awaited_commits: AwaitedCommits,
}

/// The commits of a partition that was started alone, by the settings of its topic.
struct StandaloneCommits {
    automatic: bool,
    /// The files of its topic; `None` commits to the coordinator.
    files: Option<Rc<OffsetFiles>>,
}

impl Shared {
    fn new(cluster: Rc<Cluster>, inbox: Arc<Inbox>, polls: Arc<PollActivity>) -> Self {
        let group = cluster.config.group_id.clone();
        Self {
            cursors: Rc::new(Cursors::default()),
            inbox,
            polls,
            coordinator: group.map(|group| Coordinator::new(cluster.clone(), group)),
            files: OffsetFiles::of(&cluster.config, &cluster.observer).map(Rc::new),
            status: MembershipStatus::new(Instant::now()),
            given: RefCell::default(),
            releases: Cell::new(0),
            revoking: RefCell::default(),
            lost: RefCell::default(),
            assigned_as: RefCell::default(),
            lost_as: RefCell::default(),
            standalone: RefCell::default(),
            unavailable: UnavailableTopics::default(),
            commit_refusals: CommitRefusals::default(),
            commit_order: tokio::sync::Mutex::default(),
            awaited_commits: AwaitedCommits::new(),
            cluster,
        }
    }

    /// Records the identity under which the group assigns partitions.
    fn note_assignment(&self) {
        let member = self.coordinator.as_ref().and_then(|coordinator| coordinator.member().ok().flatten());
        if member.is_some() {
            *self.assigned_as.borrow_mut() = member;
        }
    }

    /// Records that the assignment is lost.
    fn note_loss(&self) {
        self.lost_as.borrow_mut().clone_from(&self.assigned_as.borrow());
    }

    /// The earlier identity under which the application acts: it has not seen the loss of its partitions, or the member is in
    /// no generation. The coordinator refuses offsets of that identity. With the next one, or with none, offsets of
    /// records from the lost assignment would be accepted, although its records may be handled again.
    fn acting_as(&self, coordinator: &Coordinator) -> Option<(i32, String)> {
        if self.inbox.has_unseen_losses() {
            return self.lost_as.borrow().clone();
        }
        // The error means that the member is in no generation. Without a membership nothing is fenced.
        coordinator.member().is_err().then(|| self.assigned_as.borrow().clone()).flatten()
    }

    /// Returns the progress of a partition that the consumer owns, as far as it knows.
    ///
    /// A partition that was lost and assigned again is another owner's until the application has seen the loss: its offsets
    /// are those of the earlier assignment, and others may have committed later ones since.
    fn owned_progress(&self, at: &TopicPartition) -> Option<Arc<PartitionProgress>> {
        let is_lost = self.lost.borrow().contains(at) || self.inbox.has_unseen_loss(at);
        self.inbox.progress(at).filter(|_| !is_lost)
    }

    /// Adds partitions to the assignment, each with its start position. Partitions that are already assigned keep
    /// their position.
    pub(crate) fn add_partitions(&self, partitions: &[(TopicPartition, StartAt)]) {
        let mut table = self.cursors.table();
        for (at, start) in partitions {
            if table.slot(at).is_none() {
                let progress = Arc::new(PartitionProgress::new(at.clone()));
                let offsets: Arc<dyn OffsetSource> = progress.clone();
                self.cluster.observer.follow(at, Arc::downgrade(&offsets));
                let slot = table.add(progress.clone(), *start);
                if self.inbox.open(slot, progress)
                    && let Some(cursor) = table.get_mut(slot)
                {
                    cursor.set_paused(true);
                }
                self.cluster.want(&at.topic);
            }
        }
        self.count(table.len());
    }

    /// Stops fetching these partitions and discards their fetched records. Processed offsets can be committed until
    /// the partitions are removed.
    pub(crate) fn stop_partitions(&self, partitions: &[TopicPartition]) {
        for at in partitions {
            let stopped = self.cursors.update(at, |cursor| {
                let position = cursor.progress.position();
                cursor.progress.next_generation();
                cursor.position = Position::Failed;
                cursor.is_released = true;
                (cursor.slot, cursor.progress.clone(), position)
            });
            if let Some((slot, progress, position)) = stopped {
                self.inbox.purge(slot);
                // The application may still ask for it, until it removes the partition.
                if let Some(position) = position {
                    progress.set_position(position);
                }
            }
        }
    }

    /// Enters the membership's next step.
    fn step(&self, step: MembershipStep) {
        self.status.step(step, self.coordinator.as_ref());
    }

    /// Removes partitions from this consumer. Discards their fetched records; late responses and later progress of
    /// the application are ignored.
    pub(crate) fn remove_partitions(&self, partitions: &[TopicPartition]) {
        let mut table = self.cursors.table();
        for at in partitions {
            if let Some(slot) = table.slot(at) {
                table.remove(slot);
                self.inbox.close(slot);
            }
            self.standalone.borrow_mut().remove(at);
            self.lost.borrow_mut().remove(at);
        }
        self.count(table.len());
    }

    /// Replaces the assignment: removes all partitions and adds the given ones from their start positions.
    pub(crate) fn replace_assignment(&self, partitions: &[(TopicPartition, StartAt)]) {
        self.remove_partitions(&self.assigned());
        self.add_partitions(partitions);
    }

    /// The assigned partitions, in order.
    pub(crate) fn assigned(&self) -> Vec<TopicPartition> {
        self.inbox.all_progress().iter().map(|progress| progress.at.clone()).collect()
    }

    /// Other members may own these partitions, although the application has not removed them.
    fn mark_lost(&self, partitions: &[TopicPartition]) {
        let assigned = partitions.iter().filter(|at| self.inbox.progress(at).is_some());
        self.lost.borrow_mut().extend(assigned.cloned());
    }

    /// Returns `true` if the membership continues when the application changes the assignment. So it does in librdkafka, also
    /// without a rebalance callback.
    fn may_reassign(&self) -> bool {
        let config = &self.cluster.config;
        match config.rebalance {
            Rebalance::Application => true,
            Rebalance::Silent => config.group_habits == GroupHabits::Librdkafka,
            Rebalance::Polled => false,
        }
    }

    /// The partitions that the group assigned to this member.
    pub(crate) fn owned(&self) -> Vec<TopicPartition> {
        if self.may_reassign() { self.given.borrow().iter().cloned().collect() } else { self.assigned() }
    }

    /// The partitions that an eager member gives up: those of the group, and those that the application has assigned to a member
    /// that applies the group's assignment itself.
    fn owned_and_assigned(&self) -> Vec<TopicPartition> {
        let mut partitions: BTreeSet<_> = self.owned().into_iter().collect();
        if self.cluster.config.rebalance == Rebalance::Silent {
            partitions.extend(self.assigned());
        }
        partitions.into_iter().collect()
    }

    fn own(&self, partitions: &[TopicPartition]) {
        self.given.borrow_mut().extend(partitions.iter().cloned());
    }

    fn disown(&self, partitions: &[TopicPartition]) {
        self.releases.set(self.releases.get() + 1);
        self.given.borrow_mut().retain(|at| !partitions.contains(at));
    }

    fn disown_all(&self) {
        self.releases.set(self.releases.get() + 1);
        self.given.borrow_mut().clear();
    }

    /// The processed offsets of all assigned partitions that are not committed and not lost.
    pub(crate) fn uncommitted(&self) -> BTreeMap<TopicPartition, OffsetAndMetadata> {
        let all_progress = self.inbox.all_progress();
        let lost = self.lost.borrow();
        let habits = self.cluster.config.group_habits;
        all_progress
            .iter()
            .filter(|progress| !lost.contains(&progress.at))
            .filter_map(|progress| Some((progress.at.clone(), progress.uncommitted(habits)?)))
            .collect()
    }

    /// Records that these offsets are committed, without the refused ones.
    pub(crate) fn committed(&self, offsets: &Offsets, refused: &RefusedOffsets) {
        for (at, offset) in offsets.iter().filter(|(at, _)| !refused.contains_key(*at)) {
            if let Some(progress) = self.inbox.progress(at) {
                progress.set_committed(offset.offset, offset.leader_epoch);
            }
        }
    }

    fn count(&self, partitions: usize) {
        self.cluster.observer.assigned(self.cluster.config.group_id.as_deref(), partitions);
        self.cursors.changed.notify_one();
    }

    /// Converts `StartAt::Committed` into the committed offset, or into the start of `auto.offset.reset`.
    pub(crate) async fn start_at_committed(
        &self,
        partitions: Vec<TopicPartition>,
    ) -> Result<Vec<(TopicPartition, StartAt)>, Error> {
        let (in_files, others): (Vec<_>, Vec<_>) =
            partitions.iter().cloned().partition(|at| self.files_of(at).is_some());
        let mut committed = self.committed_offsets(&others).await?;
        committed.extend(self.offsets_in_files(&in_files));
        let start = |at: TopicPartition| {
            let start = self.start_from(committed.get(&at), || self.reset_of(&at));
            (at, start)
        };
        Ok(partitions.into_iter().map(start).collect())
    }

    /// The start position of a partition without a committed offset.
    fn reset_of(&self, at: &TopicPartition) -> OffsetReset {
        let reset = self.cluster.config.auto_offset_reset;
        self.inbox.progress(at).map_or(reset, |progress| progress.reset(reset))
    }

    /// Records the committed offset from which a partition starts: in librdkafka, a stored offset before it is not committed.
    fn starts_at_committed(&self, progress: &PartitionProgress, committed: &OffsetAndMetadata) {
        if self.cluster.config.group_habits == GroupHabits::Librdkafka {
            progress.starts_at_committed(committed.offset, committed.leader_epoch);
        }
    }

    /// The start at a committed offset, or at that of the reset without one.
    fn start_from(
        &self,
        committed: Option<&OffsetAndMetadata>,
        reset: impl FnOnce() -> OffsetReset,
    ) -> StartAt {
        match committed {
            None => reset_to(reset(), &self.cluster.config),
            Some(OffsetAndMetadata { offset, leader_epoch: None, .. }) => StartAt::Offset(*offset),
            Some(OffsetAndMetadata { offset, leader_epoch: Some(epoch), .. }) => {
                StartAt::OffsetInEpoch { offset: *offset, leader_epoch: *epoch }
            }
        }
    }

    /// The committed offsets of these partitions, each from its files or from the coordinator.
    async fn committed_offsets(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, OffsetAndMetadata>, Error> {
        let mut committed = BTreeMap::new();
        let mut others = Vec::new();
        for at in partitions {
            match self.files_of(at) {
                Some(files) => committed.extend(files.read(at)?.map(|offset| (at.clone(), offset.into()))),
                None => others.push(at.clone()),
            }
        }
        if others.is_empty() {
            return Ok(committed);
        }
        let Some(coordinator) = &self.coordinator else {
            return Err(Error::Config("committed offsets need group.id".into()));
        };
        let isolation = self.cluster.config.isolation_level;
        committed.extend(fetch_committed(coordinator, Some(&others), isolation).await?);
        Ok(committed)
    }

    /// The offsets in the files of these partitions, to start there. One file that cannot be read must not stop the others: it is
    /// reported, and its partition starts by `auto.offset.reset`, as in librdkafka.
    fn offsets_in_files(&self, partitions: &[TopicPartition]) -> BTreeMap<TopicPartition, OffsetAndMetadata> {
        let mut found = BTreeMap::new();
        for at in partitions {
            let Some(files) = self.files_of(at) else { continue };
            match files.read(at) {
                Ok(offset) => found.extend(offset.map(|offset| (at.clone(), offset.into()))),
                Err(error) => self.inbox.push(Item::Error(error)),
            }
        }
        found
    }

    /// The files that store the offset of a partition; `None` for the coordinator.
    fn files_of(&self, at: &TopicPartition) -> Option<Rc<OffsetFiles>> {
        match self.standalone.borrow().get(at) {
            Some(own) => own.files.clone(),
            None => self.files.clone(),
        }
    }

    /// Syncs the files whose interval would sync them later.
    fn sync_files(&self) -> Result<(), Error> {
        let standalone = self.standalone.borrow();
        let of_partitions = standalone.values().filter_map(|commits| commits.files.as_ref());
        // An error of one does not keep the others from the disk.
        let mut synced = Ok(());
        for files in self.files.iter().chain(of_partitions) {
            synced = synced.and(files.sync());
        }
        synced
    }

    /// Returns `true` if there is a coordinator or a file to commit the partition's offset to.
    fn can_commit_at(&self, at: &TopicPartition) -> bool {
        self.coordinator.is_some() || self.files_of(at).is_some()
    }

    /// Returns `true` if there is a coordinator, or files for all partitions, to commit to.
    fn can_commit(&self) -> bool {
        self.coordinator.is_some() || self.files.is_some()
    }
}

/// Serves one consumer until it is closed or dropped.
pub(crate) async fn run(
    cluster: Rc<Cluster>,
    inbox: Arc<Inbox>,
    polls: Arc<PollActivity>,
    mut control: mpsc::UnboundedReceiver<ConsumerCommand>,
) {
    let shared = Rc::new(Shared::new(cluster.clone(), inbox, polls));
    let (mut tasks, mut commits) = (start_tasks(&shared), JoinSet::new());
    let observer = &cluster.observer;
    let _notice = FailureNotice { observer: observer.clone(), inbox: shared.inbox.clone() };
    let mut membership: Option<Membership> = None;
    let mut commit_at = Instant::now() + cluster.config.auto_commit_interval;
    // Only one automatic commit runs at a time, so that commits do not pile up while the coordinator does not
    // respond.
    let is_committing = Rc::new(Cell::new(false));

    loop {
        tokio::select! {
            biased;
            command = control.recv() => match command {
                Some(ConsumerCommand::Close(timeout, done)) => {
                    let membership = membership.take();
                    let left = leave(&shared, membership, &mut commits, LeavingFor::Close, timeout).await;
                    let _ = done.send(left);
                    return;
                }
                Some(command) => {
                    Box::pin(on_control(&shared, &mut membership, &mut tasks, &mut commits, command)).await;
                }
                // The consumer was dropped without close: the session times out.
                None => return,
            },
            Some(ended) = tasks.join_next() => observer.joined("consumer", ended),
            Some(ended) = commits.join_next() => observer.joined("commit", ended),
            () = tokio::time::sleep_until(commit_at), if cluster.config.enable_auto_commit && shared.can_commit() => {
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

/// Starts the tasks that a consumer has from its beginning.
fn start_tasks(shared: &Rc<Shared>) -> JoinSet<()> {
    let (mut tasks, cluster) = (JoinSet::new(), &shared.cluster);
    let observer = &cluster.observer;
    let fetcher = Fetcher::run(cluster.clone(), shared.cursors.clone(), shared.inbox.clone());
    tasks.spawn_local(observer.clone().watched("fetcher", fetcher));
    observer.consumes();
    tasks.spawn_local(observer.clone().watched("consumer's watch", watch::run(shared.clone())));
    let unavailable = unavailable_topics::run(shared.clone());
    tasks.spawn_local(observer.clone().watched("unavailable topics", unavailable));
    if cluster.config.group_habits == GroupHabits::Librdkafka {
        tasks.spawn_local(find_coordinator_early(shared.clone()));
    }
    tasks
}

/// Gives the consumer an error if a panic ends the client: a poll would wait for records for ever.
struct FailureNotice {
    observer: Arc<Observer>,
    inbox: Arc<Inbox>,
}

impl Drop for FailureNotice {
    fn drop(&mut self) {
        // The panic may be the consumer's own, which is noted when its task has unwound.
        if self.observer.failure.is_set() || std::thread::panicking() {
            self.inbox.push(Item::Error(Error::Closed));
        }
    }
}

/// Looks the coordinator up before it is needed, once. A request that needs it repeats a failed lookup.
async fn find_coordinator_early(shared: Rc<Shared>) {
    let Some(coordinator) = &shared.coordinator else { return };
    coordinator.debug("CGRPSTATE", || "changed state init -> query-coord (join-state init)".into());
    if let Err(error) = coordinator.find().await {
        coordinator.debug("CGRPQUERY", || format!("no coordinator found: {error}"));
        // As in librdkafka, the application learns of a refusal, also if the next lookup succeeds.
        if matches!(error, Error::Broker { .. }) && coordinator.must_report(&error) {
            shared.inbox.push(Item::Error(error));
        }
    }
}

/// Commits the processed offsets of all partitions with automatic commits. Standalone partitions may have their own
/// interval; with `all`, they are committed as well.
async fn commit_automatically(shared: &Shared, all: bool) -> Result<(), Error> {
    let offsets = automatic(shared, all);
    commit_unasked(shared, &offsets, CommitClaim::assigned(shared, &offsets)).await
}

fn automatic(shared: &Shared, all: bool) -> BTreeMap<TopicPartition, OffsetAndMetadata> {
    let standalone = shared.standalone.borrow();
    let mut offsets = shared.uncommitted();
    offsets.retain(|at, _| match standalone.get(at) {
        Some(commits) => all && commits.automatic,
        None => shared.cluster.config.enable_auto_commit,
    });
    drop(standalone);
    offsets.retain(|at, _| shared.can_commit_at(at));
    offsets
}

async fn commit(shared: &Shared, offsets: &Offsets) -> Result<RefusedOffsets, Error> {
    commit_claimed(shared, offsets, CommitClaim::assigned(shared, offsets)).await
}

async fn commit_claimed(
    shared: &Shared,
    offsets: &Offsets,
    claim: CommitClaim,
) -> Result<RefusedOffsets, Error> {
    let (in_files, others) = split_by_files(shared, offsets);
    commit_to_files(shared, &in_files)?;
    if others.is_empty() && (shared.can_commit() || !in_files.is_empty()) {
        return Ok(RefusedOffsets::new());
    }
    let Some(coordinator) = &shared.coordinator else {
        return Err(Error::Config("commit needs group.id".into()));
    };
    commit_as_member(shared, coordinator, &others, claim).await
}

/// Returns an error that names the first partition whose offset was refused.
fn none_refused(shared: &Shared, refused: &RefusedOffsets) -> Result<(), Error> {
    match (refused.first_key_value(), &shared.coordinator) {
        (Some((at, code)), Some(coordinator)) => {
            Err(coordinator.refused(&format!("OffsetCommit of {at}"), *code))
        }
        _ => Ok(()),
    }
}

/// The offsets that files store, and the others.
fn split_by_files(shared: &Shared, offsets: &Offsets) -> (Offsets, Offsets) {
    offsets.clone().into_iter().partition(|(at, _)| shared.files_of(at).is_some())
}

fn commit_to_files(shared: &Shared, in_files: &Offsets) -> Result<(), Error> {
    for (at, offset) in in_files {
        if let Some(files) = shared.files_of(at) {
            files.write(at, offset.offset)?;
        }
    }
    shared.committed(in_files, &RefusedOffsets::new());
    Ok(())
}

/// Commits offsets automatically and publishes the result as an event.
async fn commit_unasked(shared: &Shared, offsets: &Offsets, claim: CommitClaim) -> Result<(), Error> {
    if offsets.is_empty() {
        return Ok(());
    }
    publish_commit(shared, offsets, commit_claimed(shared, offsets, claim).await)
}

fn publish_commit(
    shared: &Shared,
    offsets: &Offsets,
    result: Result<RefusedOffsets, Error>,
) -> Result<(), Error> {
    let (result, refused) = match result {
        Ok(refused) => (none_refused(shared, &refused), refused),
        Err(error) => (Err(error), RefusedOffsets::new()),
    };
    shared.cluster.observer.auto_commits.push_with(|| {
        let offsets = offsets.iter().map(|(at, offset)| (at.clone(), offset.clone())).collect();
        Some(AutoCommitEvent { offsets, result: result.clone(), refused })
    });
    result
}

/// Finishes the commits that the application has requested, commits processed offsets if automatic commits are on, and leaves the
/// group. The commits may take half of the timeout, and leaving the other half.
async fn leave(
    shared: &Shared,
    membership: Option<Membership>,
    commits: &mut JoinSet<()>,
    leaving_for: LeavingFor,
    timeout: Duration,
) -> Result<(), Error> {
    shared.unavailable.watch(None, &shared.cluster);
    let committing = async {
        while let Some(ended) = commits.join_next().await {
            shared.cluster.observer.joined("commit", ended);
        }
        commit_automatically(shared, true).await
    };
    let result = tokio::time::timeout(timeout / 2, committing).await.unwrap_or_else(|_| {
        let waited_ms = (timeout / 2).as_millis();
        Err(Error::TimedOut { what: "the commit before leaving the group".into(), waited_ms })
    });
    let result = result.and(shared.sync_files());
    if let Some(membership) = membership {
        membership.leave(leaving_for, timeout / 2).await;
    } else if let (LeavingFor::Close, Some(coordinator)) = (leaving_for, &shared.coordinator) {
        // Members of earlier subscriptions may still be about to leave.
        let _ = tokio::time::timeout(timeout / 2, coordinator.wait_for_names()).await;
    }
    result
}
