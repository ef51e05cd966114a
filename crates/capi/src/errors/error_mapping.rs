//! Which `rd_kafka_resp_err_t` says what an error of the client says: the one place where that is decided.

use ottla_client::{
    Error, ErrorCode, Persisted, ProduceError, ProduceErrorKind, ReplacedEnd, TransactionError,
    TransactionErrorKind,
};

use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::*;

/// Codes of Kafka's protocol keep their numbers, unknown ones included.
pub fn of_protocol(code: ErrorCode) -> rd_kafka_resp_err_t {
    i16::from(code).into()
}

pub fn of(error: &Error) -> rd_kafka_resp_err_t {
    match error {
        Error::Config(_) => RD_KAFKA_RESP_ERR__INVALID_ARG,
        Error::Unreachable { .. } | Error::Transport { .. } => RD_KAFKA_RESP_ERR__TRANSPORT,
        Error::UnknownHost { .. } => RD_KAFKA_RESP_ERR__RESOLVE,
        Error::Tls { .. } => RD_KAFKA_RESP_ERR__SSL,
        Error::Authentication { .. } => RD_KAFKA_RESP_ERR__AUTHENTICATION,
        Error::Broker { code, .. } | Error::Refused { code, .. } | Error::Partition { code, .. } => {
            of_protocol(*code)
        }
        Error::Unsupported { .. } => RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE,
        Error::Protocol { .. } | Error::Corrupt { .. } => RD_KAFKA_RESP_ERR__BAD_MSG,
        Error::OffsetOutOfRange { .. } | Error::NoStartOffset { .. } => RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET,
        Error::LogTruncated { .. } => RD_KAFKA_RESP_ERR__LOG_TRUNCATION,
        Error::NotAssigned { .. } | Error::IllegalState(_) => RD_KAFKA_RESP_ERR__STATE,
        Error::UnknownPartition { .. } => RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
        Error::OffsetFile { .. } => RD_KAFKA_RESP_ERR__FS,
        Error::TimedOut { .. } => RD_KAFKA_RESP_ERR__TIMED_OUT,
        Error::NoProducerId(error) => of(error),
        Error::PollIntervalExceeded { .. } => RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED,
        Error::Produce(error) => of_produce(error),
        Error::Transaction(error) => of_transaction(error),
        Error::Closed => RD_KAFKA_RESP_ERR__DESTROY,
        // The enum may grow; `tests::every_error_has_a_code` has one of each that there is.
        _ => RD_KAFKA_RESP_ERR__FAIL,
    }
}

/// The code of an acknowledgement that failed.
pub fn of_acknowledgement(error: &Error) -> rd_kafka_resp_err_t {
    match error {
        // As the original, which passes on the code of its own request.
        Error::TimedOut { .. } => RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        error => of(error),
    }
}

pub fn of_produce(error: &ProduceError) -> rd_kafka_resp_err_t {
    of_kind(&error.kind)
}

/// The code in a delivery report. As in the original, the end of a producer, and of its transaction, purges the queue.
pub fn of_report(error: &ProduceError) -> rd_kafka_resp_err_t {
    let is_over = is_fatal(error) || matches!(error.kind, ProduceErrorKind::Transaction(_));
    if is_over { RD_KAFKA_RESP_ERR__PURGE_QUEUE } else { of_produce(error) }
}

/// The code of a record that the producer does not take. As in the original, the state of the transaction is the reason, and
/// not the error that led to it.
pub fn of_refused_record(error: &ProduceError) -> rd_kafka_resp_err_t {
    match &error.kind {
        ProduceErrorKind::Transaction(cause) if cause.is_fatal() => RD_KAFKA_RESP_ERR__FATAL,
        ProduceErrorKind::Transaction(_) => RD_KAFKA_RESP_ERR__STATE,
        ProduceErrorKind::Gapless(_) => RD_KAFKA_RESP_ERR__FATAL,
        kind => of_kind(kind),
    }
}

/// librdkafka's name of the state in which a transactional producer refuses a record; `None` for another refusal.
pub fn refusing_state(error: &ProduceError) -> Option<&'static str> {
    let ProduceErrorKind::Transaction(cause) = &error.kind else { return None };
    if cause.is_fatal() {
        return None;
    }
    Some(match &cause.kind {
        TransactionErrorKind::State { name, .. } => *name,
        TransactionErrorKind::Aborted => "AbortingTransaction",
        // The error that the application has to answer with an abort.
        _ => "AbortableError",
    })
}

pub fn of_kind(kind: &ProduceErrorKind) -> rd_kafka_resp_err_t {
    match kind {
        ProduceErrorKind::TimedOut { .. } => RD_KAFKA_RESP_ERR__MSG_TIMED_OUT,
        ProduceErrorKind::Broker { code, .. } => of_protocol(*code),
        ProduceErrorKind::InvalidRecords(_) => RD_KAFKA_RESP_ERR_INVALID_RECORD,
        ProduceErrorKind::OtherRecordInvalid => RD_KAFKA_RESP_ERR__INVALID_DIFFERENT_RECORD,
        ProduceErrorKind::TooLarge { .. } => RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
        ProduceErrorKind::QueueFull { .. } => RD_KAFKA_RESP_ERR__QUEUE_FULL,
        ProduceErrorKind::Request(error) => of(error),
        ProduceErrorKind::Purged { in_flight: true } => RD_KAFKA_RESP_ERR__PURGE_INFLIGHT,
        ProduceErrorKind::Purged { in_flight: false } => RD_KAFKA_RESP_ERR__PURGE_QUEUE,
        ProduceErrorKind::NoSuchPartition { .. } => RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
        ProduceErrorKind::Compress(_) => RD_KAFKA_RESP_ERR__BAD_COMPRESSION,
        ProduceErrorKind::Fatal(_) => RD_KAFKA_RESP_ERR__FATAL,
        ProduceErrorKind::Gapless(_) => RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE,
        ProduceErrorKind::Transaction(error) => of_transaction(error),
        ProduceErrorKind::Closed => RD_KAFKA_RESP_ERR__DESTROY,
        _ => RD_KAFKA_RESP_ERR__FAIL,
    }
}

/// The end of a Produce request with this code. As in the original, a request without a response is sent again only after a
/// timeout, a broken connection and an internal retry.
pub fn produce_end_of(code: rd_kafka_resp_err_t) -> ReplacedEnd {
    let request = "a Produce request, by ut_handle_ProduceResponse";
    match code {
        RD_KAFKA_RESP_ERR__TIMED_OUT | RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE => {
            ReplacedEnd::Lost(Error::TimedOut { what: request.into(), waited_ms: 0 })
        }
        RD_KAFKA_RESP_ERR__TRANSPORT | RD_KAFKA_RESP_ERR__RETRY => {
            ReplacedEnd::Lost(Error::Transport { address: "the leader".into(), reason: request.into() })
        }
        code if code < 0 => ReplacedEnd::Code(ErrorCode::UnknownServerError),
        code => ReplacedEnd::Code(i16::try_from(code).map_or(ErrorCode::UnknownServerError, ErrorCode::from)),
    }
}

pub fn of_transaction(error: &TransactionError) -> rd_kafka_resp_err_t {
    match &error.kind {
        TransactionErrorKind::NotTransactional => RD_KAFKA_RESP_ERR__NOT_CONFIGURED,
        TransactionErrorKind::State { .. } => RD_KAFKA_RESP_ERR__STATE,
        // The original returns what the group's coordinator answered last.
        TransactionErrorKind::TimedOut { call: "send_offsets_to_transaction", code: Some(code), .. } => {
            of_protocol(*code)
        }
        TransactionErrorKind::TimedOut { .. } => RD_KAFKA_RESP_ERR__TIMED_OUT,
        TransactionErrorKind::Coordinator { code, .. } => of_protocol(*code),
        TransactionErrorKind::Fenced { .. } => RD_KAFKA_RESP_ERR__FENCED,
        TransactionErrorKind::Record(error) => of_failed_record(error),
        TransactionErrorKind::Request { error, .. } => of(error),
        TransactionErrorKind::Aborted => RD_KAFKA_RESP_ERR__PURGE_QUEUE,
        TransactionErrorKind::Ended(reason) => of_kind(reason),
        TransactionErrorKind::Closed => RD_KAFKA_RESP_ERR__DESTROY,
        _ => RD_KAFKA_RESP_ERR__FAIL,
    }
}

/// The code of a transaction in which this record failed.
///
/// In the original, a batch that the leader refuses for good, and one that times out after it was sent, fail the transaction with that code
/// (`rd_kafka_handle_Produce_error`, `rd_kafka_idemp_drain_epoch_bump`). Other failed deliveries are counted, and a commit finds
/// the count (`rd_kafka_txn_op_commit_transaction`).
fn of_failed_record(error: &ProduceError) -> rd_kafka_resp_err_t {
    match &error.kind {
        ProduceErrorKind::Broker { code, .. } if !code.is_retriable() => of_protocol(*code),
        ProduceErrorKind::InvalidRecords(_) | ProduceErrorKind::OtherRecordInvalid => {
            RD_KAFKA_RESP_ERR_INVALID_RECORD
        }
        ProduceErrorKind::TimedOut { .. } if error.persisted == Persisted::PossiblyWritten => {
            RD_KAFKA_RESP_ERR__TIMED_OUT
        }
        _ => RD_KAFKA_RESP_ERR__INCONSISTENT,
    }
}

/// The code and the text of an error that ends the producer; `None` for other errors.
pub fn fatal_of(error: &Error) -> Option<(rd_kafka_resp_err_t, String)> {
    match error {
        Error::NoProducerId(cause) => Some((fatal_without_producer_id(cause)?, error.to_string())),
        Error::Produce(error) if is_fatal(error) => Some((of_kind(&error.kind), error.kind.to_string())),
        Error::Transaction(error) if error.is_fatal() => Some((of_transaction(error), error.to_string())),
        _ => None,
    }
}

/// The fatal error of a producer that gets no producer id because of `cause`; `None` if it may get one later (librdkafka's
/// `rd_kafka_idemp_check_error`).
fn fatal_without_producer_id(cause: &Error) -> Option<rd_kafka_resp_err_t> {
    match of(cause) {
        RD_KAFKA_RESP_ERR_PRODUCER_FENCED | RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH => {
            Some(RD_KAFKA_RESP_ERR__FENCED)
        }
        code @ (RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE
        | RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT
        | RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        | RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED) => Some(code),
        _ => None,
    }
}

/// The error as an object, with what the application can still do.
pub fn object(error: &Error) -> Box<rd_kafka_error_t> {
    let (fatal, requires_abort) = match error {
        Error::Transaction(error) => (ends_transactions(error), error.requires_abort()),
        Error::Produce(error) => (is_fatal(error), false),
        _ => (false, false),
    };
    rd_kafka_error_t::new(of(error), &object_text(error))
        .retriable(error.is_retriable())
        .fatal(fatal)
        .requires_abort(requires_abort)
}

/// The text of an error object. The texts of transactional calls in a wrong state are librdkafka's, which programs and tests compare.
fn object_text(error: &Error) -> String {
    match error {
        Error::Transaction(TransactionError { kind: TransactionErrorKind::NotTransactional, .. }) => {
            NOT_TRANSACTIONAL.to_owned()
        }
        Error::Transaction(TransactionError { kind: TransactionErrorKind::State { name, .. }, .. }) => {
            format!("Operation not valid in state {name}")
        }
        Error::Transaction(error) => match (&error.kind, of_transaction(error)) {
            (TransactionErrorKind::TimedOut { .. }, RD_KAFKA_RESP_ERR__TIMED_OUT) => {
                CALL_TIMED_OUT.to_owned()
            }
            (TransactionErrorKind::Record(_), RD_KAFKA_RESP_ERR__INCONSISTENT) => {
                format!("message(s) failed delivery (see individual delivery reports): {error}")
            }
            (TransactionErrorKind::Record(_), _) => format!("{error}: current transaction must be aborted"),
            _ => error.to_string(),
        },
        error => error.to_string(),
    }
}

/// The text of a transactional call that has not ended within its timeout, and continues.
pub const CALL_TIMED_OUT: &str = "Timed out waiting for operation to finish, retry call to resume";

/// The text for a transactional call of a producer without `transactional.id`.
const NOT_TRANSACTIONAL: &str = "The Transactional API requires transactional.id to be configured";

/// Returns `true` if a C program cannot continue with the producer. That includes an unknown outcome, after which the client
/// requires `init_transactions`: programs know only errors that are fatal, retriable or require an abort, and an abort is refused.
pub fn ends_transactions(error: &TransactionError) -> bool {
    error.is_fatal() || error.requires_init()
}

/// Why a processor has stopped.
pub fn of_processor(error: &ottla_parallel::Error) -> rd_kafka_resp_err_t {
    use ottla_parallel::Error as Stopped;
    match error {
        Stopped::Config(_) => RD_KAFKA_RESP_ERR__INVALID_ARG,
        Stopped::Client(error) => of(error),
        Stopped::Record { .. } => RD_KAFKA_RESP_ERR__APPLICATION,
        Stopped::Transaction(error) => of_transaction(error),
        // An output was not written, or a thread died; the enum may grow.
        _ => RD_KAFKA_RESP_ERR__FAIL,
    }
}

/// The same as an object.
pub fn object_of_processor(error: &ottla_parallel::Error) -> Box<rd_kafka_error_t> {
    rd_kafka_error_t::new(of_processor(error), &error.to_string())
}

/// Returns whether the error ends the producer.
pub fn is_fatal(error: &ProduceError) -> bool {
    match &error.kind {
        ProduceErrorKind::Fatal(_) | ProduceErrorKind::Gapless(_) => true,
        ProduceErrorKind::Transaction(error) => error.is_fatal(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes that only brokers and controllers say to each other, for which librdkafka has no name.
    const AMONG_BROKERS: &[rd_kafka_resp_err_t] = &[98, 99, 101, 102, 104, 105, 106, 107, 108, 109];

    fn text() -> String {
        "t".to_owned()
    }

    #[test]
    fn a_code_for_a_produce_request_without_a_response_is_a_retry_only_where_the_original_retries() {
        for code in [
            RD_KAFKA_RESP_ERR__TIMED_OUT,
            RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE,
            RD_KAFKA_RESP_ERR__TRANSPORT,
            RD_KAFKA_RESP_ERR__RETRY,
        ] {
            assert!(matches!(produce_end_of(code), ReplacedEnd::Lost(_)), "{code}");
        }
        for (code, expected) in [
            (RD_KAFKA_RESP_ERR__FAIL, ErrorCode::UnknownServerError),
            (RD_KAFKA_RESP_ERR_NO_ERROR, ErrorCode::None),
            (of_protocol(ErrorCode::NotEnoughReplicas), ErrorCode::NotEnoughReplicas),
            (rd_kafka_resp_err_t::MAX, ErrorCode::UnknownServerError),
        ] {
            let end = produce_end_of(code);
            assert!(matches!(end, ReplacedEnd::Code(code) if code == expected), "{code}: {end:?}");
        }
    }

    #[test]
    fn every_error_has_a_code() {
        let produce =
            |kind| ProduceError { topic: "t".into(), partition: 0, kind, persisted: Persisted::NotWritten };
        let errors = [
            Error::Config(text()),
            Error::Unreachable { brokers: text(), waited_ms: 1, reason: text() },
            Error::Transport { address: text(), reason: "r".into() },
            Error::UnknownHost { address: text(), reason: "r".into() },
            Error::Tls { address: text(), reason: "r".into() },
            Error::Authentication { address: text(), reason: "r".into() },
            Error::Unsupported { address: text(), reason: text() },
            Error::NoProducerId(Box::new(Error::Unsupported { address: text(), reason: text() })),
            Error::Protocol { address: text(), reason: text() },
            Error::Corrupt { topic: text(), partition: 0, offset: 0, reason: text() },
            Error::OffsetOutOfRange { topic: text(), partition: 0, offset: 0 },
            Error::LogTruncated { topic: text(), partition: 0, offset: 0, end: None },
            Error::NotAssigned { topic: text(), partition: 0 },
            Error::UnknownPartition { topic: text(), partition: 9, partitions: 1 },
            Error::OffsetFile { path: text(), reason: text() },
            Error::TimedOut { what: text(), waited_ms: 1 },
            Error::PollIntervalExceeded { max_ms: 1 },
            Error::IllegalState(text()),
            Error::Closed,
            Error::Produce(produce(ProduceErrorKind::TimedOut { timeout_ms: 1, last: text() })),
            Error::Produce(produce(ProduceErrorKind::TooLarge { bytes: 2, max: 1 })),
            Error::Produce(produce(ProduceErrorKind::OtherRecordInvalid)),
            Error::Produce(produce(ProduceErrorKind::QueueFull {
                used: 1,
                max: 1,
                records: 1,
                records_max: 1,
            })),
            Error::Produce(produce(ProduceErrorKind::Request(Box::new(Error::Closed)))),
            Error::Produce(produce(ProduceErrorKind::Purged { in_flight: true })),
            Error::Produce(produce(ProduceErrorKind::Purged { in_flight: false })),
            Error::Produce(produce(ProduceErrorKind::NoSuchPartition { count: 1 })),
            Error::Produce(produce(ProduceErrorKind::Compress(text()))),
            Error::Produce(produce(ProduceErrorKind::Fatal(text()))),
            Error::Produce(produce(ProduceErrorKind::Closed)),
        ];
        for error in &errors {
            let code = of(error);
            assert!(code < 0 || code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, "{error}: {code}");
            assert_ne!(code, RD_KAFKA_RESP_ERR__FAIL, "{error}");
            assert!(
                crate::errors::error_object::description(code).to_bytes().iter().all(|byte| *byte != b'?'),
                "{error}: {code}"
            );
        }
    }

    #[test]
    fn a_gap_has_a_code_for_the_producer_for_what_it_refuses_and_for_what_it_had_taken() {
        let lost = ProduceError {
            topic: "t".into(),
            partition: 0,
            kind: ProduceErrorKind::TimedOut { timeout_ms: 1, last: text() },
            persisted: Persisted::NotWritten,
        };
        assert!(fatal_of(&Error::Produce(lost.clone())).is_none(), "another record may be written");
        let gap = ProduceError { kind: ProduceErrorKind::Gapless(lost.clone().into()), ..lost };
        assert_eq!(of_refused_record(&gap), RD_KAFKA_RESP_ERR__FATAL);
        assert_eq!(of_report(&gap), RD_KAFKA_RESP_ERR__PURGE_QUEUE, "a record that was taken");
        let code = fatal_of(&Error::Produce(gap)).map(|(code, _)| code);
        assert_eq!(code, Some(RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE));
    }

    /// librdkafka's `rd_kafka_txn_op_commit_transaction`. The code was that of the record.
    #[test]
    fn a_failed_record_fails_its_transaction_with_a_code_only_if_the_leader_had_it() {
        let code_of = |kind, persisted| {
            of_failed_record(&ProduceError { topic: "t".into(), partition: 0, kind, persisted })
        };
        let refused = |code| ProduceErrorKind::Broker { code, detail: text() };
        let late = || ProduceErrorKind::TimedOut { timeout_ms: 1, last: text() };
        let refused_for_good = refused(ErrorCode::TopicAuthorizationFailed);
        for (kind, persisted, expected) in [
            (refused_for_good, Persisted::NotWritten, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED),
            (ProduceErrorKind::OtherRecordInvalid, Persisted::NotWritten, RD_KAFKA_RESP_ERR_INVALID_RECORD),
            (late(), Persisted::PossiblyWritten, RD_KAFKA_RESP_ERR__TIMED_OUT),
            (late(), Persisted::NotWritten, RD_KAFKA_RESP_ERR__INCONSISTENT),
            (refused(ErrorCode::NotEnoughReplicas), Persisted::NotWritten, RD_KAFKA_RESP_ERR__INCONSISTENT),
            (
                ProduceErrorKind::Purged { in_flight: false },
                Persisted::NotWritten,
                RD_KAFKA_RESP_ERR__INCONSISTENT,
            ),
        ] {
            assert_eq!(code_of(kind.clone(), persisted), expected, "{kind}");
        }
    }

    #[test]
    fn kafkas_codes_have_names_here() {
        for code in ErrorCode::KNOWN {
            let number = of_protocol(*code);
            let named = crate::errors::error_table::named(number).is_some();
            assert_eq!(named, !AMONG_BROKERS.contains(&number), "{code}: {number}");
        }
        let error = Error::Broker { what: text(), code: ErrorCode::NotCoordinator };
        assert_eq!(of(&error), RD_KAFKA_RESP_ERR_NOT_COORDINATOR);
        assert_eq!(object(&error).code(), RD_KAFKA_RESP_ERR_NOT_COORDINATOR);
    }
}
