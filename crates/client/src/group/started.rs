//! Partitions that are consumed one by one, without a group: each commits as its topic says.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::{Shared, commit};
use crate::consumer::offsets::not_assigned;
use crate::consumer::{Own, TopicPartition};
use crate::error::Error;
use crate::fetch::cursor::StartAt;
use crate::fetch::place::Place;

/// Consumes one partition more, as its topic says.
pub(super) async fn start(
    shared: &Rc<Shared>,
    tasks: &mut JoinSet<()>,
    at: TopicPartition,
    from: StartAt,
    own: Own,
) -> Result<(), Error> {
    let starts = match from {
        StartAt::Committed => shared.start_at_committed_or(vec![at.clone()], |_| own.reset).await?,
        other => vec![(at.clone(), other)],
    };
    if shared.inbox.place(&at).is_some() {
        return Ok(());
    }
    shared.add_partitions(&starts);
    shared.started.borrow_mut().insert(at.clone(), own.commits.is_some());
    let Some(place) = shared.inbox.place(&at) else { return Ok(()) };
    // Nothing is asked for before this function waits.
    place.set_reset(own.reset);
    if let Some(every) = own.commits.filter(|_| shared.can_commit()) {
        tasks.spawn_local(commit_every(shared.clone(), place, every));
    }
    Ok(())
}

/// Consumes it no more; if it commits by itself, what is done is committed first.
pub(super) async fn stop(shared: &Shared, at: TopicPartition) -> Result<(), Error> {
    let place = shared.inbox.place(&at).ok_or_else(|| not_assigned(&at))?;
    let commits = shared.started.borrow().get(&at).copied().unwrap_or(shared.cluster.config.auto_commit);
    let committed = if commits && shared.can_commit() { commit_one(shared, &place).await } else { Ok(()) };
    shared.remove_partitions(&[at]);
    committed
}

/// Until the partition is stopped, or started anew.
async fn commit_every(shared: Rc<Shared>, place: Arc<Place>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let is_the_same = shared.inbox.place(&place.at).is_some_and(|now| Arc::ptr_eq(&now, &place));
        if !is_the_same {
            return;
        }
        if let Err(error) = commit_one(&shared, &place).await {
            tracing::debug!(%error, at = %place.at, "auto commit");
        }
    }
}

async fn commit_one(shared: &Shared, place: &Place) -> Result<(), Error> {
    match place.uncommitted() {
        Some(offset) => commit(shared, &[(place.at.clone(), offset)].into()).await,
        None => Ok(()),
    }
}
