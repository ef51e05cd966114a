//! The trusted certificates.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

use super::keys::{certificates, read};
use crate::error::Error;

/// Returns `true` for librdkafka's name of the standard paths, where the system's certificates are.
pub(crate) fn is_probe(location: &Path) -> bool {
    location.as_os_str() == "probe"
}

/// The certificates of `location` (a PEM file, or a directory of them) and of `pem`; the system's if neither is set, which the
/// location `probe` stands for. Those of the first two are also returned as they are.
pub(crate) fn roots(
    (location_property, location): (&str, Option<&Path>),
    (pem_property, pem): (&str, Option<&str>),
) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), Error> {
    let mut store = RootCertStore::empty();
    let mut configured = Vec::new();
    let mut add = |property: &str, found: Vec<CertificateDer<'static>>| {
        configured.extend(found.iter().cloned());
        found.into_iter().try_for_each(|certificate| {
            store
                .add(certificate)
                .map_err(|error| Error::Config(format!("{property}: a certificate is damaged: {error}")))
        })
    };
    let location = location.filter(|location| !is_probe(location));
    match location {
        Some(dir) if dir.is_dir() => {
            let entries = std::fs::read_dir(dir)
                .map_err(|error| Error::Config(format!("{location_property}: {}: {error}", dir.display())))?;
            let mut found = Vec::new();
            for entry in entries.flatten().filter(|entry| entry.path().is_file()) {
                // Such directories may contain other files.
                if let Ok(more) = certificates(location_property, &read(location_property, &entry.path())?) {
                    found.extend(more);
                }
            }
            if found.is_empty() {
                return Err(Error::Config(format!(
                    "{location_property}: no PEM certificates in {}",
                    dir.display()
                )));
            }
            add(location_property, found)?;
        }
        Some(file) => {
            add(location_property, certificates(location_property, &read(location_property, file)?)?)?;
        }
        None => {}
    }
    if let Some(pem) = pem {
        add(pem_property, certificates(pem_property, pem.as_bytes())?)?;
    }
    if location.is_none() && pem.is_none() {
        let system = rustls_native_certs::load_native_certs();
        let (added, _) = store.add_parsable_certificates(system.certs);
        if added == 0 {
            let why = system.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
            return Err(Error::Config(format!(
                "the system has no certificates to trust{why}: set {location_property}"
            )));
        }
    }
    Ok((store, configured))
}
