//! Regular expressions for topic names.

use regex_lite::Regex;

use crate::error::Error;

/// A regular expression of a property or a subscription.
pub(crate) fn pattern(text: &str) -> Result<Regex, Error> {
    Regex::new(text).map_err(|error| Error::Config(format!("`{text}` is no regular expression: {error}")))
}
