//! `ssl.certificate.verify_cb`: the application has the last word on certificates of brokers.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock, Weak};

use ottla_client::{CertificateProblem, CertificateVerifier, Config, PresentedCertificate};

use crate::client::handle::Handle;
use crate::conf::Callbacks;
use crate::ffi::c_strings::c_string;

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
                let mut x509_error = presented.problem.map_or(0, code_of);
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
                    return Ok(());
                }
                // SAFETY: zeros to begin with, and the application knows the size.
                let why = unsafe { CStr::from_ptr(errstr.as_ptr()) }.to_string_lossy().into_owned();
                Err(if why.is_empty() { format!("X509 error {x509_error}") } else { why })
            }));
    }
    asking
}

/// OpenSSL's numbers, by which applications know what is wrong.
fn code_of(problem: CertificateProblem) -> c_int {
    match problem {
        CertificateProblem::NotValidYet => 9,
        CertificateProblem::Expired => 10,
        CertificateProblem::UnknownIssuer => 20,
        CertificateProblem::Revoked => 23,
        CertificateProblem::OtherHost => 62,
        // X509_V_ERR_UNSPECIFIED
        _ => 1,
    }
}
