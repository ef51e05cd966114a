//! The rebalance protocol of a group: it decides which functions may change the assignment.

use std::ffi::{CStr, c_char};
use std::ptr::null;

use ottla_client::GroupProtocol;

use crate::client::handle::Handle;
use crate::consume::consumer_state::ConsumerState;
use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// The way in which a group's assignment changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RebalanceProtocol {
    /// There is no group: every function may change the assignment.
    None,
    /// A new assignment replaces the old one.
    Eager,
    /// An assignment grows and shrinks.
    Cooperative,
}

impl RebalanceProtocol {
    fn of(handle: &Handle, consuming: &ConsumerState) -> Self {
        let cooperative = handle.config.group_protocol == GroupProtocol::Consumer
            || handle.config.partition_assignment_strategy.iter().all(|name| name == "cooperative-sticky");
        match (consuming.has_protocol(), cooperative) {
            (false, _) => Self::None,
            (true, true) => Self::Cooperative,
            (true, false) => Self::Eager,
        }
    }

    const fn name(self) -> &'static CStr {
        match self {
            Self::None => c"NONE",
            Self::Eager => c"EAGER",
            Self::Cooperative => c"COOPERATIVE",
        }
    }
}

/// The kind of a change that the application makes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum AssignmentCall {
    /// `rd_kafka_assign`.
    Whole,
    /// `rd_kafka_incremental_assign` and `rd_kafka_incremental_unassign`.
    Incremental,
}

/// Refuses a change of the assignment that does not fit the group's protocol. Before the group's first assignment, and
/// while the consumer ends, every change fits.
pub(super) fn check(
    handle: &Handle,
    consuming: &ConsumerState,
    call: AssignmentCall,
) -> Result<(), rd_kafka_resp_err_t> {
    if consuming.is_ending() || handle.fatal.get().is_some() || !consuming.was_assigned_by_group() {
        return Ok(());
    }
    let advice = match (RebalanceProtocol::of(handle, consuming), call) {
        (RebalanceProtocol::Cooperative, AssignmentCall::Whole) => {
            "the protocol is COOPERATIVE: use rd_kafka_incremental_assign or rd_kafka_incremental_unassign"
        }
        (RebalanceProtocol::Eager, AssignmentCall::Incremental) => {
            "the protocol is EAGER: use rd_kafka_assign"
        }
        _ => return Ok(()),
    };
    // Programs seldom look at the result.
    handle.log(LOG_WARNING, c"ASSIGN", &format!("the assignment stays as it is: {advice}"));
    Err(RD_KAFKA_RESP_ERR__STATE)
}

const LOG_WARNING: u8 = 4;

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_rebalance_protocol(rk: *mut rd_kafka_t) -> *const c_char {
    let Some(handle) = Handle::of(rk, FUNCTION) else { return null() };
    let Some(consuming) = handle.group_consumer() else { return null() };
    RebalanceProtocol::of(&handle, consuming).name().as_ptr()
}
