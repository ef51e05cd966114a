//! ACLs: creation, description and deletion.

use std::rc::Rc;

use ottla_protocol::messages::create_acls::{AclCreation, CreateAclsRequest};
use ottla_protocol::messages::delete_acls::{DeleteAclsFilter, DeleteAclsMatchingAcl, DeleteAclsRequest};
use ottla_protocol::messages::describe_acls::DescribeAclsRequest;

use super::operation::{Operation, Repeat, Target, wrong_controller};
use super::{AclOperation, AclPermission, Admin, KeyedResults, PatternType, ResourceType, Timeouts, refused};
use crate::cluster::Cluster;
use crate::error::Error;

const ACLS_VERSION_MAX: i16 = 3;

/// An ACL: allows or denies operations on a resource to a principal.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Acl {
    /// The kind of resource that the rule applies to.
    pub resource: ResourceType,
    /// The resource's name, matched according to `pattern`.
    pub name: String,
    /// The way in which the name is matched.
    pub pattern: PatternType,
    /// The principal: `User:alice`; `User:*` matches every user.
    pub principal: String,
    /// The host that the principal connects from; `*` matches every host.
    pub host: String,
    /// The operation that the rule allows or denies.
    pub operation: AclOperation,
    /// `Allow` or `Deny`.
    pub permission: AclPermission,
}

impl std::fmt::Display for Acl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { resource, name, pattern, principal, host, operation, permission } = self;
        write!(f, "{permission} {operation} on {pattern} {resource} {name} for {principal} from {host}")
    }
}

/// A filter that selects ACLs: a field with a value must match.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AclFilter {
    /// The kind of resource that the rules apply to.
    pub resource: ResourceType,
    /// The resource's name; `None` matches every name.
    pub name: Option<String>,
    /// The pattern type of the rules.
    pub pattern: PatternType,
    /// The principal; `None` matches every principal.
    pub principal: Option<String>,
    /// The host; `None` matches every host.
    pub host: Option<String>,
    /// The operation.
    pub operation: AclOperation,
    /// The permission.
    pub permission: AclPermission,
}

impl AclFilter {
    /// Creates a filter that matches every ACL.
    pub const fn any() -> Self {
        Self {
            resource: ResourceType::Any,
            name: None,
            pattern: PatternType::Any,
            principal: None,
            host: None,
            operation: AclOperation::Any,
            permission: AclPermission::Any,
        }
    }
}

impl Default for AclFilter {
    fn default() -> Self {
        Self::any()
    }
}

impl Admin {
    /// Creates ACLs and returns a result per ACL, in the order of the request. Creating an existing ACL succeeds.
    ///
    /// # Errors
    /// The whole call fails if the controller does not respond in time, or does not support the request.
    pub async fn create_acls(
        &self,
        acls: &[Acl],
        timeouts: Timeouts,
    ) -> Result<KeyedResults<Acl, ()>, Error> {
        let acls = acls.to_vec();
        let work = move |cluster: Rc<Cluster>| async move {
            create(&Operation::new(cluster, "create_acls", timeouts), acls).await
        };
        self.ask("create_acls", work).await
    }

    /// Returns the ACLs that a filter matches.
    ///
    /// # Errors
    /// [`Error::Broker`] with `SECURITY_DISABLED` from brokers without an authorizer.
    pub async fn describe_acls(&self, filter: &AclFilter, timeouts: Timeouts) -> Result<Vec<Acl>, Error> {
        let filter = filter.clone();
        let work = move |cluster: Rc<Cluster>| async move {
            describe(&Operation::new(cluster, "describe_acls", timeouts), &filter).await
        };
        self.ask("describe_acls", work).await
    }

    /// Deletes the ACLs that filters match. Returns, per filter and in the order of the request, the ACLs and the
    /// result of each.
    ///
    /// # Errors
    /// The whole call fails if the controller does not respond in time, or does not support the request.
    pub async fn delete_acls(
        &self,
        filters: &[AclFilter],
        timeouts: Timeouts,
    ) -> Result<KeyedResults<AclFilter, KeyedResults<Acl, ()>>, Error> {
        let filters = filters.to_vec();
        let work = move |cluster: Rc<Cluster>| async move {
            delete(&Operation::new(cluster, "delete_acls", timeouts), filters).await
        };
        self.ask("delete_acls", work).await
    }
}

async fn create(operation: &Operation, acls: Vec<Acl>) -> Result<KeyedResults<Acl, ()>, Error> {
    let creation = |acl: &Acl| AclCreation {
        resource_type: acl.resource.code(),
        resource_name: acl.name.clone(),
        resource_pattern_type: acl.pattern.code(),
        principal: acl.principal.clone(),
        host: acl.host.clone(),
        operation: acl.operation.code(),
        permission_type: acl.permission.code(),
    };
    let make = |_version: i16| CreateAclsRequest { creations: acls.iter().map(creation).collect() };
    let versions = 0..=ACLS_VERSION_MAX;
    let response = operation
        .call(Target::Controller, versions, Repeat::Yes, make, |response| {
            wrong_controller(response.results.iter().map(|result| result.error_code))
        })
        .await?;
    // Results have no names: they are in the order of the request.
    same_number("CreateAcls", acls.len(), response.results.len())?;
    let answers = acls.into_iter().zip(response.results).map(|(acl, result)| {
        let what = format!("creating the rule {acl}");
        let created = refused(&what, result.error_code, result.error_message.as_deref());
        (acl, created)
    });
    Ok(answers.collect())
}

async fn describe(operation: &Operation, filter: &AclFilter) -> Result<Vec<Acl>, Error> {
    let make = |_version: i16| DescribeAclsRequest {
        resource_type_filter: filter.resource.code(),
        resource_name_filter: filter.name.clone(),
        pattern_type_filter: filter.pattern.code(),
        principal_filter: filter.principal.clone(),
        host_filter: filter.host.clone(),
        operation: filter.operation.code(),
        permission_type: filter.permission.code(),
    };
    let versions = 0..=ACLS_VERSION_MAX;
    let response = operation.call(Target::Any, versions, Repeat::Yes, make, |_| None).await?;
    refused("access rules", response.error_code, response.error_message.as_deref())?;
    let mut acls = Vec::new();
    for resource in response.resources {
        acls.extend(resource.acls.into_iter().map(|acl| Acl {
            resource: ResourceType::from_code(resource.resource_type),
            name: resource.resource_name.clone(),
            pattern: PatternType::from_code(resource.pattern_type),
            principal: acl.principal,
            host: acl.host,
            operation: AclOperation::from_code(acl.operation),
            permission: AclPermission::from_code(acl.permission_type),
        }));
    }
    acls.sort();
    Ok(acls)
}

async fn delete(
    operation: &Operation,
    filters: Vec<AclFilter>,
) -> Result<KeyedResults<AclFilter, KeyedResults<Acl, ()>>, Error> {
    let wanted = |filter: &AclFilter| DeleteAclsFilter {
        resource_type_filter: filter.resource.code(),
        resource_name_filter: filter.name.clone(),
        pattern_type_filter: filter.pattern.code(),
        principal_filter: filter.principal.clone(),
        host_filter: filter.host.clone(),
        operation: filter.operation.code(),
        permission_type: filter.permission.code(),
    };
    let make = |_version: i16| DeleteAclsRequest { filters: filters.iter().map(wanted).collect() };
    let versions = 0..=ACLS_VERSION_MAX;
    // Not repeated: only the response to the first request lists the deleted rules.
    let response = operation
        .call(Target::Controller, versions, Repeat::No, make, |response| {
            wrong_controller(response.filter_results.iter().map(|result| result.error_code))
        })
        .await?;
    same_number("DeleteAcls", filters.len(), response.filter_results.len())?;
    let answers = filters.into_iter().zip(response.filter_results).map(|(filter, result)| {
        let refused = refused("deleting access rules", result.error_code, result.error_message.as_deref());
        (filter, refused.map(|()| result.matching_acls.into_iter().map(deleted).collect()))
    });
    Ok(answers.collect())
}

/// Fails if a response has not one result for each item: those that are missing have no names.
fn same_number(request: &str, sent: usize, results: usize) -> Result<(), Error> {
    if results == sent {
        return Ok(());
    }
    let reason = format!("the response to {request} has {results} results for {sent} items");
    Err(Error::Protocol { address: "a broker".into(), reason })
}

fn deleted(found: DeleteAclsMatchingAcl) -> (Acl, Result<(), Error>) {
    let acl = Acl {
        resource: ResourceType::from_code(found.resource_type),
        name: found.resource_name,
        pattern: PatternType::from_code(found.pattern_type),
        principal: found.principal,
        host: found.host,
        operation: AclOperation::from_code(found.operation),
        permission: AclPermission::from_code(found.permission_type),
    };
    let what = format!("deleting the rule {acl}");
    let deleted = refused(&what, found.error_code, found.error_message.as_deref());
    (acl, deleted)
}
