//! What each error code means in the answer to each transactional request: one table.

use ottla_protocol::ErrorCode;

/// How a producer and its coordinator talk.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Protocol {
    /// The classic one: partitions and groups are added by requests of their own, the epoch outlives transactions.
    #[default]
    V1,
    /// KIP-890's: brokers add partitions and groups themselves, every transaction has an epoch of its own.
    V2,
}

impl Protocol {
    /// The one that goes with a level of the cluster's `transaction.version`.
    pub(crate) const fn at_level(level: i16) -> Self {
        if level >= 2 { Self::V2 } else { Self::V1 }
    }
}

/// The requests of a transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Call {
    FindCoordinator,
    InitProducerId,
    AddPartitions,
    AddOffsets,
    CommitOffsets,
    Commit,
    Abort,
}

/// What to do about an answer; the later ones outweigh the earlier ones.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Verdict {
    Done,
    /// The same request again, after a pause.
    Again,
    /// Again, with whoever coordinates now.
    Elsewhere,
    /// The transaction can only be aborted.
    Abortable,
    /// The coordinator does not know the producer id: what was open is gone, and a fresh id is needed.
    Forgotten,
    /// Nothing says what became of the transaction: only a new start is safe.
    Unknown,
    Fatal,
    /// Fatal, because another producer or the coordinator has raised the epoch.
    Fenced,
}

impl Call {
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
pub(crate) fn judge(call: Call, code: ErrorCode, protocol: Protocol) -> Verdict {
    match code {
        ErrorCode::None => Verdict::Done,
        ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable => Verdict::Elsewhere,
        ErrorCode::ProducerFenced | ErrorCode::InvalidProducerEpoch => Verdict::Fenced,
        ErrorCode::TransactionalIdAuthorizationFailed
        | ErrorCode::ClusterAuthorizationFailed
        | ErrorCode::InvalidTransactionTimeout
        | ErrorCode::UnsupportedForMessageFormat
        | ErrorCode::UnsupportedVersion => Verdict::Fatal,
        ErrorCode::UnknownProducerId | ErrorCode::InvalidProducerIdMapping => Verdict::Forgotten,
        ErrorCode::TransactionAbortable if call == Call::InitProducerId => Verdict::Fatal,
        ErrorCode::TransactionAbortable if call == Call::Abort => Verdict::Unknown,
        ErrorCode::TransactionAbortable => Verdict::Abortable,
        // In the middle of a transaction an abort mends it (KAFKA-19690); at its end the two sides disagree.
        ErrorCode::InvalidTxnState if call.is_end() => Verdict::Fatal,
        // What else of the same request failed says more.
        ErrorCode::OperationNotAttempted if call == Call::AddPartitions => Verdict::Again,
        // The classic coordinator may have written the end, or not; KIP-890's tells a repetition by its epoch.
        ErrorCode::UnknownServerError if call.is_end() && protocol == Protocol::V2 => Verdict::Again,
        code if code.is_retriable() => Verdict::Again,
        _ => match call {
            Call::InitProducerId => Verdict::Fatal,
            Call::Commit | Call::Abort => Verdict::Unknown,
            Call::FindCoordinator | Call::AddPartitions | Call::AddOffsets | Call::CommitOffsets => {
                Verdict::Abortable
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: [Call; 7] = [
        Call::FindCoordinator,
        Call::InitProducerId,
        Call::AddPartitions,
        Call::AddOffsets,
        Call::CommitOffsets,
        Call::Commit,
        Call::Abort,
    ];
    const BOTH: [Protocol; 2] = [Protocol::V1, Protocol::V2];

    fn all_codes() -> impl Iterator<Item = ErrorCode> {
        ErrorCode::KNOWN.iter().copied().chain([ErrorCode::Unknown(9999)])
    }

    #[test]
    fn only_no_error_is_success_and_everything_that_passes_is_tried_again() {
        for (call, protocol) in CALLS.into_iter().flat_map(|call| BOTH.map(|protocol| (call, protocol))) {
            for code in all_codes() {
                let verdict = judge(call, code, protocol);
                assert_eq!(verdict == Verdict::Done, code == ErrorCode::None, "{call:?} {code}");
                let again = matches!(verdict, Verdict::Again | Verdict::Elsewhere);
                let listed = (code == ErrorCode::OperationNotAttempted && call == Call::AddPartitions)
                    || (code == ErrorCode::UnknownServerError && call.is_end() && protocol == Protocol::V2);
                assert_eq!(again, code.is_retriable() || listed, "{call:?} {code}");
            }
        }
    }

    #[test]
    fn the_errors_that_coordinators_answer_mean_what_the_table_says() {
        use ErrorCode as E;
        use Verdict as V;
        // FindCoordinator, InitProducerId, AddPartitions, AddOffsets, CommitOffsets, Commit, Abort.
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
            (
                E::TopicAuthorizationFailed,
                [V::Abortable, V::Fatal, V::Abortable, V::Abortable, V::Abortable, V::Unknown, V::Unknown],
            ),
            (
                E::IllegalGeneration,
                [V::Abortable, V::Fatal, V::Abortable, V::Abortable, V::Abortable, V::Unknown, V::Unknown],
            ),
            (
                E::UnknownServerError,
                [V::Abortable, V::Fatal, V::Abortable, V::Abortable, V::Abortable, V::Unknown, V::Unknown],
            ),
            (
                E::Unknown(9999),
                [V::Abortable, V::Fatal, V::Abortable, V::Abortable, V::Abortable, V::Unknown, V::Unknown],
            ),
        ];
        for (code, expected) in table {
            for (call, expected) in CALLS.into_iter().zip(expected) {
                assert_eq!(judge(call, code, Protocol::V1), expected, "{call:?} {code}");
                if code != E::UnknownServerError {
                    assert_eq!(judge(call, code, Protocol::V2), expected, "{call:?} {code}");
                }
            }
        }
        assert_eq!(judge(Call::Commit, E::UnknownServerError, Protocol::V2), V::Again);
        assert_eq!(judge(Call::Abort, E::UnknownServerError, Protocol::V2), V::Again);
    }
}
