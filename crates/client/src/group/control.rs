//! The commands of the application, performed one after the other.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::application::AppSignal;
use super::commands::{AssignmentChange, CommitScope, CommittedEach, ConsumerCommand, RefusedOffsets};
use super::commit::fetch_committed_each;
use super::member_commit::{AwaitedCommit, CommitClaim};
use super::membership::{LeavingFor, Membership};
use super::next_gen::is_unknown;
use super::subscription::Subscription;
use super::{
    Shared, commit_claimed, commit_to_files, commit_unasked, leave, none_refused, publish_commit,
    split_by_files, standalone_partitions,
};
use crate::config::{GroupHabits, Rebalance};
use crate::error::{Error, PartitionRequest};
use crate::fetch::core::CursorRef;
use crate::fetch::cursor::{Cursor, Position};
use crate::fetch::fetcher::reset_to;
use crate::fetch::inbox::Item;
use crate::fetch::progress::PartitionProgress;
use crate::log::Context;
use crate::types::{GroupMetadata, OffsetAndMetadata, StartAt, TopicPartition};
use crate::watchdog::cause::StallReason;

/// The first pause between two lookups of committed offsets, and the longest one, which doubling leads to.
const LOOKUP_PAUSE: Duration = Duration::from_millis(100);
const LOOKUP_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The offset of [`Error::Partition`] for a request without one.
const NO_OFFSET: i64 = -1001;

/// Performs a command of the application. Its commits are among `commits`, which end before the consumer leaves the group.
pub(super) async fn on_control(
    shared: &Rc<Shared>,
    membership: &mut Option<Membership>,
    tasks: &mut JoinSet<()>,
    commits: &mut JoinSet<()>,
    command: ConsumerCommand,
) {
    let log =
        |text: &dyn Fn() -> String| shared.cluster.observer.log.debug(Context::Consumer, "CONSUMER", text);
    if membership.as_mut().is_some_and(Membership::has_left) {
        *membership = None;
    }
    match command {
        ConsumerCommand::Assign(change, partitions, done) => {
            let result = on_assign(shared, membership, tasks, commits, change, partitions).await;
            finish_change(shared, membership, commits, result, done);
        }
        ConsumerCommand::Subscribe(subscription, done) => {
            log(&|| format!("subscribe: {subscription:?}"));
            subscribe(shared, membership, subscription);
            let _ = done.send(Ok(()));
        }
        ConsumerCommand::Start(at, from, options, done) => {
            let _ = done.send(match membership {
                Some(_) => Err(assigned_by_group("start")),
                None => standalone_partitions::start(shared, tasks, at, from, options),
            });
        }
        ConsumerCommand::Stop(at, done) => {
            let _ = done.send(match membership {
                Some(_) => Err(assigned_by_group("stop")),
                None => standalone_partitions::stop(shared, at).await,
            });
        }
        ConsumerCommand::Unsubscribe(leaving_for, timeout, done) => {
            let _ = done.send(unsubscribe(shared, membership, commits, leaving_for, timeout).await);
        }
        ConsumerCommand::Seek(at, to, done) => {
            let to = to.unwrap_or_else(|| reset_to(shared.reset_of(&at), &shared.cluster.config));
            log(&|| format!("seek: {at} to {to:?}"));
            let _ = done.send(seek(shared, tasks, at, to));
        }
        ConsumerCommand::Refetch(progress, generation, from) => refetch(shared, &progress, generation, from),
        ConsumerCommand::Pause(partitions, paused) => {
            let verb = if paused { "pause" } else { "resume" };
            log(&|| format!("{verb}: {} partition(s)", partitions.len()));
            set_all_paused(shared, &partitions, paused);
        }
        ConsumerCommand::Commit(done) => commit_processed(shared, commits, done),
        ConsumerCommand::CommitOffsets(scope, offsets, done) => {
            commit_given(shared, membership.is_some(), commits, (scope, offsets), done, none_refused);
        }
        ConsumerCommand::CommitEach(scope, offsets, done) => {
            commit_each(shared, membership.is_some(), commits, (scope, offsets), done);
        }
        ConsumerCommand::GroupMetadata(done) => {
            let _ = done.send(group_metadata(shared, membership.is_some()));
        }
        ConsumerCommand::Committed(partitions, done) => look_up_committed(shared, tasks, partitions, done),
        ConsumerCommand::CommittedOffsets(partitions, done) => {
            let shared = shared.clone();
            reply_later(tasks, done, async move { shared.committed_offsets(&partitions).await });
        }
        ConsumerCommand::CommittedEach(partitions, done) => {
            let shared = shared.clone();
            reply_later(tasks, done, async move { committed_each(&shared, partitions).await });
        }
        ConsumerCommand::RevokeSeen if shared.cluster.config.rebalance == Rebalance::Application => {}
        ConsumerCommand::RevokeSeen => {
            if let Some(membership) = membership {
                membership.signal(AppSignal::Answered);
            }
        }
        ConsumerCommand::Close(_, done) => drop(done),
    }
}

/// Looks up committed offsets without their metadata.
fn look_up_committed(
    shared: &Rc<Shared>,
    tasks: &mut JoinSet<()>,
    partitions: Vec<TopicPartition>,
    done: oneshot::Sender<Result<BTreeMap<TopicPartition, i64>, Error>>,
) {
    let shared = shared.clone();
    reply_later(tasks, done, async move {
        let offset = |(at, found): (TopicPartition, OffsetAndMetadata)| (at, found.offset);
        Ok(shared.committed_offsets(&partitions).await?.into_iter().map(offset).collect())
    });
}

/// Replies to a command when `work` is done; later commands do not wait for it.
fn reply_later<T: 'static>(
    tasks: &mut JoinSet<()>,
    done: oneshot::Sender<Result<T, Error>>,
    work: impl Future<Output = Result<T, Error>> + 'static,
) {
    tasks.spawn_local(async move {
        let _ = done.send(work.await);
    });
}

/// The committed offsets that these partitions start from. An unreadable file is reported and counts as none, as in librdkafka.
pub(super) async fn committed_to_start(
    shared: &Shared,
    partitions: Vec<TopicPartition>,
) -> Result<CommittedEach, Error> {
    // A partition that the application has just committed, or given up, starts behind what it has processed.
    shared.awaited_commits.wait_for_end().await;
    let (in_files, others): (Vec<_>, Vec<_>) =
        partitions.into_iter().partition(|at| shared.files_of(at).is_some());
    // If the coordinator fails, this is called again: files are read behind it, so that none is reported twice.
    let mut committed = committed_each(shared, others).await?;
    committed.extend(shared.offsets_in_files(&in_files).into_iter().map(|(at, offset)| (at, Ok(offset))));
    Ok(committed)
}

/// The committed offsets of these partitions, each from its files or from the coordinator, with its own error.
async fn committed_each(shared: &Shared, partitions: Vec<TopicPartition>) -> Result<CommittedEach, Error> {
    let (in_files, others): (Vec<_>, Vec<_>) =
        partitions.into_iter().partition(|at| shared.files_of(at).is_some());
    let in_files = shared.committed_offsets(&in_files).await?;
    let mut committed: BTreeMap<_, _> = in_files.into_iter().map(|(at, offset)| (at, Ok(offset))).collect();
    if others.is_empty() {
        return Ok(committed);
    }
    let Some(coordinator) = &shared.coordinator else {
        return Err(Error::Config("committed offsets need group.id".into()));
    };
    let isolation = shared.cluster.config.isolation_level;
    committed.extend(fetch_committed_each(coordinator, &others, isolation).await?);
    Ok(committed)
}

/// Begins a commit that the application has requested. In librdkafka, a rebalance waits for it: in the next generation, the
/// coordinator would refuse an attempt that follows a failed one.
fn begin_commit(shared: &Rc<Shared>) -> Option<AwaitedCommit> {
    let waits = shared.cluster.config.group_habits == GroupHabits::Librdkafka;
    waits.then(|| AwaitedCommit::begin(shared))
}

/// Commits the processed offsets that are not committed yet. They and their owners are read at once: the next command may give their
/// partitions up before the task runs.
fn commit_processed(
    shared: &Rc<Shared>,
    commits: &mut JoinSet<()>,
    done: oneshot::Sender<Result<(), Error>>,
) {
    let (counted, offsets) = (begin_commit(shared), shared.uncommitted());
    let (shared, claim) = (shared.clone(), CommitClaim::assigned(shared, &offsets));
    reply_later(commits, done, async move {
        let refused = commit_claimed(&shared, &offsets, claim).await?;
        drop(counted);
        none_refused(&shared, &refused)
    });
}

/// Commits the offsets that the application names. A consumer that is no member of a group may commit any partition.
fn commit_given<T: 'static>(
    shared: &Rc<Shared>,
    is_member: bool,
    commits: &mut JoinSet<()>,
    (scope, offsets): (CommitScope, BTreeMap<TopicPartition, OffsetAndMetadata>),
    done: oneshot::Sender<Result<T, Error>>,
    reply: fn(&Shared, &RefusedOffsets) -> Result<T, Error>,
) {
    let error = if is_member { not_assigned(shared, scope, &offsets) } else { None };
    if let Some(error) = error {
        let _ = done.send(Err(error));
        return;
    }
    let counted = begin_commit(shared);
    let (shared, claim) = (shared.clone(), CommitClaim::assigned(shared, &offsets));
    reply_later(commits, done, async move {
        let refused = commit_claimed(&shared, &offsets, claim).await?;
        drop(counted);
        reply(&shared, &refused)
    });
}

/// The same, with the error of each partition in the reply.
fn commit_each(
    shared: &Rc<Shared>,
    is_member: bool,
    commits: &mut JoinSet<()>,
    offsets: (CommitScope, BTreeMap<TopicPartition, OffsetAndMetadata>),
    done: oneshot::Sender<Result<RefusedOffsets, Error>>,
) {
    commit_given(shared, is_member, commits, offsets, done, |_, refused| Ok(refused.clone()));
}

/// Changes the assignment as the application requests it.
async fn on_assign(
    shared: &Rc<Shared>,
    membership: &mut Option<Membership>,
    tasks: &mut JoinSet<()>,
    commits: &mut JoinSet<()>,
    change: AssignmentChange,
    partitions: Vec<(TopicPartition, StartAt)>,
) -> Result<(), Error> {
    let log =
        |text: &dyn Fn() -> String| shared.cluster.observer.log.debug(Context::Consumer, "CONSUMER", text);
    match change {
        // As librdkafka does, it returns before the committed offsets are found.
        _ if shared.may_reassign() => {
            let role = if membership.is_some() { " as a member" } else { "" };
            log(&|| format!("{change:?}{role}: {} partition(s)", partitions.len()));
            change_assignment(shared, tasks, commits, change, partitions)
        }
        AssignmentChange::Add | AssignmentChange::Remove if membership.is_none() => {
            change_assignment(shared, tasks, commits, change, partitions)
        }
        AssignmentChange::Add | AssignmentChange::Remove => {
            let reason = "the consumer keeps the assignment itself: see Config::rebalance";
            Err(Error::Config(format!("incremental assignment: {reason}")))
        }
        AssignmentChange::Replace => {
            log(&|| format!("assign: {} partition(s)", partitions.len()));
            if let Some(membership) = membership.take() {
                let timeout = shared.cluster.config.socket_timeout;
                let left = leave(shared, Some(membership), commits, LeavingFor::Close, timeout).await;
                if let Err(error) = left {
                    tracing::debug!(%error, "commit before another assignment replaces the group's");
                }
            }
            assign(shared, commits, partitions).await
        }
    }
}

/// Reports a change of the assignment to the caller, and to the membership if it waits for it. The membership waits for the commit of
/// partitions that were given up, and so does the caller, unless it has librdkafka's habits.
fn finish_change(
    shared: &Rc<Shared>,
    membership: &mut Option<Membership>,
    commits: &mut JoinSet<()>,
    result: Result<(), Error>,
    done: oneshot::Sender<Result<(), Error>>,
) {
    let config = &shared.cluster.config;
    if config.rebalance == Rebalance::Application
        && let Some(membership) = membership
    {
        // At once: a later answer could acknowledge an event that the application has not seen.
        membership.signal(AppSignal::Answered);
    }
    if config.group_habits == GroupHabits::Librdkafka || !shared.awaited_commits.is_any_pending() {
        let _ = done.send(result);
        return;
    }
    let shared = shared.clone();
    commits.spawn_local(async move {
        shared.awaited_commits.wait_for_end().await;
        let _ = done.send(result);
    });
}

fn subscribe(shared: &Rc<Shared>, membership: &mut Option<Membership>, subscription: Subscription) {
    shared.unavailable.watch(Some(subscription.clone()), &shared.cluster);
    if membership.as_mut().is_some_and(|membership| !membership.is_alive()) {
        *membership = None;
    }
    if let Some(membership) = membership {
        membership.signal(AppSignal::Subscribed(subscription));
    } else {
        shared.replace_assignment(&[]);
        *membership = Some(Membership::start(shared.clone(), subscription));
    }
}

/// Leaves the group; an application that applies assignments itself first has to give its partitions up.
async fn unsubscribe(
    shared: &Rc<Shared>,
    membership: &mut Option<Membership>,
    commits: &mut JoinSet<()>,
    leaving_for: LeavingFor,
    timeout: Duration,
) -> Result<(), Error> {
    let applies = shared.cluster.config.rebalance == Rebalance::Application;
    match membership {
        Some(membership) if applies && !shared.owned().is_empty() => {
            shared.unavailable.watch(None, &shared.cluster);
            membership.leave_when_given_up(leaving_for, timeout);
            Ok(())
        }
        _ => {
            let left = leave(shared, membership.take(), commits, leaving_for, timeout).await;
            shared.replace_assignment(&[]);
            left
        }
    }
}

fn set_all_paused(shared: &Shared, partitions: &[TopicPartition], paused: bool) {
    for at in partitions {
        set_paused(shared, at, paused);
    }
}

/// Pauses or resumes fetching. A partition that is resumed at its end reports the end at once: a fetch may return nothing
/// about it.
fn set_paused(shared: &Shared, at: &TopicPartition, paused: bool) {
    let config = &shared.cluster.config;
    let resumed = shared.cursors.update(at, |cursor| {
        cursor.set_paused(paused);
        let end = if paused { None } else { cursor.end_reached(config.isolation_level) };
        (cursor.slot, end.map(|offset| cursor.end_event(offset)))
    });
    if let Some((slot, Some(event))) = resumed.filter(|_| config.enable_partition_eof) {
        shared.inbox.push_to(slot, Item::Event(event));
    }
}

/// Continues a partition at another position and drops its fetched records. At the partition's end it reports the end at once.
pub(super) fn seek(
    shared: &Rc<Shared>,
    tasks: &mut JoinSet<()>,
    at: TopicPartition,
    to: StartAt,
) -> Result<(), Error> {
    // The seek is for the assignment that the application knows. It must not move the next one after a loss, nor fetch
    // from a revoked partition again.
    if shared.owned_progress(&at).is_none() {
        return Err(at.not_assigned());
    }
    // In librdkafka, a partition that the application or its group has assigned can be moved only after it has started.
    let config = &shared.cluster.config;
    let needs_start =
        config.group_habits == GroupHabits::Librdkafka && !shared.standalone.borrow().contains_key(&at);
    let moved = shared.cursors.update(&at, |cursor| {
        if cursor.is_released {
            return Err(at.not_assigned());
        }
        if needs_start && !cursor.has_start {
            return Err(Error::IllegalState(format!("seek: the committed offset of {at} is not known yet")));
        }
        cursor.seek(to);
        let end = cursor.end_after_seek(config.isolation_level);
        Ok((cursor.slot, end.map(|offset| cursor.end_event(offset))))
    });
    let (slot, end) = moved.unwrap_or_else(|| Err(at.not_assigned()))?;
    shared.inbox.purge(slot);
    if let Some(event) = end.filter(|_| config.enable_partition_eof) {
        shared.inbox.push_to(slot, Item::Event(event));
    }
    if to == StartAt::Committed {
        tasks.spawn_local(start_where_left_off(shared.clone(), vec![at]));
    }
    Ok(())
}

/// Fetches a partition again, unless a seek or the end of its assignment came first.
fn refetch(shared: &Shared, progress: &Arc<PartitionProgress>, generation: u64, from: i64) {
    let slot = shared.cursors.update(&progress.at, |cursor| {
        let is_current = Arc::ptr_eq(&cursor.progress, progress) && progress.generation() == generation;
        (is_current && !cursor.is_released).then(|| {
            cursor.refetch_from(generation, from);
            cursor.slot
        })
    });
    if let Some(slot) = slot.flatten() {
        let text = || format!("fetch again: {} from {from}", progress.at);
        shared.cluster.observer.log.debug(Context::Consumer, "CONSUMER", text);
        shared.inbox.purge(slot);
    }
}

/// The error for the first of these partitions that the consumer may not commit.
///
/// The application may be about to commit records of an assignment whose loss it does not know yet. The next generation would
/// accept them, although another member may have committed later offsets.
fn not_assigned(
    shared: &Shared,
    scope: CommitScope,
    offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>,
) -> Option<Error> {
    let is_lost = |at: &TopicPartition| shared.lost.borrow().contains(at) || shared.inbox.has_unseen_loss(at);
    let refused = offsets.keys().find(|at| match scope {
        CommitScope::Owned => shared.owned_progress(at).is_none(),
        CommitScope::Named => is_lost(at),
    })?;
    Some(refused.not_assigned())
}

fn group_metadata(shared: &Shared, is_member: bool) -> Result<GroupMetadata, Error> {
    let coordinator =
        shared.coordinator.as_ref().ok_or_else(|| Error::Config("group metadata needs group.id".into()))?;
    let mut metadata = GroupMetadata::new(coordinator.group());
    let identity = coordinator.identity();
    (metadata.generation, metadata.member_id) = match shared.acting_as(coordinator) {
        Some(earlier) => earlier,
        None => (identity.epoch.unwrap_or(-1), identity.member_id.clone()),
    };
    if metadata.member_id.is_empty() {
        // The consumer chooses its id; applications may ask for it before it joins.
        coordinator.own_id().clone_into(&mut metadata.member_id);
    }
    metadata.instance_id = identity.instance_id.clone().filter(|_| is_member);
    Ok(metadata)
}

async fn assign(
    shared: &Rc<Shared>,
    commits: &mut JoinSet<()>,
    partitions: Vec<(TopicPartition, StartAt)>,
) -> Result<(), Error> {
    let partitions = without_continued(shared, partitions);
    commit_before_change(shared, commits, &partitions.gone);
    let (committed, mut fixed): (Vec<_>, Vec<_>) =
        partitions.added.into_iter().partition(|(_, start)| *start == StartAt::Committed);
    if !committed.is_empty() {
        shared.awaited_commits.wait_for_end().await;
        fixed.extend(shared.start_at_committed(committed.into_iter().map(|(at, _)| at).collect()).await?);
    }
    shared.remove_partitions(&partitions.gone);
    shared.add_partitions(&fixed);
    Ok(())
}

/// The difference between the current assignment and the one that replaces it.
struct AssignmentDifference {
    gone: Vec<TopicPartition>,
    added: Vec<(TopicPartition, StartAt)>,
}

/// A partition that is assigned already and shall start where it left off continues: it keeps its position and its
/// fetched records.
fn without_continued(shared: &Shared, partitions: Vec<(TopicPartition, StartAt)>) -> AssignmentDifference {
    let is_fetched = |at: &TopicPartition| {
        shared.cursors.update(at, |cursor| cursor.position != Position::Failed) == Some(true)
            && !shared.standalone.borrow().contains_key(at)
    };
    let (continued, added): (Vec<_>, Vec<_>) =
        partitions.into_iter().partition(|(at, start)| *start == StartAt::Committed && is_fetched(at));
    let mut gone = shared.assigned();
    gone.retain(|at| !continued.iter().any(|(kept, _)| kept == at));
    AssignmentDifference { gone, added }
}

/// With automatic commits, begins to commit the processed offsets of partitions that are given up. Offsets in files are written at
/// once: a partition that was started alone has its own files only until it is removed.
fn commit_before_change(shared: &Rc<Shared>, commits: &mut JoinSet<()>, gone: &[TopicPartition]) {
    if !shared.cluster.config.enable_auto_commit || !shared.can_commit() {
        return;
    }
    let mut offsets = shared.uncommitted();
    offsets.retain(|at, _| gone.contains(at));
    let (in_files, others) = split_by_files(shared, &offsets);
    if !in_files.is_empty() {
        let written = commit_to_files(shared, &in_files).map(|()| RefusedOffsets::new());
        if let Err(error) = publish_commit(shared, &in_files, written) {
            tracing::debug!(%error, "commit before giving partitions up");
        }
    }
    // Without a coordinator there is none to commit the others to.
    if others.is_empty() || shared.coordinator.is_none() {
        return;
    }
    let claim = CommitClaim::given_up(shared);
    let (counted, shared) = (AwaitedCommit::begin(shared), shared.clone());
    commits.spawn_local(async move {
        if let Err(error) = commit_unasked(&shared, &others, claim).await {
            tracing::debug!(%error, "commit before giving partitions up");
        }
        drop(counted);
    });
}

/// Applies the application's change of the assignment. With automatic commits, the commit of the removed partitions is begun
/// first. The committed offset of a partition that continues from it is looked up later.
fn change_assignment(
    shared: &Rc<Shared>,
    tasks: &mut JoinSet<()>,
    commits: &mut JoinSet<()>,
    change: AssignmentChange,
    partitions: Vec<(TopicPartition, StartAt)>,
) -> Result<(), Error> {
    let AssignmentDifference { gone, added: partitions } = match change {
        AssignmentChange::Replace => without_continued(shared, partitions),
        AssignmentChange::Remove => {
            let gone = partitions.iter().map(|(at, _)| at.clone()).collect();
            AssignmentDifference { gone, added: partitions }
        }
        AssignmentChange::Add => AssignmentDifference { gone: Vec::new(), added: partitions },
    };
    if change != AssignmentChange::Remove {
        let mut left_off = partitions.iter().filter(|(_, start)| *start == StartAt::Committed);
        if left_off.any(|(at, _)| !shared.can_commit_at(at)) {
            return Err(Error::Config("committed offsets need group.id".into()));
        }
    }
    let named: Vec<_> = partitions.iter().map(|(at, _)| at.clone()).collect();
    commit_before_change(shared, commits, &gone);
    shared.remove_partitions(&gone);
    if change == AssignmentChange::Remove {
        return Ok(());
    }
    let known = shared.assigned();
    if let Some(at) = named.iter().find(|at| known.contains(at)) {
        return Err(Error::Config(format!("incremental_assign: {at} is assigned already")));
    }
    shared.add_partitions(&partitions);
    let pending: Vec<_> = partitions.into_iter().filter_map(left_off).collect();
    if !pending.is_empty() {
        tasks.spawn_local(start_where_left_off(shared.clone(), pending));
    }
    Ok(())
}

fn left_off((at, start): (TopicPartition, StartAt)) -> Option<TopicPartition> {
    (start == StartAt::Committed).then_some(at)
}

/// Looks up the committed offsets, with retries, and starts the partitions there. A partition that is removed and assigned
/// again after this call is not concerned, even if the future has not been polled by then: a later lookup returns its offset.
pub(super) fn start_where_left_off(
    shared: Rc<Shared>,
    partitions: Vec<TopicPartition>,
) -> impl Future<Output = ()> + use<> {
    let refer = |at: TopicPartition| Some((shared.cursors.update(&at, |cursor| CursorRef::of(cursor))?, at));
    let pending = partitions.into_iter().filter_map(refer).collect();
    start_pending(shared, pending)
}

async fn start_pending(shared: Rc<Shared>, mut pending: Vec<(CursorRef, TopicPartition)>) {
    let mut pause = shared.cluster.config.retry_backoff.max(LOOKUP_PAUSE);
    let mut reported = None;
    loop {
        pending.retain(|(cursor_ref, at)| {
            shared.cursors.update(at, |cursor| waits_for_offset(cursor_ref, cursor)) == Some(true)
        });
        if pending.is_empty() {
            return;
        }
        let wanted = pending.iter().map(|(_, at)| at.clone()).collect();
        match committed_to_start(&shared, wanted).await {
            // The others start although the coordinator refuses the offset of one, as in librdkafka.
            Ok(found) => {
                pending.retain(|(cursor_ref, at)| !start_with(&shared, cursor_ref, at, found.get(at)));
            }
            // The next heartbeat of a member that is unknown gets the same refusal, and the member joins again.
            Err(error) if error.is_retriable() || is_unknown(&error) => {}
            Err(error) => {
                let code = error.broker_code();
                if reported.replace(code) != Some(code) {
                    shared.inbox.push(Item::Error(error));
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOKUP_PAUSE_MAX.max(pause));
    }
}

fn waits_for_offset(pending: &CursorRef, cursor: &Cursor) -> bool {
    pending.is(cursor) && cursor.position == Position::Unresolved(StartAt::Committed)
}

/// Assigns partitions, each from its committed offset. One whose offset is refused does not stop the others, as in librdkafka.
pub(super) fn start_each(shared: &Rc<Shared>, partitions: &[TopicPartition], committed: &CommittedEach) {
    let start = |at: &TopicPartition| match committed.get(at) {
        Some(Err(_)) => StartAt::Committed,
        Some(Ok(offset)) => shared.start_from(Some(offset), || shared.reset_of(at)),
        None => shared.start_from(None, || shared.reset_of(at)),
    };
    let starts: Vec<_> = partitions.iter().map(|at| (at.clone(), start(at))).collect();
    shared.add_partitions(&starts);
    for (at, _) in &starts {
        if let (Some(Ok(offset)), Some(progress)) = (committed.get(at), shared.inbox.progress(at)) {
            shared.starts_at_committed(&progress, offset);
        }
    }
    // Their errors are reported there, or they are looked up again.
    let left: Vec<_> = starts.into_iter().filter_map(left_off).collect();
    if !left.is_empty() {
        let starting = start_where_left_off(shared.clone(), left);
        tokio::task::spawn_local(shared.cluster.observer.clone().watched("start", starting));
    }
}

/// Starts a partition at its committed offset. A refused offset is reported, and the partition stops until it is moved or assigned
/// again. Returns `false` if the offset must be looked up again.
fn start_with(
    shared: &Shared,
    pending: &CursorRef,
    at: &TopicPartition,
    found: Option<&Result<OffsetAndMetadata, ErrorCode>>,
) -> bool {
    let committed = match found.cloned().transpose() {
        Ok(committed) => committed,
        Err(code) if code.is_retriable() => return false,
        Err(code) => {
            let (request, topic) = (PartitionRequest::OffsetFetch, at.topic.to_string());
            let error = Error::Partition { request, topic, partition: at.partition, offset: NO_OFFSET, code };
            let failed = shared.cursors.update(at, |cursor| {
                waits_for_offset(pending, cursor).then(|| {
                    cursor.position = Position::Failed;
                    cursor.last_error = Some(StallReason::of(&error));
                    cursor.slot
                })
            });
            if let Some(slot) = failed.flatten() {
                shared.inbox.push_to(slot, Item::Error(error));
            }
            return true;
        }
    };
    shared.cursors.update(at, |cursor| {
        if waits_for_offset(pending, cursor) {
            let reset = cursor.progress.reset(shared.cluster.config.auto_offset_reset);
            if let Some(committed) = &committed {
                shared.starts_at_committed(&cursor.progress, committed);
            }
            cursor.seek(shared.start_from(committed.as_ref(), || reset));
        }
    });
    true
}

fn assigned_by_group(what: &str) -> Error {
    Error::Config(format!("{what}: the group assigns the partitions; assign() ends that"))
}
