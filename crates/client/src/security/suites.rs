//! The cipher suites and curves that TLS offers: `ssl.cipher.suites` and `ssl.curves.list`, limited to those of
//! rustls.

use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{CipherSuite, NamedGroup, SupportedCipherSuite};

/// OpenSSL's name, and IANA's name, which Java uses.
pub(super) type Names = (&'static str, &'static str);

const SUITES: &[(Names, CipherSuite)] = &[
    (("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"), CipherSuite::TLS13_AES_256_GCM_SHA384),
    (("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"), CipherSuite::TLS13_AES_128_GCM_SHA256),
    (
        ("TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    (
        ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

const CURVES: &[(Names, NamedGroup)] = &[
    (("X25519", "x25519"), NamedGroup::X25519),
    (("P-256", "secp256r1"), NamedGroup::secp256r1),
    // OpenSSL's other name of the same group.
    (("P-256", "prime256v1"), NamedGroup::secp256r1),
    (("P-384", "secp384r1"), NamedGroup::secp384r1),
];

/// OpenSSL's other groups. A list may name them beside those of rustls.
const OTHER_CURVES: &[&str] = &[
    "P-521",
    "secp521r1",
    "P-224",
    "secp224r1",
    "secp256k1",
    "X448",
    "brainpoolP256r1",
    "brainpoolP384r1",
    "brainpoolP512r1",
    "ffdhe2048",
    "ffdhe3072",
    "ffdhe4096",
    "ffdhe6144",
    "ffdhe8192",
    "X25519MLKEM768",
    "SecP256r1MLKEM768",
];

/// The cipher suites of a list, in its order.
pub(crate) fn suites(text: &str) -> Result<Vec<CipherSuite>, String> {
    parse(text, SUITES, &[])
}

/// The groups of a list, in its order.
pub(crate) fn curves(text: &str) -> Result<Vec<NamedGroup>, String> {
    parse(text, CURVES, OTHER_CURVES)
}

/// The default provider of rustls, restricted to the lists; an empty list has no effect.
pub(crate) fn provider(cipher_suites: &str, curves_list: &str) -> Result<CryptoProvider, String> {
    let mut provider = rustls::crypto::ring::default_provider();
    let mut named = suites(cipher_suites).map_err(|error| format!("ssl.cipher.suites: {error}"))?;
    let tls_1_3 = suites_of_tls_1_3(&provider);
    // OpenSSL's list has no suites of TLS 1.3, which stay as they are.
    if !named.is_empty() && !named.iter().any(|suite| tls_1_3.contains(suite)) {
        named = [tls_1_3, named].concat();
    }
    narrow(&mut provider.cipher_suites, &named, SupportedCipherSuite::suite);
    let named = curves(curves_list).map_err(|error| format!("ssl.curves.list: {error}"))?;
    narrow(&mut provider.kx_groups, &named, |group: &&dyn SupportedKxGroup| group.name());
    Ok(provider)
}

fn suites_of_tls_1_3(provider: &CryptoProvider) -> Vec<CipherSuite> {
    let suites = provider.cipher_suites.iter();
    suites
        .filter(|suite| matches!(suite, SupportedCipherSuite::Tls13(_)))
        .map(SupportedCipherSuite::suite)
        .collect()
}

fn narrow<T: Clone, N: PartialEq>(offered: &mut Vec<T>, named: &[N], name: impl Fn(&T) -> N) {
    if !named.is_empty() {
        let find = |wanted: &N| offered.iter().find(|one| name(one) == *wanted).cloned();
        *offered = named.iter().filter_map(find).collect();
    }
}

/// Parses names separated by colons, as in OpenSSL, or by commas, as in Java. Those among `others` are left out, unless they are all.
pub(super) fn parse<T: Copy>(text: &str, known: &[(Names, T)], others: &[&str]) -> Result<Vec<T>, String> {
    let mut found = Vec::new();
    let mut left_out = None;
    for name in text.split([':', ',']).map(str::trim).filter(|name| !name.is_empty()) {
        let is =
            |(openssl, iana): &Names| name.eq_ignore_ascii_case(openssl) || name.eq_ignore_ascii_case(iana);
        match known.iter().find(|(names, _)| is(names)) {
            Some((_, value)) => found.push(*value),
            None if others.iter().any(|other| name.eq_ignore_ascii_case(other)) => left_out = Some(name),
            None => return Err(not_among(name, known)),
        }
    }
    match left_out {
        Some(name) if found.is_empty() => Err(not_among(name, known)),
        _ => Ok(found),
    }
}

fn not_among<T>(name: &str, known: &[(Names, T)]) -> String {
    let mut names: Vec<&str> = known.iter().map(|((openssl, _), _)| *openssl).collect();
    names.dedup();
    format!("`{name}` is not among {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_of_something_that_rustls_has() {
        let provider = rustls::crypto::ring::default_provider();
        let suites: Vec<_> = provider.cipher_suites.iter().map(SupportedCipherSuite::suite).collect();
        assert_eq!(suites.len(), SUITES.len(), "{suites:?}");
        assert!(SUITES.iter().all(|(_, suite)| suites.contains(suite)));
        let groups: Vec<_> = provider.kx_groups.iter().map(|group| group.name()).collect();
        assert!(groups.iter().all(|group| CURVES.iter().any(|(_, known)| known == group)), "{groups:?}");
    }

    #[test]
    fn lists_are_read_in_openssls_and_in_javas_way() {
        let both =
            [CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, CipherSuite::TLS13_AES_256_GCM_SHA384];
        for text in [
            "ECDHE-RSA-AES128-GCM-SHA256:TLS_AES_256_GCM_SHA384",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384",
        ] {
            assert_eq!(suites(text).expect("known"), both);
            let narrowed = provider(text, "prime256v1").expect("known");
            assert_eq!(
                narrowed.cipher_suites.iter().map(SupportedCipherSuite::suite).collect::<Vec<_>>(),
                both
            );
            assert_eq!(narrowed.kx_groups.len(), 1);
        }
        let only_1_2 = provider("ECDHE-RSA-AES128-GCM-SHA256", "").expect("known");
        let offered: Vec<_> = only_1_2.cipher_suites.iter().map(SupportedCipherSuite::suite).collect();
        assert_eq!((offered.len(), offered[3]), (4, CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256));
        let error = suites("HIGH:!aNULL").expect_err("no name of a suite");
        assert!(error.starts_with("`HIGH` is not among TLS_AES_256_GCM_SHA384, "), "{error}");
        assert!(curves("P-521").expect_err("rustls has none").ends_with("X25519, P-256, P-384"));
        assert!(curves("P-256:P-999").expect_err("OpenSSL has none").starts_with("`P-999` is not among"));
        let groups = curves("X448:secp521r1:P-384:ffdhe2048:X25519").expect("two of rustls");
        assert_eq!(groups, [NamedGroup::secp384r1, NamedGroup::X25519]);
    }
}
