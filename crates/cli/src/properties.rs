//! Properties from `-X key=value` and from files in Java's or kcat's format.

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

/// Splits `key=value`, for `-X`, `--header` and topic configs.
pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` does not have the form key=value")),
    }
}

/// Reads a properties file.
pub(crate) fn read_file(path: &Path) -> Result<Vec<Property>, Failure> {
    let unreadable =
        |error: std::io::Error| Failure::usage(format!("{}: {}", path.display(), sentence(&error)));
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

/// Parses `key=value`, and Java's `key: value`, `key value`, comments and continued lines.
fn parse(text: &str, file: &str) -> Result<Vec<Property>, String> {
    let mut properties = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let mut line = line.trim().to_owned();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        // An odd number of backslashes at the end continues the line.
        while line.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1 {
            line.pop();
            let Some((_, next)) = lines.next() else { break };
            line.push_str(next.trim());
        }
        let at = format!("{file}:{}", number + 1);
        let Some(split) = line.find(|c: char| c == '=' || c == ':' || c.is_whitespace()) else {
            return Err(format!("{at}: `{line}` does not have the form key=value"));
        };
        let (name, rest) = line.split_at(split);
        let rest = rest.trim_start();
        let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim();
        properties.push(Property { name: name.to_owned(), value: value.to_owned(), at: Some(at) });
    }
    Ok(properties)
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

    #[test]
    fn a_line_without_a_value_is_named() {
        let error = parse("acks=all\nnonsense\n", "c.properties").expect_err("no separator");
        assert_eq!(error, "c.properties:2: `nonsense` does not have the form key=value");
    }

    #[test]
    fn only_the_first_equals_sign_separates() {
        assert_eq!(key_value("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(key_value("=b").is_err());
        assert!(key_value("a").is_err());
    }
}
