//! The line of those that wait for memory that clients share: the client that has the least of it is first.
//!
//! In the order of arrival, ten thousand connections of one client would make all others wait for each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

/// The bits of an IPv6 address that a network has in common. One host can have all addresses of it.
const IPV6_NETWORK: u128 = !0 << 64;

/// A client, as far as shares of memory tell clients apart: the IP address of its host, or the network of an IPv6 address. In-process
/// clients and the broker's own work count as one.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct ClientHost(Option<IpAddr>);

impl ClientHost {
    /// The broker itself, and in-process clients.
    pub(crate) const LOCAL: Self = Self(None);

    pub(crate) fn new(address: Option<IpAddr>) -> Self {
        Self(address.map(|address| match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & IPV6_NETWORK)),
        }))
    }
}

/// The shares of clients in something, and those that wait for more of it.
#[derive(Debug)]
pub(super) struct Line<W> {
    /// Clients that have something.
    held: BTreeMap<ClientHost, usize>,
    waiters: BTreeMap<(ClientHost, u64), W>,
    /// The tickets with which clients that wait took their places among the others.
    since: BTreeMap<ClientHost, u64>,
    /// One for each client that waits.
    ranks: BTreeSet<Rank>,
    next_ticket: u64,
}

/// The place of a client in the line: the least is first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Rank {
    held: usize,
    /// It waits since this ticket, or was served last before it.
    since: u64,
    client: ClientHost,
}

impl<W> Default for Line<W> {
    fn default() -> Self {
        Self {
            held: BTreeMap::new(),
            waiters: BTreeMap::new(),
            since: BTreeMap::new(),
            ranks: BTreeSet::new(),
            next_ticket: 0,
        }
    }
}

impl<W> Line<W> {
    /// The number of those that wait.
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Counts what a client has more.
    pub(super) fn add(&mut self, client: ClientHost, amount: usize) {
        self.rank_again(client, |line| *line.held.entry(client).or_default() += amount);
    }

    /// Counts what a client has less.
    pub(super) fn subtract(&mut self, client: ClientHost, amount: usize) {
        self.rank_again(client, |line| {
            let left = line.held(client).saturating_sub(amount);
            if left == 0 {
                line.held.remove(&client)
            } else {
                line.held.insert(client, left)
            };
        });
    }

    /// Waits behind the others of its client. Returns the ticket with which it leaves.
    pub(super) fn enter(&mut self, client: ClientHost, waiter: W) -> u64 {
        let ticket = self.take_ticket();
        self.rank_again(client, |line| {
            line.since.entry(client).or_insert(ticket);
            line.waiters.insert((client, ticket), waiter);
        });
        ticket
    }

    /// Leaves the line, if it still waits.
    pub(super) fn leave(&mut self, client: ClientHost, ticket: u64) {
        self.rank_again(client, |line| drop(line.waiters.remove(&(client, ticket))));
    }

    /// The first one.
    pub(super) fn first(&self) -> Option<&W> {
        let client = self.ranks.first()?.client;
        self.waiters.get(&(client, self.first_ticket(client)?))
    }

    /// Removes the first one, which gets something. Its client then waits behind others that have as much.
    pub(super) fn serve_first(&mut self) -> Option<(ClientHost, W)> {
        let client = self.ranks.first()?.client;
        let (ticket, now) = (self.first_ticket(client)?, self.take_ticket());
        let mut served = None;
        self.rank_again(client, |line| {
            served = line.waiters.remove(&(client, ticket));
            line.since.insert(client, now);
        });
        served.map(|waiter| (client, waiter))
    }

    /// Returns `true` if a request that comes now would be the first one.
    pub(super) fn is_next(&self, client: ClientHost) -> bool {
        let Some(first) = self.ranks.first() else { return true };
        self.first_ticket(client).is_none() && self.held(client) < first.held
    }

    /// Returns `true` if another client waits that has no more than this one, or this one itself.
    pub(super) fn wants_from(&self, client: ClientHost) -> bool {
        self.ranks.first().is_some_and(|first| first.held <= self.held(client))
    }

    fn take_ticket(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        ticket
    }

    fn held(&self, client: ClientHost) -> usize {
        self.held.get(&client).copied().unwrap_or(0)
    }

    /// That of the client's waiter that waits longest.
    fn first_ticket(&self, client: ClientHost) -> Option<u64> {
        self.waiters.range((client, 0)..=(client, u64::MAX)).next().map(|((_, ticket), _)| *ticket)
    }

    fn rank(&self, client: ClientHost) -> Option<Rank> {
        let since = *self.since.get(&client)?;
        Some(Rank { held: self.held(client), since, client })
    }

    fn rank_again(&mut self, client: ClientHost, change: impl FnOnce(&mut Self)) {
        if let Some(rank) = self.rank(client) {
            self.ranks.remove(&rank);
        }
        change(self);
        if self.first_ticket(client).is_none() {
            self.since.remove(&client);
        }
        self.ranks.extend(self.rank(client));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> ClientHost {
        ClientHost::new(Some(IpAddr::from([10, 0, 0, number])))
    }

    fn order(line: &mut Line<u32>) -> Vec<u32> {
        std::iter::from_fn(|| line.serve_first().map(|(_, waiter)| waiter)).collect()
    }

    #[test]
    fn the_client_that_has_the_least_is_first_and_then_each_in_turn() {
        let mut line = Line::default();
        line.add(client(1), 10);
        line.add(client(2), 5);
        for (number, waiter) in [(1, 11), (1, 12), (2, 21), (3, 31), (3, 32), (4, 41)] {
            line.enter(client(number), waiter);
        }
        assert_eq!(line.len(), 6);
        assert_eq!(order(&mut line), [31, 41, 32, 21, 11, 12]);
        assert_eq!((line.len(), line.first()), (0, None));
        assert!(line.since.is_empty(), "clients that do not wait are forgotten");
    }

    #[test]
    fn what_a_client_gets_and_returns_changes_its_place() {
        let mut line = Line::default();
        line.enter(client(1), 11);
        line.enter(client(2), 21);
        line.add(client(1), 1);
        assert_eq!(line.first(), Some(&21));
        assert!(line.wants_from(client(1)) && line.wants_from(client(2)));
        assert!(!line.is_next(client(2)) && !line.is_next(client(3)), "others wait that have as little");
        line.subtract(client(1), 1);
        assert_eq!(line.first(), Some(&11));
        assert!(line.held.is_empty(), "clients without memory are forgotten");
    }

    /// Connections of one client that waited for long took away what others had little of.
    #[test]
    fn those_that_have_more_do_not_want_what_others_have() {
        let mut line = Line::default();
        line.add(client(1), 10);
        line.add(client(2), 1);
        let ticket = line.enter(client(1), 11);
        assert!(line.wants_from(client(1)) && !line.wants_from(client(2)));
        assert!(line.is_next(client(2)) && !line.is_next(client(1)));
        line.leave(client(1), ticket);
        line.leave(client(1), ticket);
        assert!(!line.wants_from(client(1)) && line.first().is_none());
    }

    /// One host has 2 to the power of 64 addresses in a network of IPv6.
    #[test]
    fn addresses_of_one_network_are_one_client() {
        let host = |text: &str| ClientHost::new(Some(text.parse().expect("an address")));
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:1"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
        assert_eq!(host("::ffff:10.0.0.1"), client(1));
        assert_ne!(client(1), client(2));
        assert_eq!(ClientHost::new(None), ClientHost::LOCAL);
    }
}
