//! Round trips of small requests, and their usual delays: Nagle's algorithm, delayed acknowledgements, or the peer.
//!
//! With Nagle's algorithm, a sender holds back a small segment until the previous one is acknowledged. A receiver
//! with delayed acknowledgements waits for data to send them with: 40 ms on Linux, 200 ms elsewhere. Together they
//! add this delay to every exchange, even on a network with a round trip of a tenth of a millisecond.

use std::fmt;
use std::time::Duration;

use super::Measurements;
use super::connection::{Connection, ProbeError, ProbeSettings};
use super::network::Reachable;
use super::report::{Report, Status, Step, millis};
use super::security;
use crate::failure::Failure;

/// More than the first exchanges of a connection, in which acknowledgements are not delayed.
const ROUNDS: usize = 12;

/// Number of samples if the first is slow.
const SAMPLES: usize = 3;

/// The delay of delayed acknowledgements: Linux's 40 ms plus a timer tick or two.
const DELAYED_ACK_MS: std::ops::RangeInclusive<u128> = 35..=60;

/// The delay on systems that use 200 ms.
const LONG_DELAYED_ACK_MS: std::ops::RangeInclusive<u128> = 190..=230;

/// A small request that takes longer than a connect by this much is not delayed by the network.
const SLOW: Duration = Duration::from_millis(20);

/// Durations of a repeated measurement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Pace {
    sorted: Vec<Duration>,
}

impl Pace {
    pub(super) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self { sorted: times }
    }

    pub(super) fn median(&self) -> Duration {
        self.sorted.get(self.sorted.len() / 2).copied().unwrap_or_default()
    }

    fn least(&self) -> Duration {
        self.sorted.first().copied().unwrap_or_default()
    }

    fn most(&self) -> Duration {
        self.sorted.last().copied().unwrap_or_default()
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "median {}, least {}, most {}",
            millis(self.median()),
            millis(self.least()),
            millis(self.most())
        )
    }
}

/// The cause of slow round trips.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum DelayCause {
    Nothing,
    /// The peer waits for our acknowledgement: the delay disappears when we acknowledge at once.
    PeersNagle,
    /// The delay matches a delayed acknowledgement, but not ours.
    StallBehind,
    /// The round trip is slow for another reason.
    Slow,
}

/// `quick` is the pace with immediate acknowledgements, if it was measured.
fn delay_cause(connect: Duration, plain: Duration, quick: Option<Duration>) -> DelayCause {
    let extra = plain.saturating_sub(connect);
    if extra < SLOW {
        return DelayCause::Nothing;
    }
    if quick.is_some_and(|quick| quick.saturating_sub(connect) < extra / 2) {
        return DelayCause::PeersNagle;
    }
    if is_delayed_ack(extra) { DelayCause::StallBehind } else { DelayCause::Slow }
}

fn is_delayed_ack(extra: Duration) -> bool {
    DELAYED_ACK_MS.contains(&extra.as_millis()) || LONG_DELAYED_ACK_MS.contains(&extra.as_millis())
}

pub(super) fn examine(
    first: &Reachable,
    settings: &ProbeSettings,
    report: &mut Report,
    measurements: &mut Measurements,
) -> Result<(), Failure> {
    let connect = measurements.connect.unwrap_or_default();
    let step = Step::new("round-trip", first.address.to_string());
    let plain = match pace(first, settings, |_| Ok(())) {
        Ok(pace) => pace,
        Err(probe_error) => {
            report.add(step.status(Status::Fail).fact(probe_error.to_string()))?;
            return Ok(());
        }
    };
    let is_slow = |pace: &Pace| pace.median().saturating_sub(connect) >= SLOW;
    let mut samples = vec![plain];
    // A machine that is briefly busy is not slow: only a persistent delay is reported.
    while samples.len() < SAMPLES && samples.last().is_some_and(is_slow) {
        match pace(first, settings, |_| Ok(())) {
            Ok(again) => samples.push(again),
            Err(_) => break,
        }
    }
    let tried = samples.len();
    let plain = fastest(samples);
    let slow = is_slow(&plain);
    let quick = slow.then(|| pace(first, settings, with_quick_acks)).transpose().unwrap_or_default();
    measurements.round_trip = Some(plain.median());
    report.add(with_delay_cause(step, connect, &plain, tried, quick.as_ref()))?;
    // If every answer is slow, the cost of split requests cannot be measured.
    if slow {
        return Ok(());
    }
    let step = Step::new("nagle", first.address.to_string());
    match pace(first, settings, with_nagle) {
        Ok(pieces) => report.add(nagle(step, &plain, &pieces)),
        Err(probe_error) => report.add(step.status(Status::Warn).fact(probe_error.to_string())),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "one of several ways to prepare a connection")]
fn with_quick_acks(connection: &mut Connection) -> Result<(), ProbeError> {
    connection.quick_acks = true;
    Ok(())
}

fn with_nagle(connection: &mut Connection) -> Result<(), ProbeError> {
    connection.in_pieces = true;
    connection.set_nagle(true)
}

fn pace(
    peer: &Reachable,
    settings: &ProbeSettings,
    prepare: impl FnOnce(&mut Connection) -> Result<(), ProbeError>,
) -> Result<Pace, ProbeError> {
    let mut connection = Connection::open(peer, settings)?;
    prepare(&mut connection)?;
    // The first request includes connection setup.
    connection.request_api_versions()?;
    // A SASL listener accepts a second ApiVersions request only after authentication.
    security::authenticate(&mut connection, peer, settings)?;
    let times: Result<Vec<Duration>, ProbeError> =
        (0..ROUNDS).map(|_| Ok(connection.request_api_versions()?.1)).collect();
    Ok(Pace::of(times?))
}

/// The sample with the lowest median: a real cause affects all samples.
fn fastest(samples: Vec<Pace>) -> Pace {
    samples.into_iter().min_by_key(Pace::median).unwrap_or_else(|| Pace::of(Vec::new()))
}

fn with_delay_cause(step: Step, connect: Duration, plain: &Pace, tried: usize, quick: Option<&Pace>) -> Step {
    let best = if tried > 1 { format!(", the fastest of {tried} samples") } else { String::new() };
    let step = step.took(plain.median()).fact(format!(
        "{ROUNDS} requests{best}: least {}, most {}; a connect takes {}",
        millis(plain.least()),
        millis(plain.most()),
        millis(connect)
    ));
    match delay_cause(connect, plain.median(), quick.map(Pace::median)) {
        DelayCause::Nothing => step,
        DelayCause::PeersNagle => step
            .status(Status::Warn)
            .fact(format!(
                "with immediate acknowledgements it takes {}: the peer writes its answer in pieces with Nagle's algorithm on, and each piece waits for our delayed acknowledgement",
                millis(quick.map(Pace::median).unwrap_or_default())
            ))
            .advice("disable Nagle's algorithm where the answer is written: TCP_NODELAY on the broker or on the proxy before it (nginx: tcp_nodelay on; HAProxy: option http-no-delay is for HTTP only, TCP mode has it on; Envoy has it on)")
            .advice("no client property removes this delay: socket.nagle.disable affects only what the client sends"),
        DelayCause::StallBehind => step
            .status(Status::Warn)
            .fact(format!(
                "{} longer than a connect, the delay of a delayed acknowledgement: Nagle's algorithm and delayed ACKs interact somewhere behind this address",
                millis(plain.median().saturating_sub(connect))
            ))
            .advice("look for a proxy or tunnel in front of the broker and set TCP_NODELAY there; to confirm, connect to the broker's own address")
            .advice("keep socket.nagle.disable=true, the default of Ottla and of librdkafka 2.16; librdkafka 2.0 has false"),
        DelayCause::Slow => step
            .status(Status::Warn)
            .fact(format!(
                "{} longer than a connect: the broker is slow, not the network",
                millis(plain.median().saturating_sub(connect))
            ))
            .advice("check the broker's load (request handler and network threads), its garbage collection, and quotas"),
    }
}

/// The cost for a client with Nagle's algorithm that writes a request in two pieces.
fn nagle(step: Step, plain: &Pace, pieces: &Pace) -> Step {
    let extra = pieces.median().saturating_sub(plain.median());
    let step = step.took(pieces.median());
    if extra < SLOW {
        return step.fact("Nagle's algorithm would add no delay here");
    }
    step.fact(format!(
        "a client with Nagle's algorithm that writes a request in pieces loses {} on each: the broker delays its acknowledgements",
        millis(extra)
    ))
    .fact("socket.nagle.disable=true disables it: the default of Ottla and of librdkafka 2.16, but not of librdkafka 2.0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_sample_among_others_is_not_slow() {
        let sample = |ms| Pace::of(vec![Duration::from_millis(ms); ROUNDS]);
        assert_eq!(fastest(vec![sample(41), sample(1), sample(60)]), sample(1));
        assert_eq!(fastest(vec![sample(41), sample(40)]), sample(40));
    }

    #[test]
    fn a_delayed_ack_stall_is_distinguished_from_a_slow_broker_and_a_slow_network() {
        let ms = Duration::from_millis;
        for (connect, plain, quick, expected) in [
            (0, 1, None, DelayCause::Nothing),
            (90, 95, None, DelayCause::Nothing),
            (0, 41, Some(0), DelayCause::PeersNagle),
            (0, 41, Some(41), DelayCause::StallBehind),
            (2, 45, None, DelayCause::StallBehind),
            (0, 201, Some(201), DelayCause::StallBehind),
            (0, 120, Some(120), DelayCause::Slow),
        ] {
            assert_eq!(
                delay_cause(ms(connect), ms(plain), quick.map(ms)),
                expected,
                "{connect} {plain} {quick:?}"
            );
        }
    }
}
