//! Waits for changes of the files in a directory: inotify on Linux, an interval elsewhere.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

/// The interval between two checks where the system does not report changes.
const CHECK_EVERY: Duration = Duration::from_millis(20);
/// The same where it does. Network file systems report no changes that other machines make.
const CHECK_ANYWAY_EVERY: Duration = Duration::from_secs(1);

/// A directory whose changes are reported, from [`DirWatch::start`] on.
pub(super) struct DirWatch {
    /// Notified after changes; `None` if the system does not report them.
    changes: Option<Arc<Notify>>,
}

impl DirWatch {
    /// Starts to watch. If the system refuses (the user's inotify watches are used up), the files are checked at an
    /// interval.
    pub(super) fn start(dir: &Path) -> Self {
        let changes = watch(dir);
        if let Err(error) = &changes {
            tracing::debug!(%error, dir = %dir.display(), "no notifications: the files are checked at an interval");
        }
        Self { changes: changes.ok() }
    }

    /// Resolves after a change since the last call; also without one, at an interval.
    pub(super) async fn changed(&self) {
        let Some(changes) = &self.changes else { return tokio::time::sleep(CHECK_EVERY).await };
        tokio::select! {
            () = changes.notified() => {}
            () = tokio::time::sleep(CHECK_ANYWAY_EVERY) => {}
        }
    }
}

/// Starts a thread that waits for events, because a wait for an inotify descriptor in the runtime is unsafe code. The
/// thread ends at the first event after the watch was dropped.
#[cfg(target_os = "linux")]
fn watch(dir: &Path) -> std::io::Result<Arc<Notify>> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

    let events = init(CreateFlags::CLOEXEC)?;
    add_watch(&events, dir, WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO)?;
    let changes = Arc::new(Notify::new());
    let watched = Arc::downgrade(&changes);
    // The files show the changes themselves; the events are not looked at.
    let notify = move || {
        let mut buffer = [0; 4096];
        while rustix::io::read(&events, &mut buffer).is_ok() {
            let Some(changes) = watched.upgrade() else { return };
            changes.notify_one();
        }
    };
    std::thread::Builder::new().name("ottla-inotify".into()).spawn(notify)?;
    Ok(changes)
}

#[cfg(not(target_os = "linux"))]
fn watch(_dir: &Path) -> std::io::Result<Arc<Notify>> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_write_and_a_new_file_are_changes() {
        let dir = tempfile::tempdir().expect("a directory");
        let watch = DirWatch::start(dir.path());
        assert_eq!(watch.changes.is_some(), cfg!(target_os = "linux"));
        for name in ["a", "b", "a"] {
            std::fs::write(dir.path().join(name), "more").expect("written");
            tokio::time::timeout(Duration::from_secs(60), watch.changed()).await.expect("a change");
        }
    }
}
