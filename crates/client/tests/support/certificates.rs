//! Certificates for tests, generated for each test.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};

/// A certificate authority that signs every request.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, PEM.
pub(crate) struct Certificate {
    #[allow(dead_code, reason = "not every test shows a certificate of its own")]
    pub(crate) pem: String,
    pub(crate) key_pem: String,
    pub(crate) der: Vec<u8>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names to be wrong");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signed").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate for these host names that is its own authority, as `openssl req -x509` makes it.
    #[allow(dead_code, reason = "not every test has such a broker")]
    pub(crate) fn self_signed(names: &[&str]) -> Certificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).expect("sound names");
        params.distinguished_name.push(DnType::CommonName, &names[0]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(2100, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("signed");
        Certificate { pem: certificate.pem(), key_pem: key.serialize_pem(), der: certificate.der().to_vec() }
    }

    /// Signs a certificate for these host names and addresses; the first is the common name.
    pub(crate) fn sign(&self, names: &[&str]) -> Certificate {
        self.sign_until(names, 2100)
    }

    /// The same, valid until the first day of a year.
    pub(crate) fn sign_until(&self, names: &[&str], year: i32) -> Certificate {
        self.sign_with(names, |params| params.not_after = date_time_ymd(year, 1, 1))
    }

    /// The same, valid for some days from now.
    #[allow(dead_code, reason = "not every test lets time pass")]
    pub(crate) fn sign_for_days(&self, names: &[&str], days: u64) -> Certificate {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        let until = date_time_ymd(1970, 1, 1) + since + Duration::from_secs(days * 24 * 60 * 60);
        self.sign_with(names, |params| params.not_after = until)
    }

    /// A certificate with this serial number, and the list that revokes it.
    #[allow(dead_code, reason = "not every test revokes")]
    pub(crate) fn sign_and_revoke(&self, names: &[&str], number: u64) -> (Certificate, String) {
        let certificate =
            self.sign_with(names, |params| params.serial_number = Some(SerialNumber::from(number)));
        (certificate, self.revoke_until(number, 2100))
    }

    /// The list that revokes this serial number, valid until the first day of a year.
    #[allow(dead_code, reason = "not every test revokes")]
    pub(crate) fn revoke_until(&self, number: u64, year: i32) -> String {
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2001, 1, 1),
            next_update: date_time_ymd(year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: SerialNumber::from(number),
                revocation_time: date_time_ymd(2001, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).expect("signed").pem().expect("PEM")
    }

    fn sign_with(&self, names: &[&str], adjust: impl FnOnce(&mut CertificateParams)) -> Certificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).expect("sound names");
        params.distinguished_name.push(DnType::CommonName, &names[0]);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(2100, 1, 1);
        adjust(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Certificate { pem: certificate.pem(), key_pem: key.serialize_pem(), der: certificate.der().to_vec() }
    }
}
