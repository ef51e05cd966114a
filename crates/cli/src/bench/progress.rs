//! The progress of a benchmark: a bar on a terminal, and partial results after a signal.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value};

use super::measure::report;
use crate::failure::Failure;
use crate::signals::Interrupt;

/// Time limit for the last acknowledgements after a signal.
pub(super) const END_WITHIN: Duration = Duration::from_secs(2);

/// Maximum number of messages between updates of the bar, which reads the clock.
const STEP_MAX: u64 = 256;

/// A benchmark whose phases can be interrupted.
pub(super) struct Progress {
    interrupt: Interrupt,
    bar: ProgressBar,
    step: u64,
    shown: AtomicU64,
}

impl Progress {
    /// Starts to handle signals: the first ends the phase, the second the process.
    pub(super) fn start() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: Interrupt::watch()?,
            bar: ProgressBar::hidden(),
            step: 1,
            shown: AtomicU64::new(0),
        })
    }

    /// Shows a bar of `total` messages on a terminal.
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

    /// Shows the number of finished messages.
    #[inline]
    pub(super) fn show(&self, done: u64) {
        if done.saturating_sub(self.shown.load(Ordering::Relaxed)) >= self.step {
            self.shown.store(done, Ordering::Relaxed);
            self.bar.set_position(done);
        }
    }

    /// `true` after a signal.
    #[inline]
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.is_set()
    }

    /// Ends the command after a signal, in a phase without results.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.interrupt.check()
    }

    /// Prints the results, marked as partial after a signal. The command then ends with the signal's exit code.
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
