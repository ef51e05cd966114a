//! `ssl.certificate.verify_cb`: the application has the last word on certificates of brokers.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock, Weak};

use ottla_client::{CertificateProblem, CertificateVerifier, Config, PresentedCertificate};

use crate::client::handle::Handle;
use crate::conf::Callbacks;
use crate::ffi::c_strings::{buffer_text, c_string};

/// Which client asks; it is made after its configuration.
pub(crate) type ClientSlot = Arc<OnceLock<Weak<Handle>>>;

const ERRSTR_BYTES: usize = 512;
/// Which broker of the cluster it is shows only later.
const NO_NODE: i32 = -1;

/// Has the client ask the application's function, if there is one.
pub(crate) fn install(config: &mut Config, callbacks: &Callbacks) -> ClientSlot {
    let asking = ClientSlot::default();
    if let Some(function) = callbacks.ssl_cert_verify {
        let (asking, callbacks) = (asking.clone(), *callbacks);
        config.security.tls.certificate_verifier =
            Some(CertificateVerifier::new(move |presented: &PresentedCertificate<'_>| {
                let callbacks = callbacks;
                let handle = asking.get().and_then(Weak::upgrade);
                let rk = handle.as_ref().map_or(null_mut(), |handle| handle.raw());
                let host = c_string(presented.host);
                let found = presented.problem.map_or(0, code_of);
                let mut x509_error = found;
                let mut errstr = [0 as c_char; ERRSTR_BYTES];
                // SAFETY: the application's function, with arguments that live until it returns.
                let taken = unsafe {
                    function(
                        rk,
                        host.as_ptr(),
                        NO_NODE,
                        &raw mut x509_error,
                        c_int::try_from(presented.depth).unwrap_or(c_int::MAX),
                        presented.der.as_ptr().cast(),
                        presented.der.len(),
                        errstr.as_mut_ptr(),
                        errstr.len(),
                        callbacks.opaque,
                    )
                };
                if taken != 0 {
                    return remaining_error(found, x509_error);
                }
                let why = buffer_text(&errstr);
                Err(if why.is_empty() { format!("X509 error {x509_error}") } else { why })
            }));
    }
    asking
}

/// A callback that takes a certificate leaves its error unless it sets it to 0: the original ends the connection because of the error
/// that OpenSSL keeps. Callbacks that only look at certificates return 1 for each.
fn remaining_error(found: c_int, left: c_int) -> Result<(), String> {
    if found == 0 || left == 0 {
        return Ok(());
    }
    Err(format!("its verification failed with X509 error {found}, and the callback did not set that to 0"))
}

/// OpenSSL's numbers, by which applications know what is wrong.
fn code_of(problem: CertificateProblem) -> c_int {
    match problem {
        CertificateProblem::NoRevocationList => 3,
        CertificateProblem::NotValidYet => 9,
        CertificateProblem::Expired => 10,
        CertificateProblem::ExpiredRevocationList => 12,
        CertificateProblem::UnknownIssuer => 20,
        CertificateProblem::Revoked => 23,
        CertificateProblem::OtherHost => 62,
        // X509_V_ERR_UNSPECIFIED
        _ => 1,
    }
}
