//! Regular expressions for topic names.

use regex_lite::Regex;

use crate::error::Error;

/// Returns `true` if a subscription to the regular expression `pattern`, which begins with `^`, includes `topic`.
///
/// # Errors
/// [`Error::Config`] if `pattern` is no regular expression.
pub fn pattern_matches(pattern: &str, topic: &str) -> Result<bool, Error> {
    Ok(self::pattern(pattern)?.is_match(topic))
}

/// A regular expression of a property or a subscription.
pub(crate) fn pattern(text: &str) -> Result<Regex, Error> {
    Regex::new(text).map_err(|error| Error::Config(format!("`{text}` is no regular expression: {error}")))
}
