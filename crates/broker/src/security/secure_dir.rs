//! A directory with everything that a secure broker and its clients need: authority, certificate, users, client configurations.

use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::config::{Listener, Password};
use crate::config::{Pem, SaslMechanism, SaslSettings, TlsSettings};

/// The name of the only listener.
const LISTENER: &str = "SECURE";
/// The file that a broker locks as long as it uses the directory.
const LOCK_NAME: &str = ".lock";
/// Mode bits with which other users can replace files.
const OTHERS_WRITE: u32 = 0o022;
/// The file of the passwords that the broker's data has.
const PASSWORDS: &str = "passwords";
/// The file of new passwords until the broker's data has them: a start that fails before is repeated with others.
const NEW_PASSWORDS: &str = "passwords.new";
/// The user that may do everything.
pub(crate) const ADMIN: &str = "admin";
/// The user of applications.
pub(crate) const CLIENT: &str = "client";
/// The lifetime of the authority.
const AUTHORITY_DAYS: u64 = 3650;
/// The lifetime of the server's certificate. Each start makes a new one.
const SERVER_DAYS: u64 = 730;
/// Certificates are valid from a day ago, for clients whose clock is late.
const LATE_CLOCK_DAYS: u64 = 1;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The random bytes of a password.
const PASSWORD_BYTES: usize = 24;

/// The directory of a secure broker.
#[derive(Debug)]
pub(crate) struct SecureDir {
    path: PathBuf,
    /// `true` if this start has made passwords: [`SecureDir::keep_passwords`] keeps them.
    pub(crate) is_new: bool,
    /// The users with their passwords: the super user first.
    pub(crate) users: [(&'static str, Password); 2],
    /// The exclusive lock on the directory. It is released when it is dropped.
    pub(crate) lock: Arc<File>,
}

impl SecureDir {
    /// Opens a directory, or creates it, and makes a certificate of the server for these hosts.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub(crate) fn open(path: &Path, hosts: &[String], now_ms: i64) -> Result<Self, String> {
        let path = std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
        let mode = std::fs::metadata(&path).map_err(failed)?.permissions().mode();
        if mode & OTHERS_WRITE != 0 {
            let (mode, path) = (mode & 0o7777, path.display());
            return Err(format!(
                "{path}: mode {mode:04o} lets other users replace the keys; run `chmod 700 {path}`"
            ));
        }
        let lock = Arc::new(locked(&path)?);
        let is_new = !path.join(PASSWORDS).exists();
        let file = path.join(if is_new { NEW_PASSWORDS } else { PASSWORDS });
        if is_new {
            let text = [ADMIN, CLIENT].map(|user| Ok(format!("{user}:{}\n", random_password()?.expose())));
            let text: Result<String, String> = text.into_iter().collect();
            write_secret(&path, NEW_PASSWORDS, &text?)?;
        }
        let passwords = read(&file)?;
        let password_of = |user: &'static str| {
            let line = passwords.lines().find_map(|line| line.strip_prefix(user)?.strip_prefix(':'));
            let found = line.map(|password| (user, Password::from(password.trim())));
            found.ok_or_else(|| format!("{}: no password of {user}", file.display()))
        };
        let users = [password_of(ADMIN)?, password_of(CLIENT)?];
        let directory = Self { path, is_new, users, lock };
        directory.make_certificates(hosts, now_ms)?;
        Ok(directory)
    }

    fn make_certificates(&self, hosts: &[String], now_ms: i64) -> Result<(), String> {
        let failed = |error: rcgen::Error| format!("{}: {error}", self.path.display());
        let now = Duration::from_millis(u64::try_from(now_ms).unwrap_or_default());
        let from = now.saturating_sub(DAY * LATE_CLOCK_DAYS as u32);
        let date = |time: Duration| date_time_ymd(1970, 1, 1) + time;
        let mut authority = CertificateParams::new(Vec::new()).map_err(failed)?;
        authority.distinguished_name.push(DnType::CommonName, "Ottla authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority.not_before = date(from);
        authority.not_after = date(now + DAY * AUTHORITY_DAYS as u32);
        let key_path = self.path.join("ca-key.pem");
        let key = if key_path.exists() && self.path.join("ca.pem").exists() {
            KeyPair::from_pem(&read(&key_path)?).map_err(failed)?
        } else {
            let key = KeyPair::generate().map_err(failed)?;
            let certificate = authority.self_signed(&key).map_err(failed)?;
            write_secret(&self.path, "ca-key.pem", &key.serialize_pem())?;
            write_secret(&self.path, "ca.pem", &certificate.pem())?;
            key
        };
        // The server's certificate names the authority and its key, which are the same at each start.
        let issuer = Issuer::new(authority, key);
        let mut server = CertificateParams::new(hosts.to_vec()).map_err(failed)?;
        server.distinguished_name.push(DnType::CommonName, hosts.first().map_or("localhost", String::as_str));
        server.use_authority_key_identifier_extension = true;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.not_before = date(from);
        server.not_after = date(now + DAY * SERVER_DAYS as u32);
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = server.signed_by(&key, &issuer).map_err(failed)?;
        let key = Password::from(key.serialize_pem());
        write_secret(&self.path, "server.pem", &format!("{}{}", certificate.pem(), key.expose()))
    }

    /// The broker's data has the passwords: later starts use them.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub(crate) fn keep_passwords(&self) -> Result<(), String> {
        if !self.is_new {
            return Ok(());
        }
        let path = self.path.join(PASSWORDS);
        let kept = rename(&self.path, NEW_PASSWORDS, PASSWORDS);
        kept.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The listener: SASL_SSL with SCRAM.
    pub(crate) fn secured(&self, mut listener: Listener) -> Listener {
        let server = Pem::File(self.path.join("server.pem"));
        LISTENER.clone_into(&mut listener.name);
        let sasl = SaslSettings::new([SaslMechanism::ScramSha256, SaslMechanism::ScramSha512]);
        listener.tls(TlsSettings::new(server.clone(), server)).sasl(sasl)
    }

    /// Writes the configurations of clients for these addresses.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub(crate) fn write_clients(&self, bootstrap_servers: &str) -> Result<(), String> {
        let ca = self.path.join("ca.pem");
        let ca = ca.display();
        for (user, password) in &self.users {
            let password = password.expose();
            let java = format!(
                "# Java, Kafka's tools (--command-config).\nbootstrap.servers={bootstrap_servers}\n\
                 security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n\
                 sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
                 username=\"{user}\" password=\"{password}\";\n\
                 ssl.truststore.type=PEM\nssl.truststore.location={ca}\n"
            );
            let librdkafka = format!(
                "# librdkafka and its languages, kcat (-F), ottla (--config).\nbootstrap.servers={bootstrap_servers}\n\
                 security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.username={user}\n\
                 sasl.password={password}\nssl.ca.location={ca}\n"
            );
            write_secret(&self.path, &format!("{user}-java.properties"), &java)?;
            write_secret(&self.path, &format!("{user}.properties"), &librdkafka)?;
        }
        let (user, password) = &self.users[1];
        let mut seeds = String::new();
        for address in bootstrap_servers.split(',') {
            let _ = write!(seeds, "{address:?}, ");
        }
        let go = include_str!("client_franz.go")
            .replace("{ca}", &ca.to_string())
            .replace("{seeds}", seeds.trim_end_matches(", "))
            .replace("{user}", user)
            .replace("{password}", password.expose());
        write_secret(&self.path, "client_franz.go", &go)
    }
}

/// The hosts that the certificate is valid for: this machine, the address of the listener, and the advertised one.
pub(crate) fn hosts_of(listen: IpAddr, advertise: Option<&str>) -> Vec<String> {
    let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let advertised = advertise.map(|text| match text.rsplit_once(':') {
        Some((host, _)) if !host.contains(':') || host.ends_with(']') => host,
        _ => text,
    });
    let advertised = advertised.map(|host| host.trim_start_matches('[').trim_end_matches(']').to_owned());
    let listen = (!listen.is_unspecified()).then(|| listen.to_string());
    for host in listen.into_iter().chain(advertised) {
        if !host.is_empty() && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

/// Takes the lock on a directory: another start must not replace the certificate of the broker that uses it.
fn locked(dir: &Path) -> Result<File, String> {
    let path = dir.join(LOCK_NAME);
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let mut options = std::fs::OpenOptions::new();
    // A lock on the target of a link would not protect this directory.
    let options = options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32).mode(0o600);
    let opened = options.read(true).write(true).create(true).truncate(false).open(&path);
    let file = opened.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(format!("{} is in use by another broker", dir.display())),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn random_password() -> Result<Password, String> {
    let mut random = [0; PASSWORD_BYTES];
    let filled = rustls::crypto::ring::default_provider().secure_random.fill(&mut random);
    filled.map_err(|_| "the system gives no random numbers".to_owned())?;
    Ok(URL_SAFE_NO_PAD.encode(random).into())
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file that only its owner can read. A reader sees the old file or the new one.
fn write_secret(dir: &Path, name: &str, text: &str) -> Result<(), String> {
    let part_name = format!("{name}.part");
    let (path, part) = (dir.join(name), dir.join(&part_name));
    let written = || {
        let _ = std::fs::remove_file(&part);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        rename(dir, &part_name, name)
    };
    written().map_err(|error| format!("{}: {error}", path.display()))
}

/// Renames a file, durably: after a power cut the passwords must be those that the broker's data has, and the certificate that of the
/// authority that clients have.
fn rename(dir: &Path, from: &str, to: &str) -> io::Result<()> {
    std::fs::rename(dir.join(from), dir.join(to))?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_names_the_listener_and_the_advertised_host() {
        let hosts = hosts_of(IpAddr::from([0, 0, 0, 0]), Some("broker.example.org:9092"));
        assert_eq!(hosts, ["localhost", "127.0.0.1", "::1", "broker.example.org"]);
        let hosts = hosts_of(IpAddr::from([10, 0, 0, 1]), Some("[fe80::1]:9092"));
        assert_eq!(hosts[3..], ["10.0.0.1", "fe80::1"]);
        assert_eq!(hosts_of(IpAddr::from([127, 0, 0, 1]), None).len(), 3);
    }

    fn open(path: &Path) -> Result<SecureDir, String> {
        SecureDir::open(path, &["localhost".to_owned()], 1_700_000_000_000)
    }

    /// Another user could replace the key of the authority, or the passwords.
    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let tmp = tempfile::tempdir().expect("a scratch directory");
        for mode in [0o770, 0o702, 0o1777] {
            std::fs::set_permissions(tmp.path(), PermissionsExt::from_mode(mode)).expect("changed");
            let error = open(tmp.path()).expect_err("others can write it");
            assert!(error.contains("chmod 700"), "{mode:o}: {error}");
        }
        std::fs::set_permissions(tmp.path(), PermissionsExt::from_mode(0o755)).expect("changed");
        open(tmp.path()).expect("others can only read the directory");
    }

    #[test]
    fn a_lock_file_that_is_a_link_is_refused() {
        let tmp = tempfile::tempdir().expect("a scratch directory");
        let secure = tmp.path().join("secure");
        std::fs::DirBuilder::new().mode(0o700).create(&secure).expect("created");
        std::os::unix::fs::symlink(tmp.path().join("other"), secure.join(LOCK_NAME)).expect("linked");
        open(&secure).expect_err("the lock is a link");
        assert!(!tmp.path().join("other").exists());
    }
}
