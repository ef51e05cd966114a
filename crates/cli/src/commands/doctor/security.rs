//! TLS and SASL: the steps between a connection and its first request.

use std::cell::RefCell;

use bytes::{BufMut, Bytes, BytesMut};
use ottla_client::probe::{Certificate, Handshake, HandshakeError, HandshakeProblem, SaslChannel};
use ottla_client::{Error, Mechanism};
use ottla_protocol::Request;

use super::connection::{Connection, ProbeError, ProbeSettings, Stopwatch};
use super::network::Reachable;
use super::peer::sasl_mechanisms;
use super::report::{Report, Status, Step};
use crate::connect::runtime;
use crate::failure::Failure;
use crate::time::now_ms;

/// A certificate with fewer days left is reported.
const RENEW_WITHIN_DAYS: i64 = 30;
/// It is reported only if less than this fraction of its lifetime is left.
const RENEW_AT_FRACTION: i64 = 3;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Performs a TLS handshake with each peer, if the properties enable TLS. Returns the peers that succeeded.
pub(super) fn handshakes(
    reachable: &[Reachable],
    settings: &ProbeSettings,
    report: &mut Report,
) -> Result<Vec<Reachable>, Failure> {
    if !settings.security.uses_tls() {
        return Ok(reachable.to_vec());
    }
    let mut secured = Vec::new();
    for peer in reachable {
        let step = Step::new("tls", peer.to_string());
        let watch = Stopwatch::start();
        let made = Connection::connect(peer.address, settings)
            .and_then(|(mut connection, _)| connection.secure(&peer.host, settings));
        let step = match made {
            Ok((handshake, took)) => {
                secured.push(peer.clone());
                with_handshake(step.took(took), &handshake, now_ms())
            }
            Err(ProbeError::Tls(refused)) => {
                let step = self::refused(step.took(watch.elapsed()), &peer.host, &refused);
                if refused.problem == HandshakeProblem::NoTls {
                    plaintext(step, peer, settings)
                } else {
                    step
                }
            }
            Err(probe_error) => step.took(watch.elapsed()).status(Status::Fail).fact(probe_error.to_string()),
        };
        report.add(step)?;
    }
    Ok(secured)
}

fn with_handshake(step: Step, handshake: &Handshake, now_ms: i64) -> Step {
    let step = step.fact(format!("{}, {}", handshake.version, handshake.cipher));
    let Some(certificate) = &handshake.certificate else {
        return step.fact("the certificate cannot be read");
    };
    let days = (certificate.not_after_ms - now_ms).div_euclid(DAY_MS);
    let step = described(step, certificate);
    if !needs_renewal(certificate.not_before_ms..certificate.not_after_ms, now_ms) {
        return step;
    }
    step.status(Status::Warn)
        .fact(if days < 0 {
            // Reached only if certificates are not verified.
            format!("it expired {} days ago", -days)
        } else {
            format!("it expires in {days} days")
        })
        .advice("renew the broker's certificate before clients reject it")
}

/// Some certificates live for a day by design and are renewed each day, so the whole lifetime counts.
fn needs_renewal(validity: std::ops::Range<i64>, now_ms: i64) -> bool {
    let left = validity.end - now_ms;
    left < RENEW_WITHIN_DAYS * DAY_MS && left <= (validity.end - validity.start) / RENEW_AT_FRACTION
}

fn described(step: Step, certificate: &Certificate) -> Step {
    let Certificate { subject, issuer, names, not_before, not_after, .. } = certificate;
    step.fact(format!("certificate of {subject}, signed by {issuer}, for {}", names.join(", ")))
        .fact(format!("valid from {not_before} to {not_after}"))
}

/// The result of a failed handshake, with advice.
pub(super) fn refused(step: Step, host: &str, refused: &HandshakeError) -> Step {
    let mut step = step.status(Status::Fail).fact(&refused.reason);
    let mut names = String::new();
    if let Some(certificate) = &refused.certificate {
        step = described(step, certificate);
        names = certificate.names.join(", ");
    }
    let advice = match refused.problem {
        HandshakeProblem::UnknownAuthority => {
            "set ssl.ca.location to the certificate of the authority that signed the broker's (above: signed by), or check that no proxy intercepts the connection".to_owned()
        }
        HandshakeProblem::OtherHost => format!(
            "the connection is to {host}, but the certificate is for {names}: connect by one of these names (bootstrap.servers, advertised.listeners), or reissue the certificate with {host} among its subjectAltNames"
        ),
        HandshakeProblem::Expired => "renew the broker's certificate; if it is not expired, correct this machine's clock".to_owned(),
        HandshakeProblem::NotYetValid => "check this machine's clock and the broker's".to_owned(),
        HandshakeProblem::AuthorityAsBroker => {
            "the broker presents the certificate of an authority: configure exactly this certificate in ssl.ca.location, or give the broker a certificate that the authority has signed".to_owned()
        }
        HandshakeProblem::OtherPurpose => {
            "reissue the broker's certificate: its extended key usage must contain serverAuth".to_owned()
        }
        HandshakeProblem::Revoked => {
            "the authority has revoked the broker's certificate (ssl.crl.location): give the broker a new one".to_owned()
        }
        HandshakeProblem::RevocationUnknown => {
            "give ssl.crl.location a current list of the authority that signed the broker's certificate".to_owned()
        }
        HandshakeProblem::UnusableCertificate => {
            "reissue the broker's certificate: X.509 version 3, with the host in subjectAltName, and a key of ECDSA P-256, P-384 or RSA with 2048 bits or more".to_owned()
        }
        HandshakeProblem::NoTls => {
            "check that this is the port of a TLS listener and that security.protocol matches the listener".to_owned()
        }
        HandshakeProblem::ClientCertificate => {
            "the broker requires a client certificate (ssl.client.auth=required): set ssl.keystore.location, or ssl.certificate.location and ssl.key.location, to one that its truststore knows".to_owned()
        }
        HandshakeProblem::Silent => {
            "it accepts connections and does not answer: a plaintext listener that waits for more data, or a load balancer without a backend".to_owned()
        }
        _ => "check the broker's log, and its ssl.enabled.protocols and ssl.cipher.suites".to_owned(),
    };
    step.advice(advice)
}

/// Checks whether a peer without TLS speaks Kafka.
fn plaintext(step: Step, peer: &Reachable, settings: &ProbeSettings) -> Step {
    let greeted = Connection::connect(peer.address, settings)
        .and_then(|(mut connection, _)| connection.request_api_versions());
    if greeted.is_err() {
        return step;
    }
    let protocol = if settings.security.mechanism().is_some() { "sasl_plaintext" } else { "plaintext" };
    step.fact("it answers without TLS: this is a plaintext listener").advice(format!(
        "set security.protocol to {protocol}, or use the TLS listener's port: data on this connection is not encrypted"
    ))
}

/// Authenticates, if the properties configure SASL. Returns `true` if later steps can succeed.
pub(super) fn login(
    peer: &Reachable,
    settings: &ProbeSettings,
    report: &mut Report,
) -> Result<bool, Failure> {
    let Some(mechanism) = settings.security.mechanism() else { return Ok(true) };
    let offered = sasl_mechanisms(peer, settings);
    let mut step = Step::new("sasl", peer.to_string());
    let ours = mechanism.name();
    step = match &offered {
        Some(offered) => {
            step.fact(format!("sasl.mechanism={ours}, the broker offers {}", offered.join(", ")))
        }
        None => step.fact(format!("sasl.mechanism={ours}, the broker does not list its mechanisms")),
    };
    let watch = Stopwatch::start();
    let authenticated = Connection::open(peer, settings).and_then(|mut connection| {
        connection.request_api_versions()?;
        let watch = Stopwatch::start();
        authenticate(&mut connection, peer, settings)?;
        Ok(watch.elapsed())
    });
    match authenticated {
        Ok(took) => {
            report.add(step.took(took))?;
            Ok(true)
        }
        Err(probe_error) => {
            let lacks = offered.is_some_and(|offered| !offered.iter().any(|name| name == ours));
            let advice = if lacks {
                "set sasl.mechanism to one that the broker offers, or add it to the listener's sasl.enabled.mechanisms"
            } else {
                advice(mechanism, &probe_error)
            };
            report.add(
                step.took(watch.elapsed()).status(Status::Fail).fact(probe_error.to_string()).advice(advice),
            )?;
            Ok(false)
        }
    }
}

fn advice(mechanism: Mechanism, probe_error: &ProbeError) -> &'static str {
    if !matches!(probe_error, ProbeError::Authentication(Error::Authentication { .. })) {
        return "the broker closed the connection without a reason: check its log";
    }
    match mechanism {
        Mechanism::Plain => "check sasl.username and sasl.password, and that the listener has this user",
        Mechanism::ScramSha256 | Mechanism::ScramSha512 => {
            "check sasl.username and sasl.password, and that the user has a password for this mechanism (kafka-configs --describe --entity-type users)"
        }
        Mechanism::OauthBearer => "check the source of the token, its expiry, and both machines' clocks",
        Mechanism::Gssapi => {
            "check sasl.kerberos.principal and sasl.kerberos.keytab, that the broker's principal has the host name of its address, and both machines' clocks"
        }
    }
}

/// Authenticates on a connection after ApiVersions.
pub(super) fn authenticate(
    connection: &mut Connection,
    peer: &Reachable,
    settings: &ProbeSettings,
) -> Result<(), ProbeError> {
    if settings.security.mechanism().is_none() {
        return Ok(());
    }
    // A token may be fetched over HTTP, which needs a runtime.
    let runtime = runtime().map_err(|failure| ProbeError::InvalidResponse(failure.to_string()))?;
    let line = SaslConnection { peer, address: peer.to_string(), connection: RefCell::new(connection) };
    runtime.block_on(settings.security.authenticate(&line)).map(|_| ()).map_err(ProbeError::Authentication)
}

/// A connection, as the SASL mechanisms access it.
struct SaslConnection<'a> {
    peer: &'a Reachable,
    address: String,
    connection: RefCell<&'a mut Connection>,
}

impl SaslConnection<'_> {
    fn failed(&self, probe_error: &ProbeError) -> Error {
        Error::Transport { address: self.address.clone(), reason: probe_error.to_string().into() }
    }
}

impl SaslChannel for SaslConnection<'_> {
    fn address(&self) -> &str {
        &self.address
    }

    fn host(&self) -> &str {
        &self.peer.host
    }

    fn version_of<R: Request>(&self, version_max: i16) -> Result<i16, Error> {
        self.connection.borrow().version_of::<R>(version_max).map_err(|probe_error| self.failed(&probe_error))
    }

    async fn ask<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, Error> {
        let answer = self.connection.borrow_mut().request_in(request, version);
        answer.map(|(answer, _)| answer).map_err(|probe_error| self.failed(&probe_error))
    }

    async fn ask_bare(&self, token: &[u8]) -> Result<Bytes, Error> {
        let answer = self.connection.borrow_mut().exchange_frame(&bare_frame(token));
        answer.map_err(|probe_error| self.failed(&probe_error))
    }

    fn send_bare(&self, token: &[u8]) -> Result<(), Error> {
        let sent = self.connection.borrow_mut().send_frame(&bare_frame(token));
        sent.map_err(|probe_error| self.failed(&probe_error))
    }
}

fn bare_frame(token: &[u8]) -> BytesMut {
    let mut frame = BytesMut::with_capacity(4 + token.len());
    frame.put_i32(token.len() as i32);
    frame.put_slice(token);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_reported_when_its_end_is_near_for_its_lifetime() {
        let day = |days: i64| days * DAY_MS;
        for (lifetime, age, expected) in [
            (365, 300, false),
            (365, 340, true),
            (1, 0, false),
            (90, 65, true),
            (90, 50, false),
            (1, 2, true),
        ] {
            assert_eq!(needs_renewal(0..day(lifetime), day(age)), expected, "{age} of {lifetime} days");
        }
    }
}
