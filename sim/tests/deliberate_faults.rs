//! Proof of the checker: each deliberate fault of broker, log, disk or processor is found within a few seeds, under a
//! name that describes it, and without the fault the same seeds have no anomaly.

mod common;

use common::{Watchdog, check};
use ottla_log::deliberate::{DeliberateFault, set_deliberate_fault};
use ottla_parallel::deliberate::commit_highest;
use ottla_sim::shrink::shrink;
use ottla_sim::{Mode, Options, Report, run_with};

/// A fault must be found within so many seeds.
const SEEDS_MAX: u64 = 40;

/// Runs seeds until one finds an anomaly with one of these names.
fn find(what: &str, base: &str, mode: Mode, names: &[&str]) -> Report {
    let base = Options::parse(base).expect("options");
    let faulty = |seed| {
        let _watchdog = Watchdog::start(seed);
        run_with(seed, &base, mode)
    };
    let is_it = |report: &Report| report.anomalies.iter().any(|found| names.contains(&found.name().as_str()));
    let mut others = Vec::new();
    for seed in 1..=SEEDS_MAX {
        let report = faulty(seed);
        if is_it(&report) {
            println!("{what}: found with seed {seed}: {:?}", report.anomalies[0]);
            return report;
        }
        others.extend(report.anomalies);
    }
    panic!("{what}: not found within {SEEDS_MAX} seeds; other anomalies: {others:?}");
}

/// Sets a fault for one thread, which ends with the closure.
fn with_fault<T>(fault: DeliberateFault, run: impl FnOnce() -> T) -> T {
    set_deliberate_fault(Some(fault));
    let result = run();
    set_deliberate_fault(None);
    result
}

const LOAD: &str =
    "partitions=2 producers=2 records=100 pause_max=20 batch_bytes_max=200 sync_delay=10 faults_for=3000";

#[test]
fn an_acknowledgement_before_the_append_is_found() {
    let base = format!("{LOAD} power_cut=1 kill=1");
    with_fault(DeliberateFault::AcknowledgeBeforeAppend, || {
        let names = ["LostWrite", "Unseen", "InconsistentOffsets", "Duplicate"];
        find("acknowledge before append", &base, Mode::default(), &names);
    });
}

#[test]
fn an_acknowledgement_before_the_sync_is_found() {
    with_fault(DeliberateFault::AcknowledgeBeforeSync, || {
        let names = ["LostWrite", "Unseen", "InconsistentOffsets"];
        find("acknowledge before sync", &format!("{LOAD} power_cut=1"), Mode::default(), &names);
    });
}

#[test]
fn syncs_without_effect_are_found() {
    let mode = Mode { syncs_ignored: true, ..Mode::default() };
    let names = ["LostWrite", "Unseen", "InconsistentOffsets"];
    find("syncs without effect", &format!("{LOAD} power_cut=1"), mode, &names);
}

#[test]
fn unchecked_checksums_are_found() {
    let mode = Mode { unchecked: true, ..Mode::default() };
    with_fault(DeliberateFault::NoChecksums, || {
        find("no checksums", &format!("{LOAD} padding_max=100 damage=1 restart=1"), mode, &["SilentDamage"]);
    });
    with_fault(DeliberateFault::NoChecksums, || {
        let base = format!("{LOAD} padding_max=100 bit_rot=1 members=1");
        find("no checksums while running", &base, mode, &["Stranger"]);
    });
}

#[test]
fn batches_out_of_sequence_are_found() {
    let base = format!(
        "{LOAD} linger=0 cut_per_mille=500 cut_bytes_max=2000 latency_max=5 intercept=2 move_leader=2 cut=2"
    );
    with_fault(DeliberateFault::NoSequences, || {
        find("no sequences", &base, Mode::default(), &["NonmonotonicSend"]);
    });
}

/// Also the proof that a failure is shrunk to a small run.
#[test]
fn batches_that_are_appended_twice_are_found_and_shrunk() {
    let base = format!("{LOAD} readers=2 members=2 processors=1 intercept=1 cut=2 kill=1");
    with_fault(DeliberateFault::NoDuplicates, || {
        let found = find("a batch twice", &base, Mode::default(), &["Duplicate"]);
        let is_duplicate = |report: &Report| report.anomalies.iter().any(|found| found.name() == "Duplicate");
        let shrunk = shrink(found, Mode::default(), is_duplicate);
        let options = &shrunk.report.options;
        println!(
            "after {} runs: OTTLA_SIM_SEED={} OTTLA_SIM_OPTIONS=\"{options}\"",
            shrunk.runs, shrunk.report.seed
        );
        assert!(options.records <= 50 && options.producers == 1, "{options}");
        assert_eq!((options.members, options.processors, options.readers), (0, 0, 1), "{options}");
        let again = Options::parse(&options.to_string()).expect("the text form");
        assert!(is_duplicate(&run_with(shrunk.report.seed, &again, Mode::default())));
    });
}

#[test]
fn skipped_reads_are_found() {
    with_fault(DeliberateFault::SkippedReads, || {
        find("skipped reads", LOAD, Mode::default(), &["PollSkip"]);
        find(
            "skipped reads in a group",
            &format!("{LOAD} readers=0 members=1"),
            Mode::default(),
            &["PollSkip"],
        );
    });
}

#[test]
fn forgotten_commits_are_found() {
    with_fault(DeliberateFault::ForgottenCommits, || {
        let names = ["LostCommit", "CommitIgnored"];
        find("forgotten commits", &format!("{LOAD} members=2 kill=1"), Mode::default(), &names);
    });
}

#[test]
fn commits_of_the_highest_finished_offset_are_found() {
    commit_highest(true);
    let base = format!("{LOAD} processors=2 workers=8 handling_max=100");
    find("commit of the highest offset", &base, Mode::default(), &["CommitPastUnhandled"]);
    commit_highest(false);
}

const TRANSACTIONS: &str = "records=1 writers=2 transactions=60 entries_max=3 ledger_partitions=2 copiers=2 \
    ledger_readers=2 pause_max=20 sync_delay=10 latency_max=5 faults_for=4000 transaction_timeout=5000";

#[test]
fn reads_beyond_the_last_stable_offset_are_found() {
    with_fault(DeliberateFault::UnstableReads, || {
        let names = ["PrecommittedRead", "AbortedRead"];
        find("reads of open transactions", TRANSACTIONS, Mode::default(), &names);
    });
}

#[test]
fn epochs_of_transactional_producers_that_are_not_compared_are_found() {
    with_fault(DeliberateFault::NoProducerEpochs, || {
        find("no producer epochs", TRANSACTIONS, Mode::default(), &["ZombieCommit"]);
    });
}

#[test]
fn markers_that_are_not_written_are_found() {
    with_fault(DeliberateFault::LostMarkers, || {
        find("lost markers", TRANSACTIONS, Mode::default(), &["Stuck", "TornTransaction"]);
    });
}

#[test]
fn offsets_of_transactions_that_are_forgotten_are_found() {
    with_fault(DeliberateFault::ForgottenTransactionOffsets, || {
        find("forgotten offsets of transactions", TRANSACTIONS, Mode::default(), &["CommittedTwice"]);
    });
}

#[test]
fn newest_records_that_a_compaction_removes_are_found() {
    with_fault(DeliberateFault::NewestRecordsRemoved, || {
        let base = "records=1 keepers=2 updates=100 keys=30 pause_max=20 faults_for=4000";
        find("newest records removed", base, Mode::default(), &["Stuck"]);
    });
}

const SHARE_GROUP: &str = "partitions=2 producers=2 records=100 pause_max=20 sync_delay=10 latency_max=5 sharers=2 \
    handling_max=20 faults_for=4000";

#[test]
fn acknowledgements_of_share_groups_that_are_not_stored_are_found() {
    with_fault(DeliberateFault::UnstoredAcknowledgements, || {
        let base = format!("{SHARE_GROUP} kill=1 power_cut=1");
        find("unstored acknowledgements", &base, Mode::default(), &["DeliveredAgain"]);
    });
}

#[test]
fn without_a_fault_the_same_loads_have_no_anomaly() {
    let kinds = "members=2 processors=1 workers=3 handling_max=50 intercept=1 cut=1 kill=1 power_cut=1 damage=1 bit_rot=1";
    let base = Options::parse(&format!("{LOAD} {kinds}")).expect("options");
    for seed in 1..=10 {
        let report = run_with(seed, &base, Mode::default());
        assert!(check(&report).is_ok(), "seed {seed}: {:?}", report.anomalies);
    }
    let base = Options::parse(&format!(
        "{TRANSACTIONS} keepers=1 updates=100 keys=5 intercept=1 cut=1 kill=1 power_cut=1"
    ))
    .expect("options");
    for seed in 1..=10 {
        let report = run_with(seed, &base, Mode::default());
        assert!(check(&report).is_ok(), "seed {seed}: {:?}", report.anomalies);
        assert!(report.committed > 10, "seed {seed}: {} transactions", report.committed);
    }
    let base = Options::parse(&format!("{SHARE_GROUP} intercept=1 cut=1 kill=1 power_cut=1 move_leader=1"));
    let base = base.expect("options");
    for seed in 1..=10 {
        let report = run_with(seed, &base, Mode::default());
        assert!(check(&report).is_ok(), "seed {seed}: {:?}", report.anomalies);
        assert!(report.accepted > 50, "seed {seed}: {} accepted", report.accepted);
    }
}
