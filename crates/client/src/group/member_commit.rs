//! The commits of a consumer: one after the other, under the generation of the call or a later one in which the consumer
//! still owns the partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Shared;
use super::commands::RefusedOffsets;
use super::commit::commit_offsets;
use super::coordinator::Coordinator;
use crate::error::Error;
use crate::fetch::progress::PartitionProgress;
use crate::types::{OffsetAndMetadata, TopicPartition};

type Offsets = BTreeMap<TopicPartition, OffsetAndMetadata>;

/// The commits that a rebalance and a lookup of committed offsets wait for: those whose partitions the application has given up,
/// and with librdkafka's habits also those that the application has requested.
#[derive(Debug)]
pub(super) struct AwaitedCommits(watch::Sender<NumberedCommits>);

#[derive(Debug, Default)]
struct NumberedCommits {
    /// The number of the next commit.
    next: u64,
    pending: BTreeSet<u64>,
}

impl AwaitedCommits {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(NumberedCommits::default()))
    }

    /// Returns `true` if a commit has not ended.
    pub(super) fn is_any_pending(&self) -> bool {
        !self.0.borrow().pending.is_empty()
    }

    /// Waits until the commits that were begun before the call have ended, each one within `socket.timeout.ms`. An application may
    /// begin the next commit before the last one ends, for ever.
    pub(super) async fn wait_for_end(&self) {
        let next = self.0.borrow().next;
        let have_ended =
            |commits: &NumberedCommits| commits.pending.first().is_none_or(|first| *first >= next);
        // The sender is part of `self`, so that this cannot fail.
        let _ = self.0.subscribe().wait_for(have_ended).await;
    }
}

/// One of [`AwaitedCommits`]: it is pending until it is dropped.
pub(super) struct AwaitedCommit {
    shared: Rc<Shared>,
    number: u64,
}

impl AwaitedCommit {
    pub(super) fn begin(shared: &Rc<Shared>) -> Self {
        let mut number = 0;
        shared.awaited_commits.0.send_modify(|commits| {
            number = commits.next;
            commits.next += 1;
            commits.pending.insert(number);
        });
        Self { shared: shared.clone(), number }
    }
}

impl Drop for AwaitedCommit {
    fn drop(&mut self) {
        self.shared.awaited_commits.0.send_modify(|commits| {
            commits.pending.remove(&self.number);
        });
    }
}

/// Commits with the consumer's identity; fails for a member that is in no generation.
pub(super) async fn commit_as_member(
    shared: &Shared,
    coordinator: &Coordinator,
    offsets: &Offsets,
    claim: CommitClaim,
) -> Result<RefusedOffsets, Error> {
    let timeout = coordinator.request_timeout();
    let deadline = Instant::now() + timeout;
    // The identity of this moment: a commit that waits must not commit under a later generation, in which other members
    // own its partitions.
    let mut member = coordinator.member()?;
    let committing = async {
        // A commit that was refused is sent again. A later one waits: otherwise the earlier offset would replace its own.
        let _turn = shared.commit_order.lock().await;
        loop {
            let was_joining = coordinator.is_joining();
            let error = match commit_offsets(coordinator, offsets, member.clone()).await {
                Ok(refused) => {
                    // The next assignment of a partition does not continue from this commit.
                    if !claim.is_given_up {
                        shared.committed(offsets, &refused);
                    }
                    return Ok(refused);
                }
                Err(error) => error,
            };
            let next = next_member(coordinator, member.as_ref(), was_joining, &error);
            if next == Next::Later {
                tokio::time::sleep(shared.cluster.config.retry_backoff).await;
            }
            if next == Next::Refused || !claim.holds(shared) {
                shared.commit_refusals.note(member.as_ref(), &error);
                return Err(error);
            }
            member = coordinator.member()?;
        }
    };
    tokio::time::timeout_at(deadline, committing).await.unwrap_or_else(|_| {
        let what = format!("commit to group `{}`", coordinator.group());
        Err(Error::TimedOut { what, waited_ms: timeout.as_millis() })
    })
}

/// The next step after a refused commit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Next {
    /// It is final.
    Refused,
    /// The consumer has another generation by now.
    Now,
    /// The consumer may get another generation soon.
    Later,
}

/// A group enters its next generation, or a member its next epoch, before the member receives the response with it. A
/// commit that the coordinator handles in between is refused, although the member may still own the partitions.
///
/// `was_joining` is `true` if the member joined its next generation when the commit was sent: by now, it can be in it.
fn next_member(
    coordinator: &Coordinator,
    used: Option<&(i32, String)>,
    was_joining: bool,
    error: &Error,
) -> Next {
    match error {
        // In the KIP-848 protocol, the next heartbeat returns the new epoch.
        Error::Broker { code: ErrorCode::StaleMemberEpoch, .. } => Next::Later,
        Error::Broker { code: ErrorCode::IllegalGeneration | ErrorCode::RebalanceInProgress, .. } => {
            match coordinator.member() {
                Ok(current) if current.as_ref() != used => Next::Now,
                Ok(_) if coordinator.is_joining() => Next::Later,
                Ok(_) if was_joining => Next::Now,
                _ => Next::Refused,
            }
        }
        _ => Next::Refused,
    }
}

/// The right of a commit to its partitions: the assignments in which the consumer owned them when the commit was requested.
///
/// The coordinator does not check who owns a partition. A partition that was given up in between must not be committed
/// under a later generation, even if it came back: another member may have committed a later offset.
#[derive(Debug)]
pub(super) struct CommitClaim {
    /// None for partitions that the application gives up: they are this member's until the group takes some.
    partitions: Vec<(TopicPartition, Option<Arc<PartitionProgress>>)>,
    /// The number of times that the group had taken partitions from the member.
    releases: u64,
    is_given_up: bool,
}

impl CommitClaim {
    /// The claim of a commit of partitions that the consumer has now.
    pub(super) fn assigned(shared: &Shared, offsets: &Offsets) -> Self {
        let partitions = offsets.keys().filter(|at| shared.files_of(at).is_none());
        Self {
            partitions: partitions.map(|at| (at.clone(), shared.owned_progress(at))).collect(),
            releases: shared.releases.get(),
            is_given_up: false,
        }
    }

    /// The claim of a commit of partitions that the application gives up now.
    pub(super) fn given_up(shared: &Shared) -> Self {
        Self { partitions: Vec::new(), releases: shared.releases.get(), is_given_up: true }
    }

    /// Returns `true` if the consumer has owned the partitions all the time since then. The application may have given them up: if the
    /// group has taken none, no other member has them.
    fn holds(&self, shared: &Shared) -> bool {
        if self.releases == shared.releases.get() {
            return self.partitions.iter().all(|(_, then)| then.is_some());
        }
        !self.partitions.is_empty()
            && self.partitions.iter().all(|(at, then)| {
                let now = shared.owned_progress(at);
                matches!((then, &now), (Some(then), Some(now)) if Arc::ptr_eq(then, now))
            })
    }
}
