//! DescribeClientQuotas and AlterClientQuotas.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_client_quotas::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, EntityData as AlteredEntity,
    EntryData as Alteration, results,
};
use ottla_protocol::messages::describe_client_quotas::{
    ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse, EntityData, EntryData,
    ValueData,
};

use super::{Api, RequestContext};
use crate::cluster::{Cluster, Refusal};
use crate::quotas::{CLIENT_ID, IP, QuotaAlteration, QuotaEntity, QuotaFilter, QuotaMatch, USER};

/// The conditions of a component.
const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;

impl Api for DescribeClientQuotasRequest {
    async fn handle(self, context: RequestContext) -> DescribeClientQuotasResponse {
        match filter_of(self) {
            Ok(filter) => {
                let entries = context.cluster().client_quotas.matching(&filter).into_iter();
                let entries = entries.map(|(entity, values)| EntryData {
                    entity: entity
                        .into_iter()
                        .map(|(entity_type, entity_name)| EntityData { entity_type, entity_name })
                        .collect(),
                    values: values.into_iter().map(|(key, value)| ValueData { key, value }).collect(),
                });
                DescribeClientQuotasResponse { entries: Some(entries.collect()), ..Default::default() }
            }
            Err((error_code, reason)) => DescribeClientQuotasResponse {
                error_code,
                error_message: Some(reason),
                entries: None,
                ..Default::default()
            },
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeClientQuotasResponse {
        DescribeClientQuotasResponse {
            error_code: code,
            error_message: None,
            entries: None,
            ..Default::default()
        }
    }
}

fn filter_of(request: DescribeClientQuotasRequest) -> Result<QuotaFilter, Refusal> {
    let mut filter = QuotaFilter { strict: request.strict, ..QuotaFilter::default() };
    for ComponentData { entity_type: kind, match_type, r#match: name } in request.components {
        let invalid = |reason: String| Err((ErrorCode::InvalidRequest, reason));
        if kind.is_empty() {
            return invalid("a component of the filter has no entity type".to_owned());
        }
        if filter.components.contains_key(&kind) {
            return invalid(format!("the filter has the entity type `{kind}` twice"));
        }
        if ![USER, CLIENT_ID, IP].contains(&kind.as_str()) {
            let reason = format!("`{kind}` is no entity type: use {USER}, {CLIENT_ID} or {IP}");
            return Err((ErrorCode::UnsupportedVersion, reason));
        }
        let condition = match (match_type, name) {
            (EXACT, Some(name)) => QuotaMatch::Exact(Some(name)),
            (DEFAULT, None) => QuotaMatch::Exact(None),
            (ANY, None) => QuotaMatch::Any,
            (EXACT, None) => return invalid(format!("the component `{kind}` needs a name to match")),
            (DEFAULT | ANY, Some(name)) => {
                return invalid(format!("the component `{kind}` matches no name, and has `{name}`"));
            }
            (other, _) => {
                return invalid(format!("{other} is no match type: use 0 (exact), 1 (default), 2 (any)"));
            }
        };
        filter.components.insert(kind, condition);
    }
    if filter.components.contains_key(IP) && filter.components.len() > 1 {
        let reason = format!("a filter with {IP} cannot have {USER} or {CLIENT_ID}");
        return Err((ErrorCode::InvalidRequest, reason));
    }
    Ok(filter)
}

impl Api for AlterClientQuotasRequest {
    async fn handle(self, context: RequestContext) -> AlterClientQuotasResponse {
        let (entries, dry_run) = (self.entries, self.validate_only);
        let alter = move |cluster: &Cluster| {
            let (entities, alterations): (Vec<_>, Vec<_>) = entries.into_iter().map(alteration_of).unzip();
            let results = cluster.alter_quotas(&alterations, dry_run);
            entities.into_iter().zip(results).map(|(entity, result)| result_of(entity, result)).collect()
        };
        let entries = context.cluster().change_topics(alter).await;
        AlterClientQuotasResponse { entries, ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> AlterClientQuotasResponse {
        let entries = self.entries.into_iter().map(|entry| results::EntryData {
            error_code: code,
            error_message: Some(code.message().to_owned()),
            entity: entry.entity,
        });
        AlterClientQuotasResponse { entries: entries.collect(), ..Default::default() }
    }
}

fn alteration_of(entry: Alteration) -> (Vec<AlteredEntity>, QuotaAlteration) {
    let names = entry.entity.iter().map(|part| (part.entity_type.clone(), part.entity_name.clone()));
    let entity: QuotaEntity = names.collect();
    let changes = entry.ops.into_iter().map(|op| (op.key, (!op.remove).then_some(op.value)));
    let changes = changes.collect();
    (entry.entity, QuotaAlteration { entity, changes })
}

fn result_of(entity: Vec<AlteredEntity>, result: Result<(), Refusal>) -> results::EntryData {
    let (error_code, error_message) = match result {
        Ok(()) => (ErrorCode::None, None),
        Err((code, reason)) => (code, Some(reason)),
    };
    results::EntryData { error_code, error_message, entity }
}
