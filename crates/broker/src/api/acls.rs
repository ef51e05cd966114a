//! DescribeAcls, CreateAcls and DeleteAcls.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_acls::{
    AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse,
};
use ottla_protocol::messages::delete_acls::{
    DeleteAclsFilter, DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsRequest, DeleteAclsResponse,
};
use ottla_protocol::messages::describe_acls::{
    AclDescription, DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse,
};

use super::{Api, RequestContext};
use crate::cluster::{Cluster, Refusal};
use crate::security::acl::{Acl, AclFilter, RawAcl, RawFilter};

const NO_AUTHORIZER: &str =
    "this broker has no authorizer: it has no ACLs, and every client may do everything";

/// ACLs that are looked at under one lock.
const ACLS_PER_STEP: usize = 1000;

fn disabled() -> Refusal {
    (ErrorCode::SecurityDisabled, NO_AUTHORIZER.to_owned())
}

impl Api for DescribeAclsRequest {
    async fn handle(self, context: RequestContext) -> DescribeAclsResponse {
        let cluster = context.cluster();
        let filter = match &cluster.authorizer {
            Some(_) => described_filter(self).parse(),
            None => Err(disabled()),
        };
        match filter {
            Ok(filter) => {
                let turn = cluster.take_list_turn(context.connection.client_host()).await;
                let listing = move |cluster: &Cluster| describe(cluster, &filter);
                let resources = cluster.run_listing(turn, listing).await;
                DescribeAclsResponse { resources, ..Default::default() }
            }
            Err((error_code, reason)) => {
                DescribeAclsResponse { error_code, error_message: Some(reason), ..Default::default() }
            }
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeAclsResponse {
        let error_message = Some(code.message().to_owned());
        DescribeAclsResponse { error_code: code, error_message, ..Default::default() }
    }
}

fn described_filter(request: DescribeAclsRequest) -> RawFilter {
    RawFilter {
        resource_type: request.resource_type_filter,
        resource_name: request.resource_name_filter,
        pattern_type: request.pattern_type_filter,
        principal: request.principal_filter,
        host: request.host_filter,
        operation: request.operation,
        permission: request.permission_type,
    }
}

/// The ACLs that a filter selects. Requests check their rights between the steps: a change that waits for the lock holds them up.
fn describe(cluster: &Cluster, filter: &AclFilter) -> Vec<DescribeAclsResource> {
    let mut resources = Vec::new();
    let Some(authorizer) = &cluster.authorizer else { return resources };
    let mut last: Option<Acl> = None;
    loop {
        let acls = authorizer.acls();
        let mut seen = None;
        for acl in acls.after(last.as_ref()).take(ACLS_PER_STEP) {
            if filter.selects(acl) {
                add_described(&mut resources, acl);
            }
            seen = Some(acl);
        }
        let Some(seen) = seen else { return resources };
        last = Some(seen.clone());
    }
}

/// Adds an ACL. Those of one pattern are next to each other.
fn add_described(resources: &mut Vec<DescribeAclsResource>, acl: &Acl) {
    let Acl { pattern, principal, host, operation, permission } = acl;
    let (resource_type, pattern_type) = (pattern.resource_type as i8, pattern.pattern_type as i8);
    let described = AclDescription {
        principal: principal.clone(),
        host: host.clone(),
        operation: *operation as i8,
        permission_type: *permission as i8,
    };
    let is_of = |last: &&mut DescribeAclsResource| {
        last.resource_type == resource_type
            && last.pattern_type == pattern_type
            && last.resource_name == pattern.name
    };
    match resources.last_mut().filter(is_of) {
        Some(last) => last.acls.push(described),
        None => resources.push(DescribeAclsResource {
            resource_type,
            resource_name: pattern.name.clone(),
            pattern_type,
            acls: vec![described],
        }),
    }
}

impl Api for CreateAclsRequest {
    async fn handle(self, context: RequestContext) -> CreateAclsResponse {
        let creations = self.creations;
        let create = move |cluster: &Cluster| match &cluster.authorizer {
            Some(authorizer) => cluster
                .create_acls(authorizer, creations.into_iter().map(|one| raw_acl(one).parse()).collect()),
            None => creations.iter().map(|_| Err(disabled())).collect(),
        };
        let results = context.cluster().change_topics(create).await.into_iter();
        let results = results.map(|result| {
            let (error_code, error_message) = code_and_reason(result);
            AclCreationResult { error_code, error_message }
        });
        CreateAclsResponse { results: results.collect(), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> CreateAclsResponse {
        let error_message = Some(code.message().to_owned());
        let result = AclCreationResult { error_code: code, error_message };
        CreateAclsResponse { results: vec![result; self.creations.len()], ..Default::default() }
    }
}

fn raw_acl(creation: AclCreation) -> RawAcl {
    RawAcl {
        resource_type: creation.resource_type,
        resource_name: creation.resource_name,
        pattern_type: creation.resource_pattern_type,
        principal: creation.principal,
        host: creation.host,
        operation: creation.operation,
        permission: creation.permission_type,
    }
}

fn code_and_reason(result: Result<(), Refusal>) -> (ErrorCode, Option<String>) {
    match result {
        Ok(()) => (ErrorCode::None, None),
        Err((code, reason)) => (code, Some(reason)),
    }
}

impl Api for DeleteAclsRequest {
    async fn handle(self, context: RequestContext) -> DeleteAclsResponse {
        let filters = self.filters;
        let delete = move |cluster: &Cluster| match &cluster.authorizer {
            Some(authorizer) => cluster
                .delete_acls(authorizer, filters.into_iter().map(|one| raw_filter(one).parse()).collect()),
            None => filters.iter().map(|_| Err(disabled())).collect(),
        };
        let results = context.cluster().change_topics(delete).await.into_iter();
        let results = results.map(|result| match result {
            Ok(acls) => {
                let matching_acls = acls.into_iter().map(deleted).collect();
                DeleteAclsFilterResult { matching_acls, ..Default::default() }
            }
            Err((error_code, reason)) => {
                DeleteAclsFilterResult { error_code, error_message: Some(reason), ..Default::default() }
            }
        });
        DeleteAclsResponse { filter_results: results.collect(), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DeleteAclsResponse {
        let error_message = Some(code.message().to_owned());
        let result = DeleteAclsFilterResult { error_code: code, error_message, ..Default::default() };
        DeleteAclsResponse { filter_results: vec![result; self.filters.len()], ..Default::default() }
    }
}

fn raw_filter(filter: DeleteAclsFilter) -> RawFilter {
    RawFilter {
        resource_type: filter.resource_type_filter,
        resource_name: filter.resource_name_filter,
        pattern_type: filter.pattern_type_filter,
        principal: filter.principal_filter,
        host: filter.host_filter,
        operation: filter.operation,
        permission: filter.permission_type,
    }
}

fn deleted(acl: Acl) -> DeleteAclsMatchingAcl {
    DeleteAclsMatchingAcl {
        error_code: ErrorCode::None,
        error_message: None,
        resource_type: acl.pattern.resource_type as i8,
        resource_name: acl.pattern.name,
        pattern_type: acl.pattern.pattern_type as i8,
        principal: acl.principal,
        host: acl.host,
        operation: acl.operation as i8,
        permission_type: acl.permission as i8,
    }
}
