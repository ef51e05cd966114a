//! The racks of the nodes, and the replica that consumers read from (KIP-392).

use std::str::FromStr;

use super::BrokerConfig;

/// The default of `replica.selector.class`. KIP-392 names this class; the releases of Apache Kafka do the same without a class.
const LEADER: &str = "org.apache.kafka.common.replica.LeaderSelector";
const RACK_AWARE: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";

/// The longest name of a rack. Each Metadata response has the racks of all nodes.
const RACK_BYTES_MAX: usize = 255;

/// The replica that consumers read from, since version 11 of Fetch.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ReplicaSelector {
    /// The leader.
    #[default]
    Leader,
    /// A replica in the rack that the consumer has as `client.rack`. The leader redirects the consumer to it, if the leader itself is in
    /// another rack.
    RackAware,
}

impl FromStr for ReplicaSelector {
    type Err = String;

    fn from_str(class: &str) -> Result<Self, String> {
        match class.trim() {
            "" | LEADER => Ok(Self::Leader),
            RACK_AWARE => Ok(Self::RackAware),
            other => {
                Err(format!("replica.selector.class=`{other}`: use {LEADER} (the default) or {RACK_AWARE}"))
            }
        }
    }
}

/// The racks of `broker.rack`, separated by commas. No value is no rack.
pub(super) fn racks_of(value: &str) -> Result<Vec<String>, String> {
    if value.trim().is_empty() {
        return Ok(Vec::new());
    }
    let racks: Vec<String> = value.split(',').map(|rack| rack.trim().to_owned()).collect();
    match racks.iter().map(String::len).find(|bytes| *bytes > RACK_BYTES_MAX) {
        Some(bytes) => {
            Err(format!("broker.rack: a rack has {bytes} bytes, at most {RACK_BYTES_MAX} are allowed"))
        }
        None => Ok(racks),
    }
}

impl BrokerConfig {
    /// Refuses a list of racks that has neither one rack for all nodes nor one for each.
    pub(crate) fn check_racks(&self, nodes: i32) -> Result<(), String> {
        let (racks, count) = (&self.racks, usize::try_from(nodes).unwrap_or(1).max(1));
        if racks.len() <= 1 || racks.len() == count {
            return Ok(());
        }
        Err(format!(
            "broker.rack=`{}`: {} racks for {count} nodes; use one rack for all nodes, or a list with one for each",
            racks.join(","),
            racks.len()
        ))
    }

    /// The rack of the node with this id, if it has one.
    pub(crate) fn rack_of(&self, node: i32) -> Option<&str> {
        let rack = match &*self.racks {
            [of_all] => of_all,
            racks => racks.get(usize::try_from(node.checked_sub(self.node_id)?).ok()?)?,
        };
        Some(rack.as_str()).filter(|rack| !rack.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_without_a_comma_is_the_rack_of_all_nodes() {
        let of = |value: &str| {
            let mut config = BrokerConfig { node_id: 7, ..BrokerConfig::default() };
            config.set("broker.rack", value).expect("racks");
            [6, 7, 8, 9].map(|node| config.rack_of(node).map(str::to_owned))
        };
        let rack = |name: &str| Some(name.to_owned());
        assert_eq!(of(""), [None, None, None, None]);
        assert_eq!(of(" eu "), [rack("eu"), rack("eu"), rack("eu"), rack("eu")]);
        assert_eq!(of("eu, us,"), [None, rack("eu"), rack("us"), None]);
        assert!(BrokerConfig::default().set("broker.rack", &"x".repeat(256)).is_err());
    }

    #[test]
    fn another_class_is_refused_with_the_names_of_those_that_exist() {
        for (class, selector) in [
            ("", ReplicaSelector::Leader),
            (LEADER, ReplicaSelector::Leader),
            (" org.apache.kafka.common.replica.RackAwareReplicaSelector ", ReplicaSelector::RackAware),
        ] {
            let mut config = BrokerConfig::default();
            assert_eq!(config.set("replica.selector.class", class), Ok(()));
            assert_eq!(config.replica_selector, selector, "{class}");
        }
        let refused = BrokerConfig::default().set("replica.selector.class", "com.example.Nearest");
        let reason = refused.expect_err("an unknown class");
        for part in ["com.example.Nearest", LEADER, RACK_AWARE] {
            assert!(reason.contains(part), "{reason}");
        }
    }
}
