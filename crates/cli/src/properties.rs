//! Properties from `-X key=value` and from files in Java's or kcat's format.

use std::io::ErrorKind;
use std::path::Path;

use crate::failure::{Failure, sentence};

/// Maximum size of a properties file; a larger one is probably another file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A property and its location, for messages.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Property {
    pub(crate) name: String,
    pub(crate) value: String,
    /// `file.properties:12`; `None` for the command line.
    pub(crate) at: Option<String>,
}

impl Property {
    /// The text of a problem with the property, with its location.
    pub(crate) fn located(&self, problem: &str) -> String {
        match &self.at {
            Some(at) => format!("{at}: {problem}"),
            None => format!("-X {}: {problem}", self.name),
        }
    }
}

/// Splits `key=value`, for `-X` and topic configs.
pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` does not have the form key=value")),
    }
}

/// The last value of each key, as `kafka-topics.sh --config` and `kafka-configs.sh --add-config` apply it.
pub(crate) fn last_of_each<V: Clone>(pairs: &[(String, V)]) -> Vec<(String, V)> {
    let mut last: Vec<(String, V)> = Vec::new();
    for (key, value) in pairs {
        last.retain(|(earlier, _)| earlier != key);
        last.push((key.clone(), value.clone()));
    }
    last
}

/// Reads a properties file.
pub(crate) fn read_file(path: &Path) -> Result<Vec<Property>, Failure> {
    let unreadable = |error: std::io::Error| {
        let (shown, reason) = (path.display(), sentence(&error));
        // In Kafka's tools, `--config` is the config of a topic.
        let is_pair =
            error.kind() == ErrorKind::NotFound && path.as_os_str().as_encoded_bytes().contains(&b'=');
        Failure::usage(if is_pair {
            format!(
                "{shown}: {reason}: --config is for a file; use --set {shown} for a topic's config, and -X for a property"
            )
        } else {
            format!("{shown}: {reason}")
        })
    };
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > FILE_BYTES_MAX {
        return Err(Failure::usage(format!(
            "{}: {size} bytes is too large for a properties file",
            path.display()
        )));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    parse(&text, &path.display().to_string()).map_err(Failure::Usage)
}

/// Parses `key=value`, and Java's `key: value`, `key value`, escapes, comments and continued lines.
fn parse(text: &str, file: &str) -> Result<Vec<Property>, String> {
    // Editors of Windows write a byte order mark, which would be a part of the first name.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut properties = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let mut line = line.trim_start().to_owned();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        // As in Java, a backslash before blanks at the end escapes the first of them, and does not continue the line.
        while ends_with_escape(&line) {
            line.pop();
            let Some((_, next)) = lines.next() else { break };
            line.push_str(next.trim_start());
        }
        let line = without_blanks_at_end(&line);
        let at = format!("{file}:{}", number + 1);
        let mut is_escaped = false;
        let split = line.find(|c: char| {
            let separates = !is_escaped && (c == '=' || c == ':' || c.is_whitespace());
            is_escaped = c == '\\' && !is_escaped;
            separates
        });
        let Some(split) = split else {
            return Err(format!("{at}: `{line}` does not have the form key=value"));
        };
        let (name, rest) = line.split_at(split);
        let rest = rest.trim_start();
        let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start();
        properties.push(Property { name: unescaped(name), value: unescaped(value), at: Some(at) });
    }
    Ok(properties)
}

/// Returns `true` for an odd number of backslashes at the end.
fn ends_with_escape(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Removes the blanks at the end of a line, except for one that is escaped.
fn without_blanks_at_end(line: &str) -> &str {
    let end = line.trim_end();
    match line[end.len()..].chars().next() {
        Some(blank) if ends_with_escape(end) => &line[..end.len() + blank.len_utf8()],
        Some(_) | None => end,
    }
}

/// Decodes the escapes that Java writes. Other backslashes stay, which patterns in kcat's files have.
fn unescaped(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        let (letter, bytes) = escape(after).unwrap_or(('\\', 0));
        decoded.push_str(before);
        decoded.push(letter);
        rest = &after[bytes..];
    }
    decoded + rest
}

/// The letter of an escape, and the number of its bytes after the backslash.
fn escape(after: &str) -> Option<(char, usize)> {
    let letter = match after.as_bytes().first()? {
        b't' => '\t',
        b'n' => '\n',
        b'r' => '\r',
        b'f' => '\u{c}',
        byte @ (b'\\' | b':' | b'=' | b'#' | b'!' | b' ') => char::from(*byte),
        b'u' => return utf16_escape(after),
        _ => return None,
    };
    Some((letter, 1))
}

/// The letter of `u00e9`, or of a pair of UTF-16 as in `ud83d\ude00`.
fn utf16_escape(after: &str) -> Option<(char, usize)> {
    let unit = |from: usize| {
        let digits = after.get(from..from + 4)?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if is_hex { u16::from_str_radix(digits, 16).ok() } else { None }
    };
    let first = unit(1)?;
    if let Some(letter) = char::from_u32(first.into()) {
        return Some((letter, 5));
    }
    let second = if after.get(5..7) == Some("\\u") { unit(7)? } else { return None };
    let letter = char::decode_utf16([first, second]).next()?.ok()?;
    Some((letter, 11))
}

/// The properties of `--config` and `-X`, in the order in which they apply.
pub(crate) fn collect(file: Option<&Path>, given: &[(String, String)]) -> Result<Vec<Property>, Failure> {
    let mut properties = file.map(read_file).transpose()?.unwrap_or_default();
    let given = given.iter().cloned().map(|(name, value)| Property { name, value, at: None });
    properties.extend(given);
    Ok(properties)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let properties = parse(text, "f").expect("valid");
        properties.into_iter().map(|property| (property.name, property.value)).collect()
    }

    #[test]
    fn java_and_kcat_files_are_read() {
        let text = "# a comment\n! another\n\nacks=all\nlinger.ms : 5\nclient.id me\n  group.id = g  \n\
                    bootstrap.servers=a:1,\\\n    b:2\n";
        let expected = [
            ("acks", "all"),
            ("linger.ms", "5"),
            ("client.id", "me"),
            ("group.id", "g"),
            ("bootstrap.servers", "a:1,b:2"),
        ];
        assert_eq!(pairs(text), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    /// The first name was unknown, and the message showed no difference.
    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert_eq!(pairs("\u{feff}acks=all\n"), [("acks".to_owned(), "all".to_owned())]);
        assert!(pairs("\u{feff}# a comment\n").is_empty());
    }

    /// A file that Java's `Properties.store` had written gave `host\:9092` as the server and a wrong password.
    #[test]
    fn escapes_are_decoded_as_java_does() {
        let text = "bootstrap.servers=host\\:9092\nsasl.password=a\\=b\\\\c\\!\\#\n\\u0061\\ b\\==\\ t\\t\\u00e9\n\
                    pair=\\ud83d\\ude00.\npattern=^a\\.b\\user\\ud83d\n";
        let expected = [
            ("bootstrap.servers", "host:9092"),
            ("sasl.password", "a=b\\c!#"),
            ("a b=", " t\té"),
            ("pair", "\u{1f600}."),
            ("pattern", "^a\\.b\\user\\ud83d"),
        ];
        assert_eq!(pairs(text), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    /// The next line became a part of the value, and its property was not set.
    #[test]
    fn a_backslash_before_blanks_does_not_continue_the_line() {
        let text = "sasl.password=secret\\ \nsasl.mechanism=PLAIN  \nclient.id=a\\\\ \t\ngroup.id=\\  \nacks=al\\\n  l\\ \n";
        let expected = [
            ("sasl.password", "secret "),
            ("sasl.mechanism", "PLAIN"),
            ("client.id", "a\\"),
            ("group.id", " "),
            ("acks", "all "),
        ];
        assert_eq!(pairs(text), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_line_without_a_value_is_named() {
        let error = parse("acks=all\nnonsense\n", "c.properties").expect_err("no separator");
        assert_eq!(error, "c.properties:2: `nonsense` does not have the form key=value");
    }

    #[test]
    fn the_last_value_of_a_key_applies() {
        let pairs = |pairs: &[(&str, i32)]| -> Vec<(String, i32)> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
        };
        let given = pairs(&[("a", 1), ("b", 2), ("a", 3)]);
        assert_eq!(last_of_each(&given), pairs(&[("b", 2), ("a", 3)]));
    }

    #[test]
    fn only_the_first_equals_sign_separates() {
        assert_eq!(key_value("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(key_value("=b").is_err());
        assert!(key_value("a").is_err());
    }
}
