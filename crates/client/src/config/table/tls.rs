//! Encryption and certificates.

use crate::config::property::{
    Access, Property, choice, flag, optional_path, optional_string, secret, string,
};
use crate::security::{SecurityProtocol, signatures, suites};

const REFUSALS: &str = "every_refusal_says_what_is_wrong";
const OWN_CERTIFICATE: &str = "a_client_certificate_comes_from_pem_an_encrypted_key_or_a_keystore";
const IN_FILES: &str = "a_client_certificate_comes_from_files";
const LOGINS: &str = "every_way_in_and_every_refusal";
const SUITES: &str = "only_the_named_suites_and_curves_are_offered";
const SIGNATURES: &str = "only_the_named_signature_algorithms_are_offered";
const OF_OPENSSL: &str = "what_only_openssl_has_is_refused_when_a_client_with_tls_is_created";
const CHECKS_OFF: &str = "checks_that_are_switched_off_are_off";

pub(super) const ROWS: &[Property] = &[
    Property::choice("security.protocol", &["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"], "plaintext")
        .high()
        .text("The encryption and authentication of connections. With `plaintext` and `sasl_plaintext` the network can read all data.")
        .effective(
            LOGINS,
            choice!(security.protocol, [("plaintext", SecurityProtocol::Plaintext), ("ssl", SecurityProtocol::Ssl), ("sasl_plaintext", SecurityProtocol::SaslPlaintext), ("sasl_ssl", SecurityProtocol::SaslSsl)]),
        ),
    Property::string("ssl.cipher.suites", "")
        .text("The only cipher suites to offer, by OpenSSL's names or IANA's, in the order of preference. A list without suites of TLS 1.3 leaves those as they are, as in librdkafka; one without suites of TLS 1.2 leaves that version out. Unset, all that rustls holds safe.")
        .effective(
            SUITES,
            Access {
                set: |config, value| {
                    suites::suites(value.text())?;
                    value.text().clone_into(&mut config.security.tls.cipher_suites);
                    Ok(())
                },
                get: |config| config.security.tls.cipher_suites.clone(),
            },
        ),
    Property::string("ssl.curves.list", "")
        .text("The only groups to exchange keys in: X25519, P-256 and P-384, in the order of preference. OpenSSL's other groups may be named beside them, and are left out. Unset, all of them.")
        .effective(
            SUITES,
            Access {
                set: |config, value| {
                    suites::curves(value.text())?;
                    value.text().clone_into(&mut config.security.tls.curves);
                    Ok(())
                },
                get: |config| config.security.tls.curves.clone(),
            },
        ),
    Property::string("ssl.sigalgs.list", "")
        .text("The only algorithms of brokers' signatures to offer and accept, by OpenSSL's names (`ECDSA+SHA256`) or those of TLS 1.3, in the order of preference. Algorithms that rustls does not have, such as those with SHA-1, may be named beside others, and are left out. Unset, all that rustls holds safe.")
        .effective(
            SIGNATURES,
            Access {
                set: |config, value| {
                    signatures::schemes(value.text())?;
                    value.text().clone_into(&mut config.security.tls.signature_algorithms);
                    Ok(())
                },
                get: |config| config.security.tls.signature_algorithms.clone(),
            },
        ),
    Property::string("ssl.key.location", "")
        .text("File of the client's private key (PEM): PKCS#8, PKCS#1 or SEC 1, encrypted or not. Read again when it has changed.")
        .effective(IN_FILES, optional_path!(security.tls.key_location)),
    Property::string("ssl.key.password", "")
        .secret()
        .text("Password of the client's private key.")
        .effective(OWN_CERTIFICATE, secret!(security.tls.key_password)),
    Property::string("ssl.key.pem", "")
        .secret()
        .text("The client's private key itself (PEM).")
        .effective(OWN_CERTIFICATE, secret!(security.tls.key_pem)),
    Property::string("ssl.certificate.location", "")
        .text("File of the client's certificate and its chain (PEM). Read again when it has changed.")
        .effective(IN_FILES, optional_path!(security.tls.certificate_location)),
    Property::string("ssl.certificate.pem", "")
        .text("The client's certificate and its chain themselves (PEM).")
        .effective(OWN_CERTIFICATE, optional_string!(security.tls.certificate_pem)),
    Property::string("ssl.ca.location", "")
        .text("File or directory of the certificates that are trusted (PEM). Unset or `probe`, the system's. Read again when it has changed.")
        .effective("certificates_are_read_again_when_they_have_changed", optional_path!(security.tls.ca_location)),
    Property::string("ssl.ca.pem", "")
        .text("The trusted certificates themselves (PEM), in addition to those of `ssl.ca.location`.")
        .effective(REFUSALS, optional_string!(security.tls.ca_pem)),
    Property::string("https.ca.location", "")
        .text("File or directory of the certificates that are trusted when a token is fetched. Unset or `probe`, the system's.")
        .effective(LOGINS, optional_path!(security.sasl.oauthbearer.https_ca_location)),
    Property::string("https.ca.pem", "")
        .text("The certificates trusted when a token is fetched, themselves (PEM), in place of `https.ca.location`.")
        .effective(LOGINS, optional_string!(security.sasl.oauthbearer.https_ca_pem)),
    Property::string("ssl.ca.certificate.stores", "Root")
        .text("Windows certificate stores to trust.")
        .accepted("there is no such store outside Windows, which is no platform of this client; librdkafka ignores it there, too"),
    Property::string("ssl.crl.location", "")
        .text("File of revoked certificates (PEM). The broker's certificate is refused without a list of its issuer that has not expired. An issuer that no list covers is let through.")
        .effective("a_revoked_certificate_is_refused", optional_path!(security.tls.crl_location)),
    Property::string("ssl.keystore.location", "")
        .text("PKCS#12 file with the client's key and certificate.")
        .effective(OWN_CERTIFICATE, optional_path!(security.tls.keystore_location)),
    Property::string("ssl.keystore.password", "")
        .secret()
        .text("Password of the PKCS#12 file.")
        .effective(OWN_CERTIFICATE, secret!(security.tls.keystore_password)),
    Property::string("ssl.providers", "")
        .text("OpenSSL providers to load. OpenSSL is no part of this client: with TLS, a client with another one than `default` is not created.")
        .effective(OF_OPENSSL, string!(openssl.providers)),
    Property::string("ssl.engine.location", "")
        .text("OpenSSL engine to load. OpenSSL is no part of this client: with TLS, a client with an engine is not created.")
        .effective(OF_OPENSSL, string!(openssl.engine_location)),
    Property::string("ssl.engine.id", "dynamic")
        .text("Name of the OpenSSL engine.")
        .accepted("it names the engine of `ssl.engine.location`, which no client with TLS is created with"),
    Property::bool("enable.ssl.certificate.verification", "true")
        .text("If `true`, the client verifies the broker's certificate. Off, any host on the network path can impersonate the broker.")
        .effective(CHECKS_OFF, flag!(security.tls.verify_certificates)),
    Property::choice("ssl.endpoint.identification.algorithm", &["none", "https"], "https")
        .text("The check that the certificate names the host of the connection.")
        .effective(
            CHECKS_OFF,
            choice!(security.tls.endpoint_identification, [("none", false), ("https", true)]),
        ),
];
