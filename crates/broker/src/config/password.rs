//! A secret that no log shows.

use std::fmt;

use zeroize::Zeroizing;

/// A password or a private key. `Debug` hides it, and its memory is overwritten when it is dropped.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// The text. Keep it out of logs and errors.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Password {
    fn from(text: T) -> Self {
        Self(Zeroizing::new(text.into()))
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}
