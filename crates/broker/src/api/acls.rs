//! DescribeAcls, CreateAcls and DeleteAcls: the answers of a broker without an authorizer.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_acls::{AclCreationResult, CreateAclsRequest, CreateAclsResponse};
use ottla_protocol::messages::delete_acls::{DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse};
use ottla_protocol::messages::describe_acls::{DescribeAclsRequest, DescribeAclsResponse};

use super::{Api, RequestContext};

const NO_AUTHORIZER: &str =
    "this broker has no authorizer: it has no ACLs, and every client may do everything";

impl Api for DescribeAclsRequest {
    async fn handle(self, context: RequestContext) -> DescribeAclsResponse {
        let error_message = Some(NO_AUTHORIZER.to_owned());
        DescribeAclsResponse { error_message, ..self.refuse(&context, ErrorCode::SecurityDisabled) }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeAclsResponse {
        DescribeAclsResponse { error_code: code, ..Default::default() }
    }
}

impl Api for CreateAclsRequest {
    async fn handle(self, _context: RequestContext) -> CreateAclsResponse {
        let result = AclCreationResult {
            error_code: ErrorCode::SecurityDisabled,
            error_message: Some(NO_AUTHORIZER.to_owned()),
        };
        CreateAclsResponse { results: vec![result; self.creations.len()], ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> CreateAclsResponse {
        let result = AclCreationResult { error_code: code, error_message: None };
        CreateAclsResponse { results: vec![result; self.creations.len()], ..Default::default() }
    }
}

impl Api for DeleteAclsRequest {
    async fn handle(self, _context: RequestContext) -> DeleteAclsResponse {
        let result = DeleteAclsFilterResult {
            error_code: ErrorCode::SecurityDisabled,
            error_message: Some(NO_AUTHORIZER.to_owned()),
            ..Default::default()
        };
        DeleteAclsResponse { filter_results: vec![result; self.filters.len()], ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DeleteAclsResponse {
        let result = DeleteAclsFilterResult { error_code: code, ..Default::default() };
        DeleteAclsResponse { filter_results: vec![result; self.filters.len()], ..Default::default() }
    }
}
