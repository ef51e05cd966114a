//! Ten thousand bad frames do not increase the memory of the broker. This test needs its own process, so that no other
//! test allocates memory.

mod common;
#[path = "common/hostile.rs"]
mod hostile;

use common::sound;
use common::{Heard, Raw, sized};
use ottla_broker::Broker;

const FRAMES: usize = 10_000;
/// The interval of bombs among the frames: the broker needs tens of milliseconds for each, within its cap.
const BOMB_EVERY: usize = 250;
const GROWTH_KIB_MAX: u64 = 8 << 10;

#[test]
fn ten_thousand_bad_frames_do_not_make_the_process_grow() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let address = broker.addresses()[0];
    let mut bad = hostile::refused();
    for sound in sound::in_outer_versions(address) {
        let (what, request) = (sound.name(), sound.frame);
        let body = &request[4..];
        bad.extend(
            (1..body.len()).step_by(7).map(|len| (format!("{len} bytes of {what}"), sized(&body[..len]))),
        );
    }
    let bombs = hostile::bombs();
    let mut bystander = Raw::connect(address);
    assert!(bystander.is_served());
    let before = resident_kib();
    let mut connection = Raw::connect(address);
    for at in 0..FRAMES {
        let (what, frame) =
            if at % BOMB_EVERY == 0 { &bombs[at / BOMB_EVERY % bombs.len()] } else { &bad[at % bad.len()] };
        connection.send(frame);
        // The broker waits for the rest of half a frame, so the sender closes its side.
        connection.finish();
        match connection.hear() {
            Heard::Answer(_) | Heard::Closed => connection = Raw::connect(address),
        }
        if at % 1000 == 0 {
            assert!(bystander.is_served(), "after {what}");
        }
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(bystander.is_served());
    println!("{FRAMES} frames: {before} KiB resident before, {grown} KiB more after");
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB more than the {before} KiB before");
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says what a process takes");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line for it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}
