//! Texts from brokers, clients and files, for terminals and logs.

use std::borrow::Cow;
use std::fmt::Write;

/// Escapes the control characters of a text from outside: it must not change the terminal, or look like several lines.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            letter if letter.is_control() => {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "\\x{:02x}", u32::from(letter));
            }
            letter => escaped.push(letter),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_other_letters_stay() {
        assert!(matches!(printable("größe \\ 1"), Cow::Borrowed("größe \\ 1")));
        assert_eq!(printable("a\u{1b}[2J\r\n\tb\u{7f}\u{9b}"), "a\\x1b[2J\\r\\n\\tb\\x7f\\x9b");
    }
}
