//! The texts with which librdkafka refuses a value of a property: programs, bindings and their tests compare them.

use std::iter::once;

use ottla_client::Error;
use ottla_client::properties::{Kind, Property};

use super::NotSet;
use super::property_names::{GLOBAL, TOPIC};

/// Properties of one of several words that are strings to librdkafka, which checks them with a function.
const CHECKED_STRINGS: &[&str] = &["broker.version.fallback", "partitioner", "sasl.mechanisms"];

/// Objects that only functions set. Their properties are internal to librdkafka, and others of that kind are not.
const INTERNAL: &[&str] = &["interceptors", "ssl_ca", "ssl_certificate", "ssl_key"];

/// A refusal by the engine. One that librdkafka makes as well has its text, others have the engine's.
pub(super) fn refused(property: &Property, value: &str, error: Error) -> NotSet {
    if property.accepts(value.trim()) {
        NotSet::invalid(error)
    } else {
        NotSet::Invalid(wrong(property, value))
    }
}

/// A function or an object that was given as text.
pub(super) fn pointer_as_text(property: &Property) -> NotSet {
    let name = name_of(property);
    NotSet::Invalid(if INTERNAL.contains(&name) {
        format!("Internal property \"{name}\" not settable")
    } else {
        format!("Property \"{name}\" must be set through dedicated .._set_..() function")
    })
}

/// No value for a property that has no empty one.
pub(super) fn empty(property: &Property) -> NotSet {
    let name = name_of(property);
    let kind = match property.kind {
        Kind::Choice(_) if CHECKED_STRINGS.contains(&name) => {
            return NotSet::Invalid(format!("Invalid value for configuration property \"{name}\": (null)"));
        }
        Kind::Bool => "Bool configuration",
        Kind::Int(..) => "Integer configuration",
        Kind::Choice(words) if is_number(words) => "Integer configuration",
        Kind::Float(..) => "Float configuration",
        _ => "Configuration",
    };
    NotSet::Invalid(format!("{kind} property \"{name}\" cannot be set to empty value"))
}

/// A flag, or one of several words, that the property does not have.
pub(super) fn wrong_word(property: &Property, word: &str) -> NotSet {
    NotSet::Invalid(format!("Invalid value \"{word}\" for configuration property \"{}\"", name_of(property)))
}

fn wrong(property: &Property, value: &str) -> String {
    let name = name_of(property);
    match property.kind {
        Kind::Bool => not_bool(name),
        Kind::Int(min, max) => match value.parse::<i64>() {
            Ok(number) => outside(name, &number.to_string(), &min.to_string(), &max.to_string()),
            Err(_) => not_number(name),
        },
        Kind::Float(min, max, _) => match value.parse::<f64>() {
            Ok(number) => outside(name, &general(number), &general(min), &general(max)),
            Err(_) => not_number(name),
        },
        Kind::Choice(words) if is_number(words) => match value.parse::<i64>() {
            Ok(number) => outside(name, &number.to_string(), "-1", "1000"),
            Err(_) => not_number(name),
        },
        Kind::Choice(_) if !CHECKED_STRINGS.contains(&name) => {
            format!("Invalid value \"{}\" for configuration property \"{name}\"", value.trim())
        }
        Kind::Flags(words) => {
            let mut flags = value.split(',').map(str::trim);
            let wrong = flags.find(|flag| !words.contains(flag)).unwrap_or(value);
            format!("Invalid value \"{wrong}\" for configuration property \"{name}\"")
        }
        _ => format!("Invalid value for configuration property \"{name}\": {}", value.trim_start()),
    }
}

/// Neither true nor false.
pub(super) fn not_bool(name: &str) -> String {
    format!("Expected bool value for \"{name}\": true or false")
}

/// A text where a number belongs.
pub(super) fn not_number(name: &str) -> String {
    format!("Invalid value for configuration property \"{name}\"")
}

/// Nothing where a number belongs.
pub(super) fn no_number(name: &str) -> String {
    format!("Integer configuration property \"{name}\" cannot be set to empty value")
}

/// A number that is out of range. The line end is librdkafka's.
pub(super) fn outside(name: &str, value: &str, min: &str, max: &str) -> String {
    format!("Configuration property \"{name}\" value {value} is outside allowed range {min}..{max}\n")
}

/// `acks` is a number, and one value has a name.
fn is_number(words: &[&str]) -> bool {
    words.contains(&"-1")
}

/// The name that librdkafka documents, which may be an alias here.
fn name_of(property: &Property) -> &'static str {
    let mut names = once(&property.name).chain(property.aliases);
    names.find(|name| GLOBAL.contains(name) || TOPIC.contains(name)).unwrap_or(&property.name)
}

/// C's `%g`: six digits, with an exponent where they are not enough.
fn general(number: f64) -> String {
    let shortened = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    let scientific = format!("{number:.5e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent @ -4..=5) => shortened(&format!("{number:.*}", (5 - exponent).unsigned_abs() as usize)),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", shortened(digits), exponent.abs())
        }
        // Infinity and NaN have no exponent.
        Err(_) => scientific,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_shown_as_c_shows_them() {
        for (number, shown) in [
            (0.0, "0"),
            (-1.0, "-1"),
            (900_000.0, "900000"),
            (1_000_000.0, "1e+06"),
            (-99_999_999_999_999.0, "-1e+14"),
            (0.25, "0.25"),
            (123.456_789, "123.457"),
            (0.000_01, "1e-05"),
        ] {
            assert_eq!(general(number), shown);
        }
    }
}
