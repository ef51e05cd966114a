//! Batches of a change and of the state become one list: Kafka's `PersisterStateBatchCombiner`.

use std::collections::BTreeMap;

use super::StateBatch;

/// Combines batches. Where several cover an offset, the one with the highest delivery count wins, and of those the one with
/// the highest state: a record's delivery only moves on. Offsets below `start_offset` are left out; a negative one removes
/// nothing. The result is sorted, without overlaps, and neighbours differ.
pub(super) fn combine(known: &[StateBatch], new: &[StateBatch], start_offset: i64) -> Vec<StateBatch> {
    let all = known.iter().chain(new).filter(|batch| batch.last >= start_offset);
    // Of each boundary: the batches that begin and end there.
    let mut boundaries: BTreeMap<i64, (Vec<Rank>, Vec<Rank>)> = BTreeMap::new();
    for batch in all {
        let rank = (batch.delivery_count, batch.state);
        boundaries.entry(batch.first.max(start_offset)).or_default().0.push(rank);
        boundaries.entry(batch.last.saturating_add(1)).or_default().1.push(rank);
    }
    let mut active: BTreeMap<Rank, usize> = BTreeMap::new();
    let mut combined: Vec<StateBatch> = Vec::new();
    let mut from = 0;
    for (at, (begin, end)) in boundaries {
        if let Some((&(delivery_count, state), _)) = active.last_key_value() {
            let next = StateBatch { first: from, last: at - 1, state, delivery_count };
            match combined.last_mut() {
                Some(last) if last.last + 1 == from && is_same(last, &next) => last.last = next.last,
                _ => combined.push(next),
            }
        }
        for rank in begin {
            *active.entry(rank).or_default() += 1;
        }
        for rank in end {
            if let Some(count) = active.get_mut(&rank) {
                *count -= 1;
                if *count == 0 {
                    active.remove(&rank);
                }
            }
        }
        from = at;
    }
    combined
}

/// The delivery count and the state.
type Rank = (i16, i8);

const fn is_same(left: &StateBatch, right: &StateBatch) -> bool {
    left.state == right.state && left.delivery_count == right.delivery_count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(first: i64, last: i64, state: i8, delivery_count: i16) -> StateBatch {
        StateBatch { first, last, state, delivery_count }
    }

    #[test]
    fn a_change_replaces_the_part_that_it_covers() {
        let known = [batch(0, 9, 0, 1)];
        assert_eq!(combine(&known, &[batch(10, 19, 0, 1)], -1), [batch(0, 19, 0, 1)]);
        assert_eq!(
            combine(&known, &[batch(3, 5, 2, 1)], -1),
            [batch(0, 2, 0, 1), batch(3, 5, 2, 1), batch(6, 9, 0, 1)]
        );
        assert_eq!(combine(&known, &[batch(5, 12, 0, 2)], -1), [batch(0, 4, 0, 1), batch(5, 12, 0, 2)]);
        assert_eq!(combine(&known, &[batch(15, 15, 4, 1)], -1), [batch(0, 9, 0, 1), batch(15, 15, 4, 1)]);
        // A late change of an earlier delivery.
        assert_eq!(combine(&[batch(0, 9, 0, 3)], &[batch(0, 9, 2, 2)], -1), [batch(0, 9, 0, 3)]);
    }

    #[test]
    fn offsets_below_the_start_are_left_out() {
        let known = [batch(0, 9, 2, 1), batch(20, 29, 0, 1)];
        assert_eq!(combine(&known, &[], 5), [batch(5, 9, 2, 1), batch(20, 29, 0, 1)]);
        assert_eq!(combine(&known, &[batch(10, 19, 2, 1)], 20), [batch(20, 29, 0, 1)]);
        assert_eq!(combine(&known, &[], 30), []);
    }

    #[test]
    fn the_result_is_the_highest_rank_of_each_offset() {
        for seed in 0..500 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut draw = || {
                let first = rng.i64(0..40);
                let last = first + rng.i64(0..15);
                batch(first, last, [0, 2, 3, 4][rng.usize(0..4)], rng.i16(1..4))
            };
            let known: Vec<StateBatch> = (0..6).map(|_| draw()).collect();
            let new: Vec<StateBatch> = (0..6).map(|_| draw()).collect();
            let start = seed as i64 % 20 - 1;
            let combined = combine(&known, &new, start);
            let rank_of = |batches: &[StateBatch], at: i64| {
                let covering = batches.iter().filter(|batch| (batch.first..=batch.last).contains(&at));
                covering.map(|batch| (batch.delivery_count, batch.state)).max()
            };
            let all = [&known[..], &new].concat();
            for at in 0..60 {
                let wanted = rank_of(&all, at).filter(|_| at >= start);
                assert_eq!(rank_of(&combined, at), wanted, "seed {seed}, offset {at}");
            }
            for pair in combined.windows(2) {
                assert!(pair[0].last < pair[1].first, "seed {seed}: {pair:?}");
                let touch = pair[0].last + 1 == pair[1].first;
                assert!(!(touch && is_same(&pair[0], &pair[1])), "seed {seed}: {pair:?}");
            }
        }
    }
}
