use super::*;
use crate::error::Persisted;

const FIRST: ProducerId = ProducerId { id: 7, epoch: 0 };
const SECOND: ProducerId = ProducerId { id: 7, epoch: 1 };

fn ready(protocol: TransactionProtocol) -> Machine {
    let mut machine = Machine::new("billing".into());
    machine.begin_init().expect("the first call");
    machine.initialized(FIRST, protocol);
    machine
}

/// A machine in a transaction that the coordinator knows.
fn started(protocol: TransactionProtocol) -> Machine {
    let mut machine = ready(protocol);
    machine.begin().expect("ready");
    machine.touch();
    machine.added();
    machine
}

fn in_state(name: &str) -> Machine {
    let mut machine = started(TransactionProtocol::V1);
    match name {
        "Uninitialized" => machine = Machine::new("billing".into()),
        "Ready" => machine = ready(TransactionProtocol::V1),
        "InTransaction" => {}
        "Flushing" => machine.begin_commit().expect("in a transaction"),
        "Committing" => {
            machine.begin_commit().expect("in a transaction");
            assert!(machine.flushed().expect("nothing failed"));
        }
        "Aborting" => machine.begin_abort().expect("in a transaction"),
        "Abortable" => machine.record_failed(&failure(ErrorCode::MessageTooLarge)),
        "Undecided" => {
            machine = in_state("Committing");
            machine.refused(TxnRequest::Commit, ErrorCode::UnknownServerError, "", ResponseAction::Unknown);
        }
        "Fatal" => machine.record_failed(&failure(ErrorCode::ProducerFenced)),
        other => panic!("{other}"),
    }
    assert_eq!(state(&machine), name);
    machine
}

fn state(machine: &Machine) -> &'static str {
    match machine.state {
        State::Uninitialized => "Uninitialized",
        State::Ready => "Ready",
        State::InTransaction => "InTransaction",
        State::Flushing => "Flushing",
        State::Committing => "Committing",
        State::Aborting => "Aborting",
        State::Abortable(_) => "Abortable",
        State::Undecided(_) => "Undecided",
        State::Fatal(_) => "Fatal",
    }
}

fn failure(code: ErrorCode) -> Arc<ProduceError> {
    Arc::new(ProduceError {
        topic: "orders".into(),
        partition: 0,
        kind: ProduceErrorKind::Broker { code, detail: String::new() },
        persisted: Persisted::NotWritten,
    })
}

#[test]
fn every_call_is_allowed_where_the_table_says_and_refused_elsewhere() {
    // The initial state; then the states after init, begin, offsets, commit and abort; none if the call is refused.
    let table = [
        ("Uninitialized", [Some("Uninitialized"), None, None, None, None]),
        ("Ready", [None, Some("InTransaction"), None, None, None]),
        ("InTransaction", [None, None, Some("InTransaction"), Some("Flushing"), Some("Aborting")]),
        ("Flushing", [None, None, None, Some("Flushing"), Some("Aborting")]),
        ("Committing", [None, None, None, Some("Committing"), None]),
        ("Aborting", [None, None, None, None, Some("Aborting")]),
        ("Abortable", [None, None, None, None, Some("Aborting")]),
        ("Undecided", [Some("Undecided"), None, None, None, None]),
        ("Fatal", [None, None, None, None, None]),
    ];
    type Step = fn(&mut Machine) -> Result<(), TransactionError>;
    let calls: [Step; 5] = [
        Machine::begin_init,
        Machine::begin,
        Machine::begin_offsets,
        Machine::begin_commit,
        Machine::begin_abort,
    ];
    for (before, afters) in table {
        for (number, (call, after)) in calls.iter().zip(afters).enumerate() {
            let mut machine = in_state(before);
            let result = call(&mut machine);
            assert_eq!(result.is_ok(), after.is_some(), "call {number} in {before}: {result:?}");
            assert_eq!(state(&machine), after.unwrap_or(before), "call {number} in {before}");
            let Err(error) = result else { continue };
            assert!(!error.is_retriable(), "{error}");
            assert_eq!(error.requires_abort(), before == "Abortable", "{error}");
            assert_eq!(error.requires_init(), before == "Undecided", "{error}");
            assert_eq!(error.is_fatal(), before == "Fatal", "{error}");
        }
    }
}

#[test]
fn records_are_taken_in_a_transaction_only_and_sent_while_it_is_flushed() {
    for name in [
        "Uninitialized",
        "Ready",
        "InTransaction",
        "Flushing",
        "Committing",
        "Aborting",
        "Abortable",
        "Undecided",
        "Fatal",
    ] {
        let machine = in_state(name);
        assert_eq!(machine.takes_records(), name == "InTransaction", "{name}");
        assert_eq!(machine.view().sends, ["InTransaction", "Flushing"].contains(&name), "{name}");
    }
}

#[test]
fn every_code_in_the_answer_to_a_commit_leads_to_its_state_and_none_but_success_is_success() {
    for protocol in [TransactionProtocol::V1, TransactionProtocol::V2] {
        for code in ErrorCode::KNOWN.iter().copied().chain([ErrorCode::Unknown(9999)]) {
            let mut machine = started(protocol);
            machine.begin_commit().expect("in a transaction");
            machine.flushed().expect("nothing failed");
            machine.asked();
            machine.answered();
            let action = machine.action_for(TxnRequest::Commit, code);
            if action == ResponseAction::Done {
                assert_eq!(code, ErrorCode::None);
                continue;
            }
            if matches!(action, ResponseAction::Again | ResponseAction::Elsewhere) {
                assert_eq!(state(&machine), "Committing", "{code}");
                let error = machine.timed_out("commit_transaction", Duration::from_secs(1));
                assert!(error.is_retriable() && error.outcome_is_unknown(), "{error}");
                continue;
            }
            let error = machine.refused(TxnRequest::Commit, code, "", action);
            let expected = match action {
                ResponseAction::Abortable | ResponseAction::Forgotten => "Abortable",
                ResponseAction::Unknown => "Undecided",
                _ => "Fatal",
            };
            assert_eq!(state(&machine), expected, "{code}");
            assert_eq!(error.outcome_is_unknown(), action == ResponseAction::Unknown, "{error}");
        }
    }
}

#[test]
fn an_unknown_outcome_is_mended_by_a_new_start_with_the_known_epoch() {
    let mut machine = in_state("Undecided");
    machine.begin_init().expect("the way out");
    assert_eq!(machine.epoch_of(), Some(FIRST), "a zombie must not fence its successor");
    machine.initialized(SECOND, TransactionProtocol::V1);
    assert_eq!(state(&machine), "Ready");
    assert!(machine.begin().is_ok());
}

#[test]
fn a_fenced_commit_after_a_lost_answer_says_that_its_outcome_is_unknown() {
    let mut machine = in_state("Committing");
    machine.asked();
    machine.asked();
    machine.answered();
    let error = machine.refused(TxnRequest::Commit, ErrorCode::ProducerFenced, "", ResponseAction::Fenced);
    assert!(error.is_fatal() && error.outcome_is_unknown(), "{error}");
    assert!(error.to_string().contains("not known"), "{error}");
}

/// librdkafka's applications abort a transaction whose commit is refused. After a lost response, an earlier copy of the
/// commit may have succeeded.
#[test]
fn a_commit_that_is_refused_can_be_aborted_unless_a_copy_of_it_has_no_answer() {
    for (copies, after) in [(1, "Abortable"), (2, "Undecided")] {
        let mut machine = in_state("Committing");
        for _copy in 0..copies {
            machine.asked();
        }
        machine.answered();
        let code = ErrorCode::GroupAuthorizationFailed;
        let action = machine.action_for(TxnRequest::Commit, code);
        let error = machine.refused(TxnRequest::Commit, code, "", action);
        assert_eq!(state(&machine), after, "{error}");
        assert_eq!(error.outcome_is_unknown(), after == "Undecided", "{error}");
    }
}

/// The transaction could be aborted without a request to the coordinator, and was reported as aborted, although the lost copy of the commit
/// may have succeeded.
#[test]
fn a_commit_that_the_coordinator_forgot_is_not_aborted_if_a_copy_of_it_has_no_answer() {
    let code = ErrorCode::InvalidProducerIdMapping;
    for (copies, after) in [(1, "Abortable"), (2, "Undecided")] {
        let mut machine = in_state("Committing");
        for _copy in 0..copies {
            machine.asked();
        }
        machine.answered();
        let action = machine.action_for(TxnRequest::Commit, code);
        assert_eq!(action, ResponseAction::Forgotten);
        let error = machine.refused(TxnRequest::Commit, code, "", action);
        assert_eq!(state(&machine), after, "{error}");
        assert_eq!(error.outcome_is_unknown(), after == "Undecided", "{error}");
        assert_eq!(machine.begin_abort().is_ok(), after == "Abortable");
    }
}

#[test]
fn a_transaction_of_nothing_ends_without_the_coordinator() {
    for protocol in [TransactionProtocol::V1, TransactionProtocol::V2] {
        let mut machine = ready(protocol);
        machine.begin().expect("ready");
        machine.begin_commit().expect("in a transaction");
        assert!(!machine.flushed().expect("nothing failed"));
        machine.begin().expect("ready again");
        machine.begin_abort().expect("in a transaction");
        assert!(!machine.drained().expect("nothing failed"));
        assert_eq!((state(&machine), machine.view().producer), ("Ready", Some(FIRST)));
    }
}

#[test]
fn the_classic_epoch_outlives_transactions_unless_a_batch_or_an_answer_was_lost() {
    let mut machine = started(TransactionProtocol::V1);
    machine.ended(None);
    assert_eq!(machine.view().producer, Some(FIRST));

    let mut gap = started(TransactionProtocol::V1);
    gap.sequence_broken();
    gap.record_failed(&failure(ErrorCode::MessageTooLarge));
    gap.begin_abort().expect("abortable");
    assert!(gap.drained().expect("nothing worse"));
    gap.ended(None);
    assert_eq!(gap.view().producer, None, "the next batch would not follow");
    assert_eq!(gap.epoch_of(), Some(FIRST));
    gap.initialized(SECOND, TransactionProtocol::V1);
    assert_eq!(gap.view().producer, Some(SECOND));

    let mut lost = started(TransactionProtocol::V1);
    lost.begin_commit().expect("in a transaction");
    lost.flushed().expect("nothing failed");
    lost.asked();
    lost.asked();
    lost.answered();
    lost.ended(None);
    assert_eq!(lost.view().producer, None, "a late copy would end the next transaction");
}

#[test]
fn the_new_protocols_epoch_comes_with_every_end() {
    let mut machine = started(TransactionProtocol::V2);
    machine.sequence_broken();
    machine.asked();
    machine.ended(Some(SECOND));
    assert_eq!(machine.view().producer, Some(SECOND));
}

#[test]
fn what_the_coordinator_forgot_needs_no_abort_and_a_new_start_with_the_known_epoch() {
    let mut machine = started(TransactionProtocol::V1);
    let code = ErrorCode::InvalidProducerIdMapping;
    let error = machine.refused(TxnRequest::AddPartitions, code, "", ResponseAction::Forgotten);
    assert!(error.requires_abort(), "{error}");
    machine.begin_abort().expect("abortable");
    assert!(!machine.drained().expect("nothing worse"));
    assert_eq!((machine.view().producer, machine.epoch_of()), (None, Some(FIRST)));

    let mut aborting = in_state("Aborting");
    assert_eq!(aborting.action_for(TxnRequest::Abort, code), ResponseAction::Done);
    aborting.ended(None);
    assert_eq!((state(&aborting), aborting.view().producer), ("Ready", None));
    assert_eq!(aborting.epoch_of(), Some(FIRST), "the id may have been replaced for a successor");

    let mut raising = ready(TransactionProtocol::V1);
    assert_eq!(raising.action_for(TxnRequest::InitProducerId, code), ResponseAction::Forgotten);
    assert!(raising.refused(TxnRequest::InitProducerId, code, "", ResponseAction::Forgotten).is_fatal());
}

#[test]
fn aborting_what_the_coordinator_never_heard_of_is_no_error() {
    let mut machine = ready(TransactionProtocol::V1);
    machine.begin().expect("ready");
    machine.touch();
    machine.begin_abort().expect("in a transaction");
    assert!(machine.drained().expect("nothing failed"), "it may have heard");
    assert_eq!(machine.action_for(TxnRequest::Abort, ErrorCode::InvalidTxnState), ResponseAction::Done);
    assert_eq!(
        in_state("Aborting").action_for(TxnRequest::Abort, ErrorCode::InvalidTxnState),
        ResponseAction::Fatal
    );
}

/// The application gave up `send_offsets_to_transaction`, which had run out of time, and the commit ended the producer.
#[test]
fn committing_what_the_coordinator_never_heard_of_is_no_error() {
    for protocol in [TransactionProtocol::V1, TransactionProtocol::V2] {
        let commit = |arrived: fn(&mut Machine)| {
            let mut machine = ready(protocol);
            machine.begin().expect("ready");
            machine.touch();
            machine.asked();
            arrived(&mut machine);
            machine.begin_commit().expect("in a transaction");
            assert!(machine.flushed().expect("nothing failed"), "it may have heard");
            (machine.action_for(TxnRequest::Commit, ErrorCode::InvalidTxnState), machine)
        };
        let (action, mut machine) = commit(|_| {});
        assert_eq!(action, ResponseAction::Done);
        machine.ended(None);
        assert_eq!(state(&machine), "Ready");
        assert!(machine.needs_epoch(), "the offsets may arrive during the next transaction");
        assert_eq!(commit(Machine::added).0, ResponseAction::Fatal, "offsets are lost");
        assert_eq!(commit(Machine::touch_with_batch).0, ResponseAction::Fatal, "records are lost");
    }
}

#[test]
fn the_first_failure_of_a_record_stands_and_those_of_an_abort_do_not_count() {
    let mut machine = in_state("Abortable");
    machine.record_failed(&failure(ErrorCode::ProducerFenced));
    assert_eq!(state(&machine), "Abortable", "what is discarded after it says nothing new");
    machine.begin_abort().expect("abortable");
    machine.record_failed(&failure(ErrorCode::MessageTooLarge));
    assert_eq!(state(&machine), "Aborting");

    let mut flushing = in_state("Flushing");
    flushing.record_failed(&failure(ErrorCode::MessageTooLarge));
    let error = flushing.flushed().expect_err("a record failed");
    assert!(error.requires_abort() && error.to_string().contains("orders"), "{error}");
}

#[test]
fn only_a_timeout_after_the_commit_was_sent_leaves_its_outcome_open() {
    for (name, unknown) in
        [("InTransaction", false), ("Flushing", false), ("Committing", true), ("Aborting", false)]
    {
        let error = in_state(name).timed_out("commit_transaction", Duration::from_secs(1));
        assert!(error.is_retriable(), "{error}");
        assert_eq!(error.outcome_is_unknown(), unknown, "{name}");
    }
}

#[test]
fn a_coordinator_that_cannot_be_found_means_what_the_moment_makes_of_it() {
    let (code, action) = (ErrorCode::UnknownServerError, ResponseAction::Abortable);
    for (name, asked, after) in [
        ("Uninitialized", false, "Fatal"),
        ("InTransaction", false, "Abortable"),
        ("Committing", false, "Abortable"),
        ("Committing", true, "Undecided"),
        ("Aborting", false, "Aborting"),
    ] {
        let mut machine = in_state(name);
        if asked {
            machine.asked();
        }
        let error = machine.refused(TxnRequest::FindCoordinator, code, "", action);
        assert_eq!(state(&machine), after, "{name}: {error}");
        assert_eq!(error.outcome_is_unknown(), after == "Undecided", "{name}: {error}");
    }
}

/// librdkafka's `rd_kafka_txn_handle_FindCoordinator`. A code without a meaning ended the producer for good.
#[test]
fn a_search_for_the_coordinator_before_a_transaction_ends_with_a_missing_permission_only() {
    for code in [ErrorCode::UnknownServerError, ErrorCode::Unknown(9999), ErrorCode::InvalidRequest] {
        for (name, expected) in [
            ("Uninitialized", ResponseAction::Again),
            ("Undecided", ResponseAction::Again),
            ("InTransaction", ResponseAction::Abortable),
        ] {
            let action = in_state(name).action_for(TxnRequest::FindCoordinator, code);
            assert_eq!(action, expected, "{code} in {name}");
        }
    }
    for code in [ErrorCode::TransactionalIdAuthorizationFailed, ErrorCode::ClusterAuthorizationFailed] {
        let action = in_state("Uninitialized").action_for(TxnRequest::FindCoordinator, code);
        assert_eq!(action, ResponseAction::Fatal, "{code}");
    }
}

/// The source of tokens may be down when a producer starts.
#[test]
fn a_failed_login_does_not_end_a_producer_that_is_being_initialized() {
    let mut machine = in_state("Uninitialized");
    let refused = Error::Authentication { address: "b:9092".into(), reason: "no token".into() };
    let error = machine.impossible(TxnRequest::InitProducerId, refused);
    assert!(error.is_retriable() && !error.is_fatal(), "{error}");
    assert_eq!(state(&machine), "Uninitialized");
    let unsupported = Error::Unsupported { address: "b:9092".into(), reason: "no such request".into() };
    assert!(machine.impossible(TxnRequest::InitProducerId, unsupported).is_fatal());
}

#[test]
fn the_statistics_have_librdkafkas_words_for_the_states() {
    for (name, word) in [
        ("Uninitialized", "Init"),
        ("Ready", "Ready"),
        ("InTransaction", "InTransaction"),
        ("Flushing", "BeginCommit"),
        ("Committing", "CommittingTransaction"),
        ("Aborting", "AbortingTransaction"),
        ("Abortable", "AbortableError"),
        ("Undecided", "Init"),
        ("Fatal", "FatalError"),
    ] {
        assert_eq!(in_state(name).state_name(), word);
    }
}

/// The cluster's `transaction.version` is changed under a live producer.
#[test]
fn a_protocol_that_changed_takes_a_new_epoch_before_anything_is_sent() {
    let mut machine = ready(TransactionProtocol::V1);
    machine.begin().expect("ready");
    machine.follow(TransactionProtocol::V1);
    assert!(!machine.needs_epoch());
    machine.follow(TransactionProtocol::V2);
    assert!(machine.needs_epoch() && machine.view().producer.is_none());
    machine.initialized(SECOND, TransactionProtocol::V2);
    assert!(
        machine.view().producer.is_some()
            && machine.view().protocol == TransactionProtocol::V2
            && machine.sends()
    );
    // A transaction in progress keeps its protocol.
    machine.touch();
    machine.follow(TransactionProtocol::V1);
    assert!(!machine.needs_epoch());
}

/// The calls did not look at the end of the producer: a transaction without queued records was committed.
#[test]
fn after_the_application_has_ended_the_producer_only_a_sent_commit_continues() {
    for name in
        ["Uninitialized", "Ready", "InTransaction", "Flushing", "Aborting", "Abortable", "Undecided", "Fatal"]
    {
        let mut machine = in_state(name);
        machine.end(ProduceErrorKind::Fatal("a test".into()));
        assert!(!machine.takes_records() && !machine.sends(), "{name}");
        let refused = [
            machine.begin_init(),
            machine.begin(),
            machine.begin_offsets(),
            machine.begin_commit(),
            machine.flushed().map(|_| ()),
            machine.begin_abort(),
        ];
        for result in refused {
            let error = result.expect_err(name);
            assert!(error.is_fatal() && !error.requires_init(), "{name}: {error}");
            assert_eq!(error.outcome_is_unknown(), name == "Undecided", "{name}: {error}");
        }
        assert_eq!(state(&machine), name);
    }
    let mut machine = in_state("Committing");
    machine.end(ProduceErrorKind::Fatal("a test".into()));
    machine.begin_commit().expect("the repeated call returns the outcome");
    assert!(machine.flushed().expect("the commit was sent"));
    machine.ended(None);
    assert!(machine.begin().expect_err("ended").is_fatal());
}
