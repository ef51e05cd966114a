//! Quotas: how much clients may use, and how long they have to pause when they have used more.
//!
//! - `stored`: the quotas that entities have.
//! - `rate`: rates and token buckets.
//! - `throttled`: the throttle time in responses.
//! - `mute`: the pause of a connection.
//! - `background`: the client that work on other threads is charged to.
//!
//! Rates are kept per quota: clients that share one share its rate. A broker without quotas reads one number per request.

mod background;
mod mute;
mod rate;
mod stored;
mod throttled;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

pub(crate) use self::background::{ChargedClient, QuotaUser};
pub(crate) use self::mute::Mute;
use self::rate::{Rate, TokenBucket, Windows};
pub(crate) use self::stored::{
    CLIENT_ID, ClientQuotas, IP, QuotaAlteration, QuotaEntity, QuotaFilter, QuotaMatch, QuotaValues, USER,
};
pub(crate) use self::throttled::Throttled;
use crate::config::BrokerConfig;
use crate::keyed_map::KeyedMap;
use crate::peer::java_address;

/// Clients that are remembered, and uses of entities to which a default quota applies: clients choose the names of those.
const CLIENTS_MAX: usize = 10_000;
/// Recent uses of entities with quotas of their own. 10,000 entities can have quotas; uses of entities that have lost theirs count too.
const NAMED_MAX: usize = 10_000 * QUOTAS.len();
/// Bytes of a client's id that are kept.
const CLIENT_ID_BYTES_MAX: usize = 256;

/// A quota that an entity can have.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Quota {
    /// Bytes of produce requests per second.
    Produce,
    /// Bytes of fetch responses per second.
    Fetch,
    /// Percent of one processor.
    Request,
    /// Partitions that are created and deleted per second.
    ControllerMutation,
    /// Connections of an address per second.
    ConnectionCreation,
}

/// All quotas, in the order of their numbers.
pub(crate) const QUOTAS: [Quota; 5] =
    [Quota::Produce, Quota::Fetch, Quota::Request, Quota::ControllerMutation, Quota::ConnectionCreation];

impl Quota {
    /// Kafka's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Produce => "producer_byte_rate",
            Self::Fetch => "consumer_byte_rate",
            Self::Request => "request_percentage",
            Self::ControllerMutation => "controller_mutation_rate",
            Self::ConnectionCreation => "connection_creation_rate",
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The use of one quota.
#[derive(Debug)]
enum Usage {
    Rate(Rate),
    Tokens(TokenBucket),
}

impl Usage {
    fn of(quota: Quota) -> Self {
        match quota {
            Quota::ControllerMutation => Self::Tokens(TokenBucket::default()),
            Quota::Produce | Quota::Fetch | Quota::Request | Quota::ConnectionCreation => {
                Self::Rate(Rate::default())
            }
        }
    }
}

/// A quota of a client: its limit, and the use that all clients of the entity share.
#[derive(Clone, Debug)]
struct Limit {
    per_second: f64,
    usage: Arc<Mutex<Usage>>,
}

/// The quotas of one user with one client id.
#[derive(Debug, Default)]
struct ClientLimits {
    /// The version of the quotas from which they were taken.
    version: u64,
    limits: [Option<Limit>; QUOTAS.len()],
}

/// The entity whose clients share a use: a user, a client id, both, or an address.
type Sharers = (Quota, Option<String>, Option<String>);

/// Uses of entities. When the recent ones are too many, they become the older ones, and the ones that were older are forgotten: those of
/// clients that were not seen since the last time.
#[derive(Debug)]
struct Uses {
    recent: KeyedMap<Sharers, Limit>,
    older: KeyedMap<Sharers, Limit>,
    recent_max: usize,
}

impl Uses {
    fn new(recent_max: usize) -> Self {
        Self { recent: KeyedMap::default(), older: KeyedMap::default(), recent_max }
    }

    fn take(&mut self, sharers: &Sharers) -> Option<Limit> {
        self.recent.remove(sharers).or_else(|| self.older.remove(sharers))
    }

    /// Returns `true` if older uses were forgotten.
    fn insert(&mut self, sharers: Sharers, limit: Limit) -> bool {
        let is_full = self.recent.len() >= self.recent_max;
        if is_full {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(sharers, limit);
        is_full
    }
}

#[derive(Debug)]
struct State {
    /// By user and client id.
    clients: KeyedMap<String, KeyedMap<String, ClientLimits>>,
    /// The number of clients of all users.
    clients_len: usize,
    /// The uses of entities with quotas of their own. Clients cannot make others of them forgotten.
    named: Uses,
    /// The uses of entities to which a default applies.
    by_default: Uses,
}

impl Default for State {
    fn default() -> Self {
        Self {
            clients: KeyedMap::default(),
            clients_len: 0,
            named: Uses::new(NAMED_MAX),
            by_default: Uses::new(CLIENTS_MAX / 2),
        }
    }
}

impl State {
    fn forget_clients(&mut self) {
        self.clients.clear();
        self.clients_len = 0;
    }

    /// The use that the clients of an entity share. `is_named` says that the entity has the quota itself.
    fn shared(&mut self, (sharers, is_named): (Sharers, bool), per_second: f64) -> Limit {
        let (uses, others) = if is_named {
            (&mut self.named, &mut self.by_default)
        } else {
            (&mut self.by_default, &mut self.named)
        };
        if let Some(limit) = uses.recent.get_mut(&sharers) {
            limit.per_second = per_second;
            return limit.clone();
        }
        // Quotas that have changed can make an entity one of the others.
        let known = uses.older.remove(&sharers).or_else(|| others.take(&sharers));
        let usage = known.map_or_else(|| Arc::new(Mutex::new(Usage::of(sharers.0))), |known| known.usage);
        let limit = Limit { per_second, usage };
        if uses.insert(sharers, limit.clone()) {
            // They have uses that the other clients of their entities would not share any more.
            self.forget_clients();
        }
        limit
    }
}

/// The times for which clients were throttled.
#[derive(Debug, Default)]
pub(crate) struct ThrottleCounters {
    pub(crate) requests: AtomicU64,
    pub(crate) micros: AtomicU64,
}

/// The use of all quotas.
#[derive(Debug)]
pub(crate) struct QuotaUse {
    windows: Windows,
    mutation_windows: Windows,
    /// The bits of the quotas that some entity has.
    configured: AtomicU32,
    /// Changes with every change of quotas.
    version: AtomicU64,
    state: Mutex<State>,
    /// By the number of the quota.
    pub(crate) counters: [ThrottleCounters; QUOTAS.len()],
}

impl QuotaUse {
    pub(crate) fn of(config: &BrokerConfig) -> Self {
        let windows = Windows { count: config.quota_windows, size: config.quota_window };
        let (count, size) = (config.controller_quota_windows, config.controller_quota_window);
        Self::new(windows, Windows { count, size })
    }

    fn new(windows: Windows, mutation_windows: Windows) -> Self {
        Self {
            windows,
            mutation_windows,
            configured: AtomicU32::default(),
            version: AtomicU64::new(1),
            state: Mutex::default(),
            counters: Default::default(),
        }
    }

    /// Returns `true` if some client has this quota.
    pub(crate) fn has(&self, quota: Quota) -> bool {
        self.configured.load(Ordering::Relaxed) & quota.bit() != 0
    }

    /// Takes over quotas that have changed.
    pub(crate) fn update(&self, quotas: &ClientQuotas) {
        let configured = QUOTAS.iter().filter(|quota| quotas.has(quota.name()));
        let configured = configured.fold(0, |bits, quota| bits | quota.bit());
        self.configured.store(configured, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }

    fn windows(&self, quota: Quota) -> Windows {
        if quota == Quota::ControllerMutation { self.mutation_windows } else { self.windows }
    }

    /// The quota of a client, if it has one. Of its id the first bytes count, so that the ids that are kept are small.
    fn limit(&self, quotas: &ClientQuotas, quota: Quota, user: &str, client_id: &str) -> Option<Limit> {
        if !self.has(quota) {
            return None;
        }
        let client_id = &client_id[..client_id.floor_char_boundary(CLIENT_ID_BYTES_MAX)];
        let version = self.version.load(Ordering::Acquire);
        let mut state = lock(&self.state);
        let known = state.clients.get(user).and_then(|clients| clients.get(client_id));
        if let Some(known) = known.filter(|known| known.version == version) {
            return known.limits[quota as usize].clone();
        }
        if state.clients_len >= CLIENTS_MAX {
            state.forget_clients();
        }
        let limits = QUOTAS.map(|quota| {
            let (per_second, entity) = resolve(quotas, quota, user, client_id)?;
            Some(state.shared(entity, per_second))
        });
        let limit = limits[quota as usize].clone();
        let of_user = state.clients.entry(user.to_owned()).or_default();
        let is_new = of_user.insert(client_id.to_owned(), ClientLimits { version, limits }).is_none();
        state.clients_len += usize::from(is_new);
        limit
    }

    /// Counts what a client has used, and returns the time for which it has to pause.
    pub(crate) fn record(
        &self,
        quotas: &ClientQuotas,
        quota: Quota,
        (user, client_id): (&str, &str),
        value: f64,
    ) -> Duration {
        let Some(limit) = self.limit(quotas, quota, user, client_id) else { return Duration::ZERO };
        let windows = self.windows(quota);
        let mut throttle = limit.record(windows, Instant::now(), value);
        if quota == Quota::Request {
            // As in Kafka: a longer pause would stop heartbeats, and requests would time out.
            throttle = throttle.min(windows.size);
        }
        self.count(quota, throttle);
        throttle
    }

    /// Counts processor time of another thread. The response of the request has the pause.
    pub(crate) fn record_background(&self, quotas: &ClientQuotas, client: &ChargedClient, time: Duration) {
        let (user, client_id) = client.names();
        if let Some(limit) = self.limit(quotas, Quota::Request, user, client_id) {
            limit.record(self.windows(Quota::Request), Instant::now(), time.as_secs_f64() * 100.0);
        }
    }

    fn count(&self, quota: Quota, throttle: Duration) {
        if !throttle.is_zero() {
            let counters = &self.counters[quota as usize];
            counters.requests.fetch_add(1, Ordering::Relaxed);
            counters
                .micros
                .fetch_add(u64::try_from(throttle.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// [`QuotaUse::record`] for bytes that are not sent if the client has to pause: they do not count then.
    pub(crate) fn record_unless_throttled(
        &self,
        quotas: &ClientQuotas,
        quota: Quota,
        (user, client_id): (&str, &str),
        value: f64,
    ) -> Duration {
        let Some(limit) = self.limit(quotas, quota, user, client_id) else { return Duration::ZERO };
        let throttle = limit.record_unless_throttled(self.windows(quota), Instant::now(), value);
        self.count(quota, throttle);
        throttle
    }

    /// The most that a client may use at once; `None` without a limit.
    pub(crate) fn burst(
        &self,
        quotas: &ClientQuotas,
        quota: Quota,
        (user, client_id): (&str, &str),
    ) -> Option<f64> {
        let limit = self.limit(quotas, quota, user, client_id)?;
        Some(self.windows(quota).burst(limit.per_second))
    }

    /// Admits a change of this many partitions unless the client has used up its quota. With `strict`, a client that has is
    /// refused; otherwise it is admitted. Both have to pause.
    pub(crate) fn admit_mutation(
        &self,
        quotas: &ClientQuotas,
        (user, client_id): (&str, &str),
        partitions: f64,
        strict: bool,
    ) -> (bool, Duration) {
        let quota = Quota::ControllerMutation;
        let Some(limit) = self.limit(quotas, quota, user, client_id) else { return (true, Duration::ZERO) };
        let (windows, now) = (self.windows(quota), Instant::now());
        let overdrawn = limit.throttle(windows, now);
        let is_admitted = !strict || overdrawn.is_zero();
        let throttle = if is_admitted { limit.record(windows, now, partitions) } else { overdrawn };
        // A strict client learns it with its next change.
        let throttle = if strict && is_admitted { Duration::ZERO } else { throttle };
        self.count(quota, throttle);
        (is_admitted, throttle)
    }

    /// Counts a connection of an address, and returns the time for which it is kept waiting before it is closed.
    pub(crate) fn record_connection(&self, quotas: &ClientQuotas, address: IpAddr) -> Duration {
        let quota = Quota::ConnectionCreation;
        if !self.has(quota) {
            return Duration::ZERO;
        }
        let entity = |name: Option<String>| QuotaEntity::from([(IP.to_owned(), name)]);
        let of = |name: String| quotas.value(&entity(Some(name)), quota.name());
        let short = address.to_canonical().to_string();
        let address = java_address(address);
        let of_address = of(address.clone()).or_else(|| of(short));
        let Some(per_second) = of_address.or_else(|| quotas.value(&entity(None), quota.name())) else {
            return Duration::ZERO;
        };
        let sharers = (quota, Some(address), None);
        let limit = lock(&self.state).shared((sharers, of_address.is_some()), per_second);
        // A connection that is refused does not count.
        let windows = self.windows(quota);
        // As in Kafka: after a quota was lowered, the pause would be hours.
        let throttle = limit.record_unless_throttled(windows, Instant::now(), 1.0).min(windows.size);
        self.count(quota, throttle);
        throttle
    }
}

impl Limit {
    fn record(&self, windows: Windows, now: Instant, value: f64) -> Duration {
        match &mut *lock(&self.usage) {
            Usage::Rate(rate) => rate.add(windows, now, value),
            Usage::Tokens(bucket) => bucket.take(now, self.per_second, value),
        }
        self.throttle(windows, now)
    }

    /// A use that has to pause does not count.
    fn record_unless_throttled(&self, windows: Windows, now: Instant, value: f64) -> Duration {
        let throttle = self.record(windows, now, value);
        if !throttle.is_zero()
            && let Usage::Rate(rate) = &mut *lock(&self.usage)
        {
            rate.take_back(value);
        }
        throttle
    }

    fn throttle(&self, windows: Windows, now: Instant) -> Duration {
        match &mut *lock(&self.usage) {
            Usage::Rate(rate) => rate.throttle(windows, now, self.per_second),
            Usage::Tokens(bucket) => bucket.throttle(windows, now, self.per_second),
        }
    }
}

/// The quota of a user with a client id by Kafka's precedence, and the entity that shares it, with `true` if the entity has the quota
/// itself.
fn resolve(
    quotas: &ClientQuotas,
    quota: Quota,
    user: &str,
    client_id: &str,
) -> Option<(f64, (Sharers, bool))> {
    if quota == Quota::ConnectionCreation {
        return None;
    }
    let (named_user, named_client) = (Some(Some(user)), Some(Some(client_id)));
    let levels = [
        (named_user, named_client),
        (named_user, Some(None)),
        (named_user, None),
        (Some(None), named_client),
        (Some(None), Some(None)),
        (Some(None), None),
        (None, named_client),
        (None, Some(None)),
    ];
    levels.into_iter().find_map(|(of_user, of_client)| {
        let part = |kind: &str, name: Option<Option<&str>>| Some((kind.to_owned(), name?.map(str::to_owned)));
        let entity: QuotaEntity = part(USER, of_user).into_iter().chain(part(CLIENT_ID, of_client)).collect();
        let per_second = quotas.value(&entity, quota.name())?;
        // Each user, or client id, to which a default applies has a rate of its own.
        let sharers = (quota, of_user.map(|_| user.to_owned()), of_client.map(|_| client_id.to_owned()));
        let is_named = of_user != Some(None) && of_client != Some(None);
        Some((per_second, (sharers, is_named)))
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of an entity: `Some(None)` is the default, `None` no part of the entity.
    type Name<'a> = Option<Option<&'a str>>;

    fn quotas(entities: &[(Name<'_>, Name<'_>, f64)]) -> ClientQuotas {
        let quotas = ClientQuotas::default();
        for (user, client_id, value) in entities {
            let part = |kind: &str, name: &Option<Option<&str>>| {
                Some((kind.to_owned(), (*name)?.map(str::to_owned)))
            };
            let entity = part(USER, user).into_iter().chain(part(CLIENT_ID, client_id)).collect();
            quotas.set(entity, [(Quota::Produce.name().to_owned(), *value)].into());
        }
        quotas
    }

    #[test]
    fn the_quota_of_a_client_is_the_most_specific_one() {
        let (anna, till, default) = (Some(Some("anna")), Some(Some("till")), Some(None));
        // Kafka's order, the first one counts.
        let mut entities = vec![
            (anna, till, 1.0),
            (anna, default, 2.0),
            (anna, None, 3.0),
            (default, till, 4.0),
            (default, default, 5.0),
            (default, None, 6.0),
            (None, till, 7.0),
            (None, default, 8.0),
        ];
        while let Some((.., expected)) = entities.first() {
            let found = resolve(&quotas(&entities), Quota::Produce, "anna", "till");
            assert_eq!(found.map(|(value, _)| value), Some(*expected));
            entities.remove(0);
        }
        assert_eq!(resolve(&quotas(&[(anna, till, 1.0)]), Quota::Produce, "bo", "till"), None);
    }

    #[test]
    fn clients_share_the_rate_of_their_entity_and_changes_apply_at_once() {
        let windows = Windows { count: 11, size: Duration::from_secs(1) };
        let usage = QuotaUse::new(windows, windows);
        let stored = quotas(&[(Some(None), None, 100.0)]);
        assert_eq!(
            usage.record(&stored, Quota::Produce, ("anna", "a"), 1e6),
            Duration::ZERO,
            "not taken over"
        );
        usage.update(&stored);
        assert_eq!(usage.record(&stored, Quota::Produce, ("anna", "a"), 1000.0), Duration::ZERO);
        assert!(
            usage.record(&stored, Quota::Produce, ("anna", "b"), 500.0) > Duration::from_secs(4),
            "shared"
        );
        assert_eq!(usage.record(&stored, Quota::Produce, ("bo", "a"), 500.0), Duration::ZERO, "another user");
        stored.set(
            [(USER.to_owned(), Some("anna".to_owned()))].into(),
            [(Quota::Produce.name().to_owned(), 1e6)].into(),
        );
        usage.update(&stored);
        assert_eq!(usage.record(&stored, Quota::Produce, ("anna", "b"), 500.0), Duration::ZERO);
        assert_eq!(usage.counters[0].requests.load(Ordering::Relaxed), 1);
    }

    /// Each user could have the most clients.
    #[test]
    fn the_clients_of_all_users_together_are_limited() {
        let windows = Windows { count: 11, size: Duration::from_secs(1) };
        let usage = QuotaUse::new(windows, windows);
        let stored = quotas(&[(Some(None), None, 100.0)]);
        usage.update(&stored);
        for number in 0..CLIENTS_MAX + 200 {
            let (user, client_id) = ((number % 200).to_string(), number.to_string());
            assert!(usage.limit(&stored, Quota::Produce, &user, &client_id).is_some());
        }
        let state = lock(&usage.state);
        let kept: usize = state.clients.values().map(KeyedMap::len).sum();
        assert_eq!((kept, state.clients_len), (200, 200), "forgotten once");
    }

    /// A client that was known before uses were forgotten kept the old use, and other clients of its user had a new one: the user had its
    /// quota twice.
    #[test]
    fn clients_share_the_rate_of_their_entity_after_rates_were_forgotten() {
        let windows = Windows { count: 11, size: Duration::from_secs(1) };
        let usage = QuotaUse::new(windows, windows);
        let stored = quotas(&[(Some(None), None, 100.0)]);
        let connections = [(Quota::ConnectionCreation.name().to_owned(), 1e6)];
        stored.set([(IP.to_owned(), None)].into(), connections.into());
        usage.update(&stored);
        assert!(usage.limit(&stored, Quota::Produce, "anna", "a").is_some());
        for number in 0..CLIENTS_MAX as u32 {
            usage.record_connection(&stored, IpAddr::from((0x0a00_0000 + number).to_be_bytes()));
        }
        let of = |client_id| usage.limit(&stored, Quota::Produce, "anna", client_id).expect("a quota").usage;
        assert!(Arc::ptr_eq(&of("a"), &of("b")));
    }

    /// The uses of a user with a quota of its own and of others, in windows that do not end during the test.
    fn with_a_quota_of_alice() -> (QuotaUse, ClientQuotas) {
        let windows = Windows { count: 11, size: Duration::from_secs(3600) };
        let usage = QuotaUse::new(windows, windows);
        let stored = quotas(&[(Some(Some("alice")), None, 100.0), (None, Some(None), 100.0)]);
        usage.update(&stored);
        (usage, stored)
    }

    /// All rates were forgotten when they were too many: a user with many client ids ended the pauses of the others.
    #[test]
    fn a_user_with_a_quota_is_throttled_while_another_has_many_client_ids() {
        let (usage, stored) = with_a_quota_of_alice();
        let record = |client: (&str, &str), bytes| usage.record(&stored, Quota::Produce, client, bytes);
        assert!(!record(("alice", "a"), 1e9).is_zero());
        for number in 0..=CLIENTS_MAX {
            let client_id = number.to_string();
            assert!(record(("bob", client_id.as_str()), 1.0).is_zero());
        }
        assert!(!record(("alice", "a"), 1.0).is_zero());
        let state = lock(&usage.state);
        assert_eq!((state.named.recent.len(), state.named.older.len()), (1, 0));
        assert!(state.by_default.recent.len() + state.by_default.older.len() <= CLIENTS_MAX);
    }

    #[test]
    fn a_client_that_comes_back_is_throttled_while_its_user_has_many_client_ids() {
        let (usage, stored) = with_a_quota_of_alice();
        let record =
            |client_id: &str, bytes| usage.record(&stored, Quota::Produce, ("bob", client_id), bytes);
        assert!(!record("hog", 1e9).is_zero());
        for number in 0..=3 * CLIENTS_MAX {
            record(number.to_string().as_str(), 1.0);
            if number % (CLIENTS_MAX / 4) == 0 {
                assert!(!record("hog", 1.0).is_zero(), "after {number} others");
            }
        }
    }

    #[test]
    fn a_client_above_its_share_of_the_processor_pauses_one_window_at_most() {
        let windows = Windows { count: 11, size: Duration::from_secs(1) };
        let usage = QuotaUse::new(windows, windows);
        let stored = quotas(&[]);
        let share = [(Quota::Request.name().to_owned(), 0.001)];
        stored.set([(USER.to_owned(), None)].into(), share.into());
        usage.update(&stored);
        let throttle = usage.record(&stored, Quota::Request, ("anna", "a"), 1e6);
        assert_eq!(throttle, windows.size);
    }
}
