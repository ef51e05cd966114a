//! Names that many members have: protocols, client ids, addresses. Each is in memory once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Clients choose the names: a name beyond so many different ones has memory of its own, and a longer one.
const NAMES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 256;

/// The names that are shared.
#[derive(Debug, Default)]
pub(super) struct SharedNames(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    names: BTreeSet<Arc<str>>,
    /// The names that found no room since unused ones were removed.
    refused: usize,
}

impl SharedNames {
    /// The name, in the memory of an equal one if possible.
    pub(super) fn get(&self, name: &str) -> Arc<str> {
        if name.len() > NAME_BYTES_MAX {
            return Arc::from(name);
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = known.names.get(name) {
            return shared.clone();
        }
        let own = Arc::<str>::from(name);
        if known.has_room() {
            known.names.insert(own.clone());
        }
        own
    }
}

impl Known {
    /// Looks for unused names only after as many refusals as there are names: a name costs the same if all are in use.
    fn has_room(&mut self) -> bool {
        if self.names.len() < NAMES_MAX {
            return true;
        }
        self.refused += 1;
        if self.refused >= NAMES_MAX {
            self.refused = 0;
            self.names.retain(|name| Arc::strong_count(name) > 1);
        }
        self.names.len() < NAMES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_have_the_same_memory() {
        let names = SharedNames::default();
        let range = names.get("range");
        assert!(Arc::ptr_eq(&range, &names.get("range")));
        assert!(!Arc::ptr_eq(&range, &names.get("roundrobin")));
    }

    #[test]
    fn the_number_of_shared_names_is_limited_and_unused_ones_make_room() {
        let names = SharedNames::default();
        let used: Vec<_> = (0..NAMES_MAX).map(|number| names.get(&number.to_string())).collect();
        assert_eq!(&*names.get("more"), "more");
        assert!(!Arc::ptr_eq(&names.get("more"), &names.get("more")), "no room");
        drop(used);
        for _ in 0..NAMES_MAX {
            names.get("more");
        }
        assert!(Arc::ptr_eq(&names.get("more"), &names.get("more")));
    }
}
