//! Each API with each error, for a long time: a client never sends more than one request per backoff.

use ottla_broker::{ApiKey, ErrorCode, Fault};
use ottla_sim::errors::{
    APIS, faults, requests_max, run_with_error, run_with_error_once, run_with_fetch_error,
};
use ottla_sim::rates::REQUESTS_PER_WINDOW_MAX;

/// Step between the combinations that are run; 1 runs all.
const STRIDE: usize = 3;

#[test]
fn whatever_the_error_a_client_sends_one_request_per_back_off() {
    let stride = std::env::var("OTTLA_SIM_STRIDE")
        .map_or(STRIDE, |text| text.parse::<usize>().expect("a whole number above 0"));
    let all = APIS.iter().flat_map(|api| faults().into_iter().map(move |fault| (*api, fault)));
    let mut failures = Vec::new();
    let mut runs = 0;
    for (api, fault) in all.step_by(stride) {
        let report = run_with_error(api, fault, 7);
        runs += 1;
        // A final error ends a batch. The next request is not a retry but the next batch.
        let is_final = matches!(fault, Fault::Fail(code) if api == ApiKey::Produce && !code.is_retriable());
        let in_window = if is_final { 0 } else { report.busiest.requests };
        let is_busy = in_window > REQUESTS_PER_WINDOW_MAX || report.requests > requests_max();
        if is_busy || report.frozen.is_some() || report.met == 0 {
            failures.push(format!("{api} {fault:?}: {report:?}"));
        }
    }
    println!("{runs} runs");
    assert!(
        failures.is_empty(),
        "{} too busy, or without a request:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Another member has the same `group.instance.id`: the application must decide, as with every client of Kafka.
const MEMBER_ENDS: (ApiKey, ErrorCode) = (ApiKey::Heartbeat, ErrorCode::FencedInstanceId);

#[test]
fn after_any_single_error_everything_goes_on() {
    let stride = std::env::var("OTTLA_SIM_STRIDE")
        .map_or(STRIDE, |text| text.parse::<usize>().expect("a whole number above 0"));
    let all = APIS.iter().flat_map(|api| faults().into_iter().map(move |fault| (*api, fault)));
    let mut failures = Vec::new();
    for (api, fault) in all.step_by(stride) {
        let report = run_with_error_once(api, fault, 7);
        let member_ends = matches!(fault, Fault::Fail(code) if (api, code) == MEMBER_ENDS);
        let late = report.late;
        let goes_on =
            late.appended > 0 && late.read > 0 && (late.consumed > 0 || member_ends) && late.shared > 0;
        if !goes_on || report.frozen.is_some() || report.unmet > 0 {
            failures.push(format!("{api} {fault:?}: {late:?} {:?}, {} unmet", report.frozen, report.unmet));
        }
    }
    assert!(failures.is_empty(), "{} do not go on:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_partition_that_always_fails_is_fetched_once_per_back_off_and_the_others_go_on() {
    let codes = ErrorCode::KNOWN.iter().copied().chain([ErrorCode::from_i16(9999)]);
    for code in codes.filter(|code| *code != ErrorCode::None) {
        let report = run_with_fetch_error(code, true, 7);
        assert!(report.frozen.is_none(), "{code}: {report:?}");
        assert!(report.busiest.requests <= REQUESTS_PER_WINDOW_MAX, "{code}: {report:?}");
        assert!(report.requests <= requests_max(), "{code}: {report:?}");
        assert!(report.records > 100, "{code}: the other partitions have records, {report:?}");
    }
}

#[test]
fn responses_that_name_a_partition_nobody_requested_are_not_fetched_again_at_once() {
    for code in [ErrorCode::NotLeaderOrFollower, ErrorCode::UnknownTopicId, ErrorCode::OffsetOutOfRange] {
        let report = run_with_fetch_error(code, false, 7);
        assert!(report.frozen.is_none(), "{code}: {report:?}");
        assert!(report.requests <= requests_max(), "{code}: {report:?}");
        assert!(report.records > 100, "{code}: the requested partitions have records, {report:?}");
    }
}
