//! The settings, users and ACLs of a start with [`BrokerBuilder::secure`](super::BrokerBuilder::secure).

use super::StartError;
use crate::cluster::Cluster;
use crate::config::{BrokerConfig, STANDARD_AUTHORIZER};
use crate::security::acl::{
    Acl, CLUSTER_NAME, Operation, PatternType, Permission, ResourcePattern, ResourceType, WILDCARD,
};
use crate::security::secure_dir::{ADMIN, CLIENT, SecureDir};

/// The rights of the user `client`: it works with topics, groups and transactions, and does not administer the cluster.
const RIGHTS: &[(ResourceType, &str, Operation)] = &[
    (ResourceType::Topic, WILDCARD, Operation::All),
    (ResourceType::Group, WILDCARD, Operation::All),
    (ResourceType::TransactionalId, WILDCARD, Operation::All),
    (ResourceType::Cluster, CLUSTER_NAME, Operation::Describe),
    (ResourceType::Cluster, CLUSTER_NAME, Operation::IdempotentWrite),
];

/// Switches the authorizer on, with `admin` as the super user, unless the settings say otherwise.
pub(super) fn configure(config: &mut BrokerConfig) -> Result<(), StartError> {
    let admin = format!("User:{ADMIN}");
    for (name, value) in [("authorizer.class.name", STANDARD_AUTHORIZER), ("super.users", &*admin)] {
        if !config.given.contains_key(name) {
            config.set(name, value).map_err(StartError::Secure)?;
        }
    }
    Ok(())
}

/// Stores the users of a new directory, and those that the data does not have yet. The user `client` gets its rights before its
/// password is first stored, so that rights that were taken away stay away, and a start that fails in between gives them again.
pub(super) fn store(cluster: &Cluster, secure: &SecureDir) -> Result<(), StartError> {
    let is_known = cluster.scram_credentials.users().iter().any(|user| user == CLIENT);
    if !is_known {
        store_rights(cluster)?;
    }
    for (user, password) in &secure.users {
        cluster.set_password(user, password.expose(), secure.is_new).map_err(StartError::Secure)?;
    }
    secure.keep_passwords().map_err(StartError::Secure)
}

fn store_rights(cluster: &Cluster) -> Result<(), StartError> {
    let Some(authorizer) = &cluster.authorizer else { return Ok(()) };
    let acls = RIGHTS.iter().map(|(resource_type, name, operation)| {
        let name = (*name).to_owned();
        Ok(Acl {
            pattern: ResourcePattern {
                resource_type: *resource_type,
                pattern_type: PatternType::Literal,
                name,
            },
            principal: format!("User:{CLIENT}"),
            host: WILDCARD.to_owned(),
            operation: *operation,
            permission: Permission::Allow,
        })
    });
    let created = cluster.create_acls(authorizer, acls.collect());
    created.into_iter().collect::<Result<(), _>>().map_err(|(_, reason)| StartError::Secure(reason))
}
