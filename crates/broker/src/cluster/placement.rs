//! The nodes that get the replicas of new partitions, if no client chooses them.

use std::ops::Range;

use crate::cluster::Cluster;
use crate::topics::Assignments;

/// The nodes of a rack.
#[derive(Debug, Default)]
struct Rack {
    name: Option<String>,
    up: Vec<i32>,
    down: Vec<i32>,
}

impl Cluster {
    /// Returns the replicas of new partitions that a topic has to store, so many for each: those that differ from
    /// [`Cluster::spread`] with the replication factor of the topic.
    pub(crate) fn place(&self, partitions: Range<i32>, count: usize, replication: i32) -> Assignments {
        // A single replica is wherever the leader is first.
        if count <= 1 && replication <= 1 {
            return Assignments::new();
        }
        let racks = self.racks();
        let placed = partitions.map(|index| (index, place_one(&racks, index as usize, count)));
        placed.filter(|(index, replicas)| *replicas != self.spread(*index, replication)).collect()
    }

    /// The racks in the order of their first nodes. The nodes without a rack are together, as in Kafka.
    fn racks(&self) -> Vec<Rack> {
        let mut racks: Vec<Rack> = Vec::new();
        for id in self.node_ids() {
            let name = self.rack(id);
            let known = racks.iter().position(|rack| rack.name == name);
            let at = known.unwrap_or_else(|| {
                racks.push(Rack { name, ..Rack::default() });
                racks.len() - 1
            });
            let nodes = if self.is_node_up(id) { &mut racks[at].up } else { &mut racks[at].down };
            nodes.push(id);
        }
        racks
    }
}

impl Rack {
    /// The nodes in the order in which they get replicas, beginning with the `first` one: a node that is down is the last choice.
    fn in_order(&self, first: usize) -> Vec<i32> {
        let rotated = |nodes: &[i32]| -> Vec<i32> {
            (0..nodes.len()).map(|step| nodes[(first + step) % nodes.len()]).collect()
        };
        [rotated(&self.up), rotated(&self.down)].concat()
    }
}

/// The replicas of one partition, the leader first. They are those of Kafka's `StripedReplicaPlacer`, without chance: a partition
/// begins with the rack after that of the partition before it, and takes one node of each rack before a second one.
fn place_one(racks: &[Rack], partition: usize, count: usize) -> Vec<i32> {
    let in_turn = |step: usize| &racks[(partition + step) % racks.len()];
    let steps = 0..racks.len();
    let mut orders: Vec<Vec<i32>> =
        steps.clone().map(|step| in_turn(step).in_order(partition / racks.len())).collect();
    // The leader must be up.
    if let Some(leads) = steps.clone().find(|step| !in_turn(*step).up.is_empty()) {
        orders[..=leads].rotate_right(1);
    }
    let rounds = 0..orders.iter().map(Vec::len).max().unwrap_or_default();
    let nodes = rounds.flat_map(|round| orders.iter().filter_map(move |order| order.get(round).copied()));
    nodes.take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rack(up: &[i32], down: &[i32]) -> Rack {
        Rack { name: None, up: up.to_vec(), down: down.to_vec() }
    }

    fn placed(racks: &[Rack], partitions: usize, count: usize) -> Vec<Vec<i32>> {
        (0..partitions).map(|partition| place_one(racks, partition, count)).collect()
    }

    #[test]
    fn a_partition_has_a_node_of_each_rack_before_a_second_one_of_any() {
        let even = [rack(&[1, 2], &[]), rack(&[3, 4], &[])];
        assert_eq!(placed(&even, 5, 2), [[1, 3], [3, 1], [2, 4], [4, 2], [1, 3]]);
        assert_eq!(placed(&even, 2, 3), [[1, 3, 2], [3, 1, 4]]);
        let uneven = [rack(&[1, 2, 3], &[]), rack(&[4], &[])];
        assert_eq!(placed(&uneven, 4, 2), [[1, 4], [4, 1], [2, 4], [4, 2]]);
    }

    #[test]
    fn without_racks_the_replicas_are_consecutive_nodes() {
        let one = [rack(&[1, 2, 3], &[])];
        assert_eq!(placed(&one, 4, 2), [[1, 2], [2, 3], [3, 1], [1, 2]]);
    }

    #[test]
    fn a_node_that_is_down_is_the_last_choice_and_never_the_leader() {
        let one = [rack(&[2, 3], &[1])];
        assert_eq!(placed(&one, 2, 2), [[2, 3], [3, 2]]);
        assert_eq!(placed(&one, 2, 3), [[2, 3, 1], [3, 2, 1]]);
        // Another rack comes before another node of the same rack.
        let racks = [rack(&[], &[1]), rack(&[], &[2]), rack(&[3, 4], &[])];
        assert_eq!(placed(&racks, 3, 2), [[3, 1], [3, 2], [3, 1]]);
    }
}
