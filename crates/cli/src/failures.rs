//! Failures of a command for several topics or groups.

use crate::failure::Failure;
use crate::listing::{Format, Listing};
use crate::output::{note, print};

/// The failures of a command that continues after one. Each is printed: the last one by `main`, with the exit code.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    last: Option<Failure>,
    /// The failure of standard output. It does not end the command, whose other changes are still to be made.
    output: Option<Failure>,
}

impl Failures {
    pub(crate) fn push(&mut self, failure: impl Into<Failure>) {
        if let Some(earlier) = self.last.replace(failure.into()) {
            note(&format!("ottla: {earlier}"));
        }
    }

    /// Prints a result, unless standard output has failed.
    pub(crate) fn print(&mut self, text: &str) {
        if self.output.is_none() {
            self.output = print(text).err();
        }
    }

    /// Prints a listing. After failures without any result, there is nothing to list: the header alone would look like one.
    pub(crate) fn print_listing<const N: usize>(&mut self, listing: &Listing<N>, format: Format) {
        if self.last.is_none() || !listing.is_empty() {
            self.print(&listing.render(format));
        }
    }

    /// Returns the last failure. That of standard output is the least: a closed one is a success.
    pub(crate) fn result(self) -> Result<(), Failure> {
        if let (Some(_), Some(output @ Failure::Failed(_))) = (&self.last, &self.output) {
            note(&format!("ottla: {output}"));
        }
        self.last.or(self.output).map_or(Ok(()), Err)
    }
}
