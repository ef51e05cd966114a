//! Encryption and certificates.

use crate::config::property::Property;

const TLS: &str = "this version connects without TLS";

pub(super) const ROWS: &[Property] = &[
    Property::choice("security.protocol", &["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"], "plaintext")
        .high()
        .text("Whether connections are encrypted and authenticated.")
        .refused(TLS),
    Property::string("ssl.cipher.suites", "")
        .text("Cipher suites to offer, in OpenSSL's notation.")
        .refused(TLS),
    Property::string("ssl.curves.list", "")
        .text("Curves to offer, in OpenSSL's notation.")
        .refused(TLS),
    Property::string("ssl.sigalgs.list", "")
        .text("Signature algorithms to offer, in OpenSSL's notation.")
        .refused(TLS),
    Property::string("ssl.key.location", "")
        .text("File of the client's private key (PEM).")
        .refused(TLS),
    Property::string("ssl.key.password", "")
        .secret()
        .text("Password of the client's private key.")
        .refused(TLS),
    Property::string("ssl.key.pem", "")
        .secret()
        .text("The client's private key itself (PEM).")
        .refused(TLS),
    Property::string("ssl.certificate.location", "")
        .text("File of the client's certificate chain (PEM).")
        .refused(TLS),
    Property::string("ssl.certificate.pem", "")
        .text("The client's certificate chain itself (PEM).")
        .refused(TLS),
    Property::string("ssl.ca.location", "")
        .text("File or directory of the certificates that are trusted (PEM). Unset, the system's.")
        .refused(TLS),
    Property::string("ssl.ca.pem", "")
        .text("The trusted certificates themselves (PEM).")
        .refused(TLS),
    Property::string("https.ca.location", "")
        .text("File of the certificates that are trusted when a token is fetched.")
        .refused(TLS),
    Property::string("https.ca.pem", "")
        .text("The certificates trusted when a token is fetched, themselves (PEM).")
        .refused(TLS),
    Property::string("ssl.ca.certificate.stores", "Root")
        .text("Windows certificate stores to trust.")
        .accepted("there is no such store outside Windows, which is no platform of this client; librdkafka ignores it there, too"),
    Property::string("ssl.crl.location", "")
        .text("File of revoked certificates.")
        .refused(TLS),
    Property::string("ssl.keystore.location", "")
        .text("PKCS#12 file with the client's key and certificate.")
        .refused(TLS),
    Property::string("ssl.keystore.password", "")
        .secret()
        .text("Password of the PKCS#12 file.")
        .refused(TLS),
    Property::string("ssl.providers", "")
        .text("OpenSSL providers to load.")
        .refused("OpenSSL is no part of this client"),
    Property::string("ssl.engine.location", "")
        .text("OpenSSL engine to load.")
        .refused("OpenSSL is no part of this client"),
    Property::string("ssl.engine.id", "dynamic")
        .text("Name of the OpenSSL engine.")
        .refused("OpenSSL is no part of this client"),
    Property::bool("enable.ssl.certificate.verification", "true")
        .text("Whether the broker's certificate is checked. Off, anybody in between can pose as the broker.")
        .refused(TLS),
    Property::choice("ssl.endpoint.identification.algorithm", &["none", "https"], "https")
        .text("Whether the certificate must be for the host that was connected to.")
        .refused(TLS),
];
