//! Round trips of small requests, and what slows them: Nagle's algorithm, delayed acknowledgements, or the peer.
//!
//! A side with Nagle's algorithm does not send a small piece while an earlier one is not acknowledged; a side that
//! delays acknowledgements waits (40 ms on Linux, 200 ms elsewhere) for data to send them with. Where the two meet,
//! everything takes that long, on a network that takes a tenth of a millisecond.

use std::fmt;
use std::time::Duration;

use super::Seen;
use super::network::Reachable;
use super::report::{Report, Status, Step, millis};
use super::security;
use super::wire::{Terms, Trouble, Wire};
use crate::failure::Failure;

/// Enough to leave a connection's first moments behind, in which nobody delays acknowledgements.
const ROUNDS: usize = 12;

/// A slow sample is repeated until there are so many.
const SAMPLES: usize = 3;

/// What delayed acknowledgements add: Linux's 40 ms, with a tick or two on top.
const DELAYED_ACK_MS: std::ops::RangeInclusive<u128> = 35..=60;

/// The same where it is 200 ms.
const LONG_DELAYED_ACK_MS: std::ops::RangeInclusive<u128> = 190..=230;

/// A small request that takes so much longer than a connect is not the network's fault.
const SLOW: Duration = Duration::from_millis(20);

/// Times of the same thing, done again and again.
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

/// What slow round trips mean.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Finding {
    Nothing,
    /// Our own acknowledgement was waited for: gone when we do not delay it.
    PeersNagle,
    /// It takes as long as a delayed acknowledgement, but not ours.
    StallBehind,
    /// It takes long.
    Slow,
}

/// `quick` is the pace with acknowledgements that are not delayed, where that was tried.
fn finding(connect: Duration, plain: Duration, quick: Option<Duration>) -> Finding {
    let extra = plain.saturating_sub(connect);
    if extra < SLOW {
        return Finding::Nothing;
    }
    if quick.is_some_and(|quick| quick.saturating_sub(connect) < extra / 2) {
        return Finding::PeersNagle;
    }
    if is_delayed_ack(extra) { Finding::StallBehind } else { Finding::Slow }
}

fn is_delayed_ack(extra: Duration) -> bool {
    DELAYED_ACK_MS.contains(&extra.as_millis()) || LONG_DELAYED_ACK_MS.contains(&extra.as_millis())
}

pub(super) fn examine(
    first: &Reachable,
    terms: &Terms,
    report: &mut Report,
    seen: &mut Seen,
) -> Result<(), Failure> {
    let connect = seen.connect.unwrap_or_default();
    let step = Step::new("round-trip", first.address.to_string());
    let plain = match pace(first, terms, |_| Ok(())) {
        Ok(pace) => pace,
        Err(trouble) => {
            report.add(step.status(Status::Fail).fact(trouble.to_string()))?;
            return Ok(());
        }
    };
    let is_slow = |pace: &Pace| pace.median().saturating_sub(connect) >= SLOW;
    let mut samples = vec![plain];
    // A machine that was busy for a moment is not slow: only what stays is blamed on anything.
    while samples.len() < SAMPLES && samples.last().is_some_and(is_slow) {
        match pace(first, terms, |_| Ok(())) {
            Ok(again) => samples.push(again),
            Err(_) => break,
        }
    }
    let tried = samples.len();
    let plain = fastest(samples);
    let slow = is_slow(&plain);
    let quick = slow.then(|| pace(first, terms, quickly)).transpose().unwrap_or_default();
    seen.round_trip = Some(plain.median());
    report.add(judged(step, connect, &plain, tried, quick.as_ref()))?;
    // Where every answer is slow, nothing can be seen of what a client's own pieces cost.
    if slow {
        return Ok(());
    }
    let step = Step::new("nagle", first.address.to_string());
    match pace(first, terms, with_nagle) {
        Ok(pieces) => report.add(nagle(step, &plain, &pieces)),
        Err(trouble) => report.add(step.status(Status::Warn).fact(trouble.to_string())),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "one of several ways to prepare a connection")]
fn quickly(wire: &mut Wire) -> Result<(), Trouble> {
    wire.quick_acks = true;
    Ok(())
}

fn with_nagle(wire: &mut Wire) -> Result<(), Trouble> {
    wire.in_pieces = true;
    wire.set_nagle(true)
}

fn pace(
    peer: &Reachable,
    terms: &Terms,
    prepare: impl FnOnce(&mut Wire) -> Result<(), Trouble>,
) -> Result<Pace, Trouble> {
    let mut wire = Wire::open(peer, terms)?;
    prepare(&mut wire)?;
    // The first one pays for the connection.
    wire.greet()?;
    // A listener with SASL takes a second greeting only from somebody it knows.
    security::authenticate(&mut wire, peer, terms)?;
    let times: Result<Vec<Duration>, Trouble> = (0..ROUNDS).map(|_| Ok(wire.greet()?.1)).collect();
    Ok(Pace::of(times?))
}

/// The sample with the least median: what slows it is there all the time.
fn fastest(samples: Vec<Pace>) -> Pace {
    samples.into_iter().min_by_key(Pace::median).unwrap_or_else(|| Pace::of(Vec::new()))
}

fn judged(step: Step, connect: Duration, plain: &Pace, tried: usize, quick: Option<&Pace>) -> Step {
    let best = if tried > 1 { format!(", the fastest of {tried} samples") } else { String::new() };
    let step = step.took(plain.median()).fact(format!(
        "{ROUNDS} requests{best}: least {}, most {}; a connect takes {}",
        millis(plain.least()),
        millis(plain.most()),
        millis(connect)
    ));
    match finding(connect, plain.median(), quick.map(Pace::median)) {
        Finding::Nothing => step,
        Finding::PeersNagle => step
            .status(Status::Warn)
            .fact(format!(
                "with acknowledgements sent at once it takes {}: the peer writes its answer in pieces with Nagle's algorithm on, and each waits for our delayed acknowledgement",
                millis(quick.map(Pace::median).unwrap_or_default())
            ))
            .advice("switch Nagle's algorithm off where the answer is written: TCP_NODELAY on the broker or on the proxy before it (nginx: tcp_nodelay on; HAProxy: option http-no-delay is for HTTP only, TCP mode has it on; Envoy has it on)")
            .advice("no property of a client removes this: socket.nagle.disable is about what the client sends"),
        Finding::StallBehind => step
            .status(Status::Warn)
            .fact(format!(
                "{} longer than a connect, which is a delayed acknowledgement's time: Nagle's algorithm and delayed ACKs meet somewhere behind this address",
                millis(plain.median().saturating_sub(connect))
            ))
            .advice("look for a proxy or a tunnel before the broker, and set TCP_NODELAY there; ask the broker at its own address to be sure")
            .advice("in applications on librdkafka set socket.nagle.disable=true; Ottla's clients never have Nagle's algorithm on"),
        Finding::Slow => step
            .status(Status::Warn)
            .fact(format!(
                "{} longer than a connect: the broker takes long, not the network",
                millis(plain.median().saturating_sub(connect))
            ))
            .advice("look at the broker's load (request handler and network threads), its garbage collection, and quotas"),
    }
}

/// What a client pays that leaves Nagle's algorithm on and writes a request in two pieces.
fn nagle(step: Step, plain: &Pace, pieces: &Pace) -> Step {
    let extra = pieces.median().saturating_sub(plain.median());
    let step = step.took(pieces.median());
    if extra < SLOW {
        return step.fact("Nagle's algorithm would cost nothing here");
    }
    step.fact(format!(
        "a client with Nagle's algorithm that writes a request in pieces loses {} on each: the broker delays its acknowledgements",
        millis(extra)
    ))
    .fact("Ottla's clients never have it on; librdkafka's do unless socket.nagle.disable=true")
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
    fn a_stall_is_told_from_a_slow_broker_and_from_a_long_way() {
        let ms = Duration::from_millis;
        for (connect, plain, quick, expected) in [
            (0, 1, None, Finding::Nothing),
            (90, 95, None, Finding::Nothing),
            (0, 41, Some(0), Finding::PeersNagle),
            (0, 41, Some(41), Finding::StallBehind),
            (2, 45, None, Finding::StallBehind),
            (0, 201, Some(201), Finding::StallBehind),
            (0, 120, Some(120), Finding::Slow),
        ] {
            assert_eq!(
                finding(ms(connect), ms(plain), quick.map(ms)),
                expected,
                "{connect} {plain} {quick:?}"
            );
        }
    }
}
