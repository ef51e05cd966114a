//! Failures of a command for several topics or groups.

use crate::failure::Failure;
use crate::output::note;

/// The failures of a command that continues after one. Each is printed: the last one by `main`, with the exit code.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    last: Option<Failure>,
}

impl Failures {
    pub(crate) fn push(&mut self, failure: impl Into<Failure>) {
        if let Some(earlier) = self.last.replace(failure.into()) {
            note(&format!("ottla: {earlier}"));
        }
    }

    /// Returns the last failure.
    pub(crate) fn result(self) -> Result<(), Failure> {
        self.last.map_or(Ok(()), Err)
    }
}
