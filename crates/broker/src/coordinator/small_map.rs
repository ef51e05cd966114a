//! A sorted map in one allocation: most groups have one topic, a few partitions and a few members.

use std::borrow::Borrow;

/// Values by key, in the order of the keys. A map of one entry has memory for one, where a `BTreeMap` has a node for eleven.
///
/// An insertion moves the entries after it: values that are large belong in boxes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SmallMap<K, V> {
    /// Sorted by key, without duplicates.
    entries: Vec<(K, V)>,
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    /// The memory of an entry: the allocation doubles when it is full. After removals it can be twice that.
    pub(crate) const ENTRY_BYTES: usize = 2 * size_of::<(K, V)>();
    /// The allocation shrinks when it has room for so many times the entries.
    const SHRINKS_AT: usize = 4;

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        self.entries.get(at).map(|(_, value)| value)
    }

    /// The key of the map that is equal to this one.
    pub(crate) fn get_key<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&K>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        self.entries.get(at).map(|(key, _)| key)
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        self.entries.get_mut(at).map(|(_, value)| value)
    }

    pub(crate) fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    /// Replaces the value, and returns the one before.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(at) => self.entries.get_mut(at).map(|(_, known)| std::mem::replace(known, value)),
            Err(at) => {
                self.insert_at(at, key, value);
                None
            }
        }
    }

    /// The value of a key, which is made if there is none.
    pub(crate) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let at = match self.find(&key) {
            Ok(at) => at,
            Err(at) => {
                self.insert_at(at, key, make());
                at
            }
        };
        &mut self.entries[at].1
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        let (_, value) = self.entries.remove(at);
        if self.entries.len() * Self::SHRINKS_AT <= self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    pub(crate) fn into_entries(self) -> impl Iterator<Item = (K, V)> {
        self.entries.into_iter()
    }

    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.entries.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }

    fn insert_at(&mut self, at: usize, key: K, value: V) {
        if self.entries.len() == self.entries.capacity() {
            // A vector would begin with room for four.
            self.entries.reserve_exact(self.entries.len().max(1));
        }
        self.entries.insert(at, (key, value));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_does_what_a_map_of_the_standard_library_does() {
        let mut rng = fastrand::Rng::with_seed(11);
        let (mut small, mut model) = (SmallMap::<String, u32>::default(), BTreeMap::new());
        for round in 0..20_000_u32 {
            // The map grows in one half of the rounds and shrinks in the other.
            let grows = (round / 1_000) % 2 == 0;
            let key = format!("key-{}", rng.u8(..200));
            if rng.u8(..10) < if grows { 7 } else { 3 } {
                assert_eq!(small.insert(key.clone(), round), model.insert(key.clone(), round));
            } else {
                assert_eq!(small.remove(key.as_str()), model.remove(&key));
            }
            let other = format!("key-{}", rng.u8(..200));
            assert_eq!(small.get(other.as_str()), model.get(&other));
            assert_eq!(small.contains_key(other.as_str()), model.contains_key(&other));
            if rng.u8(..10) == 0 {
                *small.get_or_insert_with(other.clone(), || 7) += 1;
                *model.entry(other.clone()).or_insert(7) += 1;
            }
            assert!(small.iter().eq(model.iter()));
            assert_eq!((small.len(), small.is_empty()), (model.len(), model.is_empty()));
            assert!(small.entries.capacity() <= 4 * small.len(), "it has shrunk");
        }
        assert!(small.into_entries().eq(model));
    }

    #[test]
    fn a_map_of_one_entry_has_memory_for_one() {
        let mut map = SmallMap::default();
        map.insert(1, "one");
        assert_eq!(map.entries.capacity(), 1);
        map.insert(0, "none");
        assert_eq!(map.entries.capacity(), 2);
        assert!(map.keys().eq(&[0, 1]) && map.values().eq(&["none", "one"]));
        map.values_mut().for_each(|value| *value = "");
        assert_eq!(map.get_mut(&1), Some(&mut ""));
    }
}
