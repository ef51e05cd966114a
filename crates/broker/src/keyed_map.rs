//! A hash table whose keys clients choose.

use std::collections::HashMap;
use std::hash::RandomState;

/// A hash table with a random key: clients choose the names in it, and could choose those with equal hashes. No result depends on the
/// order of its entries.
pub(crate) type KeyedMap<K, V> = HashMap<K, V, RandomState>;
