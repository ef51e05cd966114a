//! The table of properties: names, ranges, defaults, texts and setters. The command line's `-X`, property files, the
//! documents and the C interface use it.

use super::property::{Access, SECRET, Value};
pub use super::property::{Importance, Kind, Property, Role, Scope, State};
use super::table::GROUPS;
use super::{Config, Defaults, java};
use crate::error::Error;

/// The groups of properties, with their titles.
pub fn groups() -> impl Iterator<Item = (&'static str, &'static [Property])> {
    GROUPS.iter().copied()
}

/// All properties.
pub fn all() -> impl Iterator<Item = &'static Property> {
    GROUPS.iter().flat_map(|(_, rows)| *rows)
}

/// The property with this name or alias; if a client and a topic property share it, the client's.
pub fn find(name: &str) -> Option<&'static Property> {
    find_in(Scope::Global, name).or_else(|| find_in(Scope::Topic, name))
}

/// The property with this name or alias in the configuration of a client, or of a topic.
pub fn find_in(scope: Scope, name: &str) -> Option<&'static Property> {
    all().find(|property| property.scope == scope && property.is_called(name))
}

/// [`find`], with an error for an unknown name.
pub(super) fn known(name: &str) -> Result<&'static Property, Error> {
    find(name).ok_or_else(|| unknown(name))
}

/// The error for an unknown name, with the counterpart of Java's property or with the most similar name.
pub(super) fn unknown(name: &str) -> Error {
    if let Some(instead) = java::instead_of(name) {
        return Error::Config(format!(
            "`{name}` is a property of Java's client that this one does not have: {instead}"
        ));
    }
    let hint = nearest(name).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Error::Config(format!("no property is called `{name}`{hint}"))
}

/// Sets a property that [`known`] found; `name` is the name that the caller used.
pub(super) fn set(
    config: &mut Config,
    property: &'static Property,
    name: &str,
    text: &str,
) -> Result<(), Error> {
    // A password may end with a space.
    let text = if property.secret { text } else { text.trim() };
    let shown = if property.secret { SECRET } else { text };
    let refuse = |reason: String| {
        if property.kind == Kind::Pointer {
            return Err(Error::Config(format!("{name}: {reason}")));
        }
        let range = property.range();
        // Most reasons have the range.
        let takes = if reason.contains(&range) { String::new() } else { format!("; it takes {range}") };
        Err(Error::Config(format!("{name}=`{shown}`: {reason}{takes}")))
    };
    let parsed = property.parse(text);
    if let State::Refused { why } = property.state {
        return match parsed {
            _ if is_default(property, text) => {
                config.given.insert(property.name, text.to_owned());
                Ok(())
            }
            Err(reason) if property.kind != Kind::Pointer => refuse(reason),
            _ => Err(Error::Config(format!("{name}=`{shown}` is refused: {why}"))),
        };
    }
    let value = match parsed {
        Ok(value) => value,
        Err(reason) => return refuse(reason),
    };
    match property.access {
        Some(Access { set, .. }) => {
            if let Err(reason) = set(config, &value) {
                // The value is within the range.
                return Err(Error::Config(format!("{name}=`{shown}`: {reason}")));
            }
            config.given.insert(property.name, String::new());
        }
        None => {
            config.given.insert(property.name, canonical(&value, text));
        }
    }
    Ok(())
}

/// The value of a property, as a string that [`set`] accepts.
pub(super) fn get(config: &Config, property: &Property) -> String {
    match (property.access, config.given.get(property.name)) {
        (Some(Access { get, .. }), _) => get(config),
        (None, Some(given)) => given.to_owned(),
        (None, None) => default_of(property, config.defaults).to_owned(),
    }
}

/// The default of a property, native or librdkafka's.
pub(super) fn default_of(property: &Property, defaults: Defaults) -> &'static str {
    match defaults {
        Defaults::Native => property.default,
        Defaults::Librdkafka => property.default_librdkafka,
    }
}

fn is_default(property: &Property, text: &str) -> bool {
    let given = property.parse(text).map_or_else(|_| text.to_owned(), |value| canonical(&value, text));
    [property.default, property.default_librdkafka].iter().any(|default| given == *default)
}

fn canonical(value: &Value<'_>, text: &str) -> String {
    match value {
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Float(_) => text.to_owned(),
        Value::Text(text) => (*text).to_owned(),
    }
}

/// The known name with the smallest edit distance from `name`, if it is small.
fn nearest(name: &str) -> Option<&'static str> {
    let edits_max = (name.len() / 3).clamp(2, 8);
    all()
        .flat_map(|property| std::iter::once(&property.name).chain(property.aliases))
        .map(|candidate| (edits(name.as_bytes(), candidate.as_bytes()), *candidate))
        .min()
        .filter(|(edits, _)| *edits <= edits_max)
        .map(|(_, candidate)| candidate)
}

/// The Levenshtein distance.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
