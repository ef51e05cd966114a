//! The quotas in the journal, and the check of their changes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bytes::Bytes;
use ottla_protocol::ErrorCode;

use crate::cluster::{Cluster, OpenError, Refusal, json, lock};
use crate::data_dir;
use crate::quotas::{CLIENT_ID, IP, QuotaAlteration, QuotaEntity, QuotaValues, USER};
use crate::security::acl::{NAME_BYTES_MAX, PRINCIPAL_BYTES_MAX};

/// Keys of the journal: `quotas/<entity as JSON>`.
const QUOTAS_KEY: &str = "quotas/";
/// Entities that have quotas: each takes memory for good.
const ENTITIES_MAX: usize = 10_000;

impl Cluster {
    pub(crate) fn load_client_quotas(&self) -> Result<(), OpenError> {
        for (key, value) in lock(&self.journal).iter_prefix(QUOTAS_KEY.as_bytes()) {
            let bad = |error: serde_json::Error| OpenError::Record {
                journal: data_dir::META_DIR,
                key: String::from_utf8_lossy(key).into_owned(),
                reason: error.to_string(),
            };
            let entity = serde_json::from_slice(&key[QUOTAS_KEY.len()..]).map_err(bad)?;
            self.client_quotas.set(entity, serde_json::from_slice(value).map_err(bad)?);
        }
        self.quota_use.update(&self.client_quotas);
        Ok(())
    }

    /// Changes quotas, those of each entity or none of them. They are durable when this returns: it waits for a sync.
    pub(crate) fn alter_quotas(
        &self,
        alterations: &[QuotaAlteration],
        dry_run: bool,
    ) -> Vec<Result<(), Refusal>> {
        let _change = lock(&self.topic_changes);
        let mut seen = BTreeSet::new();
        let mut entities = self.client_quotas.all();
        let altered = alterations.iter().map(|alteration| {
            let QuotaAlteration { entity, changes } = alteration;
            if !seen.insert(entity) {
                return Err(invalid(format!("the entity {} is twice in the request", name_of(entity))));
            }
            let before = entities.get(entity).cloned().unwrap_or_default();
            let values = altered(entity, before, changes)?;
            if !entities.contains_key(entity) {
                check_lengths(entity)?;
            }
            if !values.is_empty() && !entities.contains_key(entity) && entities.len() >= ENTITIES_MAX {
                let reason =
                    format!("{ENTITIES_MAX} entities have quotas: remove the quotas of others first");
                return Err((ErrorCode::PolicyViolation, reason));
            }
            entities.insert(entity.clone(), values.clone());
            let key = Bytes::from([QUOTAS_KEY.as_bytes(), &json(entity)?].concat());
            let value = if values.is_empty() { None } else { Some(json(&values)?) };
            Ok((entity, values, (key, value)))
        });
        let altered: Vec<Result<_, Refusal>> = altered.collect();
        let records: Vec<_> = altered.iter().flatten().map(|(_, _, record)| record.clone()).collect();
        let is_written = dry_run || records.is_empty();
        let written = if is_written { Ok(()) } else { self.put_durably(&records) };
        let results = altered.into_iter().map(|altered| {
            let (entity, values, _) = altered?;
            written.clone()?;
            if !dry_run {
                self.client_quotas.set(entity.clone(), values);
            }
            Ok(())
        });
        let results = results.collect();
        self.quota_use.update(&self.client_quotas);
        results
    }
}

/// The quotas of an entity after these changes.
fn altered(
    entity: &QuotaEntity,
    mut values: QuotaValues,
    changes: &[(String, Option<f64>)],
) -> Result<QuotaValues, Refusal> {
    let keys = keys_of(entity)?;
    let mut seen = BTreeSet::new();
    for (key, value) in changes {
        if !seen.insert(key) {
            return Err(invalid(format!("the quota `{key}` is twice in the changes of {}", name_of(entity))));
        }
        match value {
            None => drop(values.remove(key)),
            Some(value) => {
                check_value(keys, key, *value)?;
                values.insert(key.clone(), *value);
            }
        }
    }
    Ok(values)
}

/// Refuses long names: those of 10,000 entities are kept.
fn check_lengths(entity: &QuotaEntity) -> Result<(), Refusal> {
    for (kind, name) in entity {
        let bytes = name.as_ref().map_or(0, String::len);
        let max = if kind == USER { PRINCIPAL_BYTES_MAX } else { NAME_BYTES_MAX };
        if bytes > max {
            return Err(invalid(format!("the {kind} has {bytes} bytes, at most {max} are allowed")));
        }
    }
    Ok(())
}

/// The names of an entity's quotas, with the largest value of those that are whole numbers.
type Keys = &'static [(&'static str, Option<f64>)];

const USER_KEYS: Keys = &[
    ("producer_byte_rate", Some(i64::MAX as f64)),
    ("consumer_byte_rate", Some(i64::MAX as f64)),
    ("request_percentage", None),
    ("controller_mutation_rate", None),
];
const IP_KEYS: Keys = &[("connection_creation_rate", Some(i32::MAX as f64))];

/// The quotas that an entity can have; an error if there is no such entity.
fn keys_of(entity: &QuotaEntity) -> Result<Keys, Refusal> {
    let known = [USER, CLIENT_ID, IP];
    if entity.is_empty() {
        return Err(invalid("the entity is empty: it needs a user, a client-id or an ip".to_owned()));
    }
    if let Some(kind) = entity.keys().find(|kind| !known.contains(&kind.as_str())) {
        return Err(invalid(format!("`{kind}` is no type of entities: use {}", known.join(", "))));
    }
    if let Some((kind, _)) = entity.iter().find(|(_, name)| name.as_deref() == Some("")) {
        return Err(invalid(format!("the {kind} is empty: use no name for the default entity")));
    }
    let Some(address) = entity.get(IP) else { return Ok(USER_KEYS) };
    if entity.len() > 1 {
        return Err(invalid("an ip cannot be combined with a user or a client-id".to_owned()));
    }
    match address {
        // Kafka resolves names of hosts, too; a lookup here would hold up other changes.
        Some(address) if address.parse::<IpAddr>().is_err() => {
            Err(invalid(format!("`{address}` is no IP address")))
        }
        _ => Ok(IP_KEYS),
    }
}

fn check_value(keys: Keys, key: &str, value: f64) -> Result<(), Refusal> {
    let Some((_, whole_max)) = keys.iter().find(|(name, _)| *name == key) else {
        let names: Vec<&str> = keys.iter().map(|(name, _)| *name).collect();
        return Err(invalid(format!("`{key}` is no quota of this entity: use {}", names.join(", "))));
    };
    let reason = if !value.is_finite() || value <= 0.0 {
        "it must be a number above 0"
    } else if whole_max.is_some_and(|max| value > max) {
        "it is too large"
    } else if whole_max.is_some() && value.fract() > 1e-6 {
        "it must be a whole number"
    } else {
        return Ok(());
    };
    Err(invalid(format!("`{key}` is {value}: {reason}")))
}

fn name_of(entity: &QuotaEntity) -> String {
    let part = |(kind, name): (&String, &Option<String>)| {
        format!("{kind} {}", name.as_deref().unwrap_or("<default>"))
    };
    entity.iter().map(part).collect::<Vec<_>>().join(", ")
}

fn invalid(reason: String) -> Refusal {
    (ErrorCode::InvalidRequest, reason)
}
