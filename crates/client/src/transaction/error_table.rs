//! The action for each error code in the response to each transactional request, as one table.

use ottla_protocol::ErrorCode;

/// The transaction protocol between a producer and its coordinator.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum TransactionProtocol {
    /// The classic protocol: separate requests add partitions and groups, and the epoch spans transactions.
    #[default]
    V1,
    /// The KIP-890 protocol: brokers add partitions and groups, and every transaction has its own epoch.
    V2,
}

impl TransactionProtocol {
    /// The protocol for a level of the cluster's `transaction.version`.
    pub(crate) const fn at_level(level: i16) -> Self {
        if level >= 2 { Self::V2 } else { Self::V1 }
    }
}

/// The requests of a transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TxnRequest {
    FindCoordinator,
    InitProducerId,
    AddPartitions,
    AddOffsets,
    CommitOffsets,
    Commit,
    Abort,
}

/// The action for a response; later variants outweigh earlier ones.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum ResponseAction {
    Done,
    /// The same request again, after a pause.
    Again,
    /// The same request again, to the current coordinator.
    Elsewhere,
    /// The transaction must be aborted.
    Abortable,
    /// The coordinator does not know the producer id: the open transaction is lost, and a new id is required.
    Forgotten,
    /// The outcome of the transaction is unknown: only a new initialization is safe.
    Unknown,
    Fatal,
    /// Fatal, because another producer or the coordinator has raised the epoch.
    Fenced,
}

impl TxnRequest {
    /// The request's name.
    pub(crate) const fn request(self) -> &'static str {
        match self {
            Self::FindCoordinator => "FindCoordinator",
            Self::InitProducerId => "InitProducerId",
            Self::AddPartitions => "AddPartitionsToTxn",
            Self::AddOffsets => "AddOffsetsToTxn",
            Self::CommitOffsets => "TxnOffsetCommit",
            Self::Commit => "EndTxn (commit)",
            Self::Abort => "EndTxn (abort)",
        }
    }

    const fn is_end(self) -> bool {
        matches!(self, Self::Commit | Self::Abort)
    }
}

/// The table.
pub(crate) fn action_for(call: TxnRequest, code: ErrorCode, protocol: TransactionProtocol) -> ResponseAction {
    match code {
        ErrorCode::None => ResponseAction::Done,
        ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable => ResponseAction::Elsewhere,
        ErrorCode::ProducerFenced | ErrorCode::InvalidProducerEpoch => ResponseAction::Fenced,
        ErrorCode::TransactionalIdAuthorizationFailed
        | ErrorCode::ClusterAuthorizationFailed
        | ErrorCode::InvalidTransactionTimeout
        | ErrorCode::UnsupportedForMessageFormat
        | ErrorCode::UnsupportedVersion => ResponseAction::Fatal,
        ErrorCode::UnknownProducerId | ErrorCode::InvalidProducerIdMapping => ResponseAction::Forgotten,
        ErrorCode::TransactionAbortable if call == TxnRequest::InitProducerId => ResponseAction::Fatal,
        ErrorCode::TransactionAbortable if call == TxnRequest::Abort => ResponseAction::Unknown,
        ErrorCode::TransactionAbortable => ResponseAction::Abortable,
        // An open transaction can be aborted (KAFKA-19690); at its end, client and coordinator disagree.
        ErrorCode::InvalidTxnState if call.is_end() => ResponseAction::Fatal,
        // The other errors of the same request carry the reason.
        ErrorCode::OperationNotAttempted if call == TxnRequest::AddPartitions => ResponseAction::Again,
        // The classic coordinator may or may not have written the marker; with KIP-890, the coordinator recognizes a
        // retry by its epoch.
        ErrorCode::UnknownServerError if call.is_end() && protocol == TransactionProtocol::V2 => {
            ResponseAction::Again
        }
        code if code.is_retriable() => ResponseAction::Again,
        // An error without a meaning may have occurred after the marker was written.
        ErrorCode::UnknownServerError | ErrorCode::Unknown(_) if call.is_end() => ResponseAction::Unknown,
        _ => match call {
            TxnRequest::InitProducerId => ResponseAction::Fatal,
            TxnRequest::FindCoordinator
            | TxnRequest::AddPartitions
            | TxnRequest::AddOffsets
            | TxnRequest::CommitOffsets
            | TxnRequest::Commit
            | TxnRequest::Abort => ResponseAction::Abortable,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: [TxnRequest; 7] = [
        TxnRequest::FindCoordinator,
        TxnRequest::InitProducerId,
        TxnRequest::AddPartitions,
        TxnRequest::AddOffsets,
        TxnRequest::CommitOffsets,
        TxnRequest::Commit,
        TxnRequest::Abort,
    ];
    const BOTH: [TransactionProtocol; 2] = [TransactionProtocol::V1, TransactionProtocol::V2];

    fn all_codes() -> impl Iterator<Item = ErrorCode> {
        ErrorCode::KNOWN.iter().copied().chain([ErrorCode::Unknown(9999)])
    }

    #[test]
    fn only_no_error_is_success_and_everything_that_passes_is_tried_again() {
        for (call, protocol) in CALLS.into_iter().flat_map(|call| BOTH.map(|protocol| (call, protocol))) {
            for code in all_codes() {
                let action = action_for(call, code, protocol);
                assert_eq!(action == ResponseAction::Done, code == ErrorCode::None, "{call:?} {code}");
                let again = matches!(action, ResponseAction::Again | ResponseAction::Elsewhere);
                let listed = (code == ErrorCode::OperationNotAttempted && call == TxnRequest::AddPartitions)
                    || (code == ErrorCode::UnknownServerError
                        && call.is_end()
                        && protocol == TransactionProtocol::V2);
                assert_eq!(again, code.is_retriable() || listed, "{call:?} {code}");
            }
        }
    }

    /// The row of an error that only the end of a transaction treats in its own way.
    fn refused_with(at_end: ResponseAction) -> [ResponseAction; 7] {
        use ResponseAction as V;
        [V::Abortable, V::Fatal, V::Abortable, V::Abortable, V::Abortable, at_end, at_end]
    }

    #[test]
    fn the_errors_that_coordinators_answer_mean_what_the_table_says() {
        use ErrorCode as E;
        use ResponseAction as V;
        // FindCoordinator, InitProducerId, AddPartitions, AddOffsets, CommitOffsets, Commit, Abort.
        let refused = refused_with(V::Abortable);
        let unclear = refused_with(V::Unknown);
        let table = [
            (E::NotCoordinator, [V::Elsewhere; 7]),
            (E::CoordinatorNotAvailable, [V::Elsewhere; 7]),
            (E::CoordinatorLoadInProgress, [V::Again; 7]),
            (E::ConcurrentTransactions, [V::Again; 7]),
            (E::RequestTimedOut, [V::Again; 7]),
            (E::ProducerFenced, [V::Fenced; 7]),
            (E::InvalidProducerEpoch, [V::Fenced; 7]),
            (E::TransactionalIdAuthorizationFailed, [V::Fatal; 7]),
            (E::UnknownProducerId, [V::Forgotten; 7]),
            (E::InvalidProducerIdMapping, [V::Forgotten; 7]),
            (E::InvalidTransactionTimeout, [V::Fatal; 7]),
            (
                E::InvalidTxnState,
                [V::Abortable, V::Fatal, V::Abortable, V::Abortable, V::Abortable, V::Fatal, V::Fatal],
            ),
            (
                E::TransactionAbortable,
                [V::Abortable, V::Fatal, V::Abortable, V::Abortable, V::Abortable, V::Abortable, V::Unknown],
            ),
            (E::TopicAuthorizationFailed, refused),
            (E::GroupAuthorizationFailed, refused),
            (E::InvalidRequest, refused),
            (E::IllegalGeneration, refused),
            (E::UnknownServerError, unclear),
            (E::Unknown(9999), unclear),
        ];
        for (code, expected) in table {
            for (call, expected) in CALLS.into_iter().zip(expected) {
                assert_eq!(action_for(call, code, TransactionProtocol::V1), expected, "{call:?} {code}");
                if code != E::UnknownServerError {
                    assert_eq!(action_for(call, code, TransactionProtocol::V2), expected, "{call:?} {code}");
                }
            }
        }
        assert_eq!(action_for(TxnRequest::Commit, E::UnknownServerError, TransactionProtocol::V2), V::Again);
        assert_eq!(action_for(TxnRequest::Abort, E::UnknownServerError, TransactionProtocol::V2), V::Again);
    }
}
