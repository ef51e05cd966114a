//! The neighbours of a configuration that one call at a time uses.

use std::ops::Deref;
use std::sync::Arc;

/// In place of the table's type: an object that a call uses.
#[derive(Debug)]
pub struct InUse<T>(pub Arc<T>);

impl<T> Deref for InUse<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
