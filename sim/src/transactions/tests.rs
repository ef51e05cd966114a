use super::history::{Entry, Outcome, TransactionHistory};
use super::{COPIES, LEDGER};

/// A history with one transaction of two entries, in the partitions 0 and 1, of which a reader saw some.
fn history(outcome: Outcome, read: &[i32]) -> TransactionHistory {
    let mut history = TransactionHistory::default();
    history.reads_as(0, 0);
    history.begun((1, 0));
    for partition in 0..2 {
        history.sent(Entry { transaction: (1, 0), partition, number: partition as u32 });
    }
    history.set((1, 0), Outcome::Committing);
    for partition in read {
        let text = format!("t1/0/{partition}/{partition}");
        history.read(0, LEDGER, *partition, 5, text.as_bytes());
    }
    history.set((1, 0), outcome);
    history
}

fn names(history: &TransactionHistory, has_copies: bool) -> Vec<String> {
    let mut names: Vec<_> = history.check(has_copies).iter().map(crate::checker::Anomaly::name).collect();
    names.dedup();
    names
}

#[test]
fn a_transaction_is_read_as_a_whole_or_not_at_all() {
    assert!(names(&history(Outcome::Committed, &[0, 1]), false).is_empty());
    assert_eq!(names(&history(Outcome::Committed, &[0]), false), ["TornTransaction"]);
    assert_eq!(names(&history(Outcome::Committed, &[]), false), ["TornTransaction"]);
    assert!(names(&history(Outcome::Committing, &[]), false).is_empty());
    assert!(names(&history(Outcome::Committing, &[0, 1]), false).is_empty());
    assert_eq!(names(&history(Outcome::Committing, &[1]), false), ["TornTransaction"]);
}

#[test]
fn an_aborted_transaction_is_not_read() {
    assert!(names(&history(Outcome::Aborted, &[]), false).is_empty());
    assert_eq!(names(&history(Outcome::Aborted, &[0, 1]), false), ["AbortedRead"]);
    let mut late = history(Outcome::Aborted, &[]);
    late.read(0, LEDGER, 0, 5, b"t1/0/0/0");
    assert_eq!(names(&late, false), ["AbortedRead"]);
}

#[test]
fn an_entry_is_not_read_before_its_commit_is_requested() {
    let mut history = history(Outcome::Open, &[]);
    history.read(0, LEDGER, 1, 5, b"t1/0/1/1");
    assert_eq!(names(&history, false), ["PrecommittedRead", "AbortedRead"]);
}

#[test]
fn an_entry_has_one_offset_and_is_copied_once() {
    let mut history = history(Outcome::Committed, &[0, 1]);
    assert_eq!(names(&history, true), ["TornTransaction"], "no copies");
    history.read(0, COPIES, 0, 3, b"t1/0/0/0");
    history.read(0, COPIES, 1, 3, b"t1/0/1/1");
    assert!(names(&history, true).is_empty());
    assert!(history.unseen(true).is_empty());
    history.read(0, COPIES, 1, 7, b"t1/0/1/1");
    assert_eq!(names(&history, true), ["CommittedTwice"]);
}

#[test]
fn strangers_and_steps_back_are_found() {
    let mut history = history(Outcome::Committed, &[0, 1]);
    history.read(0, LEDGER, 0, 9, b"t1/0/1/1");
    history.read(0, LEDGER, 0, 9, b"anything");
    assert_eq!(names(&history, false), ["Stranger"]);
    history.read(0, LEDGER, 0, 5, b"t1/0/0/0");
    assert_eq!(names(&history, false), ["Stranger", "WentBack"]);
}

#[test]
fn committed_entries_that_a_reader_has_not_seen_are_named() {
    let history = history(Outcome::Committed, &[0]);
    assert_eq!(history.unseen(false), ["reader 0 has not seen t1/0/1/1 in ledger"]);
}
