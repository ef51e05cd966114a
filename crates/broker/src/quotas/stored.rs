//! The quotas that entities have: users, client ids, both, and IP addresses.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

pub(crate) const USER: &str = "user";
pub(crate) const CLIENT_ID: &str = "client-id";
pub(crate) const IP: &str = "ip";

/// The names of an entity by its types; `None` is the default entity of a type.
pub(crate) type QuotaEntity = BTreeMap<String, Option<String>>;
/// The values of an entity by the names of quotas.
pub(crate) type QuotaValues = BTreeMap<String, f64>;

/// The quotas of all entities.
#[derive(Debug, Default)]
pub(crate) struct ClientQuotas {
    entities: RwLock<BTreeMap<QuotaEntity, QuotaValues>>,
}

/// Changes of the quotas of one entity: names with new values, or `None` for a removal.
#[derive(Clone, Debug)]
pub(crate) struct QuotaAlteration {
    pub(crate) entity: QuotaEntity,
    pub(crate) changes: Vec<(String, Option<f64>)>,
}

/// A condition for one type of an entity.
#[derive(Clone, Debug)]
pub(crate) enum QuotaMatch {
    /// The entity with this name, or the default entity.
    Exact(Option<String>),
    /// Every entity that has the type.
    Any,
}

/// The conditions of a request by type. A strict filter matches entities without other types only.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuotaFilter {
    pub(crate) components: BTreeMap<String, QuotaMatch>,
    pub(crate) strict: bool,
}

impl QuotaFilter {
    fn matches(&self, entity: &QuotaEntity) -> bool {
        let fits = |(kind, condition): (&String, &QuotaMatch)| match (entity.get(kind), condition) {
            (Some(name), QuotaMatch::Exact(wanted)) => name == wanted,
            (Some(_), QuotaMatch::Any) => true,
            (None, _) => false,
        };
        // A strict filter without conditions matches nothing: no entity is empty.
        (!self.strict || entity.len() == self.components.len()) && self.components.iter().all(fits)
    }
}

impl ClientQuotas {
    /// The quotas of all entities.
    pub(crate) fn all(&self) -> BTreeMap<QuotaEntity, QuotaValues> {
        self.entities.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The quota of this name that an entity has.
    pub(crate) fn value(&self, entity: &QuotaEntity, name: &str) -> Option<f64> {
        let entities = self.entities.read().unwrap_or_else(PoisonError::into_inner);
        entities.get(entity)?.get(name).copied()
    }

    /// Returns `true` if some entity has a quota of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        let entities = self.entities.read().unwrap_or_else(PoisonError::into_inner);
        entities.values().any(|values| values.contains_key(name))
    }

    pub(crate) fn set(&self, entity: QuotaEntity, values: QuotaValues) {
        let mut entities = self.entities.write().unwrap_or_else(PoisonError::into_inner);
        if values.is_empty() {
            entities.remove(&entity);
        } else {
            entities.insert(entity, values);
        }
    }

    /// The quotas of the entities that a filter matches.
    pub(crate) fn matching(&self, filter: &QuotaFilter) -> Vec<(QuotaEntity, QuotaValues)> {
        let entities = self.entities.read().unwrap_or_else(PoisonError::into_inner);
        let matching = entities.iter().filter(|(entity, _)| filter.matches(entity));
        matching.map(|(entity, values)| (entity.clone(), values.clone())).collect()
    }
}
