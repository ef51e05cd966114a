//! The id of this client for its metrics (KIP-714).

use std::cell::Cell;

use ottla_protocol::Uuid;

use super::change_counter::{ChangeCounter, ChangeWaiter};

/// The id that a broker gave this client; it stays until the client ends.
#[derive(Debug, Default)]
pub(crate) struct ClientInstance {
    id: Cell<Option<Uuid>>,
    changed: ChangeCounter,
}

impl ClientInstance {
    /// The id, if a broker has given one.
    pub(crate) fn id(&self) -> Option<Uuid> {
        self.id.get()
    }

    /// Stores the id and wakes its waiters.
    pub(crate) fn set(&self, id: Uuid) {
        if self.id.replace(Some(id)) != Some(id) {
            self.changed.raise();
        }
    }

    /// Notified when the id is known.
    pub(crate) fn changes(&self) -> ChangeWaiter {
        self.changed.changes()
    }
}
