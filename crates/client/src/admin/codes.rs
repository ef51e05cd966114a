//! Kafka's numeric codes as enums.

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $code:literal $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// A number that this client does not know.
            Unknown(i8),
        }

        impl $name {
            /// The variant with this number in Kafka's protocol.
            pub const fn from_code(code: i8) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    code => Self::Unknown(code),
                }
            }

            /// The number in Kafka's protocol.
            pub const fn code(self) -> i8 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Unknown(code) => code,
                }
            }

            /// Kafka's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Unknown(_) => "UNKNOWN",
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    )*};
}

codes! {
    /// An operation on a resource, as named in ACLs.
    AclOperation {
        /// Any operation; in filters only.
        Any = 1 "ANY",
        /// All operations.
        All = 2 "ALL",
        /// Read records, or be a member of a group.
        Read = 3 "READ",
        /// Produce records.
        Write = 4 "WRITE",
        /// Create topics.
        Create = 5 "CREATE",
        /// Delete topics, records or groups.
        Delete = 6 "DELETE",
        /// Alter partitions, ACLs or credentials.
        Alter = 7 "ALTER",
        /// Describe the resource.
        Describe = 8 "DESCRIBE",
        /// Operations between brokers.
        ClusterAction = 9 "CLUSTER_ACTION",
        /// Read configurations.
        DescribeConfigs = 10 "DESCRIBE_CONFIGS",
        /// Change configurations.
        AlterConfigs = 11 "ALTER_CONFIGS",
        /// Produce idempotently.
        IdempotentWrite = 12 "IDEMPOTENT_WRITE",
        /// Create delegation tokens for other users.
        CreateTokens = 13 "CREATE_TOKENS",
        /// Describe other users' delegation tokens.
        DescribeTokens = 14 "DESCRIBE_TOKENS",
        /// Two-phase commit with an external coordinator (KIP-939).
        TwoPhaseCommit = 15 "TWO_PHASE_COMMIT",
    }

    /// The effect of an ACL.
    AclPermission {
        /// Any permission; in filters only.
        Any = 1 "ANY",
        /// Denies the operation.
        Deny = 2 "DENY",
        /// Allows the operation.
        Allow = 3 "ALLOW",
    }

    /// The kind of resource that an ACL applies to.
    ResourceType {
        /// Any resource type; in filters only.
        Any = 1 "ANY",
        /// Topics.
        Topic = 2 "TOPIC",
        /// Groups.
        Group = 3 "GROUP",
        /// The cluster, whose name is `kafka-cluster`.
        Cluster = 4 "CLUSTER",
        /// Transactional ids.
        TransactionalId = 5 "TRANSACTIONAL_ID",
        /// Delegation tokens.
        DelegationToken = 6 "DELEGATION_TOKEN",
        /// Users.
        User = 7 "USER",
    }

    /// The way in which the resource name of an ACL is matched.
    PatternType {
        /// Any pattern type with exactly this name; in filters only.
        Any = 1 "ANY",
        /// Every pattern that matches a resource of this name; in filters only.
        Match = 2 "MATCH",
        /// The exact name; `*` matches every name.
        Literal = 3 "LITERAL",
        /// A prefix of the name.
        Prefixed = 4 "PREFIXED",
    }

    /// The kind of resource that a configuration belongs to.
    ConfigResourceType {
        /// A topic, by name.
        Topic = 2 "TOPIC",
        /// A broker, by node id; an empty name means all brokers.
        Broker = 4 "BROKER",
        /// The log levels of a broker, by node id.
        BrokerLogger = 8 "BROKER_LOGGER",
        /// A subscription to client metrics, by name.
        ClientMetrics = 16 "CLIENT_METRICS",
        /// A group, by id.
        Group = 32 "GROUP",
    }

    /// The source of a configuration value.
    ConfigSource {
        /// The topic's dynamic configuration.
        Topic = 1 "DYNAMIC_TOPIC_CONFIG",
        /// The broker's dynamic configuration.
        DynamicBroker = 2 "DYNAMIC_BROKER_CONFIG",
        /// The dynamic default of all brokers.
        DynamicDefaultBroker = 3 "DYNAMIC_DEFAULT_BROKER_CONFIG",
        /// The broker's configuration file.
        StaticBroker = 4 "STATIC_BROKER_CONFIG",
        /// Kafka's default.
        Default = 5 "DEFAULT_CONFIG",
        /// The dynamic configuration of a broker's logger.
        DynamicBrokerLogger = 6 "DYNAMIC_BROKER_LOGGER_CONFIG",
        /// The dynamic configuration of client metrics.
        ClientMetrics = 7 "DYNAMIC_CLIENT_METRICS_CONFIG",
        /// The group's dynamic configuration.
        Group = 8 "DYNAMIC_GROUP_CONFIG",
    }

    /// A SASL/SCRAM mechanism.
    ScramMechanism {
        /// SCRAM-SHA-256.
        Sha256 = 1 "SCRAM-SHA-256",
        /// SCRAM-SHA-512.
        Sha512 = 2 "SCRAM-SHA-512",
    }
}

impl AclOperation {
    /// The operations in the bit field of a response; `None` if the broker does not report them.
    pub(super) fn authorized(bits: i32) -> Option<Vec<Self>> {
        if bits == i32::MIN {
            return None;
        }
        Some((0..31).filter(|bit| bits & (1 << bit) != 0).map(|bit| Self::from_code(bit as i8)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_operations() {
        assert_eq!(AclOperation::authorized(i32::MIN), None);
        assert_eq!(AclOperation::authorized(0), Some(Vec::new()));
        let some = AclOperation::authorized(0b1_0000_1000).expect("told");
        assert_eq!(some, [AclOperation::Read, AclOperation::Describe]);
        assert_eq!(AclOperation::from_code(99).code(), 99);
    }
}
