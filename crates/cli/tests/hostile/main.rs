//! Hostile clients against `ottla broker`: its memory stays within its budget, and honest clients are served.
//!
//! Each test runs one attack once. With `OTTLA_HOSTILE_SECONDS`, each attack is repeated for that time, and the test prints
//! the latency of an honest client beside it (`cargo xtask soak hostile`).

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

mod attacks;
mod broker_process;
#[allow(dead_code, reason = "each test program uses its own part")]
#[path = "../../../client/tests/support/certificates.rs"]
mod certificates;
#[path = "../../../broker/tests/common/mod.rs"]
mod common;
mod fan_out;
mod honest;
mod logins;
mod mutations;
mod slow_readers;
#[path = "../../../broker/tests/common/tls.rs"]
mod tls;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use broker_process::BrokerProcess;
use honest::Honest;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// `memory.max.bytes` of the brokers here.
const BUDGET_MIB: u64 = 128;
/// Memory above the budget: the program itself, the buffers of connections, the requests in progress.
const ABOVE_MIB: u64 = 32;
/// Deadline of an attack that ends by itself.
const ATTACK_WITHIN: Duration = Duration::from_secs(240);

/// An attack: what it does, and one round of it. A round ends early when the flag is set.
#[derive(Clone, Copy)]
struct Attack {
    name: &'static str,
    listener: AttackedListener,
    round: fn(SocketAddr, &AtomicBool),
}

/// The listener that an attack connects to.
#[derive(Clone, Copy, Eq, PartialEq)]
enum AttackedListener {
    /// The honest client's.
    Plaintext,
    /// One that requires a login.
    Sasl,
    /// One with TLS.
    Tls,
}

#[test]
fn mutated_frames_of_every_api_and_version() {
    survive(Attack {
        name: "mutated frames",
        listener: AttackedListener::Plaintext,
        round: attacks::send_mutated_frames,
    });
}

#[test]
fn slow_lorises() {
    survive(Attack {
        name: "slow lorises",
        listener: AttackedListener::Plaintext,
        round: attacks::send_slowly,
    });
}

#[test]
fn ten_thousand_connections() {
    survive(Attack {
        name: "10,000 connections",
        listener: AttackedListener::Plaintext,
        round: attacks::hold_connections,
    });
}

#[test]
fn requests_with_very_many_names_and_partitions() {
    survive(Attack {
        name: "fan-out",
        listener: AttackedListener::Plaintext,
        round: fan_out::send_wide_requests,
    });
}

#[test]
fn compression_bombs_of_every_codec() {
    survive(Attack { name: "bombs", listener: AttackedListener::Plaintext, round: attacks::send_bombs });
}

#[test]
fn a_thousand_wrong_logins_per_second() {
    survive(Attack { name: "wrong logins", listener: AttackedListener::Sasl, round: logins::log_in_wrongly });
}

/// 6,500 clients that never read held up to 16 KiB of requests and 16 KiB of a response each.
#[test]
fn small_responses_that_are_not_read() {
    survive(Attack {
        name: "unread small responses",
        listener: AttackedListener::Plaintext,
        round: slow_readers::ask_for_small_responses,
    });
}

/// 2,000 clients that never read held 200 KiB each: requests that were answered kept the memory of their execution.
#[test]
fn small_produce_requests_whose_responses_are_not_read() {
    survive(Attack {
        name: "unread responses of produce requests",
        listener: AttackedListener::Plaintext,
        round: slow_readers::ask_to_produce_nothing,
    });
}

/// Clients that never read held 64 KiB of records and 64 KiB of encrypted bytes each.
#[test]
fn responses_over_tls_that_are_not_read() {
    survive(Attack {
        name: "unread responses over TLS",
        listener: AttackedListener::Tls,
        round: slow_readers::ask_over_tls,
    });
}

/// 9,000 clients held 16 KiB of an unfinished record each.
#[test]
fn unfinished_records_of_tls() {
    survive(Attack {
        name: "unfinished TLS records",
        listener: AttackedListener::Tls,
        round: slow_readers::send_unfinished_records,
    });
}

/// 5,000 clients held 36 KiB of decrypted requests each.
#[test]
fn requests_over_tls_behind_one_that_waits() {
    survive(Attack {
        name: "waiting requests over TLS",
        listener: AttackedListener::Tls,
        round: slow_readers::wait_over_tls,
    });
}

/// Runs an attack beside an honest client. One at a time: processor and memory are shared.
fn survive(attack: Attack) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seconds = seconds();
    let dir = tempfile::tempdir().expect("a directory");
    let processors = Processors::of_this_thread();
    if seconds.is_some() {
        processors.take_first();
    }
    let broker = BrokerProcess::start(dir.path(), BUDGET_MIB);
    if seconds.is_some() {
        processors.take_others();
    }
    let mut honest = Honest::new(broker.address());
    let quiet =
        seconds.map(|seconds| honest.measure(Instant::now() + Duration::from_secs(seconds), || false));
    let attacked = match attack.listener {
        AttackedListener::Plaintext => broker.address(),
        AttackedListener::Sasl => broker.sasl_address(),
        AttackedListener::Tls => broker.tls_address(),
    };
    let stop = AtomicBool::new(false);
    let beside = thread::scope(|scope| {
        let attacker = thread::Builder::new().name("attacker".into());
        let attacker = attacker
            .spawn_scoped(scope, || {
                be_nice();
                loop {
                    (attack.round)(attacked, &stop);
                    if seconds.is_none() || stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            })
            .expect("a thread");
        let until = Instant::now() + seconds.map_or(ATTACK_WITHIN, Duration::from_secs);
        let beside = honest.measure(until, || attacker.is_finished());
        assert!(
            seconds.is_some() || attacker.is_finished(),
            "{}: not over in {ATTACK_WITHIN:?}",
            attack.name
        );
        stop.store(true, Ordering::Relaxed);
        attacker.join().expect("the attacker's own checks hold");
        beside
    });
    honest.assert_all_is_there();
    let resident = broker.resident_peak_mib();
    println!("{}: {resident} MiB resident; honest client {beside}", attack.name);
    if let Some(quiet) = quiet {
        println!("{}: quiet {quiet}; p99 ratio {:.2}", attack.name, beside.p99_us / quiet.p99_us);
    }
    assert!(
        resident <= BUDGET_MIB + ABOVE_MIB,
        "{}: {resident} MiB resident; at most {BUDGET_MIB} + {ABOVE_MIB} MiB",
        attack.name
    );
    broker.stop();
    processors.take_all();
}

/// The length of a measurement; `None` if nothing is measured.
fn seconds() -> Option<u64> {
    std::env::var("OTTLA_HOSTILE_SECONDS").ok().map(|text| text.parse().expect("seconds"))
}

/// The processors of a measurement: the broker has the first one, and its clients have the others, as if they ran on other
/// machines. On shared processors the latency is that of Linux: it wakes the honest client behind the busy broker, and leaves it
/// there for up to a tick of 4 ms.
struct Processors {
    all: CpuSet,
    first: CpuSet,
    others: CpuSet,
}

impl Processors {
    fn of_this_thread() -> Self {
        let all = sched_getaffinity(None).expect("processors");
        let mut numbers = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number));
        let mut first = CpuSet::new();
        first.set(numbers.next().expect("a processor"));
        let mut others = CpuSet::new();
        numbers.for_each(|number| others.set(number));
        Self { all, first, others }
    }

    fn take_first(&self) {
        sched_setaffinity(None, &self.first).expect("one of the own processors");
    }

    fn take_others(&self) {
        let set = if self.others.count() == 0 { &self.all } else { &self.others };
        sched_setaffinity(None, set).expect("own processors");
    }

    fn take_all(&self) {
        sched_setaffinity(None, &self.all).expect("the own processors");
    }
}

/// Attackers have machines of their own: in a measurement they take what the broker and the honest client leave. A thread of the idle
/// class never delays the others, while one of a low priority runs to the end of its time slice. Without a measurement it would
/// have to wait for all other tests.
fn be_nice() {
    if seconds().is_none() {
        return;
    }
    let own = rustix::thread::gettid();
    rustix::process::setpriority_process(Some(own), 19).expect("a lower priority is allowed");
    let own = own.as_raw_nonzero().to_string();
    let idle = std::process::Command::new("chrt").args(["--idle", "--pid", "0", &own]).status();
    if !idle.is_ok_and(|status| status.success()) {
        println!("without `chrt` (util-linux) attackers delay the honest client more than they should");
    }
}
