//! The open connections of a node by the addresses of their clients, for `max.connections.per.ip`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;

use crate::cluster::lock;

/// The number of open connections of each address. There are at most as many addresses as connections.
#[derive(Debug, Default)]
pub(crate) struct ClientAddresses(Mutex<BTreeMap<IpAddr, usize>>);

/// One connection of an address, which counts until this is dropped.
#[derive(Debug)]
pub(crate) struct AddressPlace<'a> {
    addresses: &'a ClientAddresses,
    address: IpAddr,
}

impl ClientAddresses {
    /// Counts another connection of an address; `None` if it has `max` already.
    pub(crate) fn enter(&self, address: IpAddr, max: usize) -> Option<AddressPlace<'_>> {
        let address = address.to_canonical();
        let mut counts = lock(&self.0);
        let open = counts.get(&address).copied().unwrap_or(0);
        if open >= max {
            return None;
        }
        counts.insert(address, open + 1);
        Some(AddressPlace { addresses: self, address })
    }
}

impl Drop for AddressPlace<'_> {
    fn drop(&mut self) {
        let mut counts = lock(&self.addresses.0);
        if let Some(open) = counts.get_mut(&self.address) {
            *open -= 1;
            if *open == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_count_by_address_until_they_end() {
        let addresses = ClientAddresses::default();
        let [one, mapped, other] = ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"];
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert!(addresses.enter(address(one), 0).is_none());
        let first = addresses.enter(address(one), 2).expect("room");
        let second = addresses.enter(address(mapped), 2).expect("room");
        assert!(addresses.enter(address(one), 2).is_none() && addresses.enter(address(mapped), 2).is_none());
        assert!(addresses.enter(address(other), 2).is_some());
        drop(first);
        assert!(addresses.enter(address(one), 2).is_some());
        drop(second);
        assert!(lock(&addresses.0).is_empty(), "{addresses:?}");
    }
}
