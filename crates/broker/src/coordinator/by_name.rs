//! A map by name in which a lookup costs the same next to ten and to 100,000 entries.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// Values by name. A lookup reads one place of a hash table; a walk is in the order of the names.
///
/// The hashes have a random key: clients choose the names, and could choose those with equal hashes. No result depends on the key.
#[derive(Debug)]
pub(super) struct ByName<V> {
    /// Boxed: a table grows by moving its entries.
    values: HashMap<Arc<str>, Box<V>>,
    /// The order of a walk.
    names: BTreeSet<Arc<str>>,
}

impl<V> Default for ByName<V> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the random key protects against chosen names; walks do not depend on it"
    )]
    fn default() -> Self {
        Self { values: HashMap::new(), names: BTreeSet::new() }
    }
}

impl<V> ByName<V> {
    /// The memory of an entry besides its value and the characters of its name, which has two counters. The table and the nodes of
    /// the set can be half empty.
    pub(super) const ENTRY_BYTES: usize =
        2 * (size_of::<(Arc<str>, Box<V>)>() + size_of::<Arc<str>>() + size_of::<usize>());

    pub(super) fn get(&self, name: &str) -> Option<&V> {
        self.values.get(name).map(|value| &**value)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut V> {
        self.values.get_mut(name).map(|value| &mut **value)
    }

    /// The name of an entry, in the memory that the map has for it.
    pub(super) fn name(&self, name: &str) -> Option<&Arc<str>> {
        self.values.get_key_value(name).map(|(name, _)| name)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Replaces the value, and returns the one before.
    pub(super) fn insert(&mut self, name: &str, value: V) -> Option<Box<V>> {
        let value = Box::new(value);
        if let Some(known) = self.values.get_mut(name) {
            return Some(std::mem::replace(known, value));
        }
        let name = Arc::<str>::from(name);
        self.names.insert(name.clone());
        self.values.insert(name, value)
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Box<V>> {
        let value = self.values.remove(name)?;
        self.names.remove(name);
        Some(value)
    }

    /// The values, in no order.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.values_mut().map(|value| &mut **value)
    }

    /// The entries in the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &V)> {
        self.after(None)
    }

    /// The entries with names after this one, in the order of their names.
    pub(super) fn after(&self, name: Option<&str>) -> impl Iterator<Item = (&Arc<str>, &V)> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.names.range::<str, _>((from, Bound::Unbounded));
        names.filter_map(|name| Some((name, self.get(name)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_in_the_order_of_names_and_goes_on_after_one_that_is_gone() {
        let mut map = ByName::default();
        for name in ["c", "a", "d", "b"] {
            assert!(map.insert(name, name.to_owned()).is_none());
        }
        assert_eq!(map.insert("b", "B".to_owned()).as_deref(), Some(&"b".to_owned()));
        assert_eq!(map.remove("c").as_deref(), Some(&"c".to_owned()));
        assert!(map.remove("c").is_none());
        map.get_mut("d").expect("an entry").push('!');
        let walk = |after| map.after(after).map(|(_, value)| value.as_str()).collect::<Vec<_>>();
        assert_eq!(walk(None), ["a", "B", "d!"]);
        assert_eq!(walk(Some("a")), ["B", "d!"]);
        assert_eq!(walk(Some("c")), ["d!"]);
        assert_eq!(map.name("d").map(|name| &**name), Some("d"));
        assert!(map.name("c").is_none());
        assert!(map.contains("d") && !map.contains("c"));
    }
}
