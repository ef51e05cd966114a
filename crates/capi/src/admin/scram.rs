//! Users' SCRAM credentials.

use std::ffi::{CString, c_char, c_uchar};
use std::ptr::{null, null_mut};

use ottla_client::{Error, KeyedResults, ScramChange, ScramCredential, ScramMechanism, Secret};

use super::macros::{destroyers, readers};
use super::{Array, error_object, error_pointer};
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::c_strings::{c_string, text};
use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// A change of a credential; `None` is one with a password that is no text.
pub struct rd_kafka_UserScramCredentialAlteration_t(Option<ScramChange>);

impl rd_kafka_UserScramCredentialAlteration_t {
    /// The change at `index` of a request. Programs compare the texts of the refusals.
    pub(super) fn change(&self, index: usize) -> Result<ScramChange, String> {
        let change = self.0.clone().ok_or("the password is no UTF-8")?;
        let (ScramChange::Set { mechanism, .. } | ScramChange::Delete { mechanism, .. }) = &change;
        let problem = match &change {
            change if change.user().is_empty() => "Empty user",
            _ if matches!(mechanism, ScramMechanism::Unknown(_)) => "SCRAM mechanism must be specified",
            ScramChange::Set { iterations: ..=0, .. } => "Non-positive iterations",
            ScramChange::Set { password, .. } if password.is_empty() => "Empty password",
            ScramChange::Set { .. } | ScramChange::Delete { .. } => return Ok(change),
        };
        Err(format!("{problem} at index {index}"))
    }
}

fn mechanism(number: rd_kafka_ScramMechanism_t) -> ScramMechanism {
    ScramMechanism::from_code(i8::try_from(number).unwrap_or(0))
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_UserScramCredentialUpsertion_new(
    username: *const c_char,
    mechanism_: rd_kafka_ScramMechanism_t,
    iterations: i32,
    password: *const c_uchar,
    password_size: usize,
    salt: *const c_uchar,
    salt_size: usize,
) -> *mut rd_kafka_UserScramCredentialAlteration_t {
    // SAFETY: `username` is NULL or a C string; `password` is NULL or points to `password_size` bytes; `salt` is NULL
    // or points to `salt_size` bytes (rdkafka.h, `rd_kafka_UserScramCredentialUpsertion_new`).
    let (user, password, salt) =
        unsafe { (text(username), bytes(password, password_size), bytes(salt, salt_size)) };
    let change = std::str::from_utf8(password).ok().map(|password| ScramChange::Set {
        user: user.unwrap_or_default().into_owned(),
        mechanism: mechanism(mechanism_),
        iterations,
        password: Secret::new(password),
        salt: (!salt.is_empty()).then(|| salt.to_vec()),
    });
    Box::into_raw(Box::new(rd_kafka_UserScramCredentialAlteration_t(change)))
}

/// # Safety
/// NULL, or that many bytes.
unsafe fn bytes<'a>(pointer: *const c_uchar, size: usize) -> &'a [u8] {
    if pointer.is_null() || size == 0 {
        return &[];
    }
    // SAFETY: `pointer` is NULL or points to `size` bytes (the contract of this function, above).
    unsafe { std::slice::from_raw_parts(pointer, size) }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_UserScramCredentialDeletion_new(
    username: *const c_char,
    mechanism_: rd_kafka_ScramMechanism_t,
) -> *mut rd_kafka_UserScramCredentialAlteration_t {
    // SAFETY: `username` is NULL or a C string (rdkafka.h, `rd_kafka_UserScramCredentialDeletion_new`).
    let user = unsafe { text(username) }.unwrap_or_default().into_owned();
    let change = ScramChange::Delete { user, mechanism: mechanism(mechanism_) };
    Box::into_raw(Box::new(rd_kafka_UserScramCredentialAlteration_t(Some(change))))
}

/// A user's credentials, or why there is nothing to say of them.
pub struct rd_kafka_UserScramCredentialsDescription_t {
    user: CString,
    error: rd_kafka_error_t,
    credentials: Vec<rd_kafka_ScramCredentialInfo_t>,
}

pub struct rd_kafka_ScramCredentialInfo_t(ScramCredential);

/// The result of a user's changes.
pub struct rd_kafka_AlterUserScramCredentials_result_response_t {
    user: CString,
    error: rd_kafka_error_t,
}

/// Here no error is an error without a code.
fn object<V>(answer: &Result<V, Error>) -> rd_kafka_error_t {
    let none = || rd_kafka_error_t::new(RD_KAFKA_RESP_ERR_NO_ERROR, "");
    *answer.as_ref().err().map_or_else(none, error_object)
}

pub(super) fn described(
    answers: KeyedResults<String, Vec<ScramCredential>>,
) -> Array<rd_kafka_UserScramCredentialsDescription_t> {
    let result = |(user, answer): (String, Result<Vec<ScramCredential>, Error>)| {
        let error = object(&answer);
        let credentials =
            answer.unwrap_or_default().into_iter().map(rd_kafka_ScramCredentialInfo_t).collect();
        rd_kafka_UserScramCredentialsDescription_t { user: c_string(&user), error, credentials }
    };
    Array::new(answers.into_iter().map(result).collect())
}

pub(super) fn altered(
    answers: KeyedResults<String, ()>,
) -> Array<rd_kafka_AlterUserScramCredentials_result_response_t> {
    let result = |(user, answer): (String, Result<(), Error>)| {
        rd_kafka_AlterUserScramCredentials_result_response_t { user: c_string(&user), error: object(&answer) }
    };
    Array::new(answers.into_iter().map(result).collect())
}

readers! {
    rd_kafka_UserScramCredentialsDescription_user(rd_kafka_UserScramCredentialsDescription_t) -> *const c_char
        [null()] |user| user.user.as_ptr();
    rd_kafka_UserScramCredentialsDescription_error(rd_kafka_UserScramCredentialsDescription_t) -> *const rd_kafka_error_t
        [null()] |user| error_pointer(Some(&user.error));
    rd_kafka_UserScramCredentialsDescription_scramcredentialinfo_count(rd_kafka_UserScramCredentialsDescription_t) -> usize
        [0] |user| user.credentials.len();
    rd_kafka_ScramCredentialInfo_mechanism(rd_kafka_ScramCredentialInfo_t) -> rd_kafka_ScramMechanism_t
        [RD_KAFKA_SCRAM_MECHANISM_UNKNOWN] |credential| credential.0.mechanism.code().into();
    rd_kafka_ScramCredentialInfo_iterations(rd_kafka_ScramCredentialInfo_t) -> i32
        [0] |credential| credential.0.iterations;
    rd_kafka_AlterUserScramCredentials_result_response_user(rd_kafka_AlterUserScramCredentials_result_response_t)
        -> *const c_char [null()] |user| user.user.as_ptr();
    rd_kafka_AlterUserScramCredentials_result_response_error(rd_kafka_AlterUserScramCredentials_result_response_t)
        -> *const rd_kafka_error_t [null()] |user| error_pointer(Some(&user.error));
}

destroyers! {
    rd_kafka_UserScramCredentialAlteration_destroy,
        rd_kafka_UserScramCredentialAlteration_destroy_array (rd_kafka_UserScramCredentialAlteration_t);
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_UserScramCredentialsDescription_scramcredentialinfo(
    description: *const rd_kafka_UserScramCredentialsDescription_t,
    idx: usize,
) -> *const rd_kafka_ScramCredentialInfo_t {
    // SAFETY: `description` is NULL or a `rd_kafka_UserScramCredentialsDescription_t` of this library, not yet
    // destroyed (rdkafka.h, `rd_kafka_UserScramCredentialsDescription_scramcredentialinfo`).
    let user = unsafe { description.as_ref() };
    user.and_then(|user| user.credentials.get(idx)).map_or(null(), std::ptr::from_ref)
}
