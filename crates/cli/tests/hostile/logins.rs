//! Clients that log in with wrong passwords.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::sasl_authenticate::SaslAuthenticateRequest;
use ottla_protocol::messages::sasl_handshake::SaslHandshakeRequest;

use crate::common::{Heard, Raw, framed};

/// Wrong logins per second, with some for the times at which this client gets no processor.
const RATE: u32 = 1_200;
/// Wrong logins of a round.
const LOGINS: u32 = 3_000;
/// A login is answered after `connection.failed.authentication.delay.ms` of 100 ms.
const ANSWERED_AFTER: Duration = Duration::from_millis(110);

/// A client with a wrong password that waits for its refusal.
struct Login {
    connection: Raw,
    answered: Instant,
}

/// Logs in with a wrong password of PLAIN and with a wrong proof of SCRAM in turns, up to [`RATE`] times per second.
pub(crate) fn log_in_wrongly(broker: SocketAddr, stop: &AtomicBool) {
    let mut waiting: VecDeque<Login> = VecDeque::new();
    let began = Instant::now();
    let mut begun = 0;
    while begun < LOGINS && !stop.load(Ordering::Relaxed) {
        let next = began + Duration::from_secs(1) * begun / RATE;
        std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        waiting
            .push_back(Login { connection: begin(broker, begun), answered: Instant::now() + ANSWERED_AFTER });
        begun += 1;
        while let Some(login) = waiting.pop_front_if(|login| login.answered <= Instant::now()) {
            refused(login);
        }
    }
    let rate = f64::from(begun) / began.elapsed().as_secs_f64();
    waiting.into_iter().for_each(refused);
    println!("{begun} wrong logins, {rate:.0} per second");
}

/// Sends everything that a login with a wrong password has.
fn begin(broker: SocketAddr, number: u32) -> Raw {
    let mut connection = Raw::connect(broker);
    let mechanism = if number.is_multiple_of(2) { "PLAIN" } else { "SCRAM-SHA-256" };
    let handshake = SaslHandshakeRequest { mechanism: mechanism.to_owned() };
    assert_eq!(connection.ask(1, &handshake).expect("an answer").error_code, ErrorCode::None);
    let mut send = |auth_bytes: String| {
        connection.send(&framed(2, &SaslAuthenticateRequest { auth_bytes: auth_bytes.into() }));
    };
    if number.is_multiple_of(2) {
        send("\0alice\0wrong".to_owned());
        return connection;
    }
    send(format!("n,,n=alice{number},r=nonce"));
    let challenge = connection.answer_to::<SaslAuthenticateRequest>(2).expect("a challenge");
    assert_eq!(challenge.error_code, ErrorCode::None, "{:?}", challenge.error_message);
    let challenge = String::from_utf8(challenge.auth_bytes.to_vec()).expect("a text");
    let nonce = challenge.split(',').next().and_then(|field| field.strip_prefix("r=")).expect("a nonce");
    let proof = "A".repeat(43);
    let auth_bytes = format!("c=biws,r={nonce},p={proof}=").into();
    connection.send(&framed(2, &SaslAuthenticateRequest { auth_bytes }));
    connection
}

fn refused(mut login: Login) {
    let answer = login.connection.answer_to::<SaslAuthenticateRequest>(2).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::SaslAuthenticationFailed);
    assert!(matches!(login.connection.hear(), Heard::Closed));
}
