//! What stands between a connection and its first request: TLS, and proving who we are.

use std::cell::RefCell;

use bytes::{BufMut, Bytes, BytesMut};
use ottla_client::probe::{Certificate, Handshake, Line, Problem, Refused};
use ottla_client::{Error, Mechanism};
use ottla_protocol::Request;

use super::network::Reachable;
use super::peer::sasl_mechanisms;
use super::report::{Report, Status, Step};
use super::wire::{Stopwatch, Terms, Trouble, Wire};
use crate::connect::runtime;
use crate::failure::Failure;
use crate::time::now_ms;

/// A certificate with less to live is worth a word.
const RENEW_WITHIN_DAYS: i64 = 30;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Makes a handshake with each of the peers, if the properties ask for TLS; gives those with which it went well.
pub(super) fn handshakes(
    reachable: &[Reachable],
    terms: &Terms,
    report: &mut Report,
) -> Result<Vec<Reachable>, Failure> {
    if !terms.security.uses_tls() {
        return Ok(reachable.to_vec());
    }
    let mut secured = Vec::new();
    for peer in reachable {
        let step = Step::new("tls", peer.to_string());
        let watch = Stopwatch::start();
        let made =
            Wire::connect(peer.address, terms).and_then(|(mut wire, _)| wire.secure(&peer.host, terms));
        let step = match made {
            Ok((handshake, took)) => {
                secured.push(peer.clone());
                agreed(step.took(took), &handshake, now_ms())
            }
            Err(Trouble::Tls(refused)) => {
                let step = self::refused(step.took(watch.elapsed()), &peer.host, &refused);
                if refused.problem == Problem::NoTls { plaintext(step, peer, terms) } else { step }
            }
            Err(trouble) => step.took(watch.elapsed()).status(Status::Fail).fact(trouble.to_string()),
        };
        report.add(step)?;
    }
    Ok(secured)
}

fn agreed(step: Step, handshake: &Handshake, now_ms: i64) -> Step {
    let step = step.fact(format!("{}, {}", handshake.version, handshake.cipher));
    let Some(certificate) = &handshake.certificate else {
        return step.fact("the certificate cannot be read");
    };
    let days = (certificate.not_after_ms - now_ms).div_euclid(DAY_MS);
    let step = described(step, certificate);
    if days >= RENEW_WITHIN_DAYS {
        return step;
    }
    step.status(Status::Warn)
        .fact(if days < 0 {
            // Seen only where certificates are not verified.
            format!("it expired {} days ago", -days)
        } else {
            format!("it expires in {days} days")
        })
        .advice("renew the broker's certificate before clients refuse it")
}

fn described(step: Step, certificate: &Certificate) -> Step {
    let Certificate { subject, issuer, names, not_before, not_after, .. } = certificate;
    step.fact(format!("certificate of {subject}, signed by {issuer}, for {}", names.join(", ")))
        .fact(format!("valid from {not_before} to {not_after}"))
}

/// What was found in a handshake that failed, and what to do.
pub(super) fn refused(step: Step, host: &str, refused: &Refused) -> Step {
    let mut step = step.status(Status::Fail).fact(&refused.reason);
    let mut names = String::new();
    if let Some(certificate) = &refused.certificate {
        step = described(step, certificate);
        names = certificate.names.join(", ");
    }
    let advice = match refused.problem {
        Problem::UnknownAuthority => {
            "set ssl.ca.location to the certificate of the authority that signed the broker's (above: signed by), or see that nobody stands between".to_owned()
        }
        Problem::OtherHost => format!(
            "we connect to {host}, and the certificate is for {names}: connect by one of these names (bootstrap.servers, advertised.listeners), or have the certificate issued anew with {host} among its subjectAltNames"
        ),
        Problem::Expired => "renew the broker's certificate; if it is not that old, this machine's clock is wrong".to_owned(),
        Problem::NotYetValid => "see this machine's clock and the broker's".to_owned(),
        Problem::NoTls => {
            "see that this is the port of a TLS listener, and that security.protocol is the listener's".to_owned()
        }
        Problem::ClientCertificate => {
            "the broker asks for our certificate (ssl.client.auth=required): set ssl.keystore.location, or ssl.certificate.location and ssl.key.location, to one that its truststore knows".to_owned()
        }
        Problem::Silent => {
            "something takes connections and does not answer: a plaintext listener that waits for more, or a load balancer without anything behind it".to_owned()
        }
        _ => "the broker's log has its side of it; ssl.enabled.protocols and ssl.cipher.suites are there".to_owned(),
    };
    step.advice(advice)
}

/// Whether a peer that does not speak TLS speaks Kafka without it.
fn plaintext(step: Step, peer: &Reachable, terms: &Terms) -> Step {
    let greeted = Wire::connect(peer.address, terms).and_then(|(mut wire, _)| wire.greet());
    if greeted.is_err() {
        return step;
    }
    let protocol = if terms.security.mechanism().is_some() { "sasl_plaintext" } else { "plaintext" };
    step.fact("it answers without TLS: this is a plaintext listener").advice(format!(
        "set security.protocol to {protocol}, or use the TLS listener's port: what is said here can be read on the way"
    ))
}

/// Proves who we are, if the properties ask for that. Whether it is worth going on.
pub(super) fn login(peer: &Reachable, terms: &Terms, report: &mut Report) -> Result<bool, Failure> {
    let Some(mechanism) = terms.security.mechanism() else { return Ok(true) };
    let offered = sasl_mechanisms(peer, terms);
    let mut step = Step::new("sasl", peer.to_string());
    let ours = mechanism.name();
    step = match &offered {
        Some(offered) => {
            step.fact(format!("sasl.mechanism={ours}, the broker offers {}", offered.join(", ")))
        }
        None => step.fact(format!("sasl.mechanism={ours}, the broker does not say what it offers")),
    };
    let watch = Stopwatch::start();
    let proven = Wire::open(peer, terms).and_then(|mut wire| {
        wire.greet()?;
        let watch = Stopwatch::start();
        authenticate(&mut wire, peer, terms)?;
        Ok(watch.elapsed())
    });
    match proven {
        Ok(took) => {
            report.add(step.took(took))?;
            Ok(true)
        }
        Err(trouble) => {
            let lacks = offered.is_some_and(|offered| !offered.iter().any(|name| name == ours));
            let advice = if lacks {
                "set sasl.mechanism to one that the broker offers, or add it to the listener's sasl.enabled.mechanisms"
            } else {
                advice(mechanism, &trouble)
            };
            report.add(
                step.took(watch.elapsed()).status(Status::Fail).fact(trouble.to_string()).advice(advice),
            )?;
            Ok(false)
        }
    }
}

fn advice(mechanism: Mechanism, trouble: &Trouble) -> &'static str {
    if !matches!(trouble, Trouble::Unproven(Error::Authentication { .. })) {
        return "the broker ended the dialogue without a reason: its log has one";
    }
    match mechanism {
        Mechanism::Plain => "see sasl.username and sasl.password, and that the listener knows this user",
        Mechanism::ScramSha256 | Mechanism::ScramSha512 => {
            "see sasl.username and sasl.password, and that the user has a password for this mechanism (kafka-configs --describe --entity-type users)"
        }
        Mechanism::OauthBearer => {
            "see where the token comes from, until when it is valid, and both machines' clocks"
        }
    }
}

/// The dialogue itself, on a connection that has greeted.
pub(super) fn authenticate(wire: &mut Wire, peer: &Reachable, terms: &Terms) -> Result<(), Trouble> {
    if terms.security.mechanism().is_none() {
        return Ok(());
    }
    // A token may come from elsewhere, over connections that need a runtime.
    let runtime = runtime().map_err(|failure| Trouble::Nonsense(failure.to_string()))?;
    let line = Dialogue { address: peer.to_string(), wire: RefCell::new(wire) };
    runtime.block_on(terms.security.authenticate(&line)).map(|_| ()).map_err(Trouble::Unproven)
}

/// A connection as the mechanisms see it.
struct Dialogue<'a> {
    address: String,
    wire: RefCell<&'a mut Wire>,
}

impl Dialogue<'_> {
    fn failed(&self, trouble: &Trouble) -> Error {
        Error::Transport { address: self.address.clone(), reason: trouble.to_string().into() }
    }
}

impl Line for Dialogue<'_> {
    fn address(&self) -> &str {
        &self.address
    }

    fn version_of<R: Request>(&self, version_max: i16) -> Result<i16, Error> {
        self.wire.borrow().version_of::<R>(version_max).map_err(|trouble| self.failed(&trouble))
    }

    async fn ask<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, Error> {
        let answer = self.wire.borrow_mut().ask_in(request, version);
        answer.map(|(answer, _)| answer).map_err(|trouble| self.failed(&trouble))
    }

    async fn ask_bare(&self, token: &[u8]) -> Result<Bytes, Error> {
        let mut frame = BytesMut::with_capacity(4 + token.len());
        frame.put_i32(token.len() as i32);
        frame.put_slice(token);
        self.wire.borrow_mut().exchange_frame(&frame).map_err(|trouble| self.failed(&trouble))
    }
}
