//! Checks that the requests of transactional producers share.

use ottla_protocol::ErrorCode;

use super::RequestContext;
use crate::transactions::metadata::{ProducerIdentity, TransactionVersion};

/// Refuses a request for a transactional id that another node coordinates.
pub(super) fn check_coordinator(context: &RequestContext, id: &str) -> Result<(), ErrorCode> {
    if id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    if context.cluster().transaction_coordinator(id) == context.node() {
        Ok(())
    } else {
        Err(ErrorCode::NotCoordinator)
    }
}

/// The protocol of a client that sends `version`, if it has the epoch bump of KIP-890 from `bumps_from` on.
pub(super) fn client_version(version: i16, bumps_from: i16) -> TransactionVersion {
    if version >= bumps_from { TransactionVersion::V2 } else { TransactionVersion::V0 }
}

/// The producer of a request.
pub(super) fn producer(id: i64, epoch: i16) -> ProducerIdentity {
    ProducerIdentity { id, epoch }
}

/// PRODUCER_FENCED for clients that know it; the others know INVALID_PRODUCER_EPOCH.
pub(super) fn known_code(code: ErrorCode, version: i16, fenced_from: i16) -> ErrorCode {
    if code == ErrorCode::ProducerFenced && version < fenced_from {
        ErrorCode::InvalidProducerEpoch
    } else {
        code
    }
}
