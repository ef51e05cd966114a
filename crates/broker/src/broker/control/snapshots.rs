//! The snapshots and the forks that requests of a control address have made.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::bodies::{ForkBody, SnapshotBody};
use super::routes::Refusal;
use super::{Control, ControlAnswer};
use crate::broker::{BrokerThread, Snapshot, SnapshotError, StartError};

/// The most snapshots of one broker: each keeps the bytes that the broker has replaced since.
const SNAPSHOTS_MAX: usize = 64;
/// The longest name of a snapshot: it is part of paths.
const NAME_BYTES_MAX: usize = 100;
/// The most forks of one broker that run at a time: each has a thread.
const FORKS_MAX: usize = 64;

/// Snapshots by name, and running forks by number.
#[derive(Debug, Default)]
pub(super) struct Snapshots(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    named: BTreeMap<String, Snapshot>,
    forks: BTreeMap<u64, BrokerThread>,
    /// Forks that start.
    starting: usize,
    last_fork: u64,
}

impl Snapshots {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn end_forks(&self) {
        let forks: Vec<BrokerThread> = std::mem::take(&mut self.lock().forks).into_values().collect();
        if !forks.is_empty() {
            let _ended = in_thread(move || drop(forks)).await;
        }
    }
}

impl Control {
    pub(super) fn snapshot_names(&self) -> Value {
        json!({ "snapshots": self.snapshots.lock().named.keys().collect::<Vec<_>>() })
    }

    /// Takes a snapshot, in place of one with the same name.
    pub(super) fn take_snapshot(&self, body: SnapshotBody) -> Result<Value, Refusal> {
        let is_plain = |name: char| name.is_ascii_alphanumeric() || ".-_".contains(name);
        // HTTP clients resolve these before they send a path with them.
        let is_relative = [".", ".."].contains(&body.name.as_str());
        let is_plain = body.name.chars().all(is_plain) && !is_relative;
        if body.name.is_empty() || body.name.len() > NAME_BYTES_MAX || !is_plain {
            let rule = format!("1 to {NAME_BYTES_MAX} letters, digits, `.`, `-` or `_`, but not `.` or `..`");
            return Err(Refusal::Invalid(format!("`name`: expected {rule}")));
        }
        let snapshot = self.snapshot().map_err(refused)?;
        let mut state = self.snapshots.lock();
        if state.named.len() >= SNAPSHOTS_MAX && !state.named.contains_key(&body.name) {
            let limit = format!("there are {SNAPSHOTS_MAX} snapshots, which is the maximum: delete one");
            return Err(Refusal::Conflict(limit));
        }
        state.named.insert(body.name, snapshot);
        Ok(json!({}))
    }

    pub(super) fn delete_snapshot(&self, name: &str) -> Result<Value, Refusal> {
        let deleted = self.snapshots.lock().named.remove(name);
        deleted.map(|_| json!({})).ok_or_else(|| no_snapshot(name))
    }

    pub(super) async fn restore_snapshot(&self, name: &str) -> Result<Value, Refusal> {
        let snapshot = self.named_snapshot(name)?;
        self.restore(snapshot).await.map_err(refused)?;
        Ok(json!({}))
    }

    /// Starts a fork of a snapshot, or of the broker as it is now.
    pub(super) async fn start_fork(&self, body: ForkBody) -> Result<Value, Refusal> {
        let snapshot = match &body.snapshot {
            Some(name) => self.named_snapshot(name)?,
            None => self.snapshot().map_err(refused)?,
        };
        let place = ForkPlace::take(&self.snapshots)?;
        let started = in_thread(move || snapshot.builder().spawn()).await;
        let fork = started.map_err(refused)?.map_err(|error| refused(error.into()))?;
        let bootstrap_servers = fork.bootstrap_servers();
        let mut state = self.snapshots.lock();
        state.last_fork += 1;
        let id = state.last_fork;
        state.forks.insert(id, fork);
        drop(state);
        drop(place);
        Ok(json!({ "id": id, "bootstrap_servers": bootstrap_servers }))
    }

    pub(super) fn forks(&self) -> Value {
        let state = self.snapshots.lock();
        let forks = state.forks.iter();
        let forks =
            forks.map(|(id, fork)| json!({ "id": id, "bootstrap_servers": fork.bootstrap_servers() }));
        json!({ "forks": forks.collect::<Vec<_>>() })
    }

    pub(super) async fn end_fork(&self, id: u64) -> Result<Value, Refusal> {
        let fork = self.snapshots.lock().forks.remove(&id).ok_or_else(|| no_fork(id))?;
        in_thread(move || drop(fork)).await.map_err(refused)?;
        Ok(json!({}))
    }

    /// Carries out a request of a fork.
    pub(super) async fn answer_of_fork(
        &self,
        id: u64,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<ControlAnswer, Refusal> {
        let control = self.snapshots.lock().forks.get(&id).map(BrokerThread::shared_control);
        let control = control.ok_or_else(|| no_fork(id))?;
        Ok(Box::pin(control.answer(method, path, body)).await)
    }

    fn named_snapshot(&self, name: &str) -> Result<Snapshot, Refusal> {
        self.snapshots.lock().named.get(name).cloned().ok_or_else(|| no_snapshot(name))
    }
}

/// The place of a fork that starts, free again when dropped.
struct ForkPlace<'a>(&'a Snapshots);

impl<'a> ForkPlace<'a> {
    fn take(snapshots: &'a Snapshots) -> Result<Self, Refusal> {
        let mut state = snapshots.lock();
        if state.forks.len() + state.starting >= FORKS_MAX {
            let limit = format!("{FORKS_MAX} forks run, which is the maximum: end one");
            return Err(Refusal::Conflict(limit));
        }
        state.starting += 1;
        Ok(Self(snapshots))
    }
}

impl Drop for ForkPlace<'_> {
    fn drop(&mut self) {
        self.0.lock().starting -= 1;
    }
}

/// Starts or stops a broker's thread, for which one waits, beside the caller's.
async fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, SnapshotError> {
    let (done, result) = oneshot::channel();
    std::thread::Builder::new()
        .name("ottla-fork".into())
        .spawn(move || drop(done.send(work())))
        .map_err(StartError::Thread)?;
    result.await.map_err(|_| SnapshotError::Stopped)
}

fn refused(error: SnapshotError) -> Refusal {
    Refusal::Conflict(error.to_string())
}

fn no_snapshot(name: &str) -> Refusal {
    Refusal::NotFound(format!("there is no snapshot `{name}`"))
}

fn no_fork(id: u64) -> Refusal {
    Refusal::NotFound(format!("there is no fork {id}"))
}
