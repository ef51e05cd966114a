//! Quotas of users, client ids and IP addresses (KIP-546): described and altered.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use ottla_protocol::messages::alter_client_quotas::{
    AlterClientQuotasRequest, EntityData as AlteredEntity, EntryData, OpData,
};
use ottla_protocol::messages::describe_client_quotas::{
    ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse,
};

use super::operation::{Operation, Repeat, Target, wrong_controller};
use super::{Admin, KeyedResults, Timeouts, in_order, refused};
use crate::cluster::Cluster;
use crate::error::Error;

/// The match types of DescribeClientQuotas.
const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;

const VERSION_MAX: i16 = 1;

/// The clients that have a quota: names by type (`user`, `client-id`, `ip`). `None` is the default of all others of a type.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct QuotaEntity {
    /// The names by type.
    pub names: BTreeMap<String, Option<String>>,
}

impl QuotaEntity {
    /// Adds a type and a name; `None` for the default.
    #[must_use]
    pub fn with(mut self, kind: &str, name: Option<&str>) -> Self {
        self.names.insert(kind.to_owned(), name.map(str::to_owned));
        self
    }
}

impl fmt::Display for QuotaEntity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (kind, name)) in self.names.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{kind} {}", name.as_deref().unwrap_or("<default>"))?;
        }
        Ok(())
    }
}

/// A change of the quotas of one entity.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaAlteration {
    /// The clients.
    pub entity: QuotaEntity,
    /// The names of quotas with their values; `None` removes a quota.
    pub changes: Vec<(String, Option<f64>)>,
}

/// A condition for the name of one type of an entity.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum QuotaMatch {
    /// Every entity of the type.
    Any,
    /// The default entity of the type.
    Default,
    /// The entity with this name.
    Name(String),
}

/// The values of quotas by name.
pub type QuotaValues = BTreeMap<String, f64>;

impl Admin {
    /// Returns the quotas of the entities that match all conditions, by type. No condition matches every entity. With `strict`, an
    /// entity with another type does not match.
    ///
    /// # Errors
    /// The whole call fails if no broker responds in time, or if the broker refuses the request.
    pub async fn describe_client_quotas(
        &self,
        conditions: &[(&str, QuotaMatch)],
        strict: bool,
        timeouts: Timeouts,
    ) -> Result<Vec<(QuotaEntity, QuotaValues)>, Error> {
        let component = |(kind, condition): &(&str, QuotaMatch)| {
            let (match_type, name) = match condition {
                QuotaMatch::Any => (ANY, None),
                QuotaMatch::Default => (DEFAULT, None),
                QuotaMatch::Name(name) => (EXACT, Some(name.clone())),
            };
            ComponentData { entity_type: (*kind).to_owned(), match_type, r#match: name }
        };
        let components = conditions.iter().map(component).collect();
        let request = DescribeClientQuotasRequest { components, strict };
        let work = move |cluster: Rc<Cluster>| async move {
            describe(&Operation::new(cluster, "describe_client_quotas", timeouts), request).await
        };
        self.ask("describe_client_quotas", work).await
    }

    /// Alters quotas. Returns a result per entity, in the order of the request.
    ///
    /// # Errors
    /// The whole call fails if the controller does not respond in time, or does not support the request.
    pub async fn alter_client_quotas(
        &self,
        alterations: &[QuotaAlteration],
        timeouts: Timeouts,
    ) -> Result<KeyedResults<QuotaEntity, ()>, Error> {
        let alterations = alterations.to_vec();
        let work = move |cluster: Rc<Cluster>| async move {
            alter(&Operation::new(cluster, "alter_client_quotas", timeouts), alterations).await
        };
        self.ask("alter_client_quotas", work).await
    }
}

async fn describe(
    operation: &Operation,
    request: DescribeClientQuotasRequest,
) -> Result<Vec<(QuotaEntity, QuotaValues)>, Error> {
    let make = |_version: i16| request.clone();
    let again = |response: &DescribeClientQuotasResponse| wrong_controller([response.error_code]);
    let response = operation.call(Target::Controller, 0..=VERSION_MAX, Repeat::Yes, make, again).await?;
    refused("client quotas", response.error_code, response.error_message.as_deref())?;
    let entries = response.entries.unwrap_or_default().into_iter().map(|entry| {
        let names = entry.entity.into_iter().map(|part| (part.entity_type, part.entity_name));
        let values = entry.values.into_iter().map(|value| (value.key, value.value));
        (QuotaEntity { names: names.collect() }, values.collect())
    });
    Ok(entries.collect())
}

async fn alter(
    operation: &Operation,
    alterations: Vec<QuotaAlteration>,
) -> Result<KeyedResults<QuotaEntity, ()>, Error> {
    let entry = |QuotaAlteration { entity, changes }: &QuotaAlteration| {
        let parts = entity
            .names
            .iter()
            .map(|(kind, name)| AlteredEntity { entity_type: kind.clone(), entity_name: name.clone() });
        let ops = changes.iter().map(|(key, value)| OpData {
            key: key.clone(),
            value: value.unwrap_or_default(),
            remove: value.is_none(),
        });
        EntryData { entity: parts.collect(), ops: ops.collect() }
    };
    let make = |_version: i16| AlterClientQuotasRequest {
        entries: alterations.iter().map(entry).collect(),
        validate_only: false,
    };
    let response = operation
        .call(Target::Controller, 0..=VERSION_MAX, Repeat::Yes, make, |response| {
            wrong_controller(response.entries.iter().map(|entry| entry.error_code))
        })
        .await?;
    let answers = response.entries.into_iter().map(|entry| {
        let names = entry.entity.into_iter().map(|part| (part.entity_type, part.entity_name));
        let entity = QuotaEntity { names: names.collect() };
        let what = format!("quotas of {entity}");
        (entity, refused(&what, entry.error_code, entry.error_message.as_deref()))
    });
    let answers: BTreeMap<_, _> = answers.collect();
    let entities = alterations.into_iter().map(|alteration| alteration.entity);
    Ok(in_order(entities, answers, "quotas of"))
}
