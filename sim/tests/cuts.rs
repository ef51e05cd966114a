//! Connections are cut after every byte, in both directions and in every way: nothing is lost, doubled or moved, and every
//! call ends.

use ottla_sim::cuts::run;
use ottla_testkit::{Cut, PlannedCut};

/// Step between the bytes that are tried; 1 tries all. A prime, so that no position of a frame is left out for long.
const STRIDE: u64 = 17;

#[test]
fn a_connection_that_ends_after_any_byte_loses_and_doubles_nothing() {
    let stride = std::env::var("OTTLA_CUT_STRIDE")
        .map_or(STRIDE, |text| text.parse::<u64>().expect("a whole number above 0"));
    let traffic = run(None).expect("no fault, no error");
    let mut cuts = Vec::new();
    for (link, bytes) in &traffic {
        for (way, bytes) in bytes.iter().enumerate() {
            for how in [Cut::Fin, Cut::Reset, Cut::Stall] {
                // The end itself is included: a cut after the last byte of an answer.
                cuts.extend((0..=*bytes).map(|after| PlannedCut { link: *link, way, after, how }));
            }
        }
    }
    let total = cuts.len();
    let mut failures = Vec::new();
    let mut runs = 0;
    for cut in cuts.into_iter().step_by(stride as usize) {
        runs += 1;
        if let Err(why) = run(Some(cut)) {
            failures.push(format!("{cut:?}: {why}"));
        }
    }
    println!("{} connections, {runs} of {total} cuts", traffic.len());
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
