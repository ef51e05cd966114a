//! Kafka's error codes.

use std::fmt;

/// The client's reaction to an error code.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Remedy {
    /// The same request would fail again.
    Final,
    /// The same request may succeed later.
    Retry,
    /// The same request may succeed after a metadata refresh.
    Refresh,
}

macro_rules! error_codes {
    ($($variant:ident = $code:literal, $name:ident, $remedy:ident, $message:literal;)*) => {
        /// The result of a request, or of a part of one.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum ErrorCode {
            $(#[doc = $message] $variant,)*
            /// a code that Kafka 4.3 does not define
            Unknown(i16),
        }

        impl ErrorCode {
            /// All codes that Kafka 4.3 defines, in order.
            pub const KNOWN: &[Self] = &[$(Self::$variant),*];

            /// The error with this code.
            #[inline]
            pub const fn from_i16(code: i16) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    code => Self::Unknown(code),
                }
            }

            /// The code's number.
            #[inline]
            pub const fn code(self) -> i16 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Unknown(code) => code,
                }
            }

            /// Kafka's name: `NOT_LEADER_OR_FOLLOWER`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)*
                    Self::Unknown(_) => "UNKNOWN",
                }
            }

            /// The description, as the end of a sentence.
            pub const fn message(self) -> &'static str {
                match self {
                    $(Self::$variant => $message,)*
                    Self::Unknown(_) => "an error that Kafka 4.3 does not define",
                }
            }

            const fn remedy(self) -> Remedy {
                match self {
                    $(Self::$variant => Remedy::$remedy,)*
                    Self::Unknown(_) => Remedy::Final,
                }
            }
        }
    };
}

error_codes! {
    UnknownServerError = -1, UNKNOWN_SERVER_ERROR, Final, "the server failed in a way it has no code for";
    None = 0, NONE, Final, "no error";
    OffsetOutOfRange = 1, OFFSET_OUT_OF_RANGE, Final, "the offset is outside the partition's log";
    CorruptMessage = 2, CORRUPT_MESSAGE, Retry, "the batch is corrupt, too large, or lacks the keys that compaction needs";
    UnknownTopicOrPartition = 3, UNKNOWN_TOPIC_OR_PARTITION, Refresh, "the topic or partition does not exist here";
    InvalidFetchSize = 4, INVALID_FETCH_SIZE, Final, "the fetch size is not valid";
    LeaderNotAvailable = 5, LEADER_NOT_AVAILABLE, Refresh, "the partition has no leader at the moment";
    NotLeaderOrFollower = 6, NOT_LEADER_OR_FOLLOWER, Refresh, "this broker is not the leader, or not a replica, of the partition";
    RequestTimedOut = 7, REQUEST_TIMED_OUT, Retry, "the broker gave up on the request after its timeout";
    BrokerNotAvailable = 8, BROKER_NOT_AVAILABLE, Final, "the broker is not available";
    ReplicaNotAvailable = 9, REPLICA_NOT_AVAILABLE, Refresh, "the replica is not available";
    MessageTooLarge = 10, MESSAGE_TOO_LARGE, Final, "the batch is larger than the broker accepts";
    StaleControllerEpoch = 11, STALE_CONTROLLER_EPOCH, Final, "another broker has become the controller";
    OffsetMetadataTooLarge = 12, OFFSET_METADATA_TOO_LARGE, Final, "the metadata of the committed offset is too large";
    NetworkException = 13, NETWORK_EXCEPTION, Refresh, "the connection was lost before the response arrived";
    CoordinatorLoadInProgress = 14, COORDINATOR_LOAD_IN_PROGRESS, Retry, "the coordinator is still reading its log";
    CoordinatorNotAvailable = 15, COORDINATOR_NOT_AVAILABLE, Retry, "no coordinator is available at the moment";
    NotCoordinator = 16, NOT_COORDINATOR, Retry, "another broker is the coordinator";
    InvalidTopicException = 17, INVALID_TOPIC_EXCEPTION, Final, "the topic's name is not valid, or names a topic that clients must not use";
    RecordListTooLarge = 18, RECORD_LIST_TOO_LARGE, Final, "the batch is larger than a segment of the log";
    NotEnoughReplicas = 19, NOT_ENOUGH_REPLICAS, Retry, "too few replicas are in sync to accept the write";
    NotEnoughReplicasAfterAppend = 20, NOT_ENOUGH_REPLICAS_AFTER_APPEND, Retry, "the write was appended, but too few replicas have it";
    InvalidRequiredAcks = 21, INVALID_REQUIRED_ACKS, Final, "acks is neither -1, 0 nor 1";
    IllegalGeneration = 22, ILLEGAL_GENERATION, Final, "the generation is not the group's current one";
    InconsistentGroupProtocol = 23, INCONSISTENT_GROUP_PROTOCOL, Final, "the member's protocols do not match those of the group";
    InvalidGroupId = 24, INVALID_GROUP_ID, Final, "the group id is not valid";
    UnknownMemberId = 25, UNKNOWN_MEMBER_ID, Final, "the coordinator does not know the member";
    InvalidSessionTimeout = 26, INVALID_SESSION_TIMEOUT, Final, "the session timeout is outside the broker's limits";
    RebalanceInProgress = 27, REBALANCE_IN_PROGRESS, Final, "the group is rebalancing";
    InvalidCommitOffsetSize = 28, INVALID_COMMIT_OFFSET_SIZE, Final, "the committed offset and its metadata are too large";
    TopicAuthorizationFailed = 29, TOPIC_AUTHORIZATION_FAILED, Final, "not authorized for the topic";
    GroupAuthorizationFailed = 30, GROUP_AUTHORIZATION_FAILED, Final, "not authorized for the group";
    ClusterAuthorizationFailed = 31, CLUSTER_AUTHORIZATION_FAILED, Final, "not authorized for the cluster";
    InvalidTimestamp = 32, INVALID_TIMESTAMP, Final, "the timestamp is outside the range that the broker accepts";
    UnsupportedSaslMechanism = 33, UNSUPPORTED_SASL_MECHANISM, Final, "the broker does not offer this SASL mechanism";
    IllegalSaslState = 34, ILLEGAL_SASL_STATE, Final, "the request is not valid in this state of the SASL exchange";
    UnsupportedVersion = 35, UNSUPPORTED_VERSION, Final, "the broker does not support this version of the request";
    TopicAlreadyExists = 36, TOPIC_ALREADY_EXISTS, Final, "a topic of this name exists already";
    InvalidPartitions = 37, INVALID_PARTITIONS, Final, "the number of partitions is not valid";
    InvalidReplicationFactor = 38, INVALID_REPLICATION_FACTOR, Final, "the replication factor is below one or above the number of brokers";
    InvalidReplicaAssignment = 39, INVALID_REPLICA_ASSIGNMENT, Final, "the assignment of replicas is not valid";
    InvalidConfig = 40, INVALID_CONFIG, Final, "the configuration is not valid";
    NotController = 41, NOT_CONTROLLER, Retry, "another broker is the controller";
    InvalidRequest = 42, INVALID_REQUEST, Final, "the request contradicts itself or the protocol";
    UnsupportedForMessageFormat = 43, UNSUPPORTED_FOR_MESSAGE_FORMAT, Final, "the broker's record format cannot do this";
    PolicyViolation = 44, POLICY_VIOLATION, Final, "a policy of the broker forbids this";
    OutOfOrderSequenceNumber = 45, OUT_OF_ORDER_SEQUENCE_NUMBER, Final, "the batch's sequence number does not follow the last one";
    DuplicateSequenceNumber = 46, DUPLICATE_SEQUENCE_NUMBER, Final, "the batch's sequence number was used before";
    InvalidProducerEpoch = 47, INVALID_PRODUCER_EPOCH, Final, "the producer's epoch is not the current one";
    InvalidTxnState = 48, INVALID_TXN_STATE, Final, "the transaction is not in a state that allows this";
    InvalidProducerIdMapping = 49, INVALID_PRODUCER_ID_MAPPING, Final, "the producer id does not belong to the transactional id";
    InvalidTransactionTimeout = 50, INVALID_TRANSACTION_TIMEOUT, Final, "the transaction timeout is longer than the broker allows";
    ConcurrentTransactions = 51, CONCURRENT_TRANSACTIONS, Retry, "another operation on the same transaction is in progress";
    TransactionCoordinatorFenced = 52, TRANSACTION_COORDINATOR_FENCED, Final, "another broker has become the transaction's coordinator";
    TransactionalIdAuthorizationFailed = 53, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Final, "not authorized for the transactional id";
    SecurityDisabled = 54, SECURITY_DISABLED, Final, "the broker has no authorizer";
    OperationNotAttempted = 55, OPERATION_NOT_ATTEMPTED, Final, "the broker did not process this part of the request";
    KafkaStorageError = 56, KAFKA_STORAGE_ERROR, Refresh, "the broker's disk failed";
    LogDirNotFound = 57, LOG_DIR_NOT_FOUND, Final, "the broker has no such log directory";
    SaslAuthenticationFailed = 58, SASL_AUTHENTICATION_FAILED, Final, "authentication failed";
    UnknownProducerId = 59, UNKNOWN_PRODUCER_ID, Final, "the broker has no state of this producer";
    ReassignmentInProgress = 60, REASSIGNMENT_IN_PROGRESS, Final, "the partition is being reassigned";
    DelegationTokenAuthDisabled = 61, DELEGATION_TOKEN_AUTH_DISABLED, Final, "delegation tokens are disabled";
    DelegationTokenNotFound = 62, DELEGATION_TOKEN_NOT_FOUND, Final, "the broker does not know the delegation token";
    DelegationTokenOwnerMismatch = 63, DELEGATION_TOKEN_OWNER_MISMATCH, Final, "the delegation token belongs to another owner";
    DelegationTokenRequestNotAllowed = 64, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, Final, "delegation tokens cannot be requested over this connection";
    DelegationTokenAuthorizationFailed = 65, DELEGATION_TOKEN_AUTHORIZATION_FAILED, Final, "not authorized for the delegation token";
    DelegationTokenExpired = 66, DELEGATION_TOKEN_EXPIRED, Final, "the delegation token has expired";
    InvalidPrincipalType = 67, INVALID_PRINCIPAL_TYPE, Final, "the type of principal is not supported";
    NonEmptyGroup = 68, NON_EMPTY_GROUP, Final, "the group has members";
    GroupIdNotFound = 69, GROUP_ID_NOT_FOUND, Final, "the group does not exist";
    FetchSessionIdNotFound = 70, FETCH_SESSION_ID_NOT_FOUND, Retry, "the broker does not know the fetch session";
    InvalidFetchSessionEpoch = 71, INVALID_FETCH_SESSION_EPOCH, Retry, "the request does not continue the fetch session";
    ListenerNotFound = 72, LISTENER_NOT_FOUND, Refresh, "the leader has no listener of the name this client uses";
    TopicDeletionDisabled = 73, TOPIC_DELETION_DISABLED, Final, "topic deletion is disabled";
    FencedLeaderEpoch = 74, FENCED_LEADER_EPOCH, Refresh, "the leader epoch is older than the broker's";
    UnknownLeaderEpoch = 75, UNKNOWN_LEADER_EPOCH, Retry, "the leader epoch is newer than the broker's";
    UnsupportedCompressionType = 76, UNSUPPORTED_COMPRESSION_TYPE, Final, "the batches have a codec that this version of fetch does not support";
    StaleBrokerEpoch = 77, STALE_BROKER_EPOCH, Final, "the broker's registration is not the current one";
    OffsetNotAvailable = 78, OFFSET_NOT_AVAILABLE, Retry, "the new leader does not know its high watermark yet";
    MemberIdRequired = 79, MEMBER_ID_REQUIRED, Final, "join again with the member id from this response";
    PreferredLeaderNotAvailable = 80, PREFERRED_LEADER_NOT_AVAILABLE, Refresh, "the preferred leader cannot lead at the moment";
    GroupMaxSizeReached = 81, GROUP_MAX_SIZE_REACHED, Final, "the group is full";
    FencedInstanceId = 82, FENCED_INSTANCE_ID, Final, "another member with the same instance id has taken over";
    EligibleLeadersNotAvailable = 83, ELIGIBLE_LEADERS_NOT_AVAILABLE, Refresh, "none of the eligible leaders can lead at the moment";
    ElectionNotNeeded = 84, ELECTION_NOT_NEEDED, Refresh, "the partition already has the right leader";
    NoReassignmentInProgress = 85, NO_REASSIGNMENT_IN_PROGRESS, Final, "the partition is not being reassigned";
    GroupSubscribedToTopic = 86, GROUP_SUBSCRIBED_TO_TOPIC, Final, "the group is subscribed to the topic";
    InvalidRecord = 87, INVALID_RECORD, Final, "a record failed the broker's validation, and its batch was rejected";
    UnstableOffsetCommit = 88, UNSTABLE_OFFSET_COMMIT, Retry, "a transaction that would change the offset is still open";
    ThrottlingQuotaExceeded = 89, THROTTLING_QUOTA_EXCEEDED, Retry, "a quota is exceeded";
    ProducerFenced = 90, PRODUCER_FENCED, Final, "a newer producer has taken over the transactional id";
    ResourceNotFound = 91, RESOURCE_NOT_FOUND, Final, "the request names something that does not exist";
    DuplicateResource = 92, DUPLICATE_RESOURCE, Final, "the request names the same thing twice";
    UnacceptableCredential = 93, UNACCEPTABLE_CREDENTIAL, Final, "the credential is not acceptable";
    InconsistentVoterSet = 94, INCONSISTENT_VOTER_SET, Final, "sender and receiver disagree about the voters";
    InvalidUpdateVersion = 95, INVALID_UPDATE_VERSION, Final, "the version to update to is not valid";
    FeatureUpdateFailed = 96, FEATURE_UPDATE_FAILED, Final, "the features could not be updated";
    PrincipalDeserializationFailure = 97, PRINCIPAL_DESERIALIZATION_FAILURE, Final, "the forwarded principal cannot be read";
    SnapshotNotFound = 98, SNAPSHOT_NOT_FOUND, Final, "the snapshot does not exist";
    PositionOutOfRange = 99, POSITION_OUT_OF_RANGE, Final, "the position is outside the snapshot";
    UnknownTopicId = 100, UNKNOWN_TOPIC_ID, Refresh, "the broker has no topic with this id";
    DuplicateBrokerRegistration = 101, DUPLICATE_BROKER_REGISTRATION, Final, "a broker with this id is registered already";
    BrokerIdNotRegistered = 102, BROKER_ID_NOT_REGISTERED, Final, "no broker with this id is registered";
    InconsistentTopicId = 103, INCONSISTENT_TOPIC_ID, Refresh, "the topic's id is not the one in the request";
    InconsistentClusterId = 104, INCONSISTENT_CLUSTER_ID, Final, "the cluster's id is not the one in the request";
    TransactionalIdNotFound = 105, TRANSACTIONAL_ID_NOT_FOUND, Final, "the transactional id does not exist";
    FetchSessionTopicIdError = 106, FETCH_SESSION_TOPIC_ID_ERROR, Retry, "the fetch session holds topics both with and without ids";
    IneligibleReplica = 107, INELIGIBLE_REPLICA, Final, "an in-sync replica is not eligible";
    NewLeaderElected = 108, NEW_LEADER_ELECTED, Final, "the partition was changed and has a new leader";
    OffsetMovedToTieredStorage = 109, OFFSET_MOVED_TO_TIERED_STORAGE, Final, "the offset has moved to tiered storage";
    FencedMemberEpoch = 110, FENCED_MEMBER_EPOCH, Final, "the group has a newer epoch of the member: it must give up its partitions and join again";
    UnreleasedInstanceId = 111, UNRELEASED_INSTANCE_ID, Final, "another member still holds the instance id";
    UnsupportedAssignor = 112, UNSUPPORTED_ASSIGNOR, Final, "the group's coordinator does not have this assignor";
    StaleMemberEpoch = 113, STALE_MEMBER_EPOCH, Final, "the member's epoch is not the current one: retry after the next heartbeat";
    MismatchedEndpointType = 114, MISMATCHED_ENDPOINT_TYPE, Final, "this endpoint has a different type than the request requires";
    UnsupportedEndpointType = 115, UNSUPPORTED_ENDPOINT_TYPE, Final, "this type of endpoint is not supported";
    UnknownControllerId = 116, UNKNOWN_CONTROLLER_ID, Final, "no controller has this id";
    UnknownSubscriptionId = 117, UNKNOWN_SUBSCRIPTION_ID, Final, "the telemetry subscription is out of date";
    TelemetryTooLarge = 118, TELEMETRY_TOO_LARGE, Final, "the telemetry is larger than the broker accepts";
    InvalidRegistration = 119, INVALID_REGISTRATION, Final, "the controller rejected the broker's registration";
    TransactionAbortable = 120, TRANSACTION_ABORTABLE, Final, "the transaction failed; the producer can abort it and continue";
    InvalidRecordState = 121, INVALID_RECORD_STATE, Final, "the record is not in a state that allows this acknowledgement";
    ShareSessionNotFound = 122, SHARE_SESSION_NOT_FOUND, Retry, "the broker does not know the share session";
    InvalidShareSessionEpoch = 123, INVALID_SHARE_SESSION_EPOCH, Retry, "the request does not continue the share session";
    FencedStateEpoch = 124, FENCED_STATE_EPOCH, Final, "the share group's state has another epoch";
    InvalidVoterKey = 125, INVALID_VOTER_KEY, Final, "the key is not that of the voter";
    DuplicateVoter = 126, DUPLICATE_VOTER, Final, "the voter exists already";
    VoterNotFound = 127, VOTER_NOT_FOUND, Final, "the voter does not exist";
    InvalidRegularExpression = 128, INVALID_REGULAR_EXPRESSION, Final, "the regular expression is not valid";
    RebootstrapRequired = 129, REBOOTSTRAP_REQUIRED, Final, "the client's view of the cluster is too old: start again from the bootstrap servers";
    StreamsInvalidTopology = 130, STREAMS_INVALID_TOPOLOGY, Final, "the topology is not valid";
    StreamsInvalidTopologyEpoch = 131, STREAMS_INVALID_TOPOLOGY_EPOCH, Final, "the epoch of the topology is not valid";
    StreamsTopologyFenced = 132, STREAMS_TOPOLOGY_FENCED, Final, "a newer topology has taken over";
    ShareSessionLimitReached = 133, SHARE_SESSION_LIMIT_REACHED, Retry, "the broker has no room for another share session";
}

impl ErrorCode {
    /// `true` if the code is [`ErrorCode::None`].
    #[inline]
    pub const fn is_none(self) -> bool {
        matches!(self, Self::None)
    }

    /// `true` if the same request may succeed later: the Java client's retriable exceptions.
    pub const fn is_retriable(self) -> bool {
        matches!(self.remedy(), Remedy::Retry | Remedy::Refresh)
    }

    /// `true` if the client's metadata is out of date.
    pub const fn needs_metadata_refresh(self) -> bool {
        matches!(self.remedy(), Remedy::Refresh)
    }

    /// `true` if the client sent the request to the wrong coordinator.
    pub const fn needs_coordinator_refresh(self) -> bool {
        matches!(self, Self::CoordinatorNotAvailable | Self::NotCoordinator)
    }

    /// `Ok` if the code is [`ErrorCode::None`].
    #[inline]
    pub const fn into_result(self) -> Result<(), Self> {
        if self.is_none() { Ok(()) } else { Err(self) }
    }
}

#[allow(clippy::derivable_impls, reason = "the macro that writes the enum treats all variants alike")]
impl Default for ErrorCode {
    fn default() -> Self {
        Self::None
    }
}

impl From<i16> for ErrorCode {
    fn from(code: i16) -> Self {
        Self::from_i16(code)
    }
}

impl From<ErrorCode> for i16 {
    fn from(error: ErrorCode) -> Self {
        error.code()
    }
}

impl std::error::Error for ErrorCode {}

/// `NOT_LEADER_OR_FOLLOWER (6): this broker is not the leader, or not a replica, of the partition`.
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name(), self.code(), self.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_dense_and_come_back() {
        for (at, error) in ErrorCode::KNOWN.iter().enumerate() {
            assert_eq!(error.code(), at as i16 - 1);
            assert_eq!(ErrorCode::from_i16(error.code()), *error);
        }
        assert_eq!(ErrorCode::from_i16(9999), ErrorCode::Unknown(9999));
        assert_eq!(ErrorCode::from_i16(9999).code(), 9999);
    }

    #[test]
    fn remedies_are_the_java_clients() {
        assert!(ErrorCode::NotLeaderOrFollower.needs_metadata_refresh());
        assert!(ErrorCode::NotCoordinator.is_retriable());
        assert!(!ErrorCode::NotCoordinator.needs_metadata_refresh());
        assert!(!ErrorCode::UnknownMemberId.is_retriable());
    }
}
