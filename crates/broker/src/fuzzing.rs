//! The parts of a broker that read its small files, logins and pushed metrics, for fuzz targets. Only with the feature `fuzzing`.

use bytes::Bytes;

use crate::client_metrics;
use crate::security::sasl::fuzzed as logins;

/// A file `cleaner-offset-checkpoint` with these bytes, which is written again and read again.
pub fn cleaner_points(bytes: &[u8]) {
    let Some(points) = crate::cleaner_points::decode(bytes) else { return };
    let written = crate::cleaner_points::encode(&points);
    assert_eq!(
        crate::cleaner_points::decode(written.as_bytes()),
        Some(points),
        "what was written can be read"
    );
}

/// The two messages of a client in SCRAM: only the right proof of the only user gets in. Returns `true` if it does.
pub fn scram(first: &[u8], proof: &[u8]) -> bool {
    logins::scram(first, proof)
}

/// The right proofs for a first message of the form `n,,n=alice,r=NONCE`, of SCRAM-SHA-256 and SCRAM-SHA-512.
pub fn scram_proofs(first: &[u8]) -> [String; 2] {
    logins::scram_proofs(first)
}

/// A client's message in OAUTHBEARER, at a broker with the keys of a JWKS. Returns `true` if it gets in.
pub fn oauth_token(jwks: &[u8], message: &[u8]) -> bool {
    logins::token(jwks, message)
}

/// The claims of a token, as JSON: those that are accepted have a user, an end, and the issuer and the audience of the broker.
pub fn oauth_claims(jwks: &[u8], claims: &[u8]) {
    logins::claims(jwks, claims);
}

/// Metrics that a client pushes, with the number of their codec: the values that are kept have a limit. Returns their number.
pub fn pushed_metrics(compression_type: i8, metrics: &[u8]) -> Option<usize> {
    client_metrics::fuzzed_push(compression_type, Bytes::copy_from_slice(metrics))
}
