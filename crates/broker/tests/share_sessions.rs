//! Share sessions that end while a fetch of them waits for records.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::thread;

use ottla_log::storage::mem::MemStorage;
use ottla_protocol::{ApiKey, ErrorCode};

use crate::common::PATIENCE;
use crate::share_fetch::{Member, WAIT_MS, acquired_in, initialize, produce, start_with};

/// It acquired records for a member without a session: they stayed locked until the end of the locks, and the delivery counted.
#[test]
fn a_fetch_whose_session_has_ended_acquires_no_records() {
    let broker = start_with(&MemStorage::new(), &[]);
    initialize(&broker, 0);
    let (mut a, mut b) = (Member::join(&broker, "a"), Member::join(&broker, "b"));
    assert_eq!(a.fetch(), []);
    assert_eq!(broker.cluster().requests(ApiKey::ShareFetch), 0, "they are counted from here on");
    a.wait_ms = WAIT_MS;
    let waiting = thread::spawn(move || {
        let request = a.request(Vec::new());
        a.send(&request)
    });
    let arrived = broker
        .block_on(|cluster| async move { cluster.wait_for_requests(ApiKey::ShareFetch, 1, PATIENCE).await });
    assert_eq!(arrived, Ok(()));
    // As a member does that leaves its group on another connection.
    let mut leaving = Member::join(&broker, "a");
    let mut last = leaving.request(Vec::new());
    (last.share_session_epoch, last.topics) = (-1, Vec::new());
    assert_eq!(leaving.send(&last).error_code, ErrorCode::None);
    produce(&broker, 10);
    let response = waiting.join().expect("it does not panic");
    assert_eq!((response.error_code, acquired_in(&response)), (ErrorCode::None, Vec::new()));
    b.wait_ms = WAIT_MS;
    assert_eq!(b.fetch(), [(0, 9, 1)], "the first delivery");
}
