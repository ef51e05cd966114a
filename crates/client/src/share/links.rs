//! The objects that the tasks of a share consumer and its polling thread share.

use std::sync::Arc;

use super::queue::ShareQueue;
use crate::group::poll_activity::PollActivity;
use crate::stats::events::OnDemandQueue;
use crate::stats::share::ShareCounters;
use crate::types::AcknowledgementResult;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ShareLinks {
    pub(crate) queue: Arc<ShareQueue>,
    pub(crate) polls: Arc<PollActivity>,
    pub(crate) counters: Arc<ShareCounters>,
    pub(crate) results: Arc<OnDemandQueue<AcknowledgementResult>>,
    /// The results with an error.
    pub(crate) refusals: Arc<OnDemandQueue<AcknowledgementResult>>,
}
