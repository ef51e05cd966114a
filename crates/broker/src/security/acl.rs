//! ACLs and the filters that select them, with Kafka's numbers and rules.

use ottla_protocol::ErrorCode;
use serde::{Deserialize, Serialize};

use super::Principal;

/// An error code and a sentence.
type Refusal = (ErrorCode, String);

/// Any name, host or principal.
pub(crate) const WILDCARD: &str = "*";
/// The name of the one resource of type cluster.
pub(crate) const CLUSTER_NAME: &str = "kafka-cluster";
/// The longest name of a resource, a client or a host: the broker keeps many of them. Names of topics are shorter.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// The longest principal. The subject of a certificate is one.
pub(crate) const PRINCIPAL_BYTES_MAX: usize = 1024;
/// The number of "any" in filters, for all enumerations.
const ANY: i8 = 1;
/// The pattern type of filters that select all patterns that match a name.
const MATCH: i8 = 2;

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $number:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[repr(i8)]
        pub(crate) enum $name {
            $($variant = $number),*
        }

        impl $name {
            /// The value with this number in the protocol.
            pub(crate) fn of(number: i8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

numbered! {
    /// The type of a resource.
    ResourceType { Topic = 2, Group = 3, Cluster = 4, TransactionalId = 5, DelegationToken = 6, User = 7 }
}

numbered! {
    /// The way in which the name of an ACL selects resources.
    PatternType { Literal = 3, Prefixed = 4 }
}

numbered! {
    /// An operation on a resource.
    Operation {
        All = 2, Read = 3, Write = 4, Create = 5, Delete = 6, Alter = 7, Describe = 8, ClusterAction = 9,
        DescribeConfigs = 10, AlterConfigs = 11, IdempotentWrite = 12, CreateTokens = 13, DescribeTokens = 14,
        TwoPhaseCommit = 15,
    }
}

numbered! {
    /// The effect of an ACL.
    Permission { Deny = 2, Allow = 3 }
}

impl ResourceType {
    /// One more than the highest number.
    pub(crate) const COUNT: usize = Self::User as usize + 1;
}

impl Operation {
    /// The bit of the operation in masks, as in authorized operations.
    pub(crate) const fn bit(self) -> i32 {
        1 << self as i8
    }

    /// The operations to which an ACL with this operation applies. Only permissions have implications.
    pub(crate) const fn mask(self, permission: Permission) -> i32 {
        match (self, permission) {
            (Self::All, _) => i32::MAX,
            (Self::Read | Self::Write | Self::Delete | Self::Alter, Permission::Allow) => {
                self.bit() | Self::Describe.bit()
            }
            (Self::AlterConfigs, Permission::Allow) => self.bit() | Self::DescribeConfigs.bit(),
            (other, _) => other.bit(),
        }
    }
}

/// A set of resources: one by its name, all of a type (`*`), or those whose names have a prefix.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct ResourcePattern {
    pub(crate) resource_type: ResourceType,
    pub(crate) pattern_type: PatternType,
    pub(crate) name: String,
}

/// An ACL: it allows or denies an operation on resources to a principal at a host.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Acl {
    pub(crate) pattern: ResourcePattern,
    /// `<type>:<name>`.
    pub(crate) principal: String,
    /// An address, or `*`.
    pub(crate) host: String,
    pub(crate) operation: Operation,
    pub(crate) permission: Permission,
}

impl Acl {
    /// The principal; `None` if the text is no principal, which [`Acl::check`] refuses.
    pub(crate) fn parsed_principal(&self) -> Option<Principal> {
        Principal::parse(&self.principal)
    }

    /// Checks an ACL before it is created.
    ///
    /// # Errors
    /// INVALID_REQUEST with a sentence that names the field and its value.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let ResourcePattern { resource_type, name, .. } = &self.pattern;
        if name.is_empty() {
            return invalid("the resource has no name".to_owned());
        }
        if *resource_type == ResourceType::Cluster && name != CLUSTER_NAME {
            return invalid(format!("the cluster is called `{CLUSTER_NAME}`, not `{name}`"));
        }
        if *resource_type == ResourceType::User && Principal::parse(name).is_none() {
            return invalid(format!("the resource `{name}` is no principal: use `User:<name>`"));
        }
        if self.parsed_principal().is_none() {
            return invalid(format!("`{}` is no principal: use `User:<name>`", self.principal));
        }
        if self.host.is_empty() {
            return invalid("the host is empty: use an address, or `*`".to_owned());
        }
        let name_max =
            if *resource_type == ResourceType::User { PRINCIPAL_BYTES_MAX } else { NAME_BYTES_MAX };
        let limits = [
            ("name of the resource", name, name_max),
            ("principal", &self.principal, PRINCIPAL_BYTES_MAX),
            ("host", &self.host, NAME_BYTES_MAX),
        ];
        for (what, text, max) in limits {
            if text.len() > max {
                return invalid(format!("the {what} has {} bytes, at most {max} are allowed", text.len()));
            }
        }
        Ok(())
    }
}

/// The fields of an ACL as they are in requests.
#[derive(Debug)]
pub(crate) struct RawAcl {
    pub(crate) resource_type: i8,
    pub(crate) resource_name: String,
    pub(crate) pattern_type: i8,
    pub(crate) principal: String,
    pub(crate) host: String,
    pub(crate) operation: i8,
    pub(crate) permission: i8,
}

impl RawAcl {
    /// Reads the enumerations, and checks the ACL.
    pub(crate) fn parse(self) -> Result<Acl, Refusal> {
        let acl = Acl {
            pattern: ResourcePattern {
                resource_type: known("resource type", self.resource_type, ResourceType::of)?,
                pattern_type: known("pattern type", self.pattern_type, PatternType::of)?,
                name: self.resource_name,
            },
            principal: self.principal,
            host: self.host,
            operation: known("operation", self.operation, Operation::of)?,
            permission: known("permission type", self.permission, Permission::of)?,
        };
        acl.check()?;
        Ok(acl)
    }
}

/// The names that a filter selects.
#[derive(Clone, Debug, Eq, PartialEq)]
enum NameFilter {
    Any,
    /// Patterns with this name.
    Equal(String),
    /// Patterns that match this name.
    Matching(String),
}

/// A condition for ACLs. `None` is any value.
#[derive(Clone, Debug)]
pub(crate) struct AclFilter {
    resource_type: Option<ResourceType>,
    pattern_type: Option<PatternType>,
    name: NameFilter,
    principal: Option<String>,
    host: Option<String>,
    operation: Option<Operation>,
    permission: Option<Permission>,
}

/// The fields of a filter as they are in requests.
#[derive(Debug)]
pub(crate) struct RawFilter {
    pub(crate) resource_type: i8,
    pub(crate) resource_name: Option<String>,
    pub(crate) pattern_type: i8,
    pub(crate) principal: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) operation: i8,
    pub(crate) permission: i8,
}

impl RawFilter {
    /// Reads the enumerations.
    ///
    /// # Errors
    /// INVALID_REQUEST for a number that Kafka does not define.
    pub(crate) fn parse(self) -> Result<AclFilter, Refusal> {
        let matches = self.pattern_type == MATCH;
        let pattern_type = if matches { ANY } else { self.pattern_type };
        Ok(AclFilter {
            resource_type: any_or("resource type", self.resource_type, ResourceType::of)?,
            pattern_type: any_or("pattern type", pattern_type, PatternType::of)?,
            name: match self.resource_name {
                None => NameFilter::Any,
                Some(name) if matches => NameFilter::Matching(name),
                Some(name) => NameFilter::Equal(name),
            },
            principal: self.principal,
            host: self.host,
            operation: any_or("operation", self.operation, Operation::of)?,
            permission: any_or("permission type", self.permission, Permission::of)?,
        })
    }
}

impl AclFilter {
    pub(crate) fn selects(&self, acl: &Acl) -> bool {
        let ResourcePattern { resource_type, pattern_type, name } = &acl.pattern;
        self.resource_type.is_none_or(|wanted| wanted == *resource_type)
            && self.pattern_type.is_none_or(|wanted| wanted == *pattern_type)
            && match (&self.name, pattern_type) {
                (NameFilter::Any, _) => true,
                (NameFilter::Equal(wanted), _) => wanted == name,
                (NameFilter::Matching(wanted), PatternType::Literal) => wanted == name || name == WILDCARD,
                (NameFilter::Matching(wanted), PatternType::Prefixed) => wanted.starts_with(name.as_str()),
            }
            && self.principal.as_ref().is_none_or(|wanted| *wanted == acl.principal)
            && self.host.as_ref().is_none_or(|wanted| *wanted == acl.host)
            && self.operation.is_none_or(|wanted| wanted == acl.operation)
            && self.permission.is_none_or(|wanted| wanted == acl.permission)
    }
}

fn known<T>(what: &str, number: i8, of: impl Fn(i8) -> Option<T>) -> Result<T, Refusal> {
    of(number).map_or_else(|| invalid(format!("{number} is no {what} of an ACL")), Ok)
}

fn any_or<T>(what: &str, number: i8, of: impl Fn(i8) -> Option<T>) -> Result<Option<T>, Refusal> {
    if number == ANY { Ok(None) } else { known(what, number, of).map(Some) }
}

fn invalid<T>(reason: String) -> Result<T, Refusal> {
    Err((ErrorCode::InvalidRequest, reason))
}
