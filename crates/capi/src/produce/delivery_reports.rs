//! Delivery reports on their way from the client to a queue.

use std::ffi::c_void;
use std::sync::Arc;

use ottla_client::{Report, Reports};

use crate::client::handle::Handle;
use crate::produce::producer::{FREE, POINTER};
use crate::produce::report_cursor::each_report;
use crate::queue::op::Op;
use crate::queue::op_queue::{OpQueue, OpSource};

/// Delivery reports, as a source of a queue.
pub(crate) struct DeliveryReports {
    reports: Reports,
}

impl DeliveryReports {
    pub(crate) fn new(reports: Reports, to: &Arc<OpQueue>) -> Arc<Self> {
        let queue = Arc::downgrade(to);
        reports.on_filled(move || {
            if let Some(queue) = queue.upgrade() {
                queue.ring();
            }
        });
        Arc::new(Self { reports })
    }

    /// Passes the reports of failures to a queue, and those of successes to interceptors only: `delivery.report.only.error`.
    pub(crate) fn of_failures(reports: Reports, to: &Arc<OpQueue>, handle: &Arc<Handle>) -> Arc<Self> {
        let handle = Arc::downgrade(handle);
        reports.take_successes(move |report| pass_to_interceptors(handle.upgrade().as_ref(), report));
        Self::new(reports, to)
    }

    /// Passes reports to interceptors only, for an application without a report callback.
    pub(crate) fn to_interceptors(reports: Reports, handle: &Arc<Handle>) -> Arc<Self> {
        let (reporting, handle) = (Arc::new(Self { reports }), Arc::downgrade(handle));
        let weak = Arc::downgrade(&reporting);
        reporting.reports.on_filled(move || {
            while let Some(report) = weak.upgrade().and_then(|reporting| reporting.reports.try_next()) {
                pass_to_interceptors(handle.upgrade().as_ref(), report);
            }
        });
        reporting
    }

    /// Frees the payloads of the records whose reports the application has not taken before it destroyed the client.
    pub(crate) fn free_rest(&self) {
        while let Some(report) = self.reports.try_next() {
            free_payloads(&report, 0);
        }
    }
}

impl OpSource for DeliveryReports {
    fn draw(&self) -> Option<Op> {
        self.reports.try_next().map(|report| Op::DeliveryReport { report, done: 0 })
    }

    fn len(&self) -> usize {
        self.reports.len()
    }
}

/// Passes a report to the interceptors of a client. Without the client, only its payloads are freed.
fn pass_to_interceptors(handle: Option<&Arc<Handle>>, report: Report) {
    match handle {
        Some(handle) => {
            each_report(handle, report, 0, |_| {});
        }
        None => free_payloads(&report, 0),
    }
}

/// Frees the payloads with `RD_KAFKA_MSG_F_FREE` of records whose reports no callback gets.
pub(crate) fn free_payloads(report: &Report, done: usize) {
    for reported in report.iter().skip(done).filter(|reported| reported.tag.get() & FREE != 0) {
        // SAFETY: the application handed it over, allocated by malloc.
        unsafe { libc::free(((reported.tag.get() >> 64) & POINTER) as usize as *mut c_void) };
    }
}
