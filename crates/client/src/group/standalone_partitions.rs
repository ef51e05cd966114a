//! Partitions that the application starts one by one, without a group; each commits by its topic's settings.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::commands::StartOptions;
use super::control::{seek, start_where_left_off};
use super::{Shared, StandaloneCommits, commit, none_refused};
use crate::error::Error;
use crate::fetch::offset_files::OffsetFiles;
use crate::fetch::progress::PartitionProgress;
use crate::types::StartAt;
use crate::types::TopicPartition;

/// Starts to consume a partition with these options, or moves one that was started before, as librdkafka does. Its committed offset is
/// looked up later: the coordinator may not be there yet.
pub(super) fn start(
    shared: &Rc<Shared>,
    tasks: &mut JoinSet<()>,
    at: TopicPartition,
    from: StartAt,
    options: StartOptions,
) -> Result<(), Error> {
    if shared.standalone.borrow().contains_key(&at) {
        return restart(shared, tasks, at, from);
    }
    if shared.inbox.progress(&at).is_some() {
        return Ok(());
    }
    let observer = &shared.cluster.observer;
    let files = options.files.map(|files| Rc::new(OffsetFiles::new(files, observer.clone())));
    if from == StartAt::Committed && files.is_none() && shared.coordinator.is_none() {
        return Err(without_committed_offsets());
    }
    let commits = StandaloneCommits { automatic: options.commits.is_some(), files };
    shared.standalone.borrow_mut().insert(at.clone(), commits);
    shared.add_partitions(&[(at.clone(), from)]);
    let Some(progress) = shared.inbox.progress(&at) else { return Ok(()) };
    // The fetcher and the lookup do nothing before this function returns.
    progress.set_reset(options.reset);
    if from == StartAt::Committed {
        tasks.spawn_local(start_where_left_off(shared.clone(), vec![at.clone()]));
    }
    if let Some(every) = options.commits.filter(|_| shared.can_commit_at(&at)) {
        tasks.spawn_local(commit_every(shared.clone(), progress, every));
    }
    Ok(())
}

/// Continues a partition at another position. It keeps its options.
fn restart(
    shared: &Rc<Shared>,
    tasks: &mut JoinSet<()>,
    at: TopicPartition,
    from: StartAt,
) -> Result<(), Error> {
    if from == StartAt::Committed && !shared.can_commit_at(&at) {
        return Err(without_committed_offsets());
    }
    seek(shared, tasks, at, from)
}

fn without_committed_offsets() -> Error {
    Error::Config("committed offsets need group.id".into())
}

/// Stops consuming a partition; with automatic commits, it commits the finished offsets first.
pub(super) async fn stop(shared: &Shared, at: TopicPartition) -> Result<(), Error> {
    let progress = shared.inbox.progress(&at).ok_or_else(|| at.not_assigned())?;
    let standalone = shared.standalone.borrow().get(&at).map(|commits| commits.automatic);
    let commits = standalone.unwrap_or(shared.cluster.config.enable_auto_commit);
    let committed =
        if commits && shared.can_commit_at(&at) { commit_one(shared, &progress).await } else { Ok(()) };
    let synced = shared.files_of(&at).map_or(Ok(()), |files| files.sync());
    shared.remove_partitions(&[at]);
    committed.and(synced)
}

/// Commits at each interval until the partition is stopped or restarted.
async fn commit_every(shared: Rc<Shared>, progress: Arc<PartitionProgress>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let is_the_same = shared.inbox.progress(&progress.at).is_some_and(|now| Arc::ptr_eq(&now, &progress));
        if !is_the_same {
            return;
        }
        if let Err(error) = commit_one(&shared, &progress).await {
            tracing::debug!(%error, at = %progress.at, "auto commit");
        }
    }
}

async fn commit_one(shared: &Shared, progress: &PartitionProgress) -> Result<(), Error> {
    match progress.uncommitted(shared.cluster.config.group_habits) {
        Some(offset) => {
            let refused = commit(shared, &[(progress.at.clone(), offset)].into()).await?;
            none_refused(shared, &refused)
        }
        None => Ok(()),
    }
}
