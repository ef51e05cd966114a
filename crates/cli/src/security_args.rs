//! Arguments for TLS and SASL of all commands that connect to a broker.

use std::path::PathBuf;

use clap::Args;
use ottla_client::{Config, Mechanism, Secret, Security, SecurityProtocol};

use crate::failure::Failure;
use crate::password;

/// The variable of the environment with the password of `--sasl-user`.
const PASSWORD_VARIABLE: &str = "OTTLA_SASL_PASSWORD";

/// How the connection is encrypted, and who logs in.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct SecurityArgs {
    /// Encrypts the connection with TLS; the other --tls options imply it
    #[arg(long)]
    tls: bool,
    /// The certificates of the authorities that may sign the broker's, as PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The client's certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the client's certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Logs in as this user; the password comes from OTTLA_SASL_PASSWORD, or the terminal asks for it
    #[arg(long, value_name = "USER")]
    sasl_user: Option<String>,
    /// A file whose first line is the password
    #[arg(long, value_name = "FILE")]
    sasl_password_file: Option<PathBuf>,
    /// PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 [default: SCRAM-SHA-512]
    #[arg(long, value_name = "NAME", value_parser = mechanism, requires = "sasl_user")]
    sasl_mechanism: Option<Mechanism>,
}

fn mechanism(text: &str) -> Result<Mechanism, String> {
    let mut with_password = Mechanism::ALL.into_iter().filter(|mechanism| mechanism.has_password());
    let found = with_password.find(|mechanism| mechanism.name().eq_ignore_ascii_case(text));
    found.ok_or_else(|| {
        format!(
            "`{text}` is no mechanism with a password: use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (and -X for others)"
        )
    })
}

impl SecurityArgs {
    /// Adds the arguments to what the properties say, and asks for the password that a login lacks.
    pub(crate) fn apply(&self, config: &mut Config) -> Result<(), Failure> {
        let security = &mut config.security;
        let is_tls = self.tls || self.tls_ca.is_some() || self.tls_cert.is_some();
        let is_sasl = self.sasl_user.is_some();
        security.protocol =
            protocol(security.protocol.is_tls() || is_tls, security.protocol.is_sasl() || is_sasl);
        let tls = &mut security.tls;
        if let Some(ca) = &self.tls_ca {
            tls.ca_location = Some(ca.clone());
            tls.ca_pem = None;
        }
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            tls.certificate_location = Some(certificate.clone());
            tls.key_location = Some(key.clone());
            (tls.certificate_pem, tls.key_pem, tls.keystore_location) = (None, None, None);
        }
        if let Some(user) = &self.sasl_user {
            // A password of the properties belongs to the user that they name.
            if security.sasl.username.as_ref() != Some(user) {
                security.sasl.password = None;
            }
            security.sasl.username = Some(user.clone());
            let mechanism = self.sasl_mechanism.or(security.sasl.mechanism);
            security.sasl.mechanism = Some(mechanism.unwrap_or(Mechanism::ScramSha512));
        }
        self.complete_password(security)
    }

    fn complete_password(&self, security: &mut Security) -> Result<(), Failure> {
        let sasl = &mut security.sasl;
        if let Some(path) = &self.sasl_password_file {
            if !security.protocol.is_sasl() {
                return Err(Failure::usage("--sasl-password-file without a login: add --sasl-user USER"));
            }
            sasl.password = Some(password::read_file(path)?);
        }
        let has_password = sasl.mechanism.is_some_and(Mechanism::has_password);
        if !security.protocol.is_sasl() || !has_password || sasl.password.is_some() {
            return Ok(());
        }
        let Some(user) = &sasl.username else { return Ok(()) };
        let from_environment = std::env::var(PASSWORD_VARIABLE).ok().filter(|text| !text.is_empty());
        sasl.password = Some(match from_environment {
            Some(text) => Secret::new(text.as_str()),
            None => password::ask(
                &format!("Password of {user}: "),
                &format!("set {PASSWORD_VARIABLE}, or use --sasl-password-file FILE"),
            )?,
        });
        Ok(())
    }

    /// The arguments again, for a process of the same program. It asks for a password itself.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.tls {
            all.push("--tls".to_owned());
        }
        let files = [
            ("--tls-ca", &self.tls_ca),
            ("--tls-cert", &self.tls_cert),
            ("--tls-key", &self.tls_key),
            ("--sasl-password-file", &self.sasl_password_file),
        ];
        for (name, file) in files {
            all.extend(file.iter().flat_map(|file| [name.to_owned(), file.display().to_string()]));
        }
        let mechanism = self.sasl_mechanism.map(|mechanism| mechanism.name().to_owned());
        for (name, value) in [("--sasl-user", self.sasl_user.clone()), ("--sasl-mechanism", mechanism)] {
            all.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        }
        all
    }
}

fn protocol(is_tls: bool, is_sasl: bool) -> SecurityProtocol {
    match (is_tls, is_sasl) {
        (false, false) => SecurityProtocol::Plaintext,
        (true, false) => SecurityProtocol::Ssl,
        (false, true) => SecurityProtocol::SaslPlaintext,
        (true, true) => SecurityProtocol::SaslSsl,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(args: &SecurityArgs, properties: &[(&str, &str)]) -> Security {
        let mut config = Config::new("localhost:9092");
        config.set_all(properties.iter().copied()).expect("properties");
        args.apply(&mut config).expect("arguments");
        config.security
    }

    #[test]
    fn tls_and_a_login_add_to_the_protocol_of_the_properties() {
        let tls = SecurityArgs { tls: true, ..SecurityArgs::default() };
        assert_eq!(applied(&tls, &[]).protocol, SecurityProtocol::Ssl);
        let login = [
            ("security.protocol", "sasl_plaintext"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.username", "alice"),
            ("sasl.password", "secret"),
        ];
        assert_eq!(applied(&tls, &login).protocol, SecurityProtocol::SaslSsl);
        assert_eq!(applied(&SecurityArgs::default(), &login).protocol, SecurityProtocol::SaslPlaintext);
    }

    #[test]
    fn a_user_keeps_the_password_of_the_properties_only_if_they_name_it() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "from the file\nignored\n").expect("a file");
        let login = [("sasl.username", "alice"), ("sasl.password", "secret"), ("sasl.mechanism", "PLAIN")];
        let alice = SecurityArgs { sasl_user: Some("alice".to_owned()), ..SecurityArgs::default() };
        let sasl = applied(&alice, &login).sasl;
        assert_eq!(sasl.password.expect("a password").expose(), "secret");
        assert_eq!(sasl.mechanism, Some(Mechanism::Plain));
        let bob = SecurityArgs {
            sasl_user: Some("bob".to_owned()),
            sasl_password_file: Some(file.path().to_owned()),
            ..SecurityArgs::default()
        };
        assert_eq!(applied(&bob, &login).sasl.password.expect("a password").expose(), "from the file");
        assert_eq!(applied(&bob, &[]).sasl.mechanism, Some(Mechanism::ScramSha512));
    }

    #[test]
    fn the_arguments_of_another_process_are_the_same() {
        let args = SecurityArgs {
            tls: true,
            tls_ca: Some("ca.pem".into()),
            sasl_user: Some("alice".to_owned()),
            sasl_mechanism: Some(Mechanism::ScramSha256),
            ..SecurityArgs::default()
        };
        let expected =
            ["--tls", "--tls-ca", "ca.pem", "--sasl-user", "alice", "--sasl-mechanism", "SCRAM-SHA-256"];
        assert_eq!(args.arguments(), expected);
    }
}
