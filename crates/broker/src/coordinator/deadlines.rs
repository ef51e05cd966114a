//! The timer of a coordinator: it acts when the next deadline passes, or when a change may have moved it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Calls `tick` at each deadline that it returned and after each notification of `changed`. Runs until the future is
/// dropped.
pub(super) async fn keep_time(changed: &Notify, mut tick: impl FnMut(Instant) -> Option<Instant>) {
    loop {
        let next = tick(Instant::now());
        let timer = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = changed.notified() => {}
            () = timer => {}
        }
    }
}

/// Returns `true` if an interval since a stored time is over. A wall clock that went back ends it: the stored time is in the future,
/// and may be days away.
pub(super) fn is_interval_over(since_ms: i64, interval: Duration, now_ms: i64) -> bool {
    let interval_ms = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX);
    !(0..interval_ms).contains(&now_ms.saturating_sub(since_ms))
}

/// The time of a group's next tick, and the group's name.
pub(super) type Deadline = (Instant, Arc<str>);

/// The groups by the times of their next ticks.
pub(super) type Deadlines = BTreeSet<Deadline>;

/// Replaces the deadline of a group in the deadlines of all groups. `name` is asked for if the group has no deadline yet.
pub(super) fn move_deadline(
    all: &mut Deadlines,
    name: impl FnOnce() -> Arc<str>,
    deadline: &mut Option<Deadline>,
    at: Option<Instant>,
) {
    let before = deadline.take();
    if let Some(before) = &before {
        all.remove(before);
    }
    if let Some(at) = at {
        let name = before.map_or_else(name, |(_, name)| name);
        all.insert((at, name.clone()));
        *deadline = Some((at, name));
    }
}
