//! Text that must not be shown.

use std::fmt;

use zeroize::Zeroizing;

/// A password, key or token: `Debug` never prints it, and its memory is overwritten when it is dropped.
///
/// ```
/// use ottla_client::Secret;
///
/// let password = Secret::new("hunter2");
/// assert_eq!(format!("{password:?}"), "[redacted]");
/// assert_eq!(password.expose(), "hunter2");
/// ```
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// Returns the text. The caller must not log or display it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns `true` if the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}
