//! Tables by producer id.

use std::collections::{HashMap, HashSet};
use std::hash::RandomState;

/// A table by producer id with a random key: clients choose the ids, and could choose those with equal hashes. No result depends on the
/// order of its entries.
pub(crate) type ProducerMap<V> = HashMap<i64, V, RandomState>;

/// A set of producer ids, like [`ProducerMap`].
pub(crate) type ProducerSet = HashSet<i64, RandomState>;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::BuildHasher;

    use super::*;

    /// Returns an id to which a hash without a key, a product with this odd factor, gives the number `product`.
    fn id_of(product: u64, factor: u64) -> i64 {
        // Each step doubles the number of right bits of the inverse.
        let inverse = (0..6).fold(factor, |inverse, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(inverse)))
        });
        product.wrapping_mul(inverse).cast_signed()
    }

    /// The tables had hashes without a key. The batches of a client that chose ids with equal ones were compared with all its producers,
    /// in the thread that serves all clients.
    #[test]
    fn chosen_producer_ids_have_different_hashes() {
        // The factor of rustc-hash.
        const FACTOR: u64 = 0xf135_7aea_2e62_a9c5;
        assert_eq!(id_of(7, FACTOR).cast_unsigned().wrapping_mul(FACTOR), 7);
        let map = ProducerMap::<u8>::default();
        let set = ProducerSet::default();
        let (mut of_map, mut of_set) = (BTreeSet::new(), BTreeSet::new());
        for count in 0..20_000_u64 {
            let id = id_of(count, FACTOR);
            // The bits that choose a bucket of a large table.
            of_map.insert(map.hasher().hash_one(id) & 0xffff);
            of_set.insert(set.hasher().hash_one(id) & 0xffff);
        }
        assert!(of_map.len() > 10_000, "{} buckets of the table", of_map.len());
        assert!(of_set.len() > 10_000, "{} buckets of the set", of_set.len());
    }
}
