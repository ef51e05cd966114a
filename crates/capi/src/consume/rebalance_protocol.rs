//! The rebalance protocol of a group: it decides which functions may change the assignment.

use std::ffi::{CStr, c_char};
use std::ptr::null;

use ottla_client::GroupProtocol;

use crate::client::handle::{Handle, LOG_WARNING};
use crate::consume::consumer_state::ConsumerState;
use crate::errors::error_object::description;
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

/// The refusal of a change of the assignment. Programs show its text and search it: it is librdkafka's.
pub(super) struct AssignmentRefusal {
    pub(super) code: rd_kafka_resp_err_t,
    /// Empty for the text of the code.
    pub(super) reason: String,
}

impl From<rd_kafka_resp_err_t> for AssignmentRefusal {
    fn from(code: rd_kafka_resp_err_t) -> Self {
        Self { code, reason: String::new() }
    }
}

impl AssignmentRefusal {
    /// Logs the refusal, because programs seldom look at the result.
    pub(super) fn log(&self, handle: &Handle) {
        let group = handle.config.group_id.as_deref().unwrap_or_default();
        let of_code = description(self.code).to_string_lossy();
        let reason: &str = if self.reason.is_empty() { &of_code } else { &self.reason };
        let text = format!("Group \"{group}\": application *assign() call failed: {reason}");
        handle.log(LOG_WARNING, c"ASSIGN", &text);
    }
}

/// Refuses a change of the assignment that does not fit the group's protocol. Before the group's first assignment, and
/// while the consumer ends, every change fits.
pub(super) fn check(
    handle: &Handle,
    consuming: &ConsumerState,
    call: AssignmentCall,
) -> Result<(), AssignmentRefusal> {
    if consuming.is_ending() || !consuming.was_assigned_by_group() {
        return Ok(());
    }
    let (functions, protocol) = match (RebalanceProtocol::of(handle, consuming), call) {
        (RebalanceProtocol::Cooperative, AssignmentCall::Whole) => {
            ("incremental_assign() or incremental_unassign()", "COOPERATIVE")
        }
        (RebalanceProtocol::Eager, AssignmentCall::Incremental) => ("assign()", "EAGER"),
        _ => return Ok(()),
    };
    let reason = format!(
        "Changes to the current assignment must be made using {functions} when rebalance protocol type is {protocol}"
    );
    Err(AssignmentRefusal { code: RD_KAFKA_RESP_ERR__STATE, reason })
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_rebalance_protocol(rk: *mut rd_kafka_t) -> *const c_char {
    let Some(handle) = Handle::of(rk, FUNCTION) else { return null() };
    // As in the original, a closed consumer does not respond.
    let Some(consuming) = handle.group_consumer().filter(|it| !it.is_closed()) else { return null() };
    RebalanceProtocol::of(&handle, consuming).name().as_ptr()
}
