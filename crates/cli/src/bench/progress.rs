//! How far a benchmark is: a bar on a terminal, and partial results when a signal comes.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value};

use super::measure::report;
use crate::failure::Failure;
use crate::signals::Interrupt;

/// The last acknowledgements may take so long after a signal.
pub(super) const END_WITHIN: Duration = Duration::from_secs(2);

/// The bar is moved after so many messages at the latest, and not for each: it looks at the clock.
const STEP_MAX: u64 = 256;

/// A phase of a benchmark that may be interrupted.
pub(super) struct Progress {
    interrupt: Interrupt,
    bar: ProgressBar,
    step: u64,
    shown: AtomicU64,
}

impl Progress {
    /// Takes signals from now on: the first ends the phase, the second the process.
    pub(super) fn start() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: Interrupt::watch()?,
            bar: ProgressBar::hidden(),
            step: 1,
            shown: AtomicU64::new(0),
        })
    }

    /// Shows a bar of `total` messages, if somebody sees it.
    pub(super) fn phase(&mut self, name: &'static str, total: u64) {
        self.bar.finish_and_clear();
        self.step = (total / 1000).clamp(1, STEP_MAX);
        self.shown.store(0, Ordering::Relaxed);
        if !std::io::stderr().is_terminal() {
            return;
        }
        let style = ProgressStyle::with_template("{prefix} {bar:32} {pos}/{len}  {per_sec}  {eta} left");
        let bar = ProgressBar::new(total).with_prefix(name);
        self.bar = match style {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
    }

    /// So many are done.
    #[inline]
    pub(super) fn show(&self, done: u64) {
        if done.saturating_sub(self.shown.load(Ordering::Relaxed)) >= self.step {
            self.shown.store(done, Ordering::Relaxed);
            self.bar.set_position(done);
        }
    }

    /// Whether the phase is to end.
    #[inline]
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.is_set()
    }

    /// Ends the command here if a signal came in a phase that has no results.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.interrupt.check()
    }

    /// Prints the results; those of an interrupted phase are marked, and the command ends as a shell expects it.
    pub(super) fn report(
        &self,
        title: &str,
        mut fields: Map<String, Value>,
        json: bool,
    ) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        if !self.is_interrupted() {
            return report(title, fields, json);
        }
        fields.insert("interrupted".into(), true.into());
        report(&format!("interrupted: partial results of {title}"), fields, json)?;
        self.check()
    }
}
