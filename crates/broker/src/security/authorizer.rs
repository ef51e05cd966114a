//! The decision whether a client may do an operation: the rules of Kafka's StandardAuthorizer.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ottla_protocol::ApiKey;
use tokio::time::Instant;

use super::Principal;
use super::acl::{Operation, ResourceType};
use super::acl_index::{AclIndex, Decision};
use super::audit::{Audit, Denial};
use crate::config::BrokerConfig;

/// A client that requests an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client<'a> {
    pub(crate) principal: &'a Principal,
    /// Its address as text.
    pub(crate) host: &'a str,
    pub(crate) api: ApiKey,
}

/// The super users and the ACLs of a cluster.
#[derive(Debug)]
pub(crate) struct Authorizer {
    super_users: BTreeSet<Principal>,
    /// `allow.everyone.if.no.acl.found`.
    allows_without_acls: bool,
    acls: RwLock<AclIndex>,
    audit: Audit,
}

impl Authorizer {
    /// The authorizer of a configuration; `None` if it has none.
    pub(crate) fn of(config: &BrokerConfig) -> Option<Self> {
        config.has_authorizer.then(|| Self {
            super_users: config.super_users.iter().filter_map(|name| Principal::parse(name)).collect(),
            allows_without_acls: config.allow_everyone_without_acls,
            acls: RwLock::default(),
            audit: Audit::default(),
        })
    }

    pub(crate) fn acls(&self) -> RwLockReadGuard<'_, AclIndex> {
        self.acls.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn acls_mut(&self) -> RwLockWriteGuard<'_, AclIndex> {
        self.acls.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides, and logs a denial.
    pub(crate) fn authorize(
        &self,
        client: Client<'_>,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
    ) -> bool {
        let is_allowed = self.is_allowed(client, operation, resource_type, name);
        if !is_allowed {
            let denial = Denial {
                principal: client.principal.clone(),
                operation,
                resource_type,
                name: name.to_owned(),
            };
            self.audit.denied(denial, client, Instant::now());
        }
        is_allowed
    }

    /// Decides without a line in the log: for filters, and for operations that another one can replace.
    pub(crate) fn is_allowed(
        &self,
        Client { principal, host, .. }: Client<'_>,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
    ) -> bool {
        self.super_users.contains(principal)
            || match self.acls().decide(principal, host, operation, resource_type, name) {
                Decision::Allowed => true,
                Decision::Denied => false,
                Decision::NoAcls => self.allows_without_acls,
            }
    }

    /// Returns `true` if the operation is allowed on at least one resource of the type, whatever its name.
    pub(crate) fn is_allowed_on_any(
        &self,
        client: Client<'_>,
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool {
        let Client { principal, host, .. } = client;
        // A name that no resource can have: only ACLs for all names, or no ACL, decide.
        self.is_allowed(client, operation, resource_type, "\0")
            || self.acls().is_allowed_on_any(principal, host, operation, resource_type)
    }

    /// The operations of a mask that the client may do.
    pub(crate) fn allowed_operations(
        &self,
        Client { principal, host, .. }: Client<'_>,
        resource: (ResourceType, &str),
        mask: i32,
    ) -> i32 {
        if self.super_users.contains(principal) {
            return mask;
        }
        self.acls().allowed_operations(principal, host, resource, mask, self.allows_without_acls)
    }
}
