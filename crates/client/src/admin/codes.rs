//! Kafka's numbers for kinds of things, as names.

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
            /// What has this number in Kafka's protocol.
            pub const fn from_code(code: i8) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    code => Self::Unknown(code),
                }
            }

            /// Its number in Kafka's protocol.
            pub const fn code(self) -> i8 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Unknown(code) => code,
                }
            }

            /// Kafka's name for it.
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
    /// What somebody does with a resource, as access rules name it.
    AclOperation {
        /// In a filter: whatever it is.
        Any = 1 "ANY",
        /// All of them.
        All = 2 "ALL",
        /// Reading records, or being a member of a group.
        Read = 3 "READ",
        /// Producing.
        Write = 4 "WRITE",
        /// Creating topics.
        Create = 5 "CREATE",
        /// Deleting topics, records or groups.
        Delete = 6 "DELETE",
        /// Changing partitions, rules or credentials.
        Alter = 7 "ALTER",
        /// Looking at it.
        Describe = 8 "DESCRIBE",
        /// What brokers do among themselves.
        ClusterAction = 9 "CLUSTER_ACTION",
        /// Reading settings.
        DescribeConfigs = 10 "DESCRIBE_CONFIGS",
        /// Changing settings.
        AlterConfigs = 11 "ALTER_CONFIGS",
        /// Producing idempotently.
        IdempotentWrite = 12 "IDEMPOTENT_WRITE",
        /// Creating delegation tokens for other users.
        CreateTokens = 13 "CREATE_TOKENS",
        /// Looking at other users' delegation tokens.
        DescribeTokens = 14 "DESCRIBE_TOKENS",
        /// Two-phase commit from outside (KIP-939).
        TwoPhaseCommit = 15 "TWO_PHASE_COMMIT",
    }

    /// What an access rule does.
    AclPermission {
        /// In a filter: whatever it is.
        Any = 1 "ANY",
        /// Forbids.
        Deny = 2 "DENY",
        /// Allows.
        Allow = 3 "ALLOW",
    }

    /// What an access rule is about.
    ResourceType {
        /// In a filter: whatever it is.
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

    /// How an access rule's name is to be read.
    PatternType {
        /// In a filter: whatever it is, with exactly this name.
        Any = 1 "ANY",
        /// In a filter: every rule that holds for a resource of this name.
        Match = 2 "MATCH",
        /// The whole name; `*` stands for every name.
        Literal = 3 "LITERAL",
        /// The beginning of the name.
        Prefixed = 4 "PREFIXED",
    }

    /// Whose settings are meant.
    ConfigResourceType {
        /// A topic's, by name.
        Topic = 2 "TOPIC",
        /// A broker's, by number; those of all brokers with an empty name.
        Broker = 4 "BROKER",
        /// The levels of a broker's loggers, by its number.
        BrokerLogger = 8 "BROKER_LOGGER",
        /// A subscription to clients' metrics, by name.
        ClientMetrics = 16 "CLIENT_METRICS",
        /// A group's, by id.
        Group = 32 "GROUP",
    }

    /// Who has chosen a setting's value.
    ConfigSource {
        /// The topic.
        Topic = 1 "DYNAMIC_TOPIC_CONFIG",
        /// The broker, while it ran.
        DynamicBroker = 2 "DYNAMIC_BROKER_CONFIG",
        /// All brokers, while they ran.
        DynamicDefaultBroker = 3 "DYNAMIC_DEFAULT_BROKER_CONFIG",
        /// The broker's file.
        StaticBroker = 4 "STATIC_BROKER_CONFIG",
        /// Nobody: it is Kafka's default.
        Default = 5 "DEFAULT_CONFIG",
        /// A logger of the broker's.
        DynamicBrokerLogger = 6 "DYNAMIC_BROKER_LOGGER_CONFIG",
        /// A subscription to clients' metrics.
        ClientMetrics = 7 "DYNAMIC_CLIENT_METRICS_CONFIG",
        /// The group.
        Group = 8 "DYNAMIC_GROUP_CONFIG",
    }

    /// How a user proves a password without sending it.
    ScramMechanism {
        /// With SHA-256.
        Sha256 = 1 "SCRAM-SHA-256",
        /// With SHA-512.
        Sha512 = 2 "SCRAM-SHA-512",
    }
}

impl AclOperation {
    /// The operations in an answer's bits; `None` if the broker does not tell.
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
