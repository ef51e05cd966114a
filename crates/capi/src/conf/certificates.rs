//! `rd_kafka_conf_set_ssl_cert`: certificates and keys from memory.

use std::ffi::{c_char, c_void};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use ottla_client::{Secret, check_certificate_chain, open_keystore};

use super::{CA_PEM, NotSet, rd_kafka_conf_t};
use crate::conf::topic_conf::answer;
use crate::ffi::panic::{guard, on_panic};
use crate::ffi::*;

/// The label of a private key with the name of its algorithm.
const PKCS8: &str = "PRIVATE KEY";

#[on_panic(RD_KAFKA_CONF_INVALID)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_conf_set_ssl_cert(
    conf: *mut rd_kafka_conf_t,
    cert_type: rd_kafka_cert_type_t,
    cert_enc: rd_kafka_cert_enc_t,
    buffer: *const c_void,
    size: usize,
    errstr: *mut c_char,
    errstr_size: usize,
) -> rd_kafka_conf_res_t {
    // SAFETY: `conf` is NULL or a configuration from `rd_kafka_conf_new`, not yet destroyed; `buffer` is NULL or
    // points to `size` bytes (rdkafka.h, `rd_kafka_conf_set_ssl_cert`).
    let (conf, bytes) = unsafe {
        let bytes = (!buffer.is_null()).then(|| std::slice::from_raw_parts(buffer.cast::<u8>(), size));
        (rd_kafka_conf_t::of_mut(conf, FUNCTION), bytes)
    };
    let set = guard(
        || Err(NotSet::Invalid("the certificate could not be set".into())),
        || match conf {
            Some(mut conf) => conf.set_certificate(cert_type, cert_enc, bytes),
            None => Err(NotSet::Invalid("rd_kafka_conf_set_ssl_cert without configuration".into())),
        },
    );
    // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_conf_set_ssl_cert`).
    unsafe { answer(set, errstr, errstr_size) }
}

impl rd_kafka_conf_t {
    fn set_certificate(
        &mut self,
        cert_type: rd_kafka_cert_type_t,
        cert_enc: rd_kafka_cert_enc_t,
        bytes: Option<&[u8]>,
    ) -> Result<(), NotSet> {
        let (property, label) = match cert_type {
            RD_KAFKA_CERT_PUBLIC_KEY => ("ssl.certificate.pem", "CERTIFICATE"),
            RD_KAFKA_CERT_PRIVATE_KEY => ("ssl.key.pem", PKCS8),
            RD_KAFKA_CERT_CA => (CA_PEM, "CERTIFICATE"),
            other => return Err(NotSet::Invalid(format!("invalid certificate type {other}"))),
        };
        let Some(bytes) = bytes else { return self.set(property, None) };
        let pem = match cert_enc {
            RD_KAFKA_CERT_ENC_PEM => String::from_utf8(bytes.to_vec())
                .map_err(|_| NotSet::Invalid(format!("{property}: PEM is text, this is not")))?,
            RD_KAFKA_CERT_ENC_DER if cert_type == RD_KAFKA_CERT_PRIVATE_KEY => pem(key_label(bytes), bytes),
            RD_KAFKA_CERT_ENC_DER => pem(label, bytes),
            RD_KAFKA_CERT_ENC_PKCS12 => return self.set_from_keystore(property, bytes),
            other => return Err(NotSet::Invalid(format!("invalid certificate encoding {other}"))),
        };
        let pem = pem.trim_end_matches('\0');
        if cert_type == RD_KAFKA_CERT_PUBLIC_KEY {
            check_certificate_chain(property, pem.as_bytes())
                .map_err(|error| NotSet::Invalid(error.to_string()))?;
        }
        self.set_from_memory(property, pem)
    }

    fn set_from_memory(&mut self, property: &str, pem: &str) -> Result<(), NotSet> {
        self.set(property, Some(pem))?;
        self.has_ca_from_memory |= property == CA_PEM;
        Ok(())
    }

    /// The keystore's part for this property. `ssl.key.password` is its password and must be set before.
    fn set_from_keystore(&mut self, property: &str, bytes: &[u8]) -> Result<(), NotSet> {
        let password = self.get("ssl.key.password").unwrap_or_default();
        let store = open_keystore(bytes, &password.into())
            .map_err(|error| NotSet::Invalid(format!("{property}: {error} (ssl.key.password)")))?;
        let found = match property {
            "ssl.key.pem" => store.key.as_ref().map_or("", Secret::expose),
            "ssl.certificate.pem" => &store.chain,
            _ => &store.trusted,
        };
        if found.is_empty() {
            return Err(NotSet::Invalid(format!("{property}: the keystore has nothing for it")));
        }
        self.set_from_memory(property, found)
    }
}

/// The label of a private key in DER, by what follows its version: the first number of an RSA key (PKCS#1), the key of an elliptic curve
/// (SEC 1), or the algorithm (PKCS#8). OpenSSL reads all three.
fn key_label(der: &[u8]) -> &'static str {
    const INTEGER: u8 = 2;
    const OCTET_STRING: u8 = 4;
    let content = match der.get(1).copied() {
        Some(length @ 0x80..) => 2 + usize::from(length & 0x7f),
        _ => 2,
    };
    match der.get(content..content + 4) {
        Some([INTEGER, 1, _, INTEGER]) => "RSA PRIVATE KEY",
        Some([INTEGER, 1, _, OCTET_STRING]) => "EC PRIVATE KEY",
        _ => PKCS8,
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap_or_default()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_key_in_der_has_the_label_of_its_form() {
        let rsa = [0x30, 0x82, 0x04, 0xa4, 2, 1, 0, 2, 0x82];
        let curve = [0x30, 0x77, 2, 1, 1, 4, 0x20];
        let pkcs8 = [0x30, 0x81, 0x87, 2, 1, 0, 0x30, 0x13];
        assert_eq!(key_label(&rsa), "RSA PRIVATE KEY");
        assert_eq!(key_label(&curve), "EC PRIVATE KEY");
        for other in [&pkcs8[..], &[], &[0x30], &[0x30, 0xff]] {
            assert_eq!(key_label(other), PKCS8, "{other:?}");
        }
    }
}
