//! `rd_kafka_share_commit_sync` and `rd_kafka_share_commit_async`: acknowledgements are sent without a poll.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use ottla_client::{Error, TopicPartition};

use crate::callbacks::running_calls;
use crate::callbacks::trampoline::{CallbackLoop, Returns, Step, Task, start};
use crate::client::handle::Handle;
use crate::errors::error_mapping::of_acknowledgement;
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::exported_from_c::{called_from_c, exported_from_c};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::list_conversion::{self, OwnedList};
use crate::queue::op_queue::timeout_of;
use crate::share::share_call::ShareCall;

/// The longest wait of a commit without a limit: ten years, because a deadline must be a point in time.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

exported_from_c! {
    fn rd_kafka_share_commit_sync(
        rkshare: *mut rd_kafka_share_t,
        timeout_ms: c_int,
        partitions: *mut *mut rd_kafka_topic_partition_list_t
    ) -> *mut rd_kafka_error_t = ottla_share_commit_sync;
    fn rd_kafka_share_commit_async(rkshare: *mut rd_kafka_share_t) -> *mut rd_kafka_error_t = ottla_share_commit_async;
}

called_from_c! {
    "ottla_begin_share_commit_sync" begin_share_commit_sync,
    "ottla_begin_share_commit_async" begin_share_commit_async,
}

/// Runs the callbacks for the results that have arrived, and ends the commit.
struct Committed {
    call: ShareCall,
    results: Option<(OwnedList, *mut *mut rd_kafka_topic_partition_list_t)>,
    yielded: bool,
}

impl Task for Committed {
    fn next(&mut self, _client: &Arc<Handle>) -> Step {
        self.call.callback_returned();
        if !self.yielded
            && let Some(step) = self.call.next_result()
        {
            return step;
        }
        if let Some((list, out)) = self.results.take() {
            // SAFETY: `partitions` is writable for the time of the call (rdkafka.h, `rd_kafka_share_commit_sync`), and the call
            // has not returned.
            unsafe { *out = list.into_raw() };
        }
        Step::Return(Returns::Pointer(null_mut()))
    }

    fn yields(&mut self) {
        self.yielded = true;
    }
}

/// The results by partition, as the original lists them.
fn listed(results: &BTreeMap<TopicPartition, Result<(), Error>>) -> OwnedList {
    // A result has no offset.
    let list = OwnedList(list_conversion::list(results.keys().map(|at| (at, 0))));
    // SAFETY: made just now.
    for (entry, result) in unsafe { list_conversion::entries(list.0) }.iter_mut().zip(results.values()) {
        entry.err = result.as_ref().err().map_or(RD_KAFKA_RESP_ERR_NO_ERROR, of_acknowledgement);
    }
    list
}

#[on_panic(())]
unsafe extern "C" fn begin_share_commit_sync(
    state: *mut CallbackLoop,
    rkshare: *mut rd_kafka_share_t,
    timeout_ms: c_int,
    partitions: *mut *mut rd_kafka_topic_partition_list_t,
) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let state = unsafe { &mut *state };
    // SAFETY: `partitions` is NULL or writable (rdkafka.h, `rd_kafka_share_commit_sync`).
    if let Some(out) = unsafe { partitions.as_mut() } {
        *out = null_mut();
    }
    running_calls::abandon_deeper(state.frame);
    let committed = ShareCall::begin_open(rkshare, FUNCTION).and_then(|call| {
        // A share consumer without a group has nothing to commit.
        let mut results = BTreeMap::new();
        if let Some(consumer) = &mut call.state().consumer {
            results = consumer.commit_unsent_blocking(timeout_of(timeout_ms).unwrap_or(LONGEST_WAIT))?;
        }
        Ok((call, results))
    });
    match committed {
        Ok((call, results)) => {
            let wanted = !partitions.is_null() && !results.is_empty();
            let results = wanted.then(|| (listed(&results), partitions));
            let client = call.client.clone();
            start(state, client, Committed { call, results, yielded: false });
        }
        Err(refused) => state.returns(Returns::Pointer(refused.into_raw().cast())),
    }
}

#[on_panic(())]
unsafe extern "C" fn begin_share_commit_async(state: *mut CallbackLoop, rkshare: *mut rd_kafka_share_t) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let state = unsafe { &mut *state };
    running_calls::abandon_deeper(state.frame);
    match ShareCall::begin_open(rkshare, FUNCTION) {
        Ok(call) => {
            if let Some(consumer) = &mut call.state().consumer {
                consumer.commit_unobserved();
            }
            let client = call.client.clone();
            start(state, client, Committed { call, results: None, yielded: false });
        }
        Err(refused) => state.returns(Returns::Pointer(refused.into_raw().cast())),
    }
}
