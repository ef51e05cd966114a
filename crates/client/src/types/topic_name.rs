//! Kafka's rule for topic names, checked before any request.

use crate::error::Error;

/// The longest name of a topic, in characters.
const NAME_CHARACTERS_MAX: usize = 249;

/// Checks the name of a topic by Kafka's rule: 1 to 249 of the characters `a`-`z`, `A`-`Z`, `0`-`9`, `.`, `_` and `-`, and
/// neither `.` nor `..`.
///
/// Brokers have no topics with other names. The [`Admin`](crate::Admin) calls with one result for all topics,
/// [`Consumer::subscribe`](crate::Consumer::subscribe), [`Consumer::assign`](crate::Consumer::assign) and
/// [`Producer::topic_with`](crate::Producer::topic_with) make this check.
///
/// ```
/// assert!(ottla_client::check_topic_name("orders.eu-1").is_ok());
/// assert!(ottla_client::check_topic_name("orders eu").is_err());
/// ```
///
/// # Errors
/// [`Error::Config`] with the rule that the name breaks.
pub fn check_topic_name(name: &str) -> Result<(), Error> {
    let is_legal = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    let count = name.chars().count();
    let rule = if name.is_empty() {
        "the name of a topic must not be empty".to_owned()
    } else if count > NAME_CHARACTERS_MAX {
        let start: String = name.chars().take(20).collect();
        format!(
            "the topic name `{start}...` has {count} characters: Kafka allows {NAME_CHARACTERS_MAX} at most"
        )
    } else if name == "." || name == ".." {
        format!("`{name}` is not a topic name: Kafka does not allow `.` and `..`")
    } else if let Some(illegal) = name.chars().find(|letter| !is_legal(letter)) {
        format!(
            "the topic name `{name}` has {illegal:?} in it: Kafka allows letters, digits, `.`, `_` and `-` (ASCII only)"
        )
    } else {
        return Ok(());
    };
    Err(Error::Config(rule))
}

/// The same for several names.
pub(crate) fn check_all<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
    names.into_iter().try_for_each(check_topic_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_topic_can_have_is_refused_with_the_rule() {
        for name in ["a", "orders.eu-1_x", "...", "__consumer_offsets", &"x".repeat(249)] {
            assert!(check_topic_name(name).is_ok(), "{name}");
        }
        for (name, rule) in [
            ("", "must not be empty"),
            (&*"x".repeat(250), "has 250 characters: Kafka allows 249 at most"),
            (".", "does not allow `.` and `..`"),
            ("..", "does not allow `.` and `..`"),
            ("a b", "has ' ' in it"),
            ("a/b", "has '/' in it"),
            ("größe", "has 'ö' in it"),
            ("a\n", "has '\\n' in it"),
        ] {
            let refused = check_topic_name(name).expect_err(name).to_string();
            assert!(refused.contains(rule), "{refused}");
        }
    }
}
