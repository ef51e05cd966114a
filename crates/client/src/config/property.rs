//! One row of the property table, and its textual form.

use std::fmt;
use std::time::Duration;

use super::Config;

/// The configuration that accepts a property.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Scope {
    /// The configuration of a client.
    Global,
    /// The configuration of a topic; in a client's configuration, it is the default for its topics.
    Topic,
}

/// The kind of client that uses a property.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// Every client.
    All,
    /// Producers.
    Producer,
    /// Consumers.
    Consumer,
}

/// The values that a property accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// An integer from the first to the second.
    Int(i64, i64),
    /// A number from the first to the second, or the word in the third.
    Float(f64, f64, Option<&'static str>),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Several of these words, separated by commas.
    Flags(&'static [&'static str]),
    /// Any text.
    Text,
    /// Texts separated by commas.
    List,
    /// A function or object, which is set by a method and has no textual form.
    Pointer,
}

/// The importance of a property.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Importance {
    /// Often changed.
    High,
    /// Sometimes changed.
    Medium,
    /// Rarely changed.
    Low,
}

/// The effect of a property.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// The property changes the client's behaviour.
    Effective {
        /// The test that verifies it.
        test: &'static str,
    },
    /// The value is validated and stored, and has no effect.
    Accepted {
        /// The reason why no effect is needed.
        why: &'static str,
    },
    /// Only the default is accepted.
    Refused {
        /// The missing feature, or the alternative.
        why: &'static str,
    },
}

/// A value that fits its property's [`Kind`].
pub(super) enum Value<'a> {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
}

impl Value<'_> {
    pub(super) fn bool(&self) -> bool {
        matches!(self, Self::Bool(true))
    }

    pub(super) fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            Self::Float(number) => *number as i64,
            Self::Bool(_) | Self::Text(_) => 0,
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Bool(_) | Self::Int(_) | Self::Float(_) => "",
        }
    }

    /// The number as milliseconds.
    pub(super) fn duration(&self) -> Duration {
        match self {
            Self::Float(ms) => Duration::from_secs_f64(ms / 1000.0),
            Self::Int(_) | Self::Bool(_) | Self::Text(_) => Duration::from_millis(self.int() as u64),
        }
    }
}

/// The text that replaces a secret.
pub(super) const SECRET: &str = "[secret]";

/// The functions that set and read a property's field.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub(super) set: fn(&mut Config, &Value<'_>) -> Result<(), String>,
    pub(super) get: fn(&Config) -> String,
}

/// One property.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Property {
    /// The name that documentation uses.
    pub name: &'static str,
    /// Other names for it: librdkafka's older ones, and Java's where they differ.
    pub aliases: &'static [&'static str],
    /// The configuration that accepts it.
    pub scope: Scope,
    /// The client that uses it.
    pub role: Role,
    /// The values that it accepts.
    pub kind: Kind,
    /// The default in [`Config::default`].
    pub default: &'static str,
    /// The default in [`Config::librdkafka`].
    pub default_librdkafka: &'static str,
    /// Its importance.
    pub importance: Importance,
    /// Its effect and its cost.
    pub text: &'static str,
    /// The state of its implementation.
    pub state: State,
    /// `true` if the value must not be shown.
    pub secret: bool,
    pub(super) access: Option<Access>,
}

impl Property {
    const fn new(name: &'static str, kind: Kind, default: &'static str) -> Self {
        Self {
            name,
            aliases: &[],
            scope: Scope::Global,
            role: Role::All,
            kind,
            default,
            default_librdkafka: default,
            importance: Importance::Low,
            text: "",
            state: State::Refused { why: "" },
            secret: false,
            access: None,
        }
    }

    pub(super) const fn bool(name: &'static str, default: &'static str) -> Self {
        Self::new(name, Kind::Bool, default)
    }

    pub(super) const fn int(name: &'static str, min: i64, max: i64, default: &'static str) -> Self {
        Self::new(name, Kind::Int(min, max), default)
    }

    pub(super) const fn choice(
        name: &'static str,
        words: &'static [&'static str],
        default: &'static str,
    ) -> Self {
        Self::new(name, Kind::Choice(words), default)
    }

    pub(super) const fn flags(
        name: &'static str,
        words: &'static [&'static str],
        default: &'static str,
    ) -> Self {
        Self::new(name, Kind::Flags(words), default)
    }

    pub(super) const fn float(
        name: &'static str,
        min: f64,
        max: f64,
        word: Option<&'static str>,
        default: &'static str,
    ) -> Self {
        Self::new(name, Kind::Float(min, max, word), default)
    }

    pub(super) const fn string(name: &'static str, default: &'static str) -> Self {
        Self::new(name, Kind::Text, default)
    }

    pub(super) const fn list(name: &'static str, default: &'static str) -> Self {
        Self::new(name, Kind::List, default)
    }

    pub(super) const fn pointer(name: &'static str) -> Self {
        Self::new(name, Kind::Pointer, "")
    }

    pub(super) const fn alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    pub(super) const fn topic(mut self) -> Self {
        self.scope = Scope::Topic;
        self
    }

    pub(super) const fn producer(mut self) -> Self {
        self.role = Role::Producer;
        self
    }

    pub(super) const fn consumer(mut self) -> Self {
        self.role = Role::Consumer;
        self
    }

    pub(super) const fn high(mut self) -> Self {
        self.importance = Importance::High;
        self
    }

    pub(super) const fn medium(mut self) -> Self {
        self.importance = Importance::Medium;
        self
    }

    pub(super) const fn librdkafka(mut self, default: &'static str) -> Self {
        self.default_librdkafka = default;
        self
    }

    pub(super) const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    pub(super) const fn text(mut self, text: &'static str) -> Self {
        self.text = text;
        self
    }

    pub(super) const fn effective(mut self, test: &'static str, access: Access) -> Self {
        self.state = State::Effective { test };
        self.access = Some(access);
        self
    }

    /// For properties without a textual form: effective through a field or method that the text names.
    pub(super) const fn by_method(mut self, test: &'static str) -> Self {
        self.state = State::Effective { test };
        self
    }

    pub(super) const fn accepted(mut self, why: &'static str) -> Self {
        self.state = State::Accepted { why };
        self
    }

    pub(super) const fn refused(mut self, why: &'static str) -> Self {
        self.state = State::Refused { why };
        self
    }

    /// Returns `true` if `name` is its name or an alias.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// The accepted values, as text for users.
    pub fn range(&self) -> String {
        match self.kind {
            Kind::Bool => "true, false".into(),
            Kind::Int(min, max) => format!("{min} to {max}"),
            Kind::Float(min, max, None) => format!("{min} to {max}, fractions allowed"),
            Kind::Float(min, max, Some(word)) => format!("{min} to {max}, fractions allowed, or {word}"),
            Kind::Choice(words) | Kind::Flags(words) => words.join(", "),
            Kind::Text => "text".into(),
            Kind::List => "texts, separated by commas".into(),
            Kind::Pointer => "a function or object".into(),
        }
    }

    /// Returns `true` if `text` is a value of its kind and within its range. A value can still be refused: because it does not
    /// fit other properties, or because the property is [`State::Refused`].
    pub fn accepts(&self, text: &str) -> bool {
        self.parse(text).is_ok()
    }

    /// Parses `text` into a value, or returns the error message.
    pub(super) fn parse<'a>(&self, text: &'a str) -> Result<Value<'a>, String> {
        match self.kind {
            Kind::Bool if ["true", "t", "1"].iter().any(|word| text.eq_ignore_ascii_case(word)) => {
                Ok(Value::Bool(true))
            }
            Kind::Bool if ["false", "f", "0"].iter().any(|word| text.eq_ignore_ascii_case(word)) => {
                Ok(Value::Bool(false))
            }
            Kind::Bool => Err("neither true nor false".into()),
            Kind::Int(min, max) => {
                let number: i64 = text.parse().map_err(|_| "not a whole number".to_owned())?;
                let inside = (min..=max).contains(&number);
                inside.then_some(Value::Int(number)).ok_or_else(|| format!("outside {min} to {max}"))
            }
            Kind::Float(_, _, Some(word)) if text == word => Ok(Value::Text(word)),
            Kind::Float(min, max, _) => {
                let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
                let inside = (min..=max).contains(&number);
                inside.then_some(Value::Float(number)).ok_or_else(|| format!("outside {min} to {max}"))
            }
            Kind::Choice(words) => words
                .iter()
                .find_map(|word| match word.split_once(':') {
                    // The rest of the text is an example.
                    Some((head, _)) => text.split_once(':').filter(|(given, _)| *given == head).map(|_| text),
                    None => word.eq_ignore_ascii_case(text).then_some(*word),
                })
                .map(Value::Text)
                .ok_or_else(|| format!("not one of {}", words.join(", "))),
            Kind::Flags(words) => {
                let given = text.split(',').map(str::trim).filter(|flag| !flag.is_empty());
                match given.into_iter().find(|flag| !words.contains(flag)) {
                    Some(flag) => Err(format!("`{flag}` is not one of {}", words.join(", "))),
                    None => Ok(Value::Text(text)),
                }
            }
            Kind::Text | Kind::List => Ok(Value::Text(text)),
            Kind::Pointer => Err(format!("it has no textual form. {}", self.text)),
        }
    }
}

impl fmt::Debug for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Property")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// The access to a Boolean field: `flag!(net.keepalive)`.
macro_rules! flag {
    ($($field:ident).+) => {
        crate::config::property::Access {
            set: |config, value| {
                config.$($field).+ = value.bool();
                Ok(())
            },
            get: |config| config.$($field).+.to_string(),
        }
    };
}

/// The access to a number.
macro_rules! number {
    ($($field:ident).+) => {
        crate::config::property::Access {
            set: |config, value| {
                config.$($field).+ = value.int() as _;
                Ok(())
            },
            get: |config| config.$($field).+.to_string(),
        }
    };
}

/// The access to a duration in seconds.
macro_rules! seconds {
    ($($field:ident).+) => {
        crate::config::property::Access {
            set: |config, value| {
                config.$($field).+ = std::time::Duration::from_secs(value.int() as u64);
                Ok(())
            },
            get: |config| config.$($field).+.as_secs().to_string(),
        }
    };
}

/// The access to a duration in milliseconds.
macro_rules! millis {
    ($($field:ident).+) => {
        crate::config::property::Access {
            set: |config, value| {
                config.$($field).+ = value.duration();
                Ok(())
            },
            get: |config| config.$($field).+.as_millis().to_string(),
        }
    };
}

/// The access to a duration in milliseconds where 0 means "never".
macro_rules! millis_or_never {
    ($($field:ident).+) => {
        crate::config::property::Access {
            set: |config, value| {
                let duration = value.duration();
                config.$($field).+ = if duration.is_zero() { crate::config::NEVER } else { duration };
                Ok(())
            },
            get: |config| {
                let duration = config.$($field).+;
                if duration >= crate::config::NEVER { "0".into() } else { duration.as_millis().to_string() }
            },
        }
    };
}

/// The access to a duration in milliseconds where 0 means none.
macro_rules! millis_or_none {
    ($($field:ident).+) => {
        crate::config::property::Access {
            set: |config, value| {
                config.$($field).+ = Some(value.duration()).filter(|duration| !duration.is_zero());
                Ok(())
            },
            get: |config| config.$($field).+.map_or(0, |duration| duration.as_millis()).to_string(),
        }
    };
}

/// The access to a text.
macro_rules! string {
    ($($field:ident).+) => {
        crate::config::property::Access {
            set: |config, value| {
                value.text().clone_into(&mut config.$($field).+);
                Ok(())
            },
            get: |config| config.$($field).+.clone(),
        }
    };
}

/// The access to an optional text; an empty one is `None`.
macro_rules! optional_string {
    ($($field:ident).+) => {
        crate::config::property::Access {
            set: |config, value| {
                config.$($field).+ = Some(value.text().to_owned()).filter(|text| !text.is_empty());
                Ok(())
            },
            get: |config| config.$($field).+.clone().unwrap_or_default(),
        }
    };
}

/// The access to an optional path; an empty one is `None`.
macro_rules! optional_path {
    ($($field:ident).+) => {
        crate::config::property::Access {
            set: |config, value| {
                let path = Some(value.text()).filter(|text| !text.is_empty());
                config.$($field).+ = path.map(std::path::PathBuf::from);
                Ok(())
            },
            get: |config| {
                let path = config.$($field).+.as_deref();
                path.map(|path| path.display().to_string()).unwrap_or_default()
            },
        }
    };
}

/// The access to a secret; an empty one is `None`, and none is read back.
macro_rules! secret {
    ($($field:ident).+) => {
        crate::config::property::Access {
            set: |config, value| {
                let text = Some(value.text()).filter(|text| !text.is_empty());
                config.$($field).+ = text.map(crate::security::Secret::new);
                Ok(())
            },
            get: |config| {
                let set = config.$($field).+.as_ref().is_some_and(|secret| !secret.is_empty());
                if set { crate::config::property::SECRET.into() } else { String::new() }
            },
        }
    };
}

/// The access to a choice: an array of the words, each with its value.
macro_rules! choice {
    ($($field:ident).+, $words:expr) => {
        crate::config::property::Access {
            set: |config, value| {
                let named = $words.into_iter().find(|(word, _)| *word == value.text());
                if let Some((_, chosen)) = named {
                    config.$($field).+ = chosen;
                }
                Ok(())
            },
            get: |config| {
                let is = $words.into_iter().find(|(_, value)| *value == config.$($field).+);
                is.map(|(word, _)| word.to_owned()).unwrap_or_default()
            },
        }
    };
}

pub(super) use {
    choice, flag, millis, millis_or_never, millis_or_none, number, optional_path, optional_string, seconds,
    secret, string,
};
