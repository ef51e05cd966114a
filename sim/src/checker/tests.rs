use super::*;

const ALONE: Reader = Reader { id: 0, group: None, is_ordered: true };
const MEMBER: Reader = Reader { id: 1, group: Some(0), is_ordered: true };

fn value(number: u32) -> Value {
    Value { producer: 1, slot: 0, number }
}

fn sent() -> History {
    let mut history = History::default();
    (0..10).for_each(|number| history.sent(value(number)));
    history
}

fn read(history: &mut History, reader: Reader, reads: &[(u32, i64)]) {
    for (number, offset) in reads {
        history.read(reader, 0, *offset, value(*number).text(3).as_bytes());
    }
}

fn history(acked: &[(u32, i64)], reads: &[(u32, i64)]) -> History {
    let mut history = sent();
    for (number, offset) in acked {
        history.settled(value(*number), SendResult::Acked(*offset));
    }
    read(&mut history, ALONE, reads);
    history.finish(ALONE);
    history
}

fn names(history: &History) -> Vec<String> {
    history.check().iter().map(Anomaly::name).collect()
}

#[test]
fn a_sound_history_has_no_anomalies() {
    let history = history(&[(0, 0), (2, 2)], &[(0, 0), (1, 1), (2, 2)]);
    assert_eq!(history.check(), []);
    assert_eq!(history.position(ALONE, 0), 3);
}

#[test]
fn each_anomaly_has_its_name() {
    assert_eq!(
        names(&history(&[(0, 0), (1, 1)], &[(0, 0), (2, 1)])),
        ["InconsistentOffsets", "LostWrite", "Unseen", "NonmonotonicSend"]
    );
    assert_eq!(names(&history(&[], &[(0, 0), (0, 1)])), ["Duplicate"]);
    assert_eq!(names(&history(&[(1, 1)], &[(0, 0)])), ["Unseen"]);
    assert_eq!(names(&history(&[], &[(0, 0), (1, 1), (0, 0)])), ["NonmonotonicPoll"]);
    assert_eq!(names(&history(&[], &[(0, 0), (1, 2)])), ["PollSkip"]);
    assert_eq!(names(&history(&[], &[(1, 0), (0, 1)])), ["NonmonotonicSend"]);
    let mut failed = history(&[], &[(0, 0)]);
    failed.settled(value(0), SendResult::NotWritten);
    assert_eq!(names(&failed), ["FailedRead"]);
    for bytes in ["what is this", "p1/0/0", "p1/0/0 3 xxy", "p1/0/0 4 xxx", "p1/1/0 0 "] {
        let mut strange = history(&[], &[]);
        strange.read(ALONE, 0, 0, bytes.as_bytes());
        assert_eq!(names(&strange), ["Stranger"], "{bytes}");
    }
}

#[test]
fn each_group_must_have_seen_every_acknowledged_value() {
    let mut history = history(&[(0, 0), (1, 1)], &[(0, 0), (1, 1)]);
    history.finish(MEMBER);
    read(&mut history, MEMBER, &[(0, 0)]);
    assert_eq!(names(&history), ["Unseen"]);
    // Another member of the group will do.
    read(&mut history, Reader { id: 2, ..MEMBER }, &[(0, 0)]);
    history.handled(MEMBER, 0, 0);
    read(&mut history, Reader { id: 3, ..MEMBER }, &[(1, 1)]);
    assert_eq!(history.check(), []);
}

#[test]
fn a_member_may_start_anywhere_but_not_behind_unhandled_records_or_before_a_commit() {
    let mut history = sent();
    read(&mut history, MEMBER, &[(0, 0), (1, 1)]);
    history.handled(MEMBER, 0, 0);
    history.handled(MEMBER, 0, 1);
    history.revoked(MEMBER, 0);
    read(&mut history, MEMBER, &[(0, 0), (1, 1), (2, 2)]);
    assert_eq!(history.check(), [], "a repetition after a rebalance");
    history.revoked(MEMBER, 0);
    read(&mut history, MEMBER, &[(4, 4)]);
    assert_eq!(names(&history), ["PollSkip"]);
}

#[tokio::test(start_paused = true)]
async fn a_member_does_not_start_before_a_commit() {
    let mut history = sent();
    history.handled(MEMBER, 0, 0);
    history.commit_acknowledged(0, 0, 1);
    tokio::time::sleep(Duration::from_secs(3)).await;
    history.assigned(MEMBER, 0);
    read(&mut history, MEMBER, &[(0, 0)]);
    assert_eq!(names(&history), ["CommitIgnored"]);
    read(&mut history, MEMBER, &[(0, 0)]);
    assert_eq!(names(&history), ["CommitIgnored", "NonmonotonicPoll"]);
}

#[test]
fn committed_offsets_follow_what_was_handled_and_never_go_back() {
    let mut history = sent();
    for offset in [0, 2, 1, 4] {
        history.handled(MEMBER, 0, offset);
    }
    history.committed(0, 0, 3, false);
    history.committed(0, 0, 2, true);
    assert_eq!(history.check(), [], "that commit was not acknowledged when the broker stopped");
    history.committed(0, 0, 1, false);
    history.commit_acknowledged(0, 0, 3);
    history.committed(0, 0, 2, true);
    history.committed(0, 0, 5, false);
    assert_eq!(names(&history), ["CommitWentBack", "LostCommit", "CommitPastUnhandled"]);
}
